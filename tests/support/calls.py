"""Calls that go on while a test changes something, and calls that wait for leases."""

from __future__ import annotations

import threading
import time

from support.api import Answer, Api, Call, Json
from support.polling import eventually


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


def expect_all_granted(waiting: list[tuple[Api, Call]], timeout: float = 15.0) -> list[Json]:
    """Waits until each of these waiters for leases is granted one, in any order;
    releases each lease for the next one, and returns them."""
    left, granted = list(waiting), []
    while left:
        served = eventually(
            lambda: next((waiter for waiter in left if not waiter[1].is_alive()), None),
            timeout,
            goal="the next is served",
        )
        left.remove(served)
        api, answer = served[0], served[1].answer()
        assert answer.status == 201, answer
        granted.append(answer.json())
        api.release(granted[-1])
    return granted
