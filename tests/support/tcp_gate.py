"""A TCP proxy that injects network faults between a gateway and each Redis node,
or PostgreSQL: delay, stall, loss and reset.

A gate opens one connection upstream for each connection that it accepts, and closes both together,
so that the gateway sees a network and not a proxy with buffers of its own.
All gates of a set run in one thread with its own event loop.
"""

from __future__ import annotations

import asyncio
import random
import socket
import socketserver
import ssl
import struct
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Awaitable, Callable, Iterator, Sequence

CHUNK = 65_536
RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: close sends RST


@dataclass
class Direction:
    """The faults of one direction. They may be changed at any time,
    and apply to bytes that have not been sent on yet."""

    delay: float = 0.0  # seconds from the arrival of a byte; the delays of consecutive bytes overlap
    stalled: bool = False  # bytes wait until it is false again, as when packets are lost and sent again
    discard: bool = False  # bytes are lost; clear_faults resets a connection that lost some
    single_bytes: bool = False  # bytes are sent on one by one
    cut_after: Callable[
        [], int
    ] | None = (
        None  # returns how many more bytes a connection forwards before it is reset; called once for each connection
    )
    rewrite: Callable[[bytes], bytes] | None = None  # changes each piece
    passed: int = 0  # bytes forwarded since the start

    def clear_faults(self) -> None:
        self.delay, self.stalled, self.discard, self.single_bytes, self.cut_after, self.rewrite = (
            0.0,
            False,
            False,
            False,
            None,
            None,
        )


class Link:
    """One accepted connection and its connection upstream."""

    def __init__(self, gate: "Gate", client: asyncio.StreamWriter) -> None:
        self.gate, self.client = gate, client
        self.upstream: asyncio.StreamWriter | None = None
        self.latest_request = b""  # the latest bytes from the client
        self.latest_reply = b""  # the latest bytes that answer it
        self.has_lost_bytes = False
        self.ended = False

    def end(self, reset: bool) -> None:
        if self.ended:
            return
        self.ended = True
        self.gate.links.discard(self)
        for side in (self.client, self.upstream):
            if side is None:
                continue
            if reset:
                connected = side.get_extra_info("socket")  # None if TLS has closed it
                with suppress(OSError):  # the side that was reset is closed already
                    if connected is not None:
                        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
                side.transport.abort()
            else:
                side.close()

    async def forward(self, direction: Direction, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Forwards until the source ends. Reads without waiting for the writer,
        so that a delay does not limit the throughput."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        writing = asyncio.ensure_future(self._deliver(direction, waiting, sink))
        try:
            while data := await source.read(CHUNK):
                if direction is self.gate.requests:
                    self.latest_request, self.latest_reply = data, b""
                else:
                    self.latest_reply = data
                waiting.put_nowait((self.gate.loop.time(), data))
        except OSError:
            self.end(reset=True)
        waiting.put_nowait((self.gate.loop.time(), b""))
        await writing

    async def _deliver(
        self, direction: Direction, waiting: "asyncio.Queue[tuple[float, bytes]]", sink: asyncio.StreamWriter
    ) -> None:
        budget, rule = 0, None
        while not self.ended:
            arrived, data = await waiting.get()
            is_exempt = direction is self.gate.replies and self.gate.exempts(self.latest_request)
            faults = Direction() if is_exempt else direction
            while not self.ended and (faults.stalled or self.gate.loop.time() < arrived + faults.delay):
                left = arrived + faults.delay - self.gate.loop.time()
                await asyncio.sleep(0.005 if faults.stalled else max(0.0, min(0.005, left)))
            if self.ended:
                return
            if not data:
                return self.end(reset=False)
            if faults.discard:
                self.has_lost_bytes = True
                continue
            if faults.rewrite is not None:
                data = faults.rewrite(data)
            cut = False
            if faults.cut_after is not None:
                if faults.cut_after is not rule:
                    rule, budget = faults.cut_after, faults.cut_after()
                cut, data = len(data) > budget, data[:budget]
                budget -= len(data)
            try:
                for start in range(len(data)) if faults.single_bytes else range(1 if data else 0):
                    sink.write(data[start : start + 1] if faults.single_bytes else data)
                    await sink.drain()
                    if faults.single_bytes:
                        await asyncio.sleep(0)
            except OSError:
                return self.end(reset=True)
            faults.passed += len(data)
            if cut:
                await asyncio.sleep(0.001)  # RST would overtake the bytes that were forwarded
                self.gate.cuts += 1
                return self.end(reset=True)


class Gate:
    """A proxy before one port, or one socket's path. `requests` go to the server, `replies` come back from it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, upstream: int | str, tls: ssl.SSLContext | None = None) -> None:
        self.loop, self.upstream, self.tls = loop, upstream, tls
        self.requests, self.replies = Direction(), Direction()
        # Whether the faults of the replies spare a connection with this latest request, and do not count its bytes.
        self.exempts: Callable[[bytes], bool] = lambda request: False
        self.links: set[Link] = set()
        self.accepted = self.cuts = 0
        self.port = 0
        self.server: asyncio.Server | None = None

    # Called in any thread

    def in_loop(self, work: Awaitable[None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(10)  # type: ignore[arg-type]

    def cut(self) -> None:
        """Resets every connection (RST)."""
        self.in_loop(self._cut(lambda link: True))

    def refuse(self) -> None:
        """Stops accepting; open connections continue."""
        self.in_loop(self._refuse())

    def accept(self) -> None:
        self.in_loop(self._listen())

    def black_hole(self) -> None:
        """Accepts connections, but discards the bytes of both directions, on old connections and new ones."""
        self.requests.discard = self.replies.discard = True

    def clear_faults(self) -> None:
        """Forwards everything again. Resets connections that lost bytes: TCP never delivers what follows a gap."""
        self.requests.clear_faults()
        self.replies.clear_faults()
        self.in_loop(self._cut(lambda link: link.has_lost_bytes))
        self.accept()

    # Called in the event loop

    async def _listen(self) -> None:
        if self.server is None:
            self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
            self.port = self.server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None

    async def _cut(self, which: Callable[[Link], bool]) -> None:
        for link in [link for link in self.links if which(link)]:
            self.cuts += 1
            link.end(reset=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self.upstream, str):
            return await asyncio.open_unix_connection(self.upstream)
        return await asyncio.open_connection("127.0.0.1", self.upstream)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, writer)
        if self.server is None:  # it was accepted by the system before _refuse()
            return link.end(reset=True)
        self.links.add(link)
        self.accepted += 1
        try:
            upstream, link.upstream = await self._connect()
        except OSError:
            return link.end(reset=True)
        if link.ended:  # reset while it was being opened
            return link.upstream.close()
        await asyncio.gather(
            link.forward(self.requests, reader, link.upstream), link.forward(self.replies, upstream, writer)
        )


class Gates:
    """One gate for each port or path, in the order given. With `tls` the gates terminate TLS."""

    def __init__(self, upstream: Sequence[int | str], tls: ssl.SSLContext | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.members = [Gate(self.loop, port, tls) for port in upstream]
        for gate in self.members:
            gate.accept()

    def __getitem__(self, which: slice) -> list[Gate]:
        return self.members[which]

    def clear_faults(self) -> None:
        for gate in self.members:
            gate.clear_faults()

    def close(self) -> None:
        for gate in self.members:
            gate.refuse()
            gate.cut()
        asyncio.run_coroutine_threadsafe(self._end_tasks(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    async def _end_tasks(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


@contextmanager
def open_gates(upstream: Sequence[int | str], tls: ssl.SSLContext | None = None) -> Iterator[Gates]:
    gates = Gates(upstream, tls)
    try:
        yield gates
    finally:
        gates.close()


def random_limits(least: int, most: int, seed: int) -> Callable[[], int]:
    """A function for `cut_after` that returns random lengths, the same in every run."""
    numbers = random.Random(seed)
    return lambda: numbers.randint(least, most)


@contextmanager
def proxy_that_hides_hang_ups(upstream: int) -> Iterator[str]:
    """Forwards connections; when a caller hangs up, the connection to the gateway stays open,
    as some load balancers leave it."""
    kept: list[socket.socket] = []

    def forward(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            kept.append(socket.create_connection(("127.0.0.1", upstream)))
            threading.Thread(target=forward, args=(kept[-1], self.request), daemon=True).start()
            forward(self.request, kept[-1])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            for each in kept:
                each.close()
            server.shutdown()
