"""Material is seen nowhere: not in PostgreSQL, logs at DEBUG, tracebacks, answers, nor OpenBao's own audit
log.
"""

from __future__ import annotations

import io
import json
import logging
import subprocess
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from credentials import versions
from credentials.errors import CredentialConflict, CredentialError
from credentials.ids import new_path
from credentials.models import CredentialEvent
from credentials.secret import Secret
from tests.credentials.conftest import CANARY, Vault
from tests.credentials.relay import Relay, http_answer
from tests.credentials.world import Stopped, raising_at, settle

pytestmark = pytest.mark.django_db(transaction=True)

JOB, FIRST, SECOND, LATE = (Secret(f"{CANARY}-{word}-d41e") for word in ("job", "first", "second", "late"))


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that any library logs at DEBUG, as it comes, without the project's scrubbing formatter."""
    stream, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(args)s"))
    level, noisy = root.level, [logging.getLogger(name) for name in ("django.db.backends", "urllib3", "hvac")]
    listeners = (root, logging.getLogger("django"))  # which does not hand on what it hears
    for logger in listeners:
        logger.addHandler(handler)
    for logger in (root, *noisy):
        logger.setLevel(logging.DEBUG)
    connection.force_debug_cursor = True
    yield stream
    connection.force_debug_cursor = False
    for logger in listeners:
        logger.removeHandler(handler)
    root.setLevel(level)
    for logger in noisy:
        logger.setLevel(logging.NOTSET)


def everything_in_the_database() -> str:
    """Each row of each table, as text."""
    texts = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT string_agg(t::text, chr(10)) FROM "{table}" t')  # noqa: S608
            texts.append(str(cursor.fetchone()[0]))
    return "\n".join(texts)


def live_through_it(vault: Vault, relay: Relay) -> list[str]:
    """Every kind of thing that happens to material, good and bad; the texts of all errors on the way."""
    failing, texts = vault.through(relay, answer_ms=500), []

    def failed(error: BaseException) -> None:
        texts.extend([str(error), repr(error), "".join(traceback.format_exception(error))])

    service = vault.service()
    service.commit(service.keep_secrets("job:1", {"token": JOB}))
    service.create_connection("source", "http", {}, {"username": Secret("u"), "password": FIRST})
    versions.pin_versions("job:1", ["source"])
    service.rotate_connection("source", {"username": Secret("u"), "password": SECOND})
    grants = vault.grants()
    tokens = grants.issue_read_token("job:1", "attempt:1", 60)
    assert grants.read_secret(tokens, "token") == JOB
    echo = http_answer(500, json.dumps({"errors": [JOB.reveal(), "Authorization: Bearer " + JOB.reveal()]}))
    for fault in (("lose", b""), ("cut", b""), ("hold", b""), ("answer", echo)):
        relay.next(fault[0], "POST", "/data/", fault[1])
        try:
            failing.service().keep_secrets("job:2", {"token": LATE})
        except CredentialError as error:
            failed(error)
    try:
        service.rotate_connection("source", {"username": Secret("u"), "password": LATE}, expected_number=1)
    except CredentialConflict as error:
        failed(error)
    try:
        vault.service(raising_at("after CompleteCredentialWrite")).keep_secrets("job:3", {"token": LATE})
    except Stopped as error:
        failed(error)
    try:
        vault.secrets.write(new_path(), {"value": LATE}, vault.secrets.write_token(60))
        vault.secrets.session.call("post", "no/such/place", "mistake", {"value": LATE})
    except CredentialError as error:
        failed(error)
    relay.next("answer", "GET", "/data/", echo)
    try:
        failing.grants().read_secret(tokens, "token")
    except CredentialError as error:
        failed(error)
    grants.revoke(["attempt:1"])
    service.retire_connection("source")
    service.release_owner("job:1")
    versions.unpin(["job:1"])
    texts.extend(str(one.as_dict()) for one in [vault.reconciler().reconcile_credentials()])
    return texts


def test_no_material_is_seen_anywhere(vault: Vault, relay: Relay, logged: io.StringIO) -> None:
    texts = live_through_it(vault, relay)
    assert len(texts) > 6, "errors did happen"
    assert logged.getvalue().count("urllib3") > 10, "DEBUG was on"
    assert "INSERT INTO" in logged.getvalue()
    texts += [everything_in_the_database(), logged.getvalue()]
    out = io.StringIO()
    call_command("dumpdata", "credentials", stdout=out)
    texts.append(out.getvalue())
    events = [str(event) + json.dumps(event.params) for event in CredentialEvent.objects.all()]
    found = [text[max(0, text.find(CANARY) - 200) :][:400] for text in [*texts, *events] if CANARY in text]
    assert found == []


def test_openbaos_audit_log_holds_no_plain_material(vault: Vault) -> None:
    log = Path(settings.REMORA_HOME) / "openbao" / "audit.log"
    service = vault.service()
    service.commit(service.keep_secrets("job:1", {"token": JOB}))
    grants = vault.grants()
    grants.read_secret(grants.issue_read_token("job:1", "attempt:1", 60), "token")
    path = service.secrets.paths()[0]
    written = log.read_text()
    assert path in written, "the device is on, and saw this write"
    assert "hmac-sha256:" in written
    assert CANARY not in written


def test_no_process_shows_material_in_its_arguments_or_environment(vault: Vault) -> None:
    service = vault.service()
    service.commit(service.keep_secrets("job:1", {"token": JOB}))
    shown = b""
    for process in Path("/proc").glob("[0-9]*"):
        for file in ("cmdline", "environ"):
            try:
                shown += (process / file).read_bytes()
            except OSError:  # gone meanwhile, or another user's
                continue
    assert b"python" in shown
    assert CANARY.encode() not in shown


def test_a_dump_of_the_whole_database_holds_no_material(vault: Vault) -> None:
    service = vault.service()
    service.commit(service.keep_secrets("job:1", {"token": JOB}))
    settle(vault)
    with connection.cursor() as cursor:
        cursor.execute("SELECT setting FROM pg_config() WHERE name = 'BINDIR'")
        (directory,) = cursor.fetchone()
    program = Path(directory) / "pg_dump"
    server, name = connection.settings_dict, connection.settings_dict["NAME"]
    address = [f"--host={server['HOST']}", f"--port={server['PORT']}", f"--username={server['USER']}"]
    done = subprocess.run(
        [str(program), *address, "--no-password", name],
        capture_output=True,
        check=True,
        env={"PGPASSWORD": server["PASSWORD"], "PGSSLMODE": "prefer"},
    )
    assert b"credentials_credentialintent" in done.stdout
    assert CANARY.encode() not in done.stdout
