"""A proxy for HTTP (RFC 9110, 7.6) of the test's own: it forwards requests and opens tunnels to one port, whatever host they name, and keeps their heads."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, suppress
from typing import Iterator

CHUNK = 65_536


class HttpProxy:
    """`heads`: of each request as the proxy got it, the request line first. `refuses_tunnels`: answers CONNECT with 403."""

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
                above, to_above = await asyncio.open_connection("127.0.0.1", self.upstream)
                if method == "CONNECT":
                    writer.write(b"HTTP/1.1 200 Connection established\r\nX-Proxy: yes\r\n\r\n")
                else:
                    path = "/" + target.split("/", 3)[3]
                    kept = [line for line in lines[1:] if not line.lower().startswith("proxy-")]
                    to_above.write("\r\n".join([f"{method} {path} {version}", *kept, "", ""]).encode("latin-1"))
                await asyncio.gather(carry(reader, to_above), carry(above, writer))
                to_above.close()
        writer.close()


async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Until the source ends, which is passed on."""
    with suppress(OSError):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
        sink.write_eof()


@contextmanager
def http_proxy(upstream: int) -> Iterator[HttpProxy]:
    """In a thread with a loop of its own."""
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
