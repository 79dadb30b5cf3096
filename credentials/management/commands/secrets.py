"""`manage.py secrets`: intents by state and age, and Vault's own listing against the ledger."""

from __future__ import annotations

import json as jsons
import sys
from argparse import ArgumentParser
from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from credentials import account, config
from credentials.access import install_access, issue_approle_login
from credentials.errors import CredentialError
from credentials.vault import session_for

ROWS_MAX = 50
COUNTED = ("owned", "emptied", "unaccounted", "leftover", "missing")


class Command(BaseCommand):
    help = "List credential intents by state and age, and compare what Vault lists with the ledger."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--destroy", action="store_true", help="destroy secrets that nobody owns")
        parser.add_argument("--json", action="store_true", help="one line of JSON on stdout")
        parser.add_argument(
            "--install", action="store_true", help="install Remora's policies, roles and AppRole in Vault"
        )
        parser.add_argument("--login", action="store_true", help="with --install: print a new AppRole login")

    def handle(self, *args: Any, destroy: bool, json: bool, install: bool, **options: Any) -> None:
        if install:
            self._install(json, options["login"])
            return
        answer: dict[str, Any] = {
            "intents": {
                row.state: {"count": row.count, "oldest_s": round(row.oldest_s, 1)}
                for row in account.intents_by_state()
            },
            "open": [_intent(row) for row in account.open_intents(ROWS_MAX)],
            "destroyed": 0,
            "vault": None,
            "trouble": "",
        }
        balanced = False
        try:
            secrets = config.secret_store()
            found = account.take_account(secrets)
            if destroy:
                answer["destroyed"] = account.destroy_orphans(secrets, found)
                found = account.take_account(secrets)
            answer["vault"], balanced = found.as_dict(), found.balanced
        except CredentialError as error:
            answer["trouble"] = str(error)
        except account.ForeignLedger:
            answer["trouble"] = (
                "this ledger has never known a path: it does not belong to what Vault holds here"
            )
        self._print(answer, json)
        if not balanced or answer["trouble"]:
            sys.exit(1)

    def _print(self, answer: dict[str, Any], as_json: bool) -> None:
        if as_json:
            self.stdout.write(jsons.dumps(answer))
            return
        for state, row in answer["intents"].items():
            self.stdout.write(f"{state:30} {row['count']:8}   longest unmoved {row['oldest_s']:.0f} s")
        for row in answer["open"]:
            why = f"   {row['why']}" if row["why"] else ""
            self.stdout.write(f"  {row['state']:28} {row['owner']} {row['name']}   {row['age_s']:.0f} s{why}")
        if found := answer["vault"]:
            counts = ", ".join(f"{found[kind]} {kind}" for kind in COUNTED)
            self.stdout.write(f"In Vault: {counts}; {answer['destroyed']} destroyed now")
            for kind, paths in found["paths"].items():
                for path in paths[:ROWS_MAX]:
                    self.stdout.write(f"  {kind}: {path}")
        if answer["trouble"]:
            self.stderr.write(answer["trouble"])

    def _install(self, as_json: bool, with_login: bool) -> None:
        """As an administrator: with VAULT_TOKEN, also where an AppRole is set. A login is printed once."""
        admin, plan = session_for(replace(config.vault_config(), role_id="")), config.access_plan()
        try:
            install_access(admin, plan)
            login = issue_approle_login(admin, plan) if with_login else None
        except CredentialError as error:
            raise CommandError(str(error)) from None
        shown: dict[str, Any] = {"installed": plan.name}
        if login is not None:
            shown |= {"VAULT_ROLE_ID": login.role_id, "VAULT_SECRET_ID": login.secret_id.reveal()}
        lines = "\n".join(f"{name}={value}" for name, value in shown.items())
        self.stdout.write(jsons.dumps(shown) if as_json else lines)


def _intent(row: Any) -> dict[str, Any]:
    return {
        "id": str(row.pk),
        "owner": row.owner,
        "name": row.name,
        "state": row.state,
        "tries": row.tries,
        "age_s": round((row.now - row.touched_at).total_seconds(), 1),
        "why": row.why,
    }
