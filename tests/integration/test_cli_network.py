"""The way from the program to a gateway: proxies, names that are not resolved, TLS."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
from support import processes
from support.api import Api
from support.cli import Cli, environment
from support.http_proxy import HttpProxy, http_proxy
from support.polling import eventually
from support.stack import Stack
from support.tcp_gate import gates_before

UNAVAILABLE, USAGE = 69, 64


@pytest.fixture
def proxy(here: Api) -> Iterator[HttpProxy]:
    with http_proxy(here.port) as made:
        yield made


@pytest.fixture
def far(guarded_pair: Stack) -> Cli:
    """Against a gateway that only the proxy can find."""
    return Cli("http://gateway.test:8080", guarded_pair.key("admin"))


def held(api: Api, resource: str) -> bool:
    return bool(api.get("/v1/leases", resource_prefix=resource).json()["items"])


# proxies


def test_proxy_when_in_the_environment_then_requests_and_streams_pass(far: Cli, proxy: HttpProxy, here: Api, resource: str) -> None:
    done = far.run("status", http_proxy=proxy.url)
    assert done.returncode == 0 and json.loads(done.stdout.splitlines()[0])["gateway"] == far.url, done.stderr
    locked = far.run("lock", resource, "--", "sh", "-c", "echo $FENCING_TOKEN; exit 3", http_proxy=proxy.url)
    assert locked.returncode == 3 and int(locked.stdout) > 0, locked.stderr
    assert [head[0] for head in proxy.heads][0] == "GET http://gateway.test:8080/readyz HTTP/1.1"
    assert "POST http://gateway.test:8080/v1/leases HTTP/1.1" in [head[0] for head in proxy.heads]
    eventually(lambda: not held(here, resource), 5, what="the lease is released")


def test_proxy_if_no_proxy_names_the_host_then_not_used(far: Cli, proxy: HttpProxy) -> None:
    done = far.run("status", http_proxy=proxy.url, no_proxy="gateway.test", within=20)
    assert done.returncode == UNAVAILABLE and "gateway.test" in done.stderr and not proxy.heads


def test_proxy_when_the_gateway_is_on_this_machine_then_not_used(guarded_pair: Stack, here: Api, proxy: HttpProxy) -> None:
    near = Cli(here.url, guarded_pair.key("admin"))
    assert near.run("leases", http_proxy=proxy.url, all_proxy=proxy.url).returncode == 0 and not proxy.heads


def test_proxy_when_it_cannot_be_reached_then_69_and_its_address(far: Cli) -> None:
    port = processes.free_port()
    done = far.run("status", http_proxy=f"http://127.0.0.1:{port}", within=20)
    assert done.returncode == UNAVAILABLE and far.url in done.stderr and str(port) in done.stderr


# names


@pytest.fixture(scope="module")
def silent_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library, to be preloaded, in which the look-up of silent.test never ends, as of a name server that does not answer. It makes the file LOOKUP_MARK then."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "names.c").write_text("""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    if (name && !strcmp(name, "silent.test")) {
        close(open(getenv("LOOKUP_MARK"), O_CREAT | O_WRONLY, 0600));
        for (;;) pause();
    }
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(name, service, hints, found);
}
""")
    library = folder / "names.so"
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", "-o", str(library), str(folder / "names.c"), "-ldl"], check=True)
    return library


def test_name_when_not_resolved_in_time_then_69_when_the_time_is_up(silent_names: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for command in (["status"], ["history", "--follow"], ["lock", "a", "--", "true"]):
        done = Cli("http://silent.test").run(*command[:1], "--timeout", "500ms", *command[1:], within=10, LD_PRELOAD=str(silent_names), LOOKUP_MARK=str(mark))
        assert done.returncode == UNAVAILABLE and "the time is up and the name is not resolved" in done.stderr, done
        assert mark.exists()
        mark.unlink()


def test_name_when_its_look_up_hangs_then_a_signal_ends_lock_at_once(silent_names: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    waiting = subprocess.Popen([str(processes.fencegate_binary()), "lock", "--timeout", "10m", "a", "--", "true"], preexec_fn=processes.ended_with_parent,
                               env=environment("http://silent.test", None, LD_PRELOAD=str(silent_names), LOOKUP_MARK=str(mark)))
    try:
        eventually(mark.exists, what="the name is looked up")
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(5) == 128 + signal.SIGTERM
    finally:
        waiting.kill()
        waiting.wait()


def test_name_when_there_is_none_then_69_and_the_reason(far: Cli) -> None:
    done = Cli("http://none.invalid").run("status", within=20)
    assert done.returncode == UNAVAILABLE and "http://none.invalid" in done.stderr and "resolve" in done.stderr


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of localhost and gateway.test, signed by itself; its key is beside it."""
    return self_signed(tmp_path_factory.mktemp("tls"), "DNS:localhost,DNS:gateway.test")


def self_signed(folder: Path, names: str, *more: str) -> Path:
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "certificate.pem", "-subj", "/CN=localhost",
                    "-addext", f"subjectAltName={names}", *(more or ("-days", "2"))], cwd=folder, check=True, capture_output=True)
    return folder / "certificate.pem"


@pytest.fixture
def tls_port(here: Api, certificate: Path) -> Iterator[int]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with gates_before([here.port], tls) as gates:
        yield gates.all[0].port


def test_https_when_by_a_proxy_then_through_a_tunnel_without_the_key(guarded_pair: Stack, here: Api, tls_port: int, certificate: Path, resource: str) -> None:
    key = guarded_pair.key("admin")
    secured = Cli("https://gateway.test", key)
    with http_proxy(tls_port) as proxy:
        locked = secured.run("lock", "--cacert", str(certificate), resource, "--", "sh", "-c", "echo $FENCING_TOKEN", https_proxy=proxy.url)
        assert locked.returncode == 0 and int(locked.stdout) > 0, locked.stderr
        assert {head[0] for head in proxy.heads} == {"CONNECT gateway.test:443 HTTP/1.1"} and key not in str(proxy.heads)
        eventually(lambda: not held(here, resource), 5, what="the lease is released")
        proxy.refuses_tunnels = True
        refused = secured.run("status", "--cacert", str(certificate), https_proxy=proxy.url)
    assert (refused.returncode, refused.stdout) == (UNAVAILABLE, "") and "403" in refused.stderr


def test_https_when_the_certificates_are_named_then_only_those_are_trusted(guarded_pair: Stack, tls_port: int, certificate: Path, tmp_path: Path) -> None:
    secured = Cli(f"https://localhost:{tls_port}", guarded_pair.key("admin"))
    assert secured.run("leases", SSL_CERT_FILE=str(certificate)).returncode == 0
    other = self_signed(tmp_path, "DNS:localhost")
    for trusted in ({"SSL_CERT_FILE": str(certificate)}, {"SSL_CERT_DIR": str(hashed_folder(certificate, tmp_path / "hashed"))}):
        done = secured.run("leases", "--cacert", str(other), **trusted)
        assert done.returncode == UNAVAILABLE and "is not to be trusted" in done.stderr, done
    piped = subprocess.run(["bash", "-c", f'exec "$0" leases --cacert <(cat {certificate})', str(processes.fencegate_binary())], capture_output=True, text=True,
                           env=environment(secured.url, secured.key), timeout=30)
    assert piped.returncode == 0, piped.stderr


def hashed_folder(certificate: Path, folder: Path) -> Path:
    """As OpenSSL wants a folder of certificates: named by the hash of their subject."""
    folder.mkdir()
    name = subprocess.run(["openssl", "x509", "-hash", "-noout", "-in", str(certificate)], check=True, capture_output=True, text=True).stdout.strip()
    (folder / f"{name}.0").write_bytes(certificate.read_bytes())
    return folder


def test_https_if_the_certificate_has_expired_then_69_and_the_reason(guarded_pair: Stack, here: Api, tmp_path: Path) -> None:
    subprocess.run(["openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=localhost"],
                   cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost\n")
    subprocess.run(["openssl", "x509", "-req", "-in", "request.pem", "-signkey", "key.pem", "-out", "certificate.pem", "-days", "-1", "-extfile", "names"],
                   cwd=tmp_path, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    with gates_before([here.port], tls) as gates:
        done = Cli(f"https://localhost:{gates.all[0].port}").run("status", "--cacert", str(tmp_path / "certificate.pem"))
    assert (done.returncode, done.stdout) == (UNAVAILABLE, "") and "is not to be trusted" in done.stderr and "expired" in done.stderr


def test_https_when_the_server_speaks_no_tls_then_69_and_said(here: Api) -> None:
    done = Cli(f"https://localhost:{here.port}").run("status", within=20)
    assert (done.returncode, done.stdout) == (UNAVAILABLE, "") and f"no TLS connection to https://localhost:{here.port}" in done.stderr


def test_cacert_when_it_has_no_certificates_then_64_and_the_file(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    done = Cli("https://localhost").run("status", "--cacert", str(empty))
    assert (done.returncode, done.stdout) == (USAGE, "") and str(empty) in done.stderr and "no certificates" in done.stderr


# what the command inherits


def test_command_when_it_runs_then_no_file_of_ours_is_open_in_it(guarded_pair: Stack, here: Api, resource: str, tmp_path: Path) -> None:
    kept = os.open(tmp_path / "kept", os.O_CREAT | os.O_RDWR)
    done = subprocess.run([str(processes.fencegate_binary()), "lock", resource, "--", "sh", "-c", "ls /proc/$$/fd"], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=30, env=environment(here.url, guarded_pair.key("admin")), pass_fds=[kept], preexec_fn=processes.ended_with_parent)
    os.close(kept)
    assert done.returncode == 0 and sorted(map(int, done.stdout.split())) == sorted([0, 1, 2, kept]), done
