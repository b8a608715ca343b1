"""The conformance driver of the Python client: `driver.py sync|async`."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "clients/python/src"))

from fencegate import AsyncClient, Client, errors  # noqa: E402


def outcome_of(failure: BaseException) -> dict[str, Any]:
    if isinstance(failure, (KeyboardInterrupt, asyncio.CancelledError)):
        return {"error": "cancelled"}
    for kind, error in (
        (errors.ResourceLocked, "locked"),
        (errors.LeaseLost, "lost"),
        (errors.StaleFencingToken, "stale"),
        ((errors.ConnectionFailed, errors.UnexpectedAnswer), "unavailable"),
    ):
        if isinstance(failure, kind):
            return {"error": error}
    if isinstance(failure, errors.OutcomeUnknown):
        return {"error": "unknown", "key": failure.idempotency_key}
    if isinstance(failure, errors.ProblemError):
        return {"error": "refused", "slug": failure.slug}
    return {"error": repr(failure)}


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


async def perform(client: Any, command: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    async def result(value: Any) -> Any:
        return await value if hasattr(value, "__await__") else value

    do, lease = command["do"], state.get("lease")
    if do == "acquire":
        wait = command.get("wait_ms", 0) / 1000
        after = command.get("cancel_after_ms")
        if after and isinstance(client, Client):
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, after / 1000)
        any_of = command.get("any_of", "").split()
        sharing = {"mode": command.get("mode", "exclusive"), "shared": command.get("shared", "").split()}
        lease_call = client.lease(wait=wait, any_of=any_of) if any_of else client.lease("a", wait=wait, **sharing)
        acquiring = asyncio.ensure_future(result(lease_call))
        if after:
            asyncio.get_running_loop().call_later(after / 1000, acquiring.cancel)
        lease = state["lease"] = await acquiring
        found = {"ok": True, "token": str(lease.fencing_token), "remaining_ms": round(lease.remaining() * 1000)}
        return {**found, "mode": lease.mode, "shared": " ".join(lease.shared)}
    if do == "adopt":
        lease = state["lease"] = await result(client.adopt(command["lease_id"]))
        return {"ok": True, "token": str(lease.fencing_token), "remaining_ms": round(lease.remaining() * 1000)}
    if do == "run_once_per_tick":

        def work(_: Any) -> Any:
            return asyncio.sleep(0) if isinstance(client, AsyncClient) else None

        return {"ok": True, "run": await result(client.run_once_per_tick("a", command["every_ms"] / 1000, work))}
    if do in ("write", "one_shot_write"):
        if do == "write":
            written = await result(lease.write({"call": "f"}, then_release=command.get("then_release", False)))
        else:
            written = await result(
                client.one_shot_write({"call": "f"}, resources=["a"], idempotency_key=command["key"])
            )
        return {"ok": True, "write_id": written.write_id, "replayed": written.replayed}
    if do == "release":
        await result(lease.release(seal=command.get("seal", False)))
    elif do == "check":
        lease.check()
    elif do == "await_loss":
        until = time.monotonic() + command["within_ms"] / 1000
        while not lease.lost.is_set():
            if time.monotonic() > until:
                return {"error": "it is not lost"}
            await asyncio.sleep(0.005)
    elif do == "sleep":
        await asyncio.sleep(command["ms"] / 1000)
    elif do == "history":
        found = client.history()
        items = [each async for each in found] if hasattr(found, "__aiter__") else list(found)
        return {"ok": True, "ids": [each.id for each in items]}
    elif do == "follow":
        ids: list[int] = []
        found = client.follow(after_id=command["after"])
        while len(ids) < command["count"]:
            ids.append((await found.__anext__() if hasattr(found, "__anext__") else next(found)).id)
        return {"ok": True, "ids": ids}
    return {"ok": True}


async def main(kind: str, scenario: dict[str, Any]) -> None:
    make = Client if kind == "sync" else AsyncClient
    client: Any = make(scenario["urls"], retry_for=scenario["retry_for_ms"] / 1000)
    state: dict[str, Any] = {}
    outcomes = []
    for command in scenario["commands"]:
        try:
            outcomes.append(await perform(client, command, state))
        except (Exception, KeyboardInterrupt, asyncio.CancelledError) as failure:
            outcomes.append(outcome_of(failure))
    print(json.dumps(outcomes), flush=True)


for line in sys.stdin:
    asyncio.run(main(sys.argv[1], json.loads(line)))
