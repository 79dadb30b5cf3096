"""The session with Vault: the only importer of hvac. Logs in, renews, and turns every failure into a typed
error.

HashiCorp Vault and OpenBao alike. Here: addresses, tokens, sessions, classification. What is kept under
which path is `kv.py`'s matter. Nothing here logs; no error carries a URL, a header or a body, and none is
raised while a library's exception (which carries all three) is being handled, so that no chain leads back
to it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import hvac.adapters
import requests

from credentials.answers import Answer, checked, retry_after_s
from credentials.errors import (
    VaultError,
    VaultExpiredToken,
    VaultMisconfigured,
    VaultSealed,
    VaultTimeout,
    VaultUnavailable,
)
from credentials.secret import Secret

# The share of a token's life after which it is renewed.
RENEW_AT: Final = 0.6


@dataclass(frozen=True, slots=True)
class VaultConfig:
    """How to reach Vault and who we are there: a token, a file with one, or an AppRole."""

    addr: str
    token: Secret | None = field(default=None, hash=False)
    token_file: str = ""
    role_id: str = ""
    secret_id: Secret | None = field(default=None, hash=False)
    secret_id_file: str = ""
    approle_mount: str = "approle"
    namespace: str = ""
    ca_file: str = ""
    connect_ms: int = 3_000
    answer_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class Login:
    """The token in use. `renew_at` and `ends_at` are this process' monotonic clock, counted from before the
    request.
    """

    token: Secret
    renewable: bool
    period_s: float
    renew_at: float
    ends_at: float


class VaultSession:
    """One process' session. Threads may share it; a fork may not, and gets a new one from `session_for`."""

    def __init__(self, config: VaultConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._login: Login | None = None
        http = requests.Session()
        http.trust_env = False  # no .netrc, and no proxy that somebody set for other things
        http.verify = config.ca_file or True
        self._adapter = hvac.adapters.RawAdapter(
            base_uri=config.addr,
            namespace=config.namespace or None,
            session=http,
            timeout=(config.connect_ms / 1000, config.answer_ms / 1000),
            allow_redirects=False,  # a redirect would carry the token, and material, to another host
        )

    def call(
        self,
        method: str,
        path: str,
        operation: str,
        body: Mapping[str, Any] | None = None,
        missing_ok: bool = False,
    ) -> Answer:
        """One request with our own token, which is renewed or obtained anew as needed; one re-login after a
        403.
        """
        login = self._usable_login()
        answer = self._send(method, path, operation, body, login.token)
        if answer.status in (401, 403) and self._is_dead(login.token):
            login = self._login_anew(unless=login)
            answer = self._send(method, path, operation, body, login.token)
        return checked(answer, operation, path, missing_ok)

    def call_as(
        self, token: Secret, method: str, path: str, operation: str, body: Mapping[str, Any] | None = None
    ) -> Answer:
        """One request with another token, such as a one-use write token. Never repeated."""
        return checked(self._send(method, path, operation, body, token), operation, path, missing_ok=True)

    def is_alive(self, token: Secret) -> bool:
        """Does Vault still know this token? Tells "expired" from "denied", which are one status."""
        return not self._is_dead(token)

    def condition(self) -> VaultError | None:
        """None if Vault can be used, else why not. Asks the health page, which needs no token."""
        try:
            answer = self._send("get", "sys/health", "health", None, None)
        except VaultError as error:
            return error
        if answer.status in (200, 429, 472, 473):  # a standby that forwards is as good as the active node
            return None
        if answer.status in (501, 503) and (
            "sealed" in answer.body or not answer.body.get("initialized", True)
        ):
            return VaultSealed("health")
        return VaultUnavailable("health", detail=f"HTTP {answer.status}")

    def login_trouble(self) -> VaultError | None:
        """None if we are, or can be, logged in; else why not."""
        try:
            self._usable_login()
        except VaultError as error:
            return error
        return None

    # --- tokens -------------------------------------------------------------------------------------------

    def _usable_login(self) -> Login:
        with self._lock:
            login = self._login
            if login is None:
                login = self._obtain()
            elif time.monotonic() >= login.renew_at:
                login = self._renewed(login)
            self._login = login
            return login

    def _login_anew(self, unless: Login) -> Login:
        """A new login, unless another thread has already replaced the one that was found dead."""
        with self._lock:
            if self._login is unless or self._login is None:
                self._login = self._obtain(dead=unless.token)
            return self._login

    def _obtain(self, dead: Secret | None = None) -> Login:
        config = self.config
        started = time.monotonic()
        if config.role_id:
            secret_id = config.secret_id or Secret(_read(config.secret_id_file, "the AppRole's secret id"))
            path = f"auth/{config.approle_mount}/login"
            body = {"role_id": config.role_id, "secret_id": secret_id}
            answer = self._send("post", path, "login", body, None)
            if answer.status in (400, 401, 403):
                raise VaultMisconfigured("login", path, "the AppRole's role id or secret id was refused")
            return _login_of(checked(answer, "login", path), started)
        token = Secret(_read(config.token_file, "the token")) if config.token_file else config.token
        if token is None:
            raise VaultMisconfigured("login", detail="neither a token nor an AppRole is set")
        if dead is not None and token == dead:
            raise VaultExpiredToken("login")
        answer = self._send("get", "auth/token/lookup-self", "look-up of our token", None, token)
        if answer.status in (401, 403):
            raise VaultExpiredToken("login")
        known = checked(answer, "look-up of our token", "").data
        return _login(token, bool(known.get("renewable")), float(known.get("ttl") or 0), started)

    def _renewed(self, login: Login) -> Login:
        """A renewed login; a new one where Vault grants too little more; the old one while Vault cannot
        say.
        """
        started = time.monotonic()
        fresh: Login | None = None
        if login.renewable:
            try:
                answer = self._send("post", "auth/token/renew-self", "renewal of our token", {}, login.token)
                fresh = _login_of(answer, started) if answer.status == 200 else None
            except VaultError:
                return login
        if fresh is not None and fresh.period_s >= login.period_s / 2:
            return fresh
        if self.config.role_id or fresh is None:
            return self._obtain_if_possible(fresh or login)
        return fresh

    def _obtain_if_possible(self, meanwhile: Login) -> Login:
        try:
            return self._obtain()
        except VaultError:
            if time.monotonic() >= meanwhile.ends_at:
                raise
            return meanwhile

    def _is_dead(self, token: Secret) -> bool:
        answer = self._send("get", "auth/token/lookup-self", "look-up of a token", None, token)
        if answer.status in (401, 403):
            return True
        checked(answer, "look-up of a token", "")
        return False

    # --- the wire -----------------------------------------------------------------------------------------

    def _send(
        self, method: str, path: str, operation: str, body: Mapping[str, Any] | None, token: Secret | None
    ) -> Answer:
        headers = {"X-Vault-Token": token.reveal()} if token else {}
        failure: type[VaultError] = VaultUnavailable
        try:
            response = self._adapter.request(
                method,
                f"/v1/{path}",
                headers=headers,
                raise_exception=False,
                json=None if body is None else _revealed(body),
            )
            return Answer(
                response.status_code, _json(response), retry_after_s(response.headers.get("Retry-After", ""))
            )
        except (OSError, ValueError) as error:  # a RequestException is an OSError
            failure = _wire_failure(error)
        headers.clear()
        # Outside the handler: the library's exception holds the request, and must not become our context.
        raise failure(operation, path)


_sessions: dict[tuple[int, VaultConfig], VaultSession] = {}
_sessions_lock = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_sessions={}, _sessions_lock=threading.Lock()))


def session_for(config: VaultConfig) -> VaultSession:
    """This process' session: one per process and configuration, never one that a parent opened."""
    key = (os.getpid(), config)
    with _sessions_lock:
        if key not in _sessions:
            _sessions[key] = VaultSession(config)
        return _sessions[key]


def _revealed(value: Any) -> Any:
    """The body as it goes out. Secrets are revealed here, at the last moment, and bound to no name."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return {key: _revealed(item) for key, item in value.items()}
    return value


def _wire_failure(error: Exception) -> type[VaultError]:
    if isinstance(error, requests.exceptions.Timeout):
        return VaultTimeout
    wrong_settings = (requests.exceptions.SSLError, requests.exceptions.InvalidHeader, ValueError)
    if isinstance(error, wrong_settings) or not isinstance(error, requests.exceptions.RequestException):
        return VaultMisconfigured  # ValueError: an address that is none; OSError: a CA file that is not there
    return VaultUnavailable


def _json(response: requests.Response) -> Mapping[str, Any]:
    try:
        parsed = response.json() if response.content else {}
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _login_of(answer: Answer, started: float) -> Login:
    auth = answer.body.get("auth") or {}
    period_s = float(auth.get("lease_duration") or 0)
    return _login(Secret(auth.get("client_token", "")), bool(auth.get("renewable")), period_s, started)


def _login(token: Secret, renewable: bool, period_s: float, started: float) -> Login:
    for_ever = period_s <= 0
    renew_at = float("inf") if for_ever else started + period_s * RENEW_AT
    return Login(token, renewable, period_s, renew_at, float("inf") if for_ever else started + period_s)


def _read(file: str, what: str) -> str:
    failed = False
    try:
        text = Path(file).read_text().strip()
    except OSError:
        failed = True
    if failed or not text:
        raise VaultMisconfigured("login", detail=f"the file with {what} cannot be read")
    return text
