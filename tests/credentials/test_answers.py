"""What Vault, or something in front of it, may answer: each is a typed error, and none leads back to what
was sent.
"""

from __future__ import annotations

import socket
import traceback

import pytest
from django.conf import settings

from credentials.errors import (
    VaultError,
    VaultExpiredToken,
    VaultMisconfigured,
    VaultRateLimited,
    VaultRefused,
    VaultSealed,
    VaultStandby,
    VaultUnavailable,
)
from credentials.ids import new_path
from credentials.secret import Secret
from credentials.vault import VaultConfig, VaultSession
from tests.credentials.conftest import CANARY, Vault
from tests.credentials.relay import Relay, http_answer

ANSWERS = [
    (http_answer(429, '{"errors":["rate limit quota exceeded"]}', "Retry-After: 7"), VaultRateLimited),
    (http_answer(473, "{}"), VaultStandby),
    (http_answer(472, "{}"), VaultStandby),
    (http_answer(307, "", "Location: http://127.0.0.1:1/v1/x"), VaultStandby),
    (
        http_answer(500, '{"errors":["local node not active but active cluster node not found"]}'),
        VaultStandby,
    ),
    (http_answer(503, '{"errors":["Vault is sealed"]}'), VaultSealed),
    (http_answer(501, '{"errors":["not initialized"]}'), VaultSealed),
    (http_answer(500, '{"errors":["internal error"]}'), VaultUnavailable),
    (http_answer(502, "<html>bad gateway</html>"), VaultUnavailable),
    (http_answer(503, ""), VaultUnavailable),
    (http_answer(412, "{}"), VaultUnavailable),
    (http_answer(200, "<html>sign in to the hotel</html>"), VaultUnavailable),
    (http_answer(400, '{"errors":["wrong"]}'), VaultRefused),
    (http_answer(405, "{}"), VaultRefused),
    (http_answer(302, "", "Location: /elsewhere"), VaultStandby),
    (b"not http at all\r\n\r\n", VaultUnavailable),
]


@pytest.mark.parametrize(("answer", "error"), ANSWERS, ids=lambda value: str(value)[:24])
def test_every_answer_has_its_class(
    vault: Vault, relay: Relay, answer: bytes, error: type[VaultError]
) -> None:
    secrets = vault.through(relay).secrets
    secrets.paths()
    relay.next("answer", "POST", "/auth/token/create/", answer)
    with pytest.raises(error) as raised:
        secrets.write_token(60)
    assert type(raised.value) is error
    if error is VaultRateLimited:
        assert raised.value.retry_after_s == 7


def test_a_vault_that_is_not_there_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    session = VaultSession(VaultConfig(f"http://127.0.0.1:{port}", token=Secret("x")))
    with pytest.raises(VaultUnavailable):
        session.call("get", "sys/health", "health")
    assert isinstance(session.condition(), VaultUnavailable)


@pytest.mark.parametrize("addr", ["", "no scheme", "ftp://h", "http://[::1", "http://u:p@127.0.0.1:1"])
def test_an_address_that_is_none_is_said_to_be_so_without_showing_it(addr: str) -> None:
    session = VaultSession(VaultConfig(addr, token=Secret(CANARY)))
    with pytest.raises((VaultMisconfigured, VaultUnavailable)) as raised:
        session.call("get", "sys/health", "health")
    assert "u:p" not in str(raised.value)


def test_a_token_that_no_header_can_carry_is_not_quoted() -> None:
    for token in (f"{CANARY}\n", f"{CANARY}é☃"):
        session = VaultSession(VaultConfig(settings.VAULT_ADDR, token=Secret(token)))
        with pytest.raises((VaultMisconfigured, VaultExpiredToken)) as raised:
            session.call("get", "sys/health", "health")
        assert CANARY not in "".join(traceback.format_exception(raised.value))


def test_a_redirect_is_not_followed_and_takes_no_token_along(vault: Vault, relay: Relay) -> None:
    elsewhere = Relay(settings.VAULT_ADDR)
    secrets = vault.through(relay).secrets
    secrets.paths()
    answer = http_answer(307, "", f"Location: {elsewhere.addr}/v1/x")
    relay.next("answer", "POST", "/auth/token/create/", answer)
    with pytest.raises(VaultStandby):
        secrets.write_token(60)
    assert elsewhere.seen == []
    elsewhere.close()


@pytest.mark.parametrize(
    "fault",
    [
        ("cut", b""),
        ("lose", b""),
        ("answer", http_answer(500, f'{{"errors":["{CANARY}-echo"]}}', f"X-Echo: {CANARY}-echo")),
        ("answer", http_answer(403, f'{{"errors":["permission denied for {CANARY}-echo"]}}')),
        ("answer", http_answer(400, f"{CANARY}-echo")),
        ("answer", http_answer(307, "", f"Location: http://h/?token={CANARY}-echo")),
        ("answer", f"HTTP/1.1 {CANARY}-echo\r\n\r\n".encode()),
    ],
)
def test_no_error_leads_back_to_material_token_or_answer(
    vault: Vault, relay: Relay, fault: tuple[str, bytes]
) -> None:
    """Neither its text nor any exception in its chain, nor a variable of a frame in a traceback of that
    chain.
    """
    secrets = vault.through(relay).secrets
    token = secrets.write_token(60)
    relay.next(fault[0], "POST", "/data/", fault[1])
    with pytest.raises(VaultError) as raised:
        secrets.write(new_path(), {"value": Secret(f"{CANARY}-material")}, token)
    texts = ["".join(traceback.format_exception(raised.value)), repr(raised.value), repr(vars(raised.value))]
    at: BaseException | None = raised.value
    while at is not None:
        for frame, _ in traceback.walk_tb(at.__traceback__):
            if "/tests/" not in frame.f_code.co_filename:
                texts += [repr(value) for value in frame.f_locals.values()]
        at = at.__cause__ or at.__context__
    shown = "\n".join(texts)
    assert CANARY not in shown
    assert token.token.reveal() not in shown
