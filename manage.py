#!/usr/bin/env python
"""Remora's command line: `python manage.py help` lists what it can do."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "remora_site.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise SystemExit(f"{error}. Run `make setup`, then use .venv/bin/python manage.py.") from error
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
