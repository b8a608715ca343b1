"""Leases that share resources: what is asked for and read, and writes that need more."""

from __future__ import annotations

from typing import Any

from .scenario import ACQUIRE, CHECK, HELD, OK, RELEASE, WRITE, Scenario, at_least, refused, sleep
from .scripted_gateway import Answer, applied, granted, problem

KINDS: list[tuple[str, dict[str, Any], dict[str, Any], Answer, dict[str, Any]]] = [
    ("exclusive", {}, {}, applied(), OK),
    ("shared", {"mode": "shared"}, {"mode": "shared"}, problem(403, "shared-lease"), refused("shared-lease")),
    ("partly_shared", {"shared": "c b"}, {"shared": ["c", "b"]}, applied(), OK),
]
SHARING = {
    **{
        f"{kind}_lease_is_asked_for_and_read": Scenario(
            "Keys",
            [{**ACQUIRE, **command}, WRITE],
            [
                {"ok": True, "mode": asked.get("mode", "exclusive"), "shared": " ".join(asked.get("shared", []))},
                outcome,
            ],
            [{"acquire": [granted(**asked)], "write": [answer]}],
            {"acquire": 1, "write": 1},
            names={"resource": "a", **asked},
        )
        for kind, command, asked, answer, outcome in KINDS
    },
    "shared_lease_is_renewed_as_it_is": Scenario(
        "Renewals",
        [{**ACQUIRE, "mode": "shared"}, sleep(1_500), CHECK, RELEASE],
        [OK, OK, HELD, OK],
        [
            {
                "acquire": [granted(3_000, mode="shared")],
                "renew": [granted(60_000, mode="shared")],
                "release": [Answer(204)],
            }
        ],
        {"renew": at_least(1), "release": 1},
    ),
}
