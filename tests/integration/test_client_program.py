"""fencegate-client: one file that calls gateways from an empty root, as on Alpine or in a scratch image."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import pytest
from support import processes
from support.api import Api
from support.certificates import Authority
from support.polling import eventually
from support.stack import Stack
from support.tcp_gate import open_gates

UNAVAILABLE, USAGE = 69, 64
NAME = "gateway.test"
NAME_SERVER = "127.83.83.83"


def program() -> Path:
    made = processes.fencegate_binary().with_name("fencegate-client")
    if not made.exists():
        pytest.skip("it needs static libraries and no sanitizers")  # the machine lacks the program
    return made


class EmptyRoot:
    """A folder that becomes the root of the program; it has nothing but the program and the files of a test."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder, key
        shutil.copy(program(), folder / "fencegate")

    def write(self, path: str, text: str) -> None:
        file = self.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def run(self, *arguments: str, url: str, timeout: float = 30) -> subprocess.CompletedProcess:
        return processes.run(
            ["/fencegate", *arguments],
            timeout=timeout,
            preexec_fn=lambda: os.chroot(self.folder),
            cwd="/",
            env={"FENCEGATE_URL": url, "FENCEGATE_API_KEY": self.key},
        )


@pytest.fixture
def root(tmp_path: Path, guarded_pair: Stack) -> EmptyRoot:
    if os.geteuid() != 0:
        pytest.skip("only root changes the root of a program")  # the machine lacks the right
    (tmp_path / "root").mkdir()
    return EmptyRoot(tmp_path / "root", guarded_pair.key("admin"))


@contextmanager
def name_server() -> Iterator[list[str]]:
    """A DNS server that knows 127.0.0.1 as the one address of NAME. Yields the names that it was asked for."""
    asked: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((NAME_SERVER, 53))

        def answer() -> None:
            while True:
                query, caller = server.recvfrom(512)
                if not query:
                    return
                question = query[12 : query.index(b"\0", 12) + 5]
                asked.append(question[:-5].decode("latin-1"))
                known = asked[-1] == "\7gateway\4test"
                wants_address = known and question[-4:-2] == b"\0\1"
                reply = query[:2] + (b"\x81\x80" if known else b"\x81\x83")
                reply += struct.pack("!4H", 1, int(wants_address), 0, 0) + question
                if wants_address:
                    reply += b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton("127.0.0.1")
                server.sendto(reply, caller)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield asked
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closer:
                closer.sendto(b"", (NAME_SERVER, 53))
            thread.join()


def test_client_is_one_static_file_of_at_most_12_mb() -> None:
    headers = processes.run(["readelf", "--wide", "--program-headers", "--dynamic", str(program())]).stdout
    assert "GNU_RELRO" in headers and "INTERP" not in headers and "NEEDED" not in headers
    assert "PIE" in headers and "BIND_NOW" in headers and "RWE" not in headers
    assert program().stat().st_size <= 12_000_000


def test_client_without_the_commands_of_gateways(root: EmptyRoot) -> None:
    done = root.run("serve", url="")
    assert done.returncode == USAGE and "there is no command serve" in done.stderr
    help_text = root.run("--help", url="").stdout
    assert "elect" in help_text and "fencegate-client" in help_text and "migrate" not in help_text


def test_client_in_empty_root_holds_elects_and_reads(root: EmptyRoot, api_a: Api, resource: str) -> None:
    url = f"http://{NAME}:{api_a.port}"
    root.write("/etc/resolv.conf", f"nameserver {NAME_SERVER}\n")
    with name_server() as asked:
        status = root.run("status", "--json", url=url)
        assert status.returncode == 0 and json.loads(status.stdout.splitlines()[0])["gateway"] == url, status
        for command in ("lock", "elect"):
            # The only program of this root is the client itself.
            done = root.run(command, resource, "--", "/fencegate", "leases", "--prefix", resource, "--json", url=url)
            assert done.returncode == 0 and json.loads(done.stdout.splitlines()[0])["resource"] == resource, done
            eventually(lambda: not api_a.is_held(resource), goal="the lease is released")
        history = root.run("history", "--resource", resource, "--asc", "--csv", url=url)
        assert history.returncode == 0 and history.stdout.count("lease_granted") == 2, history
        unknown = root.run("status", url="http://other.test")
        assert unknown.returncode == UNAVAILABLE and "other.test" in unknown.stderr
        assert {"\7gateway\4test", "\5other\4test"} <= set(asked)


def test_client_loads_no_name_services_of_the_system(root: EmptyRoot, api_a: Api) -> None:
    """Those of another glibc would end the program. Without a name server, /etc/hosts is read."""
    module = next(Path("/usr/lib").glob("*-linux-gnu/libnss_compat.so.2"))
    root.write("/etc/nsswitch.conf", "hosts: compat\n")
    root.write("/etc/hosts", f"127.0.0.1 {NAME}\n")
    (root.folder / "lib").mkdir()
    (root.folder / "lib/libnss_compat.so.2").write_bytes(module.read_bytes())
    done = root.run("status", url=f"http://{NAME}:{api_a.port}")
    assert done.returncode == 0, done


def test_client_trusts_given_authority_or_bundle_of_system(root: EmptyRoot, api_a: Api, tmp_path: Path) -> None:
    trusted, other = Authority(tmp_path, "trusted"), Authority(tmp_path, "other")
    issued = trusted.issue("gateway", f"DNS:{NAME}")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(issued.file, issued.key)
    root.write("/etc/hosts", f"127.0.0.1 {NAME} {NAME}.other\n")
    for authority in (trusted, other):
        root.write(f"/{authority.name}.pem", authority.file.read_text())
    with open_gates([api_a.port], tls) as gates:
        url = f"https://{NAME}:{gates.members[0].port}"
        assert root.run("leases", "--cacert", "/trusted.pem", url=url).returncode == 0
        wrong = root.run("leases", "--cacert", "/other.pem", url=url)
        assert wrong.returncode == UNAVAILABLE and "is not trusted" in wrong.stderr, wrong
        misnamed = root.run("leases", "--cacert", "/trusted.pem", url=url.replace(NAME, f"{NAME}.other"))
        assert misnamed.returncode == UNAVAILABLE and "is not trusted" in misnamed.stderr, misnamed
        assert root.run("leases", url=url).returncode == UNAVAILABLE, "this root trusts nobody"
        for place in ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"):
            root.write(place, trusted.file.read_text())
            assert root.run("leases", url=url).returncode == 0, place
            (root.folder / place.lstrip("/")).unlink()
