"""HTTP over a plain socket: for requests that no HTTP library sends, and for bytes that arrive in pieces."""

from __future__ import annotations

import ctypes
import socket
import ssl
import struct
from dataclasses import dataclass

SO_ATTACH_FILTER = 26


def lose_power(connection: socket.socket) -> None:
    """Lets the connection be silent, as that of a machine without power or network: what arrives is dropped unread
    and is not acknowledged."""
    drop_all = struct.pack("HBBI", 0x06, 0, 0, 0)  # BPF_RET | BPF_K: accept 0 bytes
    program = ctypes.create_string_buffer(drop_all)
    connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))


@dataclass(frozen=True)
class RawAnswer:
    status: int
    headers: dict[str, str]
    body: bytes


class Wire:
    """A TCP connection to a gateway, with TLS if `tls` is given. Only TLS's own close_notify counts as its end then."""

    def __init__(self, host: str, port: int, timeout: float = 10.0, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection((host, port), timeout)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host, suppress_ragged_eofs=False)
        self.buffer = b""

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_more(self) -> bool:
        try:
            chunk = self.socket.recv(65536)
        except ConnectionResetError:
            chunk = b""
        self.buffer += chunk
        return bool(chunk)

    def _read_until(self, delimiter: bytes) -> bytes:
        while delimiter not in self.buffer:
            assert self.read_more(), f"closed after {self.buffer[:500]!r}"
        head, self.buffer = self.buffer.split(delimiter, 1)
        return head

    def receive(self, has_body: bool = True) -> RawAnswer:
        """Reads the next answer, whose length must be given by Content-Length."""
        lines = self._read_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        status = int(lines[0].split()[1])
        length = int(headers.get("content-length", 0)) if has_body and status != 204 else 0
        while len(self.buffer) < length:
            assert self.read_more(), "closed in the middle of a body"
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return RawAnswer(status, headers, body)

    def is_closed(self) -> bool:
        """Waits until the gateway closes the connection. Returns False if it sends something, or nothing in time."""
        try:
            return not self.buffer and not self.read_more()
        except TimeoutError:
            return False


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
