"""The configuration of HTTPS: faults of http.tls, expired certificates, addresses that need TLS and keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.certificates import Certificates, tls_settings
from support.cluster import Cluster
from support.polling import eventually

BAD_CONFIG = 78


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize(
    "change, fault",
    [
        ({"key_file": "foreign"}, "http.tls.key_file: is not the key of the first certificate in certificate_file"),
        ({"key_file": None}, "http.tls.key_file: is missing"),
        ({"certificate_file": "nowhere"}, "http.tls.certificate_file: cannot read "),
        ({"minimum_version": "1.1"}, 'http.tls.minimum_version: "1.1" is none of 1.2, 1.3'),
        ({"client_certificates": "required"}, "http.tls.client_certificates: needs client_ca_file"),
        ({"client_ca_file": "key"}, "http.tls.client_ca_file: has no readable certificate"),
    ],
    ids=["other-key", "no-key", "no-file", "version", "no-authority", "no-certificate"],
)
def test_tls_config_fault_names_its_key(
    cluster: Cluster, pki: Certificates, change: dict[str, str | None], fault: str
) -> None:
    settings = tls_settings(cluster.settings(), pki)
    tls = settings["http"]["tls"]
    for key, value in change.items():
        tls[key] = {"foreign": str(pki.of_foreign.key), "key": str(pki.server.key)}.get(value or "", value)
        if value is None:
            del tls[key]
    file = cluster.folder / "tls-fault.yaml"
    file.write_text(json.dumps(settings))
    done = cluster.run("serve", file, timeout=30)
    assert done.returncode == BAD_CONFIG and fault in done.stderr, done


def test_tls_expired_certificate_fails_check_and_warns_at_start(cluster: Cluster, pki: Certificates) -> None:
    expired = cluster.gateway(
        tls_settings(cluster.settings(), pki, certificate_file=str(pki.expired.file), key_file=str(pki.expired.key))
    )
    checked = cluster.run("check", expired.config)
    assert (
        checked.returncode != 0
        and "FAULT tls: http.tls.certificate_file: a certificate expired on 20" in checked.stdout
    ), checked
    expired.start(wait=False)
    eventually(
        lambda: "http.tls.certificate_file: a certificate expired on 20" in expired.log.read_text(),
        goal="the log has the warning",
    )
    expired.kill()


KEYS = {"api_keys": [{"principal": "orders", "key_sha256": "0" * 64, "scopes": ["leases"]}]}
FOREIGN_ADDRESS = "192.0.2.1"  # of no machine (RFC 5737), so that no test listens where others could call


def open_settings(cluster: Cluster, pki: Certificates, tls: bool, keys: bool) -> dict[str, Any]:
    settings = tls_settings(cluster.settings(), pki)
    settings["http"]["address"] = FOREIGN_ADDRESS
    if not tls:
        del settings["http"]["tls"]
    if keys:
        settings["auth"] = KEYS
    return settings


@pytest.mark.parametrize(
    "tls, keys, missing",
    [
        (False, False, "without credentials in auth and without http.tls"),
        (False, True, "without http.tls"),
        (True, False, "without credentials in auth"),
    ],
    ids=["both", "tls", "keys"],
)
@pytest.mark.parametrize("command", ["serve", "check"])
def test_open_address_without_tls_or_keys_is_refused(
    cluster: Cluster, pki: Certificates, command: str, tls: bool, keys: bool, missing: str
) -> None:
    file = cluster.folder / "open.yaml"
    file.write_text(json.dumps(open_settings(cluster, pki, tls, keys)))
    done = cluster.run(command, file, timeout=30)
    assert done.returncode == BAD_CONFIG, done
    assert (
        f"http.address: {FOREIGN_ADDRESS} is not a loopback address, which it must be {missing}; --insecure"
        in done.stderr
    ), done
    assert cluster.run("migrate", file).returncode == 0


def test_open_address_with_insecure_is_allowed_with_warning(cluster: Cluster, pki: Certificates) -> None:
    file = cluster.folder / "insecure.yaml"
    file.write_text(json.dumps(open_settings(cluster, pki, False, True)))
    assert (
        f"ok    insecure: {FOREIGN_ADDRESS} is not a loopback address"
        in cluster.run("check", file, "--insecure").stdout
    )
    done = cluster.run("serve", file, "--insecure", timeout=30)
    assert (
        f"--insecure: {FOREIGN_ADDRESS} is not a loopback address, which it must be without http.tls; only a proxy"
        in done.stdout
    ), done
    assert f"cannot listen on {FOREIGN_ADDRESS}" in done.stdout


def test_open_address_with_tls_and_keys_is_allowed(cluster: Cluster, pki: Certificates) -> None:
    file = cluster.folder / "secured.yaml"
    file.write_text(json.dumps(open_settings(cluster, pki, True, True)))
    done = cluster.run("serve", file, timeout=30)
    assert f"cannot listen on {FOREIGN_ADDRESS}" in done.stdout and "insecure" not in done.stdout + done.stderr, done
