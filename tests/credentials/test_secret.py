"""Material does not show itself, and texts that libraries make are rid of what they quote."""

from __future__ import annotations

import base64
import copy
import json
import logging
import pickle
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
import requests
from django.core.serializers.json import DjangoJSONEncoder

from credentials.scrub import describe, scrub, scrub_values
from credentials.secret import HIDDEN, Secret
from remora_site.logs import LineFormatter
from tests.credentials.conftest import CANARY

MATERIAL = f"{CANARY}-p@ss w/rd"


@dataclass
class Holder:
    secret: Secret


def test_a_secret_does_not_show_in_any_rendering() -> None:
    secret = Secret(MATERIAL)
    texts = [str(secret), repr(secret), f"{secret}", f"{secret!r:>40}", f"{secret:>40}"]
    texts += [repr([secret]), repr({"a": secret}), repr(Holder(secret)), repr(asdict(Holder(secret)))]
    texts += [json.dumps({"a": secret}, default=str), str(dir(secret)), str(copy.deepcopy(secret))]
    assert not any(CANARY in text for text in texts)
    assert f"{secret}" == HIDDEN
    assert secret.reveal() == MATERIAL


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_secret_is_not_pickled(protocol: int) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Secret(MATERIAL), protocol)


@pytest.mark.parametrize("encoder", [json.JSONEncoder, DjangoJSONEncoder])
def test_a_secret_is_not_json(encoder: type[json.JSONEncoder]) -> None:
    with pytest.raises(TypeError) as raised:
        json.dumps({"a": Secret(MATERIAL)}, cls=encoder)
    assert CANARY not in str(raised.value)


def test_secrets_compare_by_material_and_do_not_hash() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert Secret("\udc80") == Secret("\udc80")
    with pytest.raises(TypeError):
        hash(Secret("a"))


def test_a_secret_does_not_change() -> None:
    secret = Secret(MATERIAL)
    with pytest.raises(AttributeError):
        secret._material = "other"
    with pytest.raises(AttributeError):
        del secret._material
    assert copy.copy(secret) is secret


LEAKS = [
    f"HTTPConnectionPool(host='h', port=9): Max retries with url: /file?X-Amz-Signature={CANARY}&x=1",
    f"http://user:{CANARY}@127.0.0.1:9/file",
    f"http://user:p@{CANARY}@127.0.0.1:9/file",
    f"redirected to https://h/x?{CANARY}",
    f"redirected to https://h/x?a=1#{CANARY}",
    f"https://h/x#access_token={CANARY}",
    f"amqp://u:{CANARY}@h:5672//",
    f"postgres://u:{CANARY}@/db",
    f"failed to parse: user:{CANARY}@host/x",
    f"{{'Authorization': 'Bearer {CANARY}', 'Accept': '*/*'}}",
    f'{{"Authorization": "Basic {CANARY}=="}}',
    f"Authorization: Bearer {CANARY}\r\nHost: h",
    f"Cookie: session={CANARY}; other={CANARY}",
    f"x-vault-token: {CANARY}",
    f"got 401 for Bearer {CANARY}",
    f'{{"password": "{CANARY} and more", "user": "u"}}',
    f"password={CANARY}, host=h",
    f"AWS_SECRET_ACCESS_KEY={CANARY}",
    f"client_secret: '{CANARY}'",
    f'{{"nested": {{"api_key": "{CANARY}"}}}}',
    f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}\ncut off here",
]


@pytest.mark.parametrize("text", LEAKS)
def test_what_looks_like_a_credential_is_gone(text: str) -> None:
    assert CANARY not in scrub(text)


@pytest.mark.parametrize("text", LEAKS)
def test_scrubbing_twice_changes_nothing(text: str) -> None:
    assert scrub(scrub(text)) == scrub(text)


def test_scheme_host_and_path_stay() -> None:
    assert scrub(f"GET http://u:{CANARY}@h.example:8080/a/b.bin?sig={CANARY}&x=1 failed") == (
        "GET http://***@h.example:8080/a/b.bin?sig=***&x=*** failed"
    )


@pytest.mark.parametrize(
    "text",
    [
        "job 3 with token 2 and token=2, is it there? yes",
        "2026-12-01T10:00:00+00:00 /data/a:b/c@d.txt",
        "[Errno 111] Connection refused",
        "secret-bearing jobs wait: Vault is sealed",
        "user@example.org wrote 12:30",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert scrub(text) == text


@pytest.mark.parametrize(
    "form",
    [
        MATERIAL,
        quote(MATERIAL),
        quote(MATERIAL, safe=""),
        json.dumps(MATERIAL),
        repr(MATERIAL),
        base64.b64encode(f"user:{MATERIAL}".encode()).decode(),
        base64.b64encode(f"us:{MATERIAL}".encode()).decode(),
        base64.b64encode(f"use:{MATERIAL}:x".encode()).decode(),
    ],
)
def test_known_material_is_gone_in_every_form(form: str) -> None:
    scrubbed = scrub(f"unlikely place {form} and on", [Secret(MATERIAL)])
    assert "***" in scrubbed
    assert MATERIAL not in scrubbed
    assert form not in scrubbed


def test_the_chain_of_causes_is_described_and_scrubbed() -> None:
    url = f"http://user:{CANARY}@127.0.0.1:9/file?sig={CANARY}"
    try:
        try:
            requests.get(url, timeout=1)
        except requests.RequestException as error:
            raise OSError(f"cannot read {url}") from error
    except OSError as error:
        text, whole = describe(error), "".join(traceback.format_exception(error))
    assert "OSError" in text
    assert "ConnectionError" in text
    assert "/file" in text
    assert CANARY in whole, "else this test proves nothing"
    assert CANARY not in text
    assert CANARY not in scrub(whole)


def test_a_huge_or_hostile_text_is_scrubbed_in_no_time() -> None:
    started = time.monotonic()
    for text in (
        "a" * 300_000,
        "://" * 90_000,
        "password=" * 30_000,
        "?=&" * 80_000,
        '"' * 200_000,
        "a:" * 99_999,
    ):
        scrub(text)
    assert time.monotonic() - started < 10


def test_values_are_scrubbed_all_the_way_down() -> None:
    given = json.loads((Path(__file__).parent / "secrets.json").read_text()) | {
        "token": 3,
        "secret": Secret(CANARY),
    }
    scrubbed = scrub_values(given)
    assert scrubbed["token"] == 3
    assert scrubbed["url_query"] == "http://127.0.0.1:9/file?X-Amz-Signature=***&x=***"
    shown = json.dumps({name: value for name, value in scrubbed.items() if name != "odd_name"})
    assert CANARY not in shown


def test_a_log_line_is_scrubbed_and_stays_json() -> None:
    record = logging.makeLogRecord(
        {"msg": f"GET http://u:{CANARY}@h/x", "password": f'{CANARY} "quoted"', "token": 2, "name": "x"}
    )
    try:
        raise OSError(f"Authorization: Bearer {CANARY}")
    except OSError:
        record.exc_info = sys.exc_info()
    line = LineFormatter().format(record)
    assert CANARY not in line
    assert json.loads(line)["token"] == 2
    assert "Authorization" in json.loads(line)["traceback"]
