"""Connections from the program to a gateway: proxies, names that are not resolved, TLS."""

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
from support.certificates import Authority
from support.cli import Cli, environment
from support.http_proxy import HttpProxy, http_proxy
from support.polling import eventually
from support.stack import Stack
from support.tcp_gate import open_gates

UNAVAILABLE, USAGE = 69, 64


@pytest.fixture
def proxy(api_a: Api) -> Iterator[HttpProxy]:
    with http_proxy(api_a.port) as made:
        yield made


@pytest.fixture
def proxied_cli(guarded_pair: Stack) -> Cli:
    """The program with a gateway that only the proxy can reach."""
    return Cli("http://gateway.test:8080", guarded_pair.key("admin"))


# Proxies


def test_proxy_from_environment_carries_requests_and_streams(
    proxied_cli: Cli, proxy: HttpProxy, api_a: Api, resource: str
) -> None:
    done = proxied_cli.run("status", http_proxy=proxy.url)
    assert done.returncode == 0 and json.loads(done.stdout.splitlines()[0])["gateway"] == proxied_cli.url, done.stderr
    locked = proxied_cli.run("lock", resource, "--", "sh", "-c", "echo $FENCING_TOKEN; exit 3", http_proxy=proxy.url)
    assert locked.returncode == 3 and int(locked.stdout) > 0, locked.stderr
    assert [head[0] for head in proxy.heads][0] == "GET http://gateway.test:8080/readyz HTTP/1.1"
    assert "POST http://gateway.test:8080/v1/leases HTTP/1.1" in [head[0] for head in proxy.heads]
    eventually(lambda: not api_a.is_held(resource), 5, goal="the lease is released")


def test_proxy_is_not_used_for_host_in_no_proxy(proxied_cli: Cli, proxy: HttpProxy) -> None:
    done = proxied_cli.run("status", http_proxy=proxy.url, no_proxy="gateway.test", timeout=20)
    assert done.returncode == UNAVAILABLE and "gateway.test" in done.stderr and not proxy.heads


def test_proxy_is_not_used_for_loopback_gateway(guarded_pair: Stack, api_a: Api, proxy: HttpProxy) -> None:
    local_cli = Cli(api_a.url, guarded_pair.key("admin"))
    assert local_cli.run("leases", http_proxy=proxy.url, all_proxy=proxy.url).returncode == 0 and not proxy.heads


def test_proxy_unreachable_exits_69_with_its_address(proxied_cli: Cli) -> None:
    port = processes.free_port()
    done = proxied_cli.run("status", http_proxy=f"http://127.0.0.1:{port}", timeout=20)
    assert done.returncode == UNAVAILABLE and proxied_cli.url in done.stderr and str(port) in done.stderr


# Names


@pytest.fixture(scope="module")
def silent_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to be preloaded in which getaddrinfo of silent.test never returns,
    as with a name server that does not answer; it makes the file LOOKUP_MARK."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "names.c").write_text(
        """
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
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        dlsym(RTLD_NEXT, "getaddrinfo");
    return real(name, service, hints, found);
}
"""
    )
    library = folder / "names.so"
    subprocess.run(
        ["g++", "-x", "c", "-shared", "-fPIC", "-o", str(library), str(folder / "names.c"), "-ldl"], check=True
    )
    return library


def test_dns_lookup_timeout_exits_69(silent_names: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for command in (["status"], ["history", "--follow"], ["lock", "a", "--", "true"]):
        done = Cli("http://silent.test").run(
            *command[:1],
            "--timeout",
            "500ms",
            *command[1:],
            timeout=10,
            LD_PRELOAD=str(silent_names),
            LOOKUP_MARK=str(mark),
        )
        assert done.returncode == UNAVAILABLE and "timed out while the host name was looked up" in done.stderr, done
        assert mark.exists()
        mark.unlink()


def test_dns_lookup_hanging_is_ended_by_signal(silent_names: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    waiting = subprocess.Popen(
        [str(processes.fencegate_binary()), "lock", "--timeout", "10m", "a", "--", "true"],
        preexec_fn=processes.terminate_with_parent,
        env=environment("http://silent.test", None, LD_PRELOAD=str(silent_names), LOOKUP_MARK=str(mark)),
    )
    try:
        eventually(mark.exists, goal="the name is looked up")
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(5) == 128 + signal.SIGTERM
    finally:
        waiting.kill()
        waiting.wait()


def test_dns_unknown_name_exits_69_with_reason(proxied_cli: Cli) -> None:
    done = Cli("http://none.invalid").run("status", timeout=20)
    assert done.returncode == UNAVAILABLE and "http://none.invalid" in done.stderr and "resolve" in done.stderr


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for localhost and gateway.test; its key is in the same folder."""
    return self_signed(tmp_path_factory.mktemp("tls"), "DNS:localhost,DNS:gateway.test")


def self_signed(folder: Path, names: str, *options: str) -> Path:
    subprocess.run(
        [
            *(
                "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out certificate.pem -subj "
                "/CN=localhost -addext"
            ).split(),
            f"subjectAltName={names}",
            *(options or ("-days", "2")),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder / "certificate.pem"


@pytest.fixture
def tls_port(api_a: Api, certificate: Path) -> Iterator[int]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with open_gates([api_a.port], tls) as gates:
        yield gates.members[0].port


def test_https_with_trusted_certificate_works_as_http(
    guarded_pair: Stack, api_a: Api, tls_port: int, certificate: Path, resource: str
) -> None:
    secured = Cli(f"https://localhost:{tls_port}", guarded_pair.key("admin"))
    done = secured.run("status", "--cacert", str(certificate))
    assert done.returncode == 0 and json.loads(done.stdout.splitlines()[0])["gateway"] == secured.url, done.stderr
    locked = secured.run("lock", "--cacert", str(certificate), resource, "--", "sh", "-c", "echo $FENCING_TOKEN")
    assert locked.returncode == 0 and int(locked.stdout) > 0, locked.stderr
    eventually(lambda: not api_a.is_held(resource), goal="the lease is released")

    unknown = secured.run("status")
    assert (unknown.returncode, unknown.stdout) == (UNAVAILABLE, "") and "self-signed certificate" in unknown.stderr
    other = Cli(f"https://127.0.0.1:{tls_port}", guarded_pair.key("admin")).run("status", "--cacert", str(certificate))
    assert (other.returncode, other.stdout) == (UNAVAILABLE, "") and "not trusted" in other.stderr


def test_https_through_proxy_uses_tunnel_without_key(
    guarded_pair: Stack, api_a: Api, tls_port: int, certificate: Path, resource: str
) -> None:
    key = guarded_pair.key("admin")
    secured = Cli("https://gateway.test", key)
    with http_proxy(tls_port) as proxy:
        locked = secured.run(
            "lock",
            "--cacert",
            str(certificate),
            *f"{resource} -- sh -c".split(),
            "echo $FENCING_TOKEN",
            https_proxy=proxy.url,
        )
        assert locked.returncode == 0 and int(locked.stdout) > 0, locked.stderr
        assert {head[0] for head in proxy.heads} == {"CONNECT gateway.test:443 HTTP/1.1"} and key not in str(
            proxy.heads
        )
        eventually(lambda: not api_a.is_held(resource), 5, goal="the lease is released")
        proxy.refuses_tunnels = True
        refused = secured.run("status", "--cacert", str(certificate), https_proxy=proxy.url)
    assert (refused.returncode, refused.stdout) == (UNAVAILABLE, "") and "403" in refused.stderr


def test_https_cacert_trusts_only_named_certificates(
    guarded_pair: Stack, tls_port: int, certificate: Path, tmp_path: Path
) -> None:
    secured = Cli(f"https://localhost:{tls_port}", guarded_pair.key("admin"))
    assert secured.run("leases", SSL_CERT_FILE=str(certificate)).returncode == 0
    other = self_signed(tmp_path, "DNS:localhost")
    for trusted in (
        {"SSL_CERT_FILE": str(certificate)},
        {"SSL_CERT_DIR": str(hashed_folder(certificate, tmp_path / "hashed"))},
    ):
        done = secured.run("leases", "--cacert", str(other), **trusted)
        assert done.returncode == UNAVAILABLE and "is not trusted" in done.stderr, done
    piped = processes.run(
        ["bash", "-c", f'exec "$0" leases --cacert <(cat {certificate})', str(processes.fencegate_binary())],
        env=environment(secured.url, secured.key),
        timeout=30,
    )
    assert piped.returncode == 0, piped.stderr


def hashed_folder(certificate: Path, folder: Path) -> Path:
    """Makes a folder of certificates as OpenSSL needs it: the files are named after the hash of the subject."""
    folder.mkdir()
    name = processes.run(["openssl", "x509", "-hash", "-noout", "-in", str(certificate)], check=True).stdout.strip()
    (folder / f"{name}.0").write_bytes(certificate.read_bytes())
    return folder


def test_https_expired_certificate_exits_69_with_reason(guarded_pair: Stack, api_a: Api, tmp_path: Path) -> None:
    subprocess.run(
        "openssl req -new -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=localhost".split(),
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost\n")
    subprocess.run(
        "openssl x509 -req -in request.pem -signkey key.pem -out certificate.pem -days -1 -extfile names".split(),
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    with open_gates([api_a.port], tls) as gates:
        done = Cli(f"https://localhost:{gates.members[0].port}").run(
            "status", "--cacert", str(tmp_path / "certificate.pem")
        )
    assert (
        (done.returncode, done.stdout) == (UNAVAILABLE, "")
        and "is not trusted" in done.stderr
        and "expired" in done.stderr
    )


def test_https_to_server_without_tls_exits_69_with_reason(api_a: Api) -> None:
    done = Cli(f"https://localhost:{api_a.port}").run("status", timeout=20)
    assert (done.returncode, done.stdout) == (
        UNAVAILABLE,
        "",
    ) and f"no TLS connection to https://localhost:{api_a.port}" in done.stderr


def test_https_cert_and_key_identify_caller(guarded_pair: Stack, api_a: Api, tmp_path: Path, resource: str) -> None:
    authority = Authority(tmp_path, "authority")
    server, caller, other = authority.issue("gateway"), authority.issue("caller"), authority.issue("other")
    joined = tmp_path / "joined.pem"
    joined.write_bytes(caller.file.read_bytes() + caller.key.read_bytes())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server.file, server.key)
    tls.load_verify_locations(authority.file)
    tls.verify_mode = ssl.CERT_REQUIRED
    with open_gates([api_a.port], tls) as gates:
        secured = Cli(f"https://localhost:{gates.members[0].port}", guarded_pair.key("admin"))
        trusted = ["--cacert", str(authority.file)]
        for identity in (["--cert", str(caller.file), "--key", str(caller.key)], ["--cert", str(joined)]):
            assert secured.run("leases", *trusted, *identity).returncode == 0
            assert secured.run("lock", *trusted, *identity, resource, "--", "true").returncode == 0
        assert secured.run("leases", *trusted, timeout=20).returncode == UNAVAILABLE
        done = secured.run("leases", *trusted, "--cert", str(caller.file), "--key", str(other.key))
        assert (
            done.returncode == USAGE
            and f"--key: {other.key} contains another key than that of the first certificate" in done.stderr
        )
        done = secured.run("leases", *trusted, "--cert", str(caller.file))
        assert done.returncode == USAGE and f"--cert: {caller.file} contains no readable PEM key" in done.stderr
        done = secured.run("leases", *trusted, "--key", str(caller.key))
        assert done.returncode == USAGE and "--key: needs --cert" in done.stderr


def test_cacert_without_certificates_exits_64_and_names_file(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    done = Cli("https://localhost").run("status", "--cacert", str(empty))
    assert (
        (done.returncode, done.stdout) == (USAGE, "")
        and str(empty) in done.stderr
        and "no readable PEM certificate" in done.stderr
    )


# Descriptors of the command


def test_lock_command_inherits_no_descriptor_of_lock(
    guarded_pair: Stack, api_a: Api, resource: str, tmp_path: Path
) -> None:
    kept = os.open(tmp_path / "kept", os.O_CREAT | os.O_RDWR)
    done = processes.run_fencegate(
        *f"lock {resource} -- sh -c".split(),
        "ls /proc/$$/fd",
        timeout=30,
        env=environment(api_a.url, guarded_pair.key("admin")),
        pass_fds=[kept],
    )
    os.close(kept)
    assert done.returncode == 0 and sorted(map(int, done.stdout.split())) == sorted([0, 1, 2, kept]), done
