#!/usr/bin/python3
"""Measures the memory of a gateway: with idle connections, then with waiting callers, then after many resources.

usage: memory.py STACK_JSON [--connections 1000] [--waiters 10000] [--resources 100000]
Prints the gateway's resident memory after each step, in MiB.
The gateway must allow as many connections (http.connections_max, of which three quarters may wait,
and http.connections_per_address_max) and waiters per thread (lease.waiters_max).
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import resource
import socket
from pathlib import Path
from urllib.parse import urlsplit


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


def request(body: dict[str, object]) -> bytes:
    text = json.dumps(body).encode()
    head = (
        "POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


async def connect(host: str, port: int, count: int) -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    sockets = []
    for number in range(count):
        # Uses 16 loopback addresses in turn: a gateway accepts 1,000 connections
        # of one address (http.connections_per_address_max).
        connection = socket.socket()
        connection.setblocking(False)
        connection.bind((f"127.0.0.{2 + number % 16}", 0))
        await loop.sock_connect(connection, (host, port))
        sockets.append(connection)
    return sockets


async def run(stack: dict, connections: int, waiters: int, resources: int) -> None:
    gateway = stack["gateways"][0]
    address = urlsplit(gateway["http"])
    host, port, pid = address.hostname, address.port, gateway["pid"]
    loop = asyncio.get_running_loop()
    print(f"{'idle':<40} {resident_mib(pid):8.1f} MiB")
    idle = await connect(host, port, connections)
    await asyncio.sleep(1)
    print(f"{f'{connections} connections':<40} {resident_mib(pid):8.1f} MiB")

    client = http.client.HTTPConnection(host, port)

    def call(method: str, path: str, body: dict | None = None) -> dict:
        client.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = client.getresponse()
        text = answer.read()
        assert answer.status < 300, (answer.status, text)
        return json.loads(text) if text else {}

    held = call("POST", "/v1/leases", {"resource": "memory/held", "ttl_ms": 60_000})
    waiting = await connect(host, port, waiters)
    for connection in waiting:
        await loop.sock_sendall(connection, request({"resource": "memory/held", "ttl_ms": 1_000, "wait_ms": 30_000}))
    await asyncio.sleep(3)
    print(f"{f'and {waiters} waiters':<40} {resident_mib(pid):8.1f} MiB")
    for connection in waiting + idle:
        connection.close()
    await asyncio.sleep(3)
    call("DELETE", f"/v1/leases/{held['lease_id']}")
    print(f"{'after all have disconnected':<40} {resident_mib(pid):8.1f} MiB")
    for number in range(resources):
        lease = call("POST", "/v1/leases", {"resource": f"memory/new-{number}", "ttl_ms": 1_000})
        call("DELETE", f"/v1/leases/{lease['lease_id']}")
    print(f"{f'and {resources} resources seen once':<40} {resident_mib(pid):8.1f} MiB")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("stack", type=Path)
    options.add_argument("--connections", type=int, default=1_000)
    options.add_argument("--waiters", type=int, default=10_000)
    options.add_argument("--resources", type=int, default=20_000)
    arguments = options.parse_args()
    files = arguments.connections + arguments.waiters + 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, files)), hard))
    asyncio.run(
        run(json.loads(arguments.stack.read_text()), arguments.connections, arguments.waiters, arguments.resources)
    )


if __name__ == "__main__":
    main()
