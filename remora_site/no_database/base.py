"""PostgreSQL's backend in all but one thing: connecting says what to do."""

from typing import Any

from django.db.backends.postgresql.base import DatabaseWrapper as PostgresWrapper
from django.db.utils import OperationalError

WHAT_TO_DO = "No database yet: run `python manage.py stack up`, or set DATABASE_URL."


class DatabaseWrapper(PostgresWrapper):
    def get_connection_params(self) -> dict[str, Any]:
        return {}

    def get_new_connection(self, conn_params: Any) -> Any:
        raise OperationalError(WHAT_TO_DO)
