"""An HTTP proxy (RFC 9110, 7.6) that forwards requests and opens tunnels to one port, whatever host they name,
and records their heads."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, suppress
from typing import Iterator

CHUNK = 65_536


class HttpProxy:
    """`heads` has the lines of each request head as received.
    With `refuses_tunnels` the proxy answers CONNECT with 403."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.heads: list[list[str]] = []
        self.refuses_tunnels = False
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
            self.heads.append(lines)
            method, target, version = lines[0].split(" ")
            if method == "CONNECT" and self.refuses_tunnels:
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
            else:
                upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
                if method == "CONNECT":
                    writer.write(b"HTTP/1.1 200 Connection established\r\nX-Proxy: yes\r\n\r\n")
                else:
                    path = "/" + target.split("/", 3)[3]
                    header_lines = [line for line in lines[1:] if not line.lower().startswith("proxy-")]
                    upstream_writer.write(
                        "\r\n".join([f"{method} {path} {version}", *header_lines, "", ""]).encode("latin-1")
                    )
                await asyncio.gather(forward(reader, upstream_writer), forward(upstream_reader, writer))
                upstream_writer.close()
        writer.close()


async def forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Forwards bytes until the source ends, and then ends the sink."""
    with suppress(OSError):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
        sink.write_eof()


@contextmanager
def http_proxy(upstream: int) -> Iterator[HttpProxy]:
    """Runs the proxy in a thread with its own event loop while the block lasts."""
    loop = asyncio.new_event_loop()
    proxy = HttpProxy(upstream)
    server = loop.run_until_complete(asyncio.start_server(proxy.serve, "127.0.0.1", 0))
    proxy.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
