"""What each client has to do: the answers of scripted gateways, the calls that a driver makes, and what is expected of
both. docs/client.md has the rules, and the commands and outcomes of a driver."""

from __future__ import annotations

from .scenario import (
    ACQUIRE,
    ADOPT,
    CHECK,
    HELD,
    HISTORY,
    LAST_WRITE,
    LOCKED,
    LOST,
    MAINTENANCE,
    OK,
    ONE_SHOT,
    OVER,
    RELEASE,
    SEALING,
    STALE,
    Scenario,
    UNKNOWN,
    WRITE,
    at_least,
    await_loss,
    between,
    refused,
    sleep,
)
from .scripted_gateway import DROP, HANG, Answer, applied, events, followed, granted, of_proxy, page, problem
from .sharing import SHARING
from .ticks import TICKS

SCENARIOS = {
    # Validity
    "validity_counts_from_sending": Scenario(
        "Validity",
        [ACQUIRE],
        [{"ok": True, "token": str(2**53 - 1), "remaining_ms": lambda ms: 1_000 < ms <= 30_020}],
        [{"acquire": [granted(60_000, 30_000, delay_ms=2_000, served_ms=2_000)]}],
        {"acquire": 1},
        waits=[0],
    ),
    "grant_that_came_too_late_is_asked_for_again": Scenario(
        "Validity",
        [ACQUIRE],
        [OK],
        [{"acquire": [granted(60_000, 50, delay_ms=150), granted()]}],
        {"acquire": 2},
        ("acquire",),
    ),
    "grants_that_always_come_too_late_are_a_loss": Scenario(
        "Validity", [ACQUIRE], [LOST], [{"acquire": [granted(60_000, 50, delay_ms=150)]}], retry_for_ms=8_000
    ),
    "lease_that_cannot_be_renewed_is_lost_at_its_end": Scenario(
        "Validity",
        [ACQUIRE, await_loss(4_000), CHECK, WRITE],
        [OK, OK, LOST, LOST],
        [{"acquire": [granted(1_200)], "renew": [of_proxy(503)]}],
        {"renew": at_least(1), "write": 0},
    ),
    # Renewals
    "lease_is_renewed_each_third_of_its_ttl": Scenario(
        "Renewals",
        [ACQUIRE, sleep(3_500), CHECK],
        [OK, OK, HELD],
        [{"acquire": [granted(2_400)], "renew": [granted(2_400)]}],
        {"renew": between(2, 8)},
    ),
    "repeated_grant_is_renewed_by_what_is_left": Scenario(
        "Renewals",
        [ACQUIRE, sleep(2_500), CHECK],
        [OK, OK, HELD],
        [{"acquire": [granted(60_000, 2_000)], "renew": [granted(60_000)]}],
        {"renew": 1},
    ),
    "renewal_without_answer_goes_to_the_next_gateway": Scenario(
        "Renewals",
        [ACQUIRE, sleep(4_000), CHECK],
        [OK, OK, HELD],
        [{"acquire": [granted(3_600)], "renew": [HANG]}, {"renew": [granted(60_000)]}],
        {("renew", 1): at_least(1)},
    ),
    "renewal_with_a_long_retry_after_is_tried_in_time": Scenario(
        "Renewals",
        [ACQUIRE, sleep(4_000), CHECK],
        [OK, OK, HELD],
        [{"acquire": [granted(3_600)], "renew": [problem(503, "no-quorum", retry_after=30), granted(60_000)]}],
        {"renew": at_least(2)},
    ),
    "renewal_that_is_refused_is_not_repeated": Scenario(
        "Renewals",
        [ACQUIRE, await_loss(4_000)],
        [OK, OK],
        [{"acquire": [granted(1_500)], "renew": [problem(409, "renewals-exhausted")]}],
        {"renew": 1},
    ),
    "renewal_answered_410_is_a_loss_at_once": Scenario(
        "Renewals",
        [ACQUIRE, await_loss(6_000), RELEASE],
        [OK, OK, LOST],
        [{"acquire": [granted(9_000)], "renew": [OVER]}],
        {"renew": 1},
    ),
    # The stream that watches a lease
    **{
        f"end_that_a_watch_tells_{name}_is_confirmed_at_once": Scenario(
            "Watch",
            [ACQUIRE, await_loss(8_000)],
            [OK, OK],
            [{"acquire": [granted()], "renew": [OVER], "watch": watches}],
            {"renew": 1, "watch": len(watches)},
        )
        for name, watches in {
            "by_an_event": [events("event: held\r\ndata: x\r\n\r\nevent: lost\n\n")],
            "of_a_release": [events("event: released\n\n")],
            "by_410": [OVER],
            "after_it_broke": [DROP, of_proxy(502), events("event: lost\n\n")],
        }.items()
    },
    "end_that_a_renewal_does_not_confirm_is_no_loss": Scenario(
        "Watch",
        [ACQUIRE, sleep(1_000), CHECK],
        [OK, OK, HELD],
        [{"acquire": [granted()], "renew": [granted()], "watch": [events("event: lost\n\n")]}],
        {"renew": 1},
    ),
    "watch_that_is_refused_is_not_repeated": Scenario(
        "Watch",
        [ACQUIRE, sleep(1_500), CHECK],
        [OK, OK, HELD],
        [{"acquire": [granted()], "watch": [problem(403, "forbidden")]}],
        {"watch": 1},
    ),
    # Acquisition
    "locked_resource_is_not_waited_for_without_a_wait": Scenario(
        "Keys", [ACQUIRE], [{"error": "locked"}], [{"acquire": [LOCKED]}], {"acquire": 1}, waits=[0]
    ),
    "long_wait_is_several_requests_with_one_key": Scenario(
        "Keys",
        [{**ACQUIRE, "wait_ms": 8_000}],
        [OK],
        [{"acquire": [LOCKED, problem(423, "resource-locked", 1, 200, max_wait_ms=200), granted()]}],
        {"acquire": 3},
        ("acquire",),
        [0, 200, 200],
    ),
    "any_of_several_is_held_as_the_answer_names_it": Scenario(
        "Keys",
        [{**ACQUIRE, "any_of": "b a", "wait_ms": 8_000}, CHECK],
        [OK, HELD],
        [{"acquire": [LOCKED, granted()]}],
        {"acquire": 2},
        ("acquire",),
        [0, 200],
        names={"any_of": ["b", "a"]},
    ),
    **SHARING,
    "acquisition_that_is_given_up_is_cancelled_by_its_key": Scenario(
        "Keys",
        [{**ACQUIRE, "cancel_after_ms": 1_500}, sleep(2_500)],
        [{"error": "cancelled"}, OK],
        [{"acquire": [HANG], "cancel": [problem(503, "no-quorum", 0), Answer(204)]}],
        {"acquire": 1, "cancel": 2},
        ("acquire", "cancel"),
    ),
    # Repeats
    "temporary_failures_are_repeated_with_one_key": Scenario(
        "Answers",
        [ONE_SHOT],
        [{"ok": True, "write_id": "W", "replayed": True}],
        [
            {
                "write": [
                    DROP,
                    of_proxy(502),
                    of_proxy(500),
                    of_proxy(200),
                    of_proxy(429),
                    problem(503, "overloaded", 0),
                    problem(409, "idempotency-in-progress", 0),
                    problem(429, "too-many-requests", 0),
                    applied(replayed=True),
                ]
            }
        ],
        {"write": 9},
        ("write",),
        retry_for_ms=20_000,
    ),
    "retry_after_is_waited_for": Scenario(
        "Answers",
        [ACQUIRE],
        [OK],
        [{"acquire": [problem(429, "too-many-requests", 1), granted()]}],
        {"acquire": 2},
        ("acquire",),
        pause_ms=1_000,
    ),
    "retry_after_beyond_the_time_of_repeats_ends_a_call": Scenario(
        "Answers",
        [ACQUIRE],
        [refused("too-many-requests")],
        [{"acquire": [problem(429, "too-many-requests", 60)]}],
        {"acquire": 1},
    ),
    **{
        f"{status}_{slug.replace('-', '_')}_is_not_repeated": Scenario(
            "Answers", [ACQUIRE], [refused(slug)], [{"acquire": [problem(status, slug)]}], {"acquire": 1}
        )
        for status, slug in [
            (400, "invalid-request"),
            (403, "forbidden"),
            (409, "write-conflict"),
            (429, "too-many-requests"),
            (500, "internal-error"),
            (503, "storage-unavailable"),
        ]
    },
    "redirect_is_not_followed": Scenario(
        "Answers",
        [ACQUIRE],
        [{"error": "unavailable"}],
        [{"acquire": [Answer(307, None, {"Location": "/v1/history"})]}],
        {"acquire": 1, "history": 0},
    ),
    **{
        f"answer_of_a_proxy_is_no_{call}": Scenario(
            "Answers",
            commands,
            [OK] * (len(commands) - 1) + [{"error": lambda found: found is not None}],
            [{"acquire": [granted()], **{call: [MAINTENANCE]}}],
            retry_for_ms=100,
        )
        for call, commands in [("acquire", [ACQUIRE]), ("release", [ACQUIRE, RELEASE]), ("history", [HISTORY])]
    },
    # Several addresses
    "failure_of_a_gateway_leads_to_the_next_one": Scenario(
        "Answers",
        [ACQUIRE, RELEASE],
        [OK, OK],
        [{"acquire": [DROP]}, {"acquire": [granted()], "release": [Answer(204)]}],
        {("acquire", 0): 1, ("acquire", 1): 1, ("release", 0): 0, ("release", 1): 1},
        ("acquire",),
    ),
    "lease_of_another_process_is_adopted": Scenario(
        "Renewals",
        [ADOPT, sleep(600), CHECK, RELEASE],
        [{"ok": True, "token": str(2**53 - 1), "remaining_ms": lambda ms: 0 < ms <= 1_500}, OK, OK, OK],
        [{"renew": [DROP, granted(1_500)], "release": [Answer(204)]}],
        {"acquire": 0, "renew": between(3, 4), "release": 1},
    ),
    "adopted_lease_that_is_over_is_lost": Scenario("Renewals", [ADOPT], [LOST], [{"renew": [OVER]}], {"renew": 1}),
    # Release
    "release_ends_the_renewals_and_is_sent_once": Scenario(
        "Answers",
        [ACQUIRE, RELEASE, RELEASE, sleep(1_000), CHECK],
        [OK, OK, OK, OK, LOST],
        [{"acquire": [granted(1_800)], "release": [Answer(204)]}],
        {"release": 1, "renew": 0},
    ),
    **{
        f"release_repeated_after_{name}_has_released": Scenario(
            "Answers",
            [ACQUIRE, RELEASE],
            [OK, OK],
            [{"acquire": [granted()], "release": [first, OVER]}],
            {"release": 2},
        )
        for name, first in {"a_lost_answer": DROP, "503": problem(503, "no-quorum", 0)}.items()
    },
    "release_of_a_lease_that_is_over_is_a_loss": Scenario(
        "Answers", [ACQUIRE, RELEASE], [OK, LOST], [{"acquire": [granted()], "release": [OVER]}], {"release": 1}
    ),
    "release_that_seals_is_repeated_after_a_lost_answer": Scenario(
        "Answers", SEALING, [OK, OK], [{"acquire": [granted()], "release": [DROP, OVER]}], {"release": 2}
    ),
    "release_that_seals_is_not_done_after_503": Scenario(
        "Answers",
        SEALING,
        [OK, LOST],
        [{"acquire": [granted()], "release": [problem(503, "storage-unavailable", 0), OVER]}],
        {"release": 2},
    ),
    "release_whose_token_is_not_sealed_is_an_error": Scenario(
        "Answers",
        SEALING,
        [OK, {"error": lambda found: found is not None}],
        [{"acquire": [granted()], "release": [Answer(200, {"hold_count": 0, "sealed": False})]}],
        {"release": 1},
    ),
    # Writes
    "write_that_releases_ends_the_lease": Scenario(
        "Answers",
        [ACQUIRE, LAST_WRITE, CHECK, RELEASE],
        [OK, OK, LOST, OK],
        [{"acquire": [granted()], "write": [applied()]}],
        {"write": 1, "release": 0},
        then=["release"],
    ),
    "write_alone_does_not_ask_for_a_release": Scenario(
        "Answers", [ACQUIRE, WRITE], [OK, OK], [{"acquire": [granted()], "write": [applied()]}], then=[None]
    ),
    **{
        f"loss_during_a_releasing_write_is_{name}": Scenario(
            "Answers",
            [ACQUIRE, LAST_WRITE, CHECK, RELEASE],
            [OK, written, LOST, released],
            [{"acquire": [granted(900)], "renew": [OVER], "write": [answer]}],
            {"write": 1, "renew": 1},
        )
        for name, answer, written, released in [
            ("none_if_it_is_applied", applied(delay_ms=600), OK, OK),
            (
                "reported_if_it_is_refused",
                problem(409, "expectation-failed", delay_ms=600),
                refused("expectation-failed"),
                LOST,
            ),
        ]
    },
    "write_under_a_lease_has_a_key": Scenario(
        "Answers",
        [ACQUIRE, WRITE],
        [OK, {"ok": True, "write_id": "W", "replayed": False}],
        [{"acquire": [granted()], "write": [applied()]}],
        {"write": 1},
        ("write",),
    ),
    "unknown_write_that_finds_its_lease_lost_loses_it": Scenario(
        "Answers",
        [ACQUIRE, WRITE, CHECK],
        [OK, {"error": "unknown"}, LOST],
        [{"acquire": [granted()], "write": [DROP, OVER]}],
        {"write": 2},
    ),
    "write_that_cannot_be_sent_has_changed_nothing": Scenario(
        "Answers", [ONE_SHOT], [{"error": "unavailable"}], retry_for_ms=1_000, unreachable=True
    ),
    **{
        f"write_answered_by_{name}_is_unknown": Scenario(
            "Answers",
            [ONE_SHOT],
            [{"error": "unknown", "key": "k"}],
            [{"write": [answer]}],
            {"write": at_least(1)},
            ("write",),
            retry_for_ms=100,
        )
        for name, answer in {"nobody": DROP, "a_proxy_with_502": of_proxy(502), "a_proxy": MAINTENANCE}.items()
    },
    "refusal_after_a_lost_answer_is_unknown": Scenario(
        "Answers",
        [ONE_SHOT],
        [{"error": "unknown", "key": "k"}],
        [{"write": [DROP, problem(403, "forbidden")]}],
        {"write": 2},
    ),
    **{
        f"{slug.replace('-', '_')}_after_a_lost_answer_is_conclusive": Scenario(
            "Answers", [ONE_SHOT], [outcome], [{"write": [DROP, problem(status, slug)]}], {"write": 2}, ("write",)
        )
        for status, slug, outcome in [
            (403, "resource-not-covered", refused("resource-not-covered")),
            (403, "shared-lease", refused("shared-lease")),
            (409, "constraint-violation", refused("constraint-violation")),
            (409, "expectation-failed", refused("expectation-failed")),
            (412, "stale-fencing-token", {"error": "stale"}),
            (422, "unprocessable", refused("unprocessable")),
        ]
    },
    "unknown_outcome_is_resolved_by_a_repeat": Scenario(
        "Answers",
        [ONE_SHOT],
        [{"ok": True, "replayed": True}],
        [{"write": [UNKNOWN, applied(replayed=True)], "history": [page()]}],
        {"write": 2},
        ("write",),
    ),
    "unknown_outcome_that_is_not_found_is_unknown": Scenario(
        "Answers",
        [ONE_SHOT],
        [{"error": "unknown", "key": "k"}],
        [{"write": [UNKNOWN], "history": [page()]}],
        {"write": at_least(1), "history": at_least(1)},
        ("write",),
        retry_for_ms=500,
    ),
    "look_up_that_is_refused_leaves_the_repeat": Scenario(
        "Answers",
        [ONE_SHOT],
        [{"ok": True, "replayed": True}],
        [{"write": [UNKNOWN, applied(replayed=True)], "history": [problem(403, "forbidden")]}],
        {"write": 2},
        ("write",),
    ),
    "own_lease_of_an_unknown_write_is_waited_for": Scenario(
        "Answers",
        [ONE_SHOT],
        [{"ok": True, "replayed": True}],
        [{"write": [UNKNOWN, LOCKED, applied(replayed=True)], "history": [page()]}],
        {"write": 3},
        ("write",),
    ),
    "locked_resource_of_a_first_write_is_not_waited_for": Scenario(
        "Answers", [ONE_SHOT], [{"error": "locked"}], [{"write": [LOCKED]}], {"write": 1}
    ),
    **{
        f"lease_is_lost_after_a_write_answered_{answer.status}": Scenario(
            "Answers",
            [ACQUIRE, WRITE, CHECK, WRITE],
            [OK, {"error": error}, LOST, LOST],
            [{"acquire": [granted()], "write": [answer], "release": [Answer(204)]}],
            {"write": 1},
        )
        for answer, error in [(OVER, "lost"), (STALE, "stale")]
    },
    **TICKS,
    # The history
    "stream_of_the_history_goes_on_after_the_last_event": Scenario(
        "Answers",
        [{"do": "follow", "after": "1", "count": 3}],
        [{"ok": True, "ids": [2, 3, 4]}],
        [{"follow": [followed(2, 3, rest="id: 4\nevent: lease_granted\n"), of_proxy(502), followed(4)]}],
        {"follow": 3},
        after=["1", "3", "3"],
    ),
    "stream_of_the_history_that_is_refused_is_an_error": Scenario(
        "Answers",
        [{"do": "follow", "after": "0", "count": 1}],
        [refused("forbidden")],
        [{"follow": [problem(403, "forbidden")]}],
        {"follow": 1},
    ),
    "stream_of_the_history_with_an_endless_line_is_an_error": Scenario(
        "Watch",
        [{"do": "follow", "after": "1", "count": 1}],
        [{"error": lambda found: found is not None}],
        [{"follow": [Answer(200, stream="data: ", endless=True, breaks=True)]}],
        {"follow": 1},
    ),
    "history_is_read_by_pages": Scenario(
        "Answers",
        [HISTORY],
        [{"ok": True, "ids": [3, 2, 1]}],
        [{"history": [page(3, 2, cursor="c"), page(1)]}],
        {"history": 2},
    ),
}
