"""The OpenBao of compose.yaml, run for real: it makes its store and token, and unseals itself again."""

import http.client
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from credentials.access import AccessPlan, install_access
from credentials.kv import SecretStore
from credentials.secret import Secret
from credentials.vault import VaultConfig, VaultSession
from remora_site.stack import ports
from remora_site.stack.openbao import program
from tests.stack.conftest import PROJECT
from tests.waiting import wait_until

TOKEN = "0123456789abcdef0123456789abcdef"
ENVIRONMENT = {"OPENBAO_UNSEAL_KEY": "5a" * 32, "VAULT_TOKEN": TOKEN}


def ask(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, json.dumps(body) if body else None, {"X-Vault-Token": TOKEN})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else {}
    except OSError:
        return 0, {}
    finally:
        connection.close()


@contextmanager
def running(configuration: Path, port: int, log: Path) -> Iterator[None]:
    with log.open("a") as output:
        process = subprocess.Popen(
            [program(), "server", f"-config={configuration}"], env=ENVIRONMENT, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: ask(port, "GET", "/v1/sys/health")[0] == 200, 40, f"OpenBao is active, see {log}")
        wait_until(lambda: ask(port, "GET", "/v1/secret/config")[0] == 200, 10, "the token opens the store")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def install_and_use(addr: str) -> None:
    """What the `access` container does there, and what the others then can."""
    session = VaultSession(VaultConfig(addr, token=Secret(TOKEN)))
    install_access(session, AccessPlan("secret", "remora"))
    secrets = SecretStore(session, "secret", "remora")
    secrets.write("path", {"value": Secret("x")}, secrets.write_token(60))
    assert secrets.read(secrets.read_token("path", 60)) == {"value": Secret("x")}
    secrets.destroy("path")
    assert secrets.forget_reader("path")
    secrets.forget("path")


def test_the_configuration_in_compose_initialises_and_unseals_itself(tmp_path: Path) -> None:
    content = yaml.safe_load((PROJECT / "compose.yaml").read_text())["configs"]["openbao"]["content"]
    chosen = ports.choose(2, [])
    port, cluster_port = chosen
    data = tmp_path / "data"
    data.mkdir()
    for written, here in (
        ("/openbao/file", str(data)),
        ("0.0.0.0:8200", f"127.0.0.1:{port}"),
        ("0.0.0.0:8201", f"127.0.0.1:{cluster_port}"),
        ("openbao:8200", f"127.0.0.1:{port}"),
        ("openbao:8201", f"127.0.0.1:{cluster_port}"),
        ('node_id = "remora"', 'node_id = "remora"\n  performance_multiplier = 1'),
    ):
        assert written in content
        content = content.replace(written, here)
    configuration = tmp_path / "openbao.hcl"
    configuration.write_text(content)
    try:
        with running(configuration, port, tmp_path / "log"):
            assert ask(port, "POST", "/v1/secret/data/kept", {"data": {"word": "otter"}})[0] == 200
            assert ask(port, "GET", "/v1/sys/raw/core")[0] == 403
            install_and_use(f"http://127.0.0.1:{port}")
        with running(configuration, port, tmp_path / "log"):
            status, answer = ask(port, "GET", "/v1/secret/data/kept")
            assert (status, answer["data"]["data"]) == (200, {"word": "otter"})
            assert ask(port, "POST", "/v1/auth/token/renew-self")[0] == 200
    finally:
        ports.forget(chosen)
