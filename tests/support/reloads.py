"""Gateways whose configuration a test changes, and reloads by SIGHUP."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

from support.api import Api
from support.certificates import Authority, Certificate
from support.cluster import Cluster, credential
from support.polling import eventually

WITHDRAWN = "The credential or client certificate of this call was withdrawn before it was answered."
KEYS = {name: f"a long enough key of {name}" for name in ("old", "new", "admin")}


def key_entry(name: str) -> dict[str, Any]:
    return credential(name, KEYS[name], "leases", "history", "operate")


class Reloaded:
    """A running gateway whose configuration the test changes. `settings` are those of its file."""

    def __init__(
        self, cluster: Cluster, settings: dict[str, Any], tls: ssl.SSLContext | None = None, **environment: str
    ) -> None:
        self.settings = settings
        self.gateway = cluster.gateway(settings, tls)
        self.gateway.environment = environment
        self.gateway.start()

    def api(self, name: str) -> Api:
        return self.gateway.api.with_key(KEYS[name])

    def is_known(self, name: str) -> bool:
        """Returns whether the gateway accepts the API key."""
        return self.api(name).get("/v1/leases/none").status != 401

    def count(self, result: str) -> int:
        return int(self.gateway.api.metric(f'fencegate_config_reloads_total{{result="{result}"}}'))

    def reload(self, result: str = "applied") -> str:
        """Writes the settings, sends SIGHUP, and returns what the log says about it."""
        self.gateway.write_config(self.settings)
        return self.signal(result)

    def signal(self, result: str) -> str:
        before, logged = self.count(result), len(self.gateway.log.read_text())
        os.kill(self.gateway.pid, signal.SIGHUP)
        eventually(lambda: self.count(result) == before + 1, goal=f"a reload is {result}")
        assert self.gateway.process is not None and self.gateway.process.poll() is None
        eventually(
            lambda: "configuration" in self.gateway.log.read_text()[logged:]
            or self.settings.get("log", {}).get("level") == "error",
            goal="the log says it",
        )
        return self.gateway.log.read_text()[logged:]


class Rotation:
    """Two authorities, and a gateway whose certificate is of the first one."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.first, self.second = Authority(folder, "first"), Authority(folder, "second")
        self.certificate, self.key = folder / "in-use.pem", folder / "in-use.key"
        self.install(self.first.issue("gateway-1"))
        settings = cluster.settings()
        settings["http"]["tls"] = {"certificate_file": str(self.certificate), "key_file": str(self.key)}
        both = ssl.create_default_context(cafile=str(self.first.file))
        both.load_verify_locations(str(self.second.file))
        self.reloaded = Reloaded(cluster, settings, both)

    def install(self, issued: Certificate) -> None:
        self.certificate.write_bytes(issued.file.read_bytes())
        self.key.write_bytes(issued.key.read_bytes())

    def issuer(self) -> str:
        """Returns the authority of the certificate that a new connection gets."""
        with socket.create_connection(("127.0.0.1", self.reloaded.gateway.api.port), 10) as plain:
            assert self.reloaded.gateway.api.tls is not None
            with self.reloaded.gateway.api.tls.wrap_socket(plain, server_hostname="localhost") as connection:
                peer = connection.getpeercert()
                assert peer
                return dict(pair[0] for pair in peer["issuer"])["commonName"]
