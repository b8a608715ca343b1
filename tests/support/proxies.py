"""The proxies that the repository has configurations for, each on ports of its own before gateways of a test."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

from support import processes
from support.api import Api
from support.polling import eventually

CONFIG = processes.repository() / "config"
# What the nginx of Debian needs below other folders than its own: nothing of it is used but the first.
NGINX_FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


Made = TypeVar("Made", bound="Proxy")


class Proxy:
    """A proxy that runs in the foreground until `stop`, which the end of a `with` block calls."""

    def __init__(self, command: list[str], log: Path, port: int, environment: dict[str, str] | None = None) -> None:
        self.port, self.log = port, log
        self.process = processes.start(command, log, env={**os.environ, **(environment or {})})
        self.api = Api(f"http://127.0.0.1:{port}", timeout=30)

    def await_ready(self) -> None:
        """Waits until calls can be sent to every gateway."""
        raise NotImplementedError

    def __enter__(self: Made) -> Made:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        assert processes.stop(self.process) in (0, 143, -15), self.log.read_text()


class Haproxy(Proxy):
    """HAProxy by the file of the repository."""

    FILE = CONFIG / "haproxy" / "haproxy.cfg"

    def __init__(self, folder: Path, ports: list[int]) -> None:
        port, self.metrics = processes.free_port(), processes.free_port()
        environment = {
            "FENCEGATE_BIND": f"127.0.0.1:{port}",
            "METRICS_BIND": f"127.0.0.1:{self.metrics}",
            **{f"GATEWAY_{number}": f"127.0.0.1:{port}" for number, port in enumerate(ports, 1)},
        }
        super().__init__(["haproxy", "-db", "-f", str(self.FILE)], folder / "haproxy.log", port, environment)

    def ready(self) -> dict[tuple[str, str], bool]:
        """Returns for each backend and server whether calls are sent there."""
        with urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=5) as answer:
            states = re.findall(
                r'^haproxy_server_status\{proxy="(\w+)",server="([\w-]+)",state="UP"\} (\d)',
                answer.read().decode(),
                re.MULTILINE,
            )
        return {(backend, server): value == "1" for backend, server, value in states}

    def await_ready(self, count: int = 6) -> None:
        eventually(lambda: sum(self.ready().values()) == count, 20, goal=f"{count} servers are ready")


class CellsHaproxy(Proxy):
    """HAProxy by config/haproxy/cells.cfg, before a gateway of each cell from 0 on."""

    MAP = CONFIG / "haproxy" / "cells.map"

    def __init__(self, folder: Path, cells_map: Path, ports: list[int]) -> None:
        port = processes.free_port()
        environment = {
            "FENCEGATE_BIND": f"127.0.0.1:{port}",
            "CELLS_MAP": str(cells_map),
            **{f"CELL_{cell}": f"127.0.0.1:{gateway}" for cell, gateway in enumerate(ports)},
        }
        command = ["haproxy", "-db", "-f", str(CONFIG / "haproxy" / "cells.cfg")]
        super().__init__(command, folder / "haproxy.log", port, environment)

    def await_ready(self) -> None:
        eventually(lambda: self.api.get("/healthz").status == 200, 20, goal="the proxy answers")


class Nginx(Proxy):
    """nginx by the file of the repository, or by another one that names the gateways and listens in the same way."""

    FILE = CONFIG / "nginx" / "nginx.conf"

    def __init__(self, folder: Path, ports: list[int], text: str | None = None) -> None:
        port = processes.free_port()
        folders = "".join(f"{name}_temp_path {folder}/nginx-{name};" for name in NGINX_FOLDERS)
        text = text or self.FILE.read_text()
        text = text.replace("http {", f"http {{ {folders}").replace("listen 8080", f"listen 127.0.0.1:{port}")
        for number, gateway in enumerate(ports, 1):
            text = text.replace(f"10.0.0.1{number}:8080", f"127.0.0.1:{gateway}")
        self.file = folder / "nginx.conf"
        self.file.write_text(text)
        self.command = ["nginx", "-c", str(self.file), "-e", "stderr", "-g", f"daemon off; pid {folder}/nginx.pid;"]
        super().__init__(self.command, folder / "nginx.log", port)

    def check(self) -> subprocess.CompletedProcess:
        return processes.run([*self.command, "-t"])

    def await_ready(self) -> None:
        """It asks no gateway whether it is ready, so it only has to listen."""
        eventually(lambda: processes.accepts(self.port), 20, goal="nginx listens")
