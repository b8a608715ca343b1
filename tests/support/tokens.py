"""An issuer of JSON Web Tokens: its keys, its key set over HTTP, and tokens that the command openssl signs."""

from __future__ import annotations

import base64
import json
import re
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ISSUER = "https://issuer.example"
AUDIENCE = "fencegate"


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*arguments: str, data: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *arguments], input=data, capture_output=True, check=True).stdout


class SigningKey:
    """A key pair of an algorithm: RS256, ES256 or EdDSA."""

    def __init__(self, folder: Path, algorithm: str, kid: str) -> None:
        self.algorithm, self.kid, self.file = algorithm, kid, str(folder / f"{kid}.pem")
        options = {
            "RS256": ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            "ES256": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            "EdDSA": ["ED25519"],
        }
        openssl("genpkey", "-algorithm", *options[algorithm], "-out", self.file)

    def jwk(self) -> dict[str, str]:
        der = openssl("pkey", "-in", self.file, "-pubout", "-outform", "DER")
        named = {"kid": self.kid, "use": "sig"}
        if self.algorithm == "EdDSA":
            return {**named, "kty": "OKP", "crv": "Ed25519", "x": base64url(der[-32:])}
        if self.algorithm == "ES256":
            return {**named, "kty": "EC", "crv": "P-256", "x": base64url(der[-64:-32]), "y": base64url(der[-32:])}
        modulus = openssl("rsa", "-in", self.file, "-noout", "-modulus").decode().strip().removeprefix("Modulus=")
        return {**named, "kty": "RSA", "n": base64url(bytes.fromhex(modulus)), "e": "AQAB"}

    def sign(self, text: bytes) -> bytes:
        if self.algorithm == "EdDSA":
            unsigned = Path(self.file + ".text")
            unsigned.write_bytes(text)
            return openssl("pkeyutl", "-sign", "-rawin", "-inkey", self.file, "-in", str(unsigned))
        signature = openssl("dgst", "-sha256", "-sign", self.file, data=text)
        if self.algorithm == "RS256":
            return signature
        numbers = [
            int(found, 16)
            for found in re.findall(rb"INTEGER\s+:([0-9A-F]+)", openssl("asn1parse", "-inform", "DER", data=signature))
        ]
        return b"".join(number.to_bytes(32, "big") for number in numbers)

    def token(self, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Returns a token that is good for a minute, with these claims; a claim that is None is left out."""
        payload = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": int(time.time()) + 60,
            "sub": "token-caller",
            "scope": "leases",
            **claims,
        }
        parts = [
            {"alg": self.algorithm, "kid": self.kid, "typ": "JWT", **(header or {})},
            {name: value for name, value in payload.items() if value is not None},
        ]
        text = ".".join(base64url(json.dumps(part).encode()) for part in parts)
        return f"{text}.{base64url(self.sign(text.encode()))}"


def key_set(*keys: SigningKey) -> str:
    return json.dumps({"keys": [key.jwk() for key in keys]})


class KeyServer:
    """Serves a key set over HTTP on loopback, or HTTPS with the certificate in `tls`.
    `answer` may be changed at any time: a text, or None for the status 500."""

    def __init__(self, answer: str | None, tls: ssl.SSLContext | None = None) -> None:
        self.answer, self.requests = answer, 0
        source = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                source.requests += 1
                body = (source.answer or "").encode()
                self.send_response(200 if source.answer is not None else 500)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server.server_address[1]}/keys"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> "KeyServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
