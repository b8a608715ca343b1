"""Calls that go on while a test changes something, and none of which may fail."""

from __future__ import annotations

import threading
import time

from support.api import Answer, Api


class Load:
    """Acquires, renews and releases leases one after the other while it is entered,
    and keeps the answers that are no success."""

    def __init__(self, api: Api) -> None:
        self.api, self.calls = api, 0
        self.refused: list[Answer] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.stopping.is_set():
            lease = self.api.acquire(f"test/load-{self.calls}", ttl_ms=2_000)
            answers = (
                [lease]
                if lease.status != 201
                else [self.api.renew(lease.json(), ttl_ms=2_000), self.api.release(lease.json())]
            )
            self.refused += [answer for answer in answers if answer.status not in (200, 204)]
            self.calls += 1
            time.sleep(0.005)  # the nodes are not to be busy

    def __enter__(self) -> "Load":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.thread.join()
