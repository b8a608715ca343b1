"""Faulty bodies of POST /v1/leases, one of each kind;
tests/unit/api_requests_test.cpp and http_json_io_test.cpp have the others."""

from __future__ import annotations

import pytest
from support.api import Api, expect_problem, pointers_of


def test_faults_several_are_all_named_at_once(api: Api, resource: str) -> None:
    answer = api.post(
        "/v1/leases", {"resource": "a//b", "ttl_ms": -5, "wait_ms": "soon", "owner": 7, "fence_on_grant": None}
    )
    assert sorted(pointers_of(answer)) == ["/fence_on_grant", "/owner", "/resource", "/ttl_ms", "/wait_ms"]
    assert pointers_of(api.post("/v1/leases", {"ttl_ms": 1_000})) == ["/resource"]
    assert pointers_of(api.acquire(resource, ttl_ms=2**70)) == ["/ttl_ms"]
    api.must_acquire(resource)  # the refused request has made no key


@pytest.mark.parametrize(
    "raw",
    [b"", b'{"resource": "a"', b'{"resource": "\xff\xfe"}', b"[" * 100_000, b'{"a":' * 50_000, b"null"],
    ids=["empty", "cut", "not-utf-8", "deep-array", "deep-object", "null"],
)
def test_body_not_json_or_no_object_400(api: Api, raw: bytes) -> None:
    expect_problem(api.post("/v1/leases", raw=raw), 400, "invalid-request")
    assert api.get("/healthz").status == 200


def test_request_with_faulty_field_names_it_in_detail(api: Api, resource: str) -> None:
    problem = expect_problem(api.acquire(resource, ttl_ms=1), 400, "invalid-request")
    assert "/ttl_ms has to be an integer" in problem["detail"], problem
    problem = expect_problem(api.acquire(resource, ttl_ms=1, wait_ms="x"), 400, "invalid-request")
    assert problem["detail"].startswith("The request has 2 faulty fields: /") and problem["detail"].endswith(
        " (1 more in errors)."
    ), problem
    assert (
        api.acquire(resource, ttl=1)
        .json()["errors"][0]["detail"]
        .startswith("is not a field of this request; there are resource,")
    )
    assert (
        api.get("/v1/history?limits=1")
        .json()["errors"][0]["detail"]
        .startswith("is not a parameter of this request; there are ")
    )
    lease = api.must_acquire(resource)
    unknown = expect_problem(
        api.write(lease, {"update": "inventory", "where": {"sku": "x"}, "set": {"colour": 1}}), 422, "unprocessable"
    )
    assert "/operations/0/set/colour" in unknown["detail"] and "colour" in unknown["errors"][0]["detail"], unknown
    api.must_release(lease)
