"""Authorities and certificates of a test, made by the program openssl in the test's folder."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ECDSA = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
LOCAL_NAMES = "DNS:localhost,IP:127.0.0.1"
OP_IGNORE_UNEXPECTED_EOF = getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 1 << 7)  # Python names it from 3.12 on


@dataclass(frozen=True)
class Certificate:
    """The files of a certificate (with the chain that leads to its authority) and of its key, in PEM."""

    file: Path
    key: Path


def openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Authority:
    """A certificate authority with a key of its own. `file` has its certificate."""

    def __init__(self, folder: Path, name: str, parent: "Authority | None" = None) -> None:
        self.folder, self.name, self.parent = folder, name, parent
        self.file, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        extensions = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign"
        if parent:
            parent._sign(name, f"/CN={name}", extensions, days=30)
        else:
            openssl(
                folder,
                *"req -x509 -nodes -days 30".split(),
                *ECDSA,
                *f"-keyout {self.key.name} -out {self.file.name} -subj /CN={name}".split(),
                *(word for line in extensions.splitlines() for word in ("-addext", line)),
            )

    def _sign(self, name: str, subject: str, extensions: str, days: int, key_options: list[str] | None = None) -> None:
        (self.folder / f"{name}.extensions").write_text(extensions + "\n")
        files = f"-keyout {name}.key -out {name}.request"
        openssl(
            self.folder, *"req -new -utf8 -nodes".split(), *(key_options or ECDSA), *files.split(), "-subj", subject
        )
        signer = f"-CA {self.file.name} -CAkey {self.key.name} -CAcreateserial -days {days}"
        files = f"-in {name}.request -extfile {name}.extensions -out {name}.pem"
        openssl(self.folder, "x509", "-req", *signer.split(), *files.split())

    def issue(
        self,
        name: str,
        names: str = LOCAL_NAMES,
        *,
        subject: str | None = None,
        usage: str = "serverAuth,clientAuth",
        days: int = 2,
        key_options: list[str] | None = None,
    ) -> Certificate:
        """Issues a certificate; `days` below 0 makes one that has expired."""
        self._sign(
            name, subject or f"/CN={name}", f"subjectAltName={names}\nextendedKeyUsage={usage}", days, key_options
        )
        issued = Certificate(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        if self.parent:
            issued.file.write_text(issued.file.read_text() + self.file.read_text())
        return issued


class Certificates:
    """A trusted authority and a foreign one, and certificates of both."""

    def __init__(self, folder: Path) -> None:
        self.root = Authority(folder, "root")
        self.foreign = Authority(folder, "foreign")
        self.server = Authority(folder, "intermediate", self.root).issue("gateway")
        self.orders = self.root.issue(
            "orders", "DNS:orders.shop.test,URI:spiffe://shop.test/orders", subject="/O=Shop/CN=orders"
        )
        self.expired = self.root.issue("expired", days=-1)
        self.of_foreign = self.foreign.issue("stranger")


def trust(
    authority: Authority, certificate: Certificate | None = None, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """Returns the TLS of a caller, for which only close_notify ends a connection."""
    context = ssl.create_default_context(cafile=str(authority.file))
    context.options &= ~OP_IGNORE_UNEXPECTED_EOF
    if certificate:
        context.load_cert_chain(certificate.file, certificate.key)
    if version:
        context.minimum_version = context.maximum_version = version
    return context


def tls_settings(
    settings: dict[str, Any], pki: Certificates, http: dict[str, Any] | None = None, **tls: object
) -> dict[str, Any]:
    """Adds http.tls with these keys, and `http` to its section."""
    settings["http"] |= {
        "tls": {"certificate_file": str(pki.server.file), "key_file": str(pki.server.key), **tls},
        **(http or {}),
    }
    return settings


def make_digest_key(folder: Path, name: str) -> Path:
    """Makes NAME.key and NAME.pub with the commands that config/fencegate.yaml names."""
    key = folder / f"{name}.key"
    openssl(folder, "genpkey", "-algorithm", "ed25519", "-out", key.name)
    openssl(folder, "pkey", "-in", key.name, "-pubout", "-out", f"{name}.pub")
    key.chmod(0o600)
    return key
