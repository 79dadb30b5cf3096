"""The embedded stack: real PostgreSQL, Redis and OpenBao for development and tests.

Each service is a daemon of its own under $REMORA_HOME, on a free port of 127.0.0.1, with a password made at
its first start. Nothing here is used where the services are given by DATABASE_URL, REDIS_URL and VAULT_ADDR.
No Django in this package: it must work before the settings can know any address.
"""

from remora_site.stack.addresses import Addresses, read_addresses, remora_home
from remora_site.stack.control import ServiceReport, down, status, up
from remora_site.stack.service import StackFailure

__all__ = (
    "Addresses",
    "ServiceReport",
    "StackFailure",
    "down",
    "read_addresses",
    "remora_home",
    "status",
    "up",
)
