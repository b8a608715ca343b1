#!/usr/bin/python3
"""Measures how long a node that lost its data does not vote, and what copying the leases of the others costs (docs/protocol.md, FAST READMISSION).

    FENCEGATE_BINARY=build/release/fencegate tests/bench/readmission.py [--leases 0 1000 10000 100000]

Runs a stack, five nodes without fsync and one gateway of its own. The leases are written to the nodes directly, as a gateway writes them, with 60 s left. For each number of leases one node is
restarted empty. Printed: until the node votes again, the part of that above the bound of answers, the CPU of the gateway and of the node meanwhile, the growth of the gateway's highest resident memory, and the
longest of the grants on another resource that one caller took meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.cluster import Cluster, Gateway  # noqa: E402
from support.cluster import running as running_cluster  # noqa: E402
from support.polling import eventually  # noqa: E402
from support.stack import running as running_stack  # noqa: E402

BOUND = 0.507  # seconds: 1.01 · 500 ms + 2 ms
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_of(pid: int, line: str = "VmHWM:") -> float:
    return next(int(text.split()[1]) / 1024 for text in Path(f"/proc/{pid}/status").read_text().splitlines() if text.startswith(line))


def write_leases(cluster: Cluster, count: int, value: str) -> None:
    for client in cluster.clients():
        for begin in range(0, count, 1_000):
            pipe = client.pipeline(transaction=False)
            for number in range(begin, min(begin + 1_000, count)):
                pipe.set(f"fg:lease:bench/readmission-{number}", f"{number:032x}" + value[32:], px=60_000)
            pipe.execute()


def measure(cluster: Cluster, gateway: Gateway, count: int) -> str:
    api, node = gateway.api, cluster.nodes[0]
    lease = api.must_acquire("bench/sample", owner="bench", ttl_ms=60_000)
    value = eventually(lambda: cluster.nodes[1].client().get("fg:lease:bench/sample"))
    api.must_release(lease)
    write_leases(cluster, count, value)
    before = next(found["epoch"] for found in gateway.nodes() if found["name"] == node.name)
    Path(f"/proc/{gateway.pid}/clear_refs").write_text("5")  # resets the highest resident memory
    cpu, memory = cpu_of(gateway.pid), memory_of(gateway.pid)
    grants: list[float] = []
    ended = threading.Event()

    def grant() -> None:
        while not ended.is_set():
            began = time.monotonic()
            answer = api.acquire("bench/other", ttl_ms=1_000)
            grants.append(time.monotonic() - began)
            if answer.status == 201:
                api.release(answer.json())
            ended.wait(0.005)

    caller = threading.Thread(target=grant)
    node.restart_empty()
    began = time.monotonic()
    caller.start()
    try:
        eventually(lambda: (now := next(found for found in gateway.nodes() if found["name"] == node.name))["state"] == "voting" and now["epoch"] > before, 90, interval=0.01)
    finally:
        seconds = time.monotonic() - began
        ended.set()
        caller.join()
    copied = node.client().dbsize()
    row = f"{count:>8} {seconds:>9.2f} {seconds - BOUND:>9.2f} {cpu_of(gateway.pid) - cpu:>9.2f} {cpu_of(node.pid):>9.2f} {memory_of(gateway.pid) - memory:>9.1f} {max(grants) * 1000:>11.1f} {copied:>9}"
    for client in cluster.clients():
        for key in client.scan_iter("fg:lease:bench/*", count=5_000):
            client.unlink(key)
    return row


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--leases", type=int, nargs="+", default=[0, 1_000, 10_000, 100_000])
    counts = options.parse_args().leases
    with running_stack() as stack, running_cluster(stack, "bench_readmission", max_ttl_ms=60_000) as cluster:
        settings = cluster.settings(answer_bound_ms=500)
        settings["redis"]["node_timeout_ms"] = 500
        gateway = cluster.gateway(settings)
        gateway.start()
        gateway.wait_until_all_vote()
        print(f"{'leases':>8} {'votes s':>9} {'above s':>9} {'gw cpu s':>9} {'node cpu':>9} {'gw MiB':>9} {'grant ms':>11} {'keys':>9}")
        for count in counts:
            print(measure(cluster, gateway, count), flush=True)


main()
