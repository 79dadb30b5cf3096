# Remora. Everything below needs only Python 3.11+ and make; `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MANAGE := $(BIN)/python manage.py
REQUIREMENTS := requirements.txt tests/requirements.txt
# Installed again when a requirement file changes, and never otherwise.
STAMP = $(VENV)/installed-$(shell cat $(REQUIREMENTS) | cksum | tr -s ' ' '-')
WORKERS ?= 3
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup test demo up lint fmt browser clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(STAMP)  ## make .venv and install everything into it

$(STAMP): $(REQUIREMENTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Remora needs Python 3.11 or later; $(PYTHON) is `$(PYTHON) --version`. Try make PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "No virtual environment could be made: on Debian, install python3-venv." >&2; rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -r tests/requirements.txt
	@rm -f $(VENV)/installed-*
	@touch $@

test: setup lint browser  ## everything: lint, types, import contracts, and all tests against real servers
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

demo: setup  ## a transfer whose worker is killed half-way, from nothing to the account, then everything stopped
	$(MANAGE) demo

up: setup  ## the whole of Remora in the foreground: servers, web, beat, workers; prints address and login
	$(MANAGE) up

lint: setup  ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: setup  ## let ruff fix and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

browser: setup
	@$(BIN)/python -m tests.browser_setup

clean:  ## stop the embedded servers; remove them, the virtual environment and caches
	@test ! -x $(BIN)/python || $(MANAGE) stack down
	rm -rf $(VENV) .remora .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis staticfiles
