"""Certificate authorities and certificates for tests, made by openssl when they are needed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Certificate:
    """Files in PEM."""
    certificate: Path
    key: Path


class Authority:
    """Signs certificates. Its own is `certificate`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder, self.name = folder, name
        self.certificate, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                 "-keyout", str(self.key), "-out", str(self.certificate))

    def issue(self, name: str, alternative_names: str = "IP:127.0.0.1,DNS:localhost", subject: str | None = None, days: int = 2) -> Certificate:
        """`alternative_names` as in openssl's subjectAltName; "" for none. With negative `days` the certificate has expired."""
        made = Certificate(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        _openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject or f"/CN={name}",
                 "-keyout", str(made.key), "-out", str(request))
        extensions.write_text(f"subjectAltName={alternative_names}\n" if alternative_names else "")
        _openssl("x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self.key), "-CAcreateserial", "-days", str(days),
                 "-extfile", str(extensions), "-out", str(made.certificate))
        return made
