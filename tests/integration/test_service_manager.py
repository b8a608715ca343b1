"""What a gateway reports to systemd: that it listens, reloads and stops, and, for the watchdog,
that its I/O threads make turns."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import pytest
from support import processes
from support.cluster import Cluster, Gateway
from support.polling import eventually

WATCHDOG_USEC = 900_000


class Manager:
    """The socket of a service manager. `name` is what NOTIFY_SOCKET has: @ begins the name of an abstract socket."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name.replace("@", "\0"))

    def receive(self, timeout: float = 20.0) -> dict[str, str]:
        self.socket.settimeout(timeout)
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().split("\n"))

    def receive_state(self) -> dict[str, str]:
        """Returns the next message that is not for the watchdog."""
        while "WATCHDOG" in (message := self.receive()):
            pass
        return message

    def is_silent(self, seconds: float) -> bool:
        try:
            self.receive(seconds)
        except TimeoutError:
            return True
        return False

    def empty(self) -> None:
        while not self.is_silent(0.001):
            pass


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.socket.close()


@contextmanager
def managed(
    cluster: Cluster, manager: Manager, settings: dict[str, Any] | None = None, **environment: str
) -> Iterator[Gateway]:
    gateway = cluster.gateway(settings)
    gateway.environment = {"NOTIFY_SOCKET": manager.name, **environment}
    gateway.start(wait=False)
    try:
        yield gateway
    finally:
        gateway.kill()


def test_manager_gets_ready_reload_and_stop(cluster: Cluster, manager: Manager) -> None:
    settings = cluster.settings()
    with managed(cluster, manager, settings) as gateway:
        listens = {"READY": "1", "STATUS": f"listens on http://127.0.0.1:{settings['http']['port']}"}
        assert manager.receive() == listens
        socket.create_connection(
            ("127.0.0.1", settings["http"]["port"]), timeout=1
        ).close()  # it listens when it says so

        os.kill(gateway.pid, signal.SIGHUP)
        assert manager.receive() == {"RELOADING": "1", "STATUS": "reloads its configuration"}
        assert manager.receive() == listens

        gateway.config.write_text("colour: red")
        os.kill(gateway.pid, signal.SIGHUP)
        assert manager.receive()["RELOADING"] == "1"
        assert manager.receive() == {
            "READY": "1",
            "STATUS": f"{listens['STATUS']}; the last reload was refused, for the reason in the log",
        }

        assert gateway.stop() == 0
        assert manager.receive()["STOPPING"] == "1"
        assert manager.is_silent(0.1), "without WATCHDOG_USEC there are no reports to a watchdog"


def test_manager_gets_nothing_if_the_start_fails(cluster: Cluster, manager: Manager) -> None:
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        settings = cluster.settings()
        settings["http"]["port"] = occupied.getsockname()[1]
        with managed(cluster, manager, settings) as gateway:
            assert gateway.process is not None and gateway.process.wait(20) == 69
            assert manager.is_silent(0.1)
            gateway.process = None


def test_manager_with_abstract_socket_gets_ready(cluster: Cluster) -> None:
    manager = Manager(f"@fencegate-test-{os.getpid()}")
    with managed(cluster, manager):
        assert manager.receive()["READY"] == "1"
    manager.socket.close()


def test_manager_that_has_ended_is_a_warning(cluster: Cluster, manager: Manager) -> None:
    manager.socket.close()
    with managed(cluster, manager) as gateway:
        gateway.wait_until_ready()
        assert "the service manager's socket" in gateway.log.read_text()


def test_watchdog_of_another_process_gets_no_report(cluster: Cluster, manager: Manager) -> None:
    with managed(cluster, manager, WATCHDOG_USEC=str(WATCHDOG_USEC), WATCHDOG_PID=str(os.getpid())):
        assert manager.receive()["READY"] == "1"
        assert manager.is_silent(WATCHDOG_USEC / 1e6)


@pytest.mark.parametrize("thread", ["io-0", "io-1"])
def test_watchdog_gets_no_report_while_an_io_thread_hangs(cluster: Cluster, manager: Manager, thread: str) -> None:
    """Whichever it is. Reports come three times in WATCHDOG_USEC, and again when the thread goes on."""
    settings = cluster.settings()
    settings["http"]["threads"] = 2
    settings["log"] = {"core_dumps": True}  # so that this process may stop a thread of the gateway
    with managed(cluster, manager, settings, WATCHDOG_USEC=str(WATCHDOG_USEC)) as gateway:
        assert manager.receive_state()["READY"] == "1"
        gateway.wait_until_ready()
        manager.empty()
        started_at = time.monotonic()
        assert [manager.receive() for _ in range(4)] == [{"WATCHDOG": "1"}] * 4
        assert (
            time.monotonic() - started_at > WATCHDOG_USEC / 1e6 * 0.9
        ), "not more often than three times in the interval"
        with processes.stopped_thread(gateway.pid, thread):
            manager.empty()
            assert manager.is_silent(WATCHDOG_USEC / 1e6)
        assert eventually(lambda: manager.receive() == {"WATCHDOG": "1"}, goal="reports come again")
        assert gateway.stop() == 0
        assert manager.receive_state()["STOPPING"] == "1"
