"""Work that is run once a tick: the lease on `a` has token 7, that on `a@tick` 5; the last start was by token 3."""

from __future__ import annotations

from .scenario import LOCKED, TICK, Scenario, refused
from .scripted_gateway import Answer, fences, granted, problem

RUN, NOT_RUN = ({"ok": True, "run": run} for run in (True, False))
FAILED = {"error": lambda found: found is not None}
LEASES = [granted(token=7), granted(token=5, resource="a@tick")]
NOW, LAST = fences("a", (7, 30)), fences("a@tick", (3, 20))
RECORDED = fences("a@tick", (5, 30), (3, 20))
FENCES = {"event": "fence_raised", "limit": "2"}
TICK_QUERIES = [
    {**FENCES, "resource": "a", "token_min": "7", "token_max": "7"},
    {**FENCES, "resource": "a@tick"},
    {**FENCES, "resource": "a@tick", "token_max": "5"},
]

TICKS = {
    f"tick_is_{name}": Scenario(
        "Once a tick",
        [TICK],
        [outcome],
        [{"acquire": acquired, "history": history, "release": [Answer(204)]}],
        {"acquire": acquisitions, "history": requests, "release": releases},
        queries=TICK_QUERIES[:requests],
        fenced=["a", "a@tick"][:acquisitions],
    )
    for name, outcome, acquired, history, acquisitions, requests, releases in [
        ("run_if_it_is_the_first", RUN, LEASES, [NOW, fences("a@tick"), fences("a@tick", (5, 30))], 2, 3, 2),
        ("run_half_of_its_period_after_the_last", RUN, LEASES, [NOW, LAST, RECORDED], 2, 3, 2),
        ("not_run_earlier", NOT_RUN, LEASES, [NOW, fences("a@tick", (3, 21))], 1, 2, 1),
        ("not_run_if_a_start_seems_later", NOT_RUN, LEASES, [NOW, fences("a@tick", (3, 39))], 1, 2, 1),
        ("not_run_while_the_resource_is_held", NOT_RUN, [LOCKED], [], 1, 0, 0),
        ("not_run_while_another_start_is_recorded", NOT_RUN, [LEASES[0], LOCKED], [NOW, LAST], 2, 2, 1),
        (
            "not_run_if_another_was_recorded_before",
            NOT_RUN,
            LEASES,
            [NOW, LAST, fences("a@tick", (5, 30), (4, 29))],
            2,
            3,
            2,
        ),
        (
            "not_run_if_a_first_start_was_recorded_before",
            NOT_RUN,
            LEASES,
            [NOW, fences("a@tick"), fences("a@tick", (5, 30), (4, 29))],
            2,
            3,
            2,
        ),
        ("not_run_without_its_record", NOT_RUN, LEASES, [NOW, LAST, LAST], 2, 3, 2),
        ("an_error_without_its_fence", FAILED, LEASES, [fences("a")], 1, 1, 1),
        ("an_error_without_the_history", refused("forbidden"), LEASES, [problem(403, "forbidden")], 1, 1, 1),
    ]
}
