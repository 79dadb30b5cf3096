"""An OpenBao of a test's own, which may be sealed, stopped, or speak TLS, without being missed by other
tests.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from credentials.access import AccessPlan, install_access, issue_approle_login
from credentials.secret import Secret
from credentials.vault import VaultConfig, VaultSession
from remora_site.stack.openbao import program
from remora_site.stack.ports import choose
from tests.credentials.conftest import Vault
from tests.freezing import freeze, thaw
from tests.waiting import wait_until

START_S = 30


@dataclass
class OwnServer:
    """Memory only: what it holds is gone when it stops."""

    process: subprocess.Popen[bytes]
    addr: str
    root_token: Secret
    log: Path
    ca_file: str = ""
    unseal_key: str = field(default="", repr=False)

    def config(self, **more: object) -> VaultConfig:
        given = {"token": self.root_token, "ca_file": self.ca_file, **more}
        return VaultConfig(self.addr, **given)  # type: ignore[arg-type]

    def seal(self) -> None:
        VaultSession(self.config()).call("post", "sys/seal", "sealing", {})

    def unseal(self) -> None:
        session = VaultSession(self.config())
        session._send("post", "sys/unseal", "unsealing", {"key": self.unseal_key}, None)
        wait_until(lambda: session.condition() is None, 20, "unsealed OpenBao answers")

    def pause(self) -> None:
        freeze(self.process.pid)

    def resume(self) -> None:
        thaw(self.process.pid)

    def vault(self, namespace: str = "", **plan: Any) -> Vault:
        """With Remora's rights installed, and its own login."""
        name = f"own-{uuid4().hex[:8]}"
        admin = VaultSession(self.config(namespace=namespace))
        wanted = AccessPlan(name, "remora", name=name, approle_mount=name, **plan)
        install_access(admin, wanted)
        login = issue_approle_login(admin, wanted)
        config = self.config(
            token=None,
            role_id=login.role_id,
            secret_id=login.secret_id,
            approle_mount=name,
            namespace=namespace,
        )
        return Vault(admin, wanted, config)


@contextmanager
def own_server(directory: Path, tls: bool = False) -> Iterator[OwnServer]:
    port = choose(1, [])[0]
    token, log = uuid4().hex, directory / "bao.log"
    options = [
        "-dev",
        f"-dev-root-token-id={token}",
        f"-dev-listen-address=127.0.0.1:{port}",
        "-dev-no-store-token",
    ]
    if tls:
        options += ["-dev-tls", f"-dev-tls-cert-dir={directory}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(program()), "server", *options], stdout=output, stderr=output, cwd=directory
        )
    ca_file = str(directory / "vault-ca.pem") if tls else ""
    server = OwnServer(process, f"http{'s' * tls}://127.0.0.1:{port}", Secret(token), log, ca_file)
    try:
        found = wait_until(
            lambda: re.search(r"Unseal Key: (\S+)", log.read_text()), START_S, "OpenBao started"
        )
        server.unseal_key = found[1] if found else ""
        if tls and not Path(ca_file).exists():
            server.ca_file = str(next(directory.glob("*ca*.pem")))
        wait_until(lambda: VaultSession(server.config()).condition() is None, START_S, "OpenBao answers")
        yield server
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
