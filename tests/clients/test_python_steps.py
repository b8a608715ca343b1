"""The steps of the Python client's protocol without input and output, by a clock that its pauses advance."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest
from python_clients import errors


def problem(slug: str, **members: Any) -> bytes:
    return json.dumps({"type": f"/problems/{slug}", "detail": "It is refused.", "request_id": "r", **members}).encode()


class Clock:
    """The client's clock, which its pauses advance."""

    def __init__(self) -> None:
        self.time = 1_000.0

    def now(self) -> float:
        return self.time

    def run(self, call: Any, answer: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        """Performs the steps of a call; returns them and its result or error.
        `answer` gives the response to each request, or raises."""
        from fencegate._protocol import Pause

        steps: list[Any] = []
        try:
            step = next(call)
            while len(steps) < 1_000:
                steps.append(step)
                if isinstance(step, Pause):
                    self.time += step.seconds
                    step = call.send(None)
                    continue
                try:
                    response = answer(step)
                except Exception as failure:
                    step = call.throw(failure)
                else:
                    step = call.send(response)
        except StopIteration as done:
            return steps, done.value
        except errors.FencegateError as failure:
            return steps, failure
        raise AssertionError(f"it does not end: {steps[-10:]}")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in ("_protocol", "_lease"):
        monkeypatch.setattr(f"fencegate.{module}.now", made.now)
    return made


def pauses(steps: list[Any]) -> list[float]:
    return [step.seconds for step in steps if hasattr(step, "seconds")]


UNKNOWN = problem("storage-unavailable", status=503, outcome_unknown=True, write_id="w1")


RENEWED = b'{"resource": "a", "fencing_token": 1, "served_ms": 0, "validity_ms": %d}'


@pytest.mark.parametrize(
    "later, headers",
    [
        (problem("storage-unavailable", status=503, write_id="w2"), {"retry-after": "3"}),
        (problem("resource-locked", status=423), {"retry-after": "60"}),
    ],
)
@pytest.mark.parametrize("events", [[], [{"id": 1, "at": "2026-11-21T10:00:00.000Z", "event": "write_applied"}]])
def test_write_id_of_an_unknown_write_is_kept(
    clock: Clock, later: bytes, headers: dict[str, str], events: list[Any]
) -> None:
    """Later answers name no write, or one that has surely changed nothing;
    the history is searched for the first one when the time is over."""
    from fencegate._protocol import Protocol, Request, Response

    sent: list[Request] = []

    def answer(request: Request) -> Response:
        sent.append(request)
        if request.path.startswith("/v1/history"):
            return Response(200, {}, json.dumps({"items": events, "next_cursor": None}).encode())
        return Response(503, {}, UNKNOWN) if len(sent) == 1 else Response(json.loads(later)["status"], headers, later)

    _, outcome = clock.run(
        Protocol(10.0, 10.0).one_shot_write([{"call": "f"}], ["a"], 0.0, None, None, False, "key", True), answer
    )
    assert "write_id=w1" in sent[-1].path and outcome.write_id == "w1"
    assert outcome.results is None if events else isinstance(outcome, errors.OutcomeUnknown)


@pytest.mark.parametrize("write_id", ["w1", None])
@pytest.mark.parametrize("keep_outcome", [True, False])
def test_failing_token_does_not_hide_an_unknown_outcome(clock: Clock, write_id: Any, keep_outcome: bool) -> None:
    """The write is answered with outcome_unknown, or not at all; then the function that returns the token raises."""
    from fencegate._protocol import NoAnswer, Protocol, Request, Response

    sent: list[Request] = []
    no_token = RuntimeError("no token")

    def answer(request: Request) -> Response:
        sent.append(request)
        if len(sent) > 1:
            raise no_token
        if write_id:
            return Response(503, {}, UNKNOWN)
        raise NoAnswer("cut", sent=True)

    _, outcome = clock.run(
        Protocol(10.0, 30.0).one_shot_write([{"call": "f"}], ["a"], 0.0, None, None, False, None, keep_outcome), answer
    )
    assert isinstance(outcome, errors.OutcomeUnknown) and (outcome.write_id, outcome.idempotency_key) == (
        write_id,
        sent[0].headers.get("Idempotency-Key"),
    )
    assert outcome.__cause__ is no_token if keep_outcome else isinstance(outcome.__cause__, errors.FencegateError)
    assert len(sent) == bool(write_id) + 1 + keep_outcome, "the history was searched for the write_id"


def test_write_is_found_after_a_token_function_that_failed(clock: Clock) -> None:
    from fencegate._protocol import Protocol, Request, Response

    answers = iter([Response(503, {}, UNKNOWN), None])

    def answer(request: Request) -> Response:
        if request.path.startswith("/v1/history"):
            return Response(
                200,
                {},
                b'{"items": [{"id": 1, "at": "2026-11-21T10:00:00.000Z", "event": "write_applied"}], '
                b'"next_cursor": null}',
            )
        response = next(answers)
        if response is None:
            raise RuntimeError("no token")
        return response

    _, written = clock.run(
        Protocol(10.0, 30.0).one_shot_write([{"call": "f"}], ["a"], 0.0, None, None, False, None, True), answer
    )
    assert (written.write_id, written.results) == ("w1", None)


def lease_state(**members: Any) -> Any:
    from fencegate import _lease

    document = {
        "lease_id": "a",
        "resource": "a",
        "fencing_token": 1,
        "ttl_ms": 60_000,
        "served_ms": 0,
        "validity_ms": 60_000,
        **members,
    }
    return _lease.LeaseState(document, _lease.now())


def keep(clock: Clock, state: Any, answer: Callable[[int], Any]) -> list[float]:
    """Renews a lease until it is lost; returns how long it was still valid at each request.
    `answer` is called with the number of the request."""
    from fencegate._protocol import Protocol

    left: list[float] = []

    def reply(_: Any) -> Any:
        left.append(state.valid_until - clock.time)
        response = answer(len(left))
        if isinstance(response, Exception):
            raise response
        return response

    clock.run(Protocol(10.0, 30.0).keep(state), reply)
    assert state.lost_because and clock.time - state.valid_until < 0.1
    return left


@pytest.mark.parametrize("failure", ["no_token", "unusable_token", "untrusted", "internal_error", "proxy"])
def test_renewals_go_on_after_a_failure(clock: Clock, failure: str) -> None:
    """It passes once; later it comes again and again until the lease ends."""
    from fencegate._protocol import NoAnswer, Response

    failures = {
        "no_token": RuntimeError("is refused"),
        "unusable_token": NoAnswer("is refused", sent=False, final=True),
        "untrusted": NoAnswer("is refused", sent=False, untrusted=0),
        "internal_error": Response(500, {}, problem("internal-error", status=500)),
        "proxy": Response(404, {}, b"it is refused"),
    }
    state = lease_state()
    left = keep(clock, state, lambda number: Response(200, {}, RENEWED % 60_000) if number == 2 else failures[failure])
    assert left[:4] == pytest.approx([40.0, 20.0, 40.0, 20.0]) and len(left) < 15, left
    assert all(before - after > 0.09 for before, after in zip(left[2:], left[3:])) and left[-1] < 0.5, left
    assert "could not be renewed" in str(state.lost_because) and "is refused" in str(state.lost_because)


def test_failure_before_a_renewal_does_not_explain_a_loss(clock: Clock) -> None:
    state = lease_state()
    state.renewal_failure = RuntimeError("no token")
    state.count_from({"served_ms": 0, "validity_ms": 1_000}, clock.time)
    clock.time += 2.0
    with pytest.raises(errors.LeaseLost, match="is over$"):
        state.check()


@pytest.mark.parametrize("gateways, untrusted, requests", [(1, [0], 1), (2, [0, 0, 1], 3), (2, [1, None, 0], 3)])
def test_call_ends_once_each_gateway_is_untrusted(
    clock: Clock, gateways: int, untrusted: list[Any], requests: int
) -> None:
    """Other calls change the current gateway, so that one of two may be asked twice; None: a failure that passes."""
    from fencegate._protocol import NoAnswer, Protocol, Response

    numbers = iter(untrusted)

    def answer(_: Any) -> Response:
        raise NoAnswer("no answer", sent=False, untrusted=next(numbers))

    steps, failure = clock.run(Protocol(10.0, 30.0, gateways).get("/v1/nodes", {}), answer)
    assert (
        isinstance(failure, errors.ConnectionFailed)
        and not failure.temporary
        and len(steps) - len(pauses(steps)) == requests
    )


def test_release_that_comes_too_late_is_not_tried(clock: Clock) -> None:
    """A block does not wait for the end of a lease that ends by itself."""
    from fencegate._protocol import Protocol, Response

    steps, failure = clock.run(
        Protocol(10.0, 30.0).release(lease_state(), seal=False),
        lambda _: Response(429, {"retry-after": "90"}, problem("too-many-requests", status=429)),
    )
    assert isinstance(failure, errors.TooManyRequests) and len(steps) == 1


def test_renewal_at_another_gateway_ignores_retry_after(clock: Clock) -> None:
    from fencegate._protocol import Protocol, Response

    for next_gateway in (True, False):
        state = lease_state(ttl_ms=10_000, validity_ms=10_000)
        answers = iter(
            [
                Response(503, {"retry-after": "2"}, problem("shutting-down", status=503), next_gateway),
                Response(200, {}, RENEWED % 9_000),
            ]
        )
        steps, _ = clock.run(Protocol(10.0, 30.0).renew(state), lambda _: next(answers))
        assert (pauses(steps)[0] < 1.0) == next_gateway


@pytest.mark.parametrize("answer", [204, 503, None])
def test_hold_of_a_refused_token_is_released_once(clock: Clock, answer: Any) -> None:
    from fencegate._protocol import NoAnswer, Protocol, Request, Response

    state = lease_state()
    call = Protocol(10.0, 30.0).write_under(state, [{"call": "f"}], False, False, None, True, False)
    next(call)
    release = call.send(Response(412, {}, problem("stale-fencing-token", status=412)))
    assert (
        isinstance(release, Request)
        and (release.method, release.path) == ("DELETE", "/v1/leases/a")
        and state.lost_because
    )
    with pytest.raises(errors.StaleFencingToken):
        call.throw(NoAnswer("cut", sent=True)) if answer is None else call.send(Response(answer, {}, b""))


LOST = problem("lease-lost", status=410)


@pytest.mark.parametrize(
    "seal, left_ms, status, content, raised",
    [
        (True, 60_000, 410, LOST, None),
        (True, -1, 410, LOST, errors.LeaseLost),
        (False, -1, 410, LOST, None),
        (True, 60_000, 200, b'{"hold_count": 0, "sealed": false}', errors.FencegateError),
        (True, 60_000, 200, b'{"hold_count": 1, "sealed": false}', None),
        (False, 60_000, 200, b'{"hold_count": 0}', None),
    ],
)
def test_release_after_lost_answer_is_sealed_or_raises(
    seal: bool, left_ms: int, status: int, content: bytes, raised: Any
) -> None:
    """The first attempt is not answered;
    the second is answered when the lease has been valid for `left_ms` less than its ttl."""
    from fencegate._lease import now
    from fencegate._protocol import NoAnswer, Pause, Protocol, Request, Response

    state = lease_state(validity_ms=1_000)
    call = Protocol(10.0, 30.0).release(state, seal)
    assert (
        isinstance(next(call), Request)
        and isinstance(call.throw(NoAnswer("cut", sent=True)), Pause)
        and isinstance(call.send(None), Request)
    )
    state.valid_until = now() + left_ms / 1000
    with pytest.raises(raised or StopIteration) as ended:
        call.send(Response(status, {}, content))
    assert raised is None or type(ended.value) is raised
