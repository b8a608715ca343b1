"""A gate between a gateway and each Redis node, or PostgreSQL: bytes pass, wait, get lost or are cut off, as a bad network does it.

A gate keeps one connection upstream for each connection that came, and the two die together: to the gateway it is the
network, not a proxy that remembers anything. All gates of a set live in one thread with a loop of its own.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Awaitable, Callable, Iterator, Sequence

CHUNK = 65_536
RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: close sends RST


@dataclass
class Way:
    """What happens to the bytes of one direction. May be changed at any time; counts for bytes that have not left yet."""

    delay: float = 0.0  # seconds, from a byte's arrival on; later bytes don't wait for earlier ones twice
    hold: bool = False  # bytes wait until it is false again: packets lost and sent again
    swallow: bool = False  # bytes are gone for good, and with them the connection, at the latest when the gate heals
    slices: bool = False  # one byte at a time
    cut_after: Callable[[], int] | None = None  # how many more bytes a connection may carry, asked once a connection
    passed: int = 0  # bytes, ever

    def heal(self) -> None:
        self.delay, self.hold, self.swallow, self.slices, self.cut_after = 0.0, False, False, False, None


class Link:
    """One connection and its twin upstream."""

    def __init__(self, gate: "Gate", below: asyncio.StreamWriter) -> None:
        self.gate, self.below = gate, below
        self.above: asyncio.StreamWriter | None = None
        self.has_lost_bytes = False
        self.ended = False

    def end(self, reset: bool) -> None:
        if self.ended:
            return
        self.ended = True
        self.gate.links.discard(self)
        for side in (self.below, self.above):
            if side is None:
                continue
            if reset:
                with suppress(OSError):  # the side that was reset is closed already
                    side.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
                side.transport.abort()
            else:
                side.close()

    async def carry(self, way: Way, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Reads all the time, so that a delay is one of the line and not of its width."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        writing = asyncio.ensure_future(self._let_through(way, waiting, sink))
        try:
            while data := await source.read(CHUNK):
                waiting.put_nowait((self.gate.loop.time(), data))
        except OSError:
            self.end(reset=True)
        waiting.put_nowait((self.gate.loop.time(), b""))
        await writing

    async def _let_through(self, way: Way, waiting: "asyncio.Queue[tuple[float, bytes]]", sink: asyncio.StreamWriter) -> None:
        budget, rule = 0, None
        while not self.ended:
            arrived, data = await waiting.get()
            while not self.ended and (way.hold or self.gate.loop.time() < arrived + way.delay):
                await asyncio.sleep(0.005 if way.hold else max(0.0, min(0.005, arrived + way.delay - self.gate.loop.time())))
            if self.ended:
                return
            if not data:
                return self.end(reset=False)
            if way.swallow:
                self.has_lost_bytes = True
                continue
            cut = False
            if way.cut_after is not None:
                if way.cut_after is not rule:
                    rule, budget = way.cut_after, way.cut_after()
                cut, data = len(data) > budget, data[:budget]
                budget -= len(data)
            try:
                for start in range(len(data)) if way.slices else range(1 if data else 0):
                    sink.write(data[start:start + 1] if way.slices else data)
                    await sink.drain()
                    if way.slices:
                        await asyncio.sleep(0)
            except OSError:
                return self.end(reset=True)
            way.passed += len(data)
            if cut:
                await asyncio.sleep(0.001)  # what was let through is to arrive: RST would overtake it
                self.gate.cuts += 1
                return self.end(reset=True)


class Gate:
    """Stands before one port, or one socket's path. `requests` go up to the node, `replies` come down."""

    def __init__(self, loop: asyncio.AbstractEventLoop, upstream: int | str, tls: ssl.SSLContext | None = None) -> None:
        self.loop, self.upstream, self.tls = loop, upstream, tls
        self.requests, self.replies = Way(), Way()
        self.links: set[Link] = set()
        self.accepted = self.cuts = 0
        self.port = 0
        self.server: asyncio.Server | None = None

    # called in any thread

    def in_loop(self, work: Awaitable[None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(10)  # type: ignore[arg-type]

    def cut(self) -> None:
        """RST on every connection, now."""
        self.in_loop(self._cut(lambda link: True))

    def refuse(self) -> None:
        """Stops accepting; connections that stand go on."""
        self.in_loop(self._refuse())

    def accept(self) -> None:
        self.in_loop(self._listen())

    def black_hole(self) -> None:
        """Accepts, and nothing gets through in either direction, on old connections and new ones."""
        self.requests.swallow = self.replies.swallow = True

    def heal(self) -> None:
        """All passes again. A connection that lost bytes can't go on: no TCP would deliver what follows a hole."""
        self.requests.heal()
        self.replies.heal()
        self.in_loop(self._cut(lambda link: link.has_lost_bytes))
        self.accept()

    # called in the loop

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
        self.links.add(link)
        self.accepted += 1
        try:
            above, link.above = await self._connect()
        except OSError:
            return link.end(reset=True)
        if link.ended:  # cut while it was being made
            return link.above.close()
        await asyncio.gather(link.carry(self.requests, reader, link.above), link.carry(self.replies, above, writer))


class Gates:
    """One gate a port or path, in the order given. With `tls` they end it, as a proxy does."""

    def __init__(self, upstream: Sequence[int | str], tls: ssl.SSLContext | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.all = [Gate(self.loop, port, tls) for port in upstream]
        for gate in self.all:
            gate.accept()

    def __getitem__(self, which: slice) -> list[Gate]:
        return self.all[which]

    def heal(self) -> None:
        for gate in self.all:
            gate.heal()

    def close(self) -> None:
        for gate in self.all:
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
def gates_before(upstream: Sequence[int | str], tls: ssl.SSLContext | None = None) -> Iterator[Gates]:
    made = Gates(upstream, tls)
    try:
        yield made
    finally:
        made.close()


def between(least: int, most: int, seed: int) -> Callable[[], int]:
    """A rule for `cut_after`: the same lengths in every run, in order of asking."""
    numbers = random.Random(seed)
    return lambda: numbers.randint(least, most)
