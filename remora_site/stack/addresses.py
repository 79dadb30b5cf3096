"""Where the embedded services are: the one file that `stack up` writes and settings read. No Django here."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
FILE_NAME = "stack.json"


@dataclass(frozen=True, slots=True)
class Addresses:
    """What a process needs to know to use the stack; empty where a service is not known."""

    database_url: str = ""
    redis_url: str = ""
    vault_addr: str = ""
    vault_token: str = ""
    vault_role_id: str = ""
    vault_secret_id: str = ""

    def variables(self) -> dict[str, str]:
        """The same as environment variables, those that are known."""
        named = {
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "VAULT_ADDR": self.vault_addr,
            "VAULT_TOKEN": self.vault_token,
            "VAULT_ROLE_ID": self.vault_role_id,
            "VAULT_SECRET_ID": self.vault_secret_id,
        }
        return {name: value for name, value in named.items() if value}


def remora_home() -> Path:
    """Where everything of this deployment outside the stores lives; relative means inside the checkout."""
    return (PROJECT / (os.environ.get("REMORA_HOME") or ".remora")).resolve()


def read_addresses(home: Path) -> Addresses:
    """What `stack up` wrote last; nothing if it never ran, or if this user may not read it."""
    try:
        written = json.loads((home / FILE_NAME).read_text())
    except (FileNotFoundError, PermissionError, NotADirectoryError, json.JSONDecodeError):
        return Addresses()
    known = {field: str(written.get(field, "")) for field in Addresses.__slots__}
    return Addresses(**known)
