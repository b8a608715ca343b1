"""Wrong bodies of POST /v1/leases, and the pointers to their faults."""

from __future__ import annotations

from typing import Any

import pytest
from support.api import Api, expect_problem, pointers_of


def request_with(api: Api, **changes: Any) -> Any:
    return api.call("POST", "/v1/leases", {"resource": "test/requests", "ttl_ms": 1_000, **changes})


@pytest.mark.parametrize("name", ["", "/", "a//b", "/a", "a/", "ä", "a b", "a\n", "a\u0000b", "a*", "a?b", "a#b", "x" * 201, 5, None, True, ["a"], {"a": 1}])
def test_resource_invalid_400_pointing_at_it(api: Api, name: Any) -> None:
    assert pointers_of(request_with(api, resource=name)) == ["/resource"]


def test_resource_absent_400_pointing_at_it(api: Api) -> None:
    assert pointers_of(api.call("POST", "/v1/leases", {"ttl_ms": 1_000})) == ["/resource"]


@pytest.mark.parametrize("ttl_ms", [0, -1, -10_000, 99, 3_600_000, 2**31, 2**63, 2**64, 2**70, 1.5, "1000", None, True, [], {}])
def test_ttl_wrong_400_pointing_at_it(api: Api, ttl_ms: Any) -> None:
    assert pointers_of(request_with(api, ttl_ms=ttl_ms)) == ["/ttl_ms"]


@pytest.mark.parametrize("wait_ms", [-1, 30_001, 2**31, 2**63, 2**70, 0.5, "10", None, False, []])
def test_wait_wrong_400_pointing_at_it(api: Api, wait_ms: Any) -> None:
    answer = request_with(api, wait_ms=wait_ms)
    assert pointers_of(answer) == ["/wait_ms"]
    assert answer.seconds < 1


@pytest.mark.parametrize("owner", ["x" * 129, "ä" * 65, "line\nbreak", "nul\u0000", "\u001b[31m", 5, None, True, [], {}])
def test_owner_wrong_400_pointing_at_it(api: Api, owner: Any) -> None:
    assert pointers_of(request_with(api, owner=owner)) == ["/owner"]


def test_faults_several_are_all_named_at_once(api: Api) -> None:
    answer = api.call("POST", "/v1/leases", {"resource": "a//b", "ttl_ms": -5, "wait_ms": "soon", "owner": 7})
    assert sorted(pointers_of(answer)) == ["/owner", "/resource", "/ttl_ms", "/wait_ms"]


@pytest.mark.parametrize("raw", [
    b"", b"{", b"{]", b"not json", b'{"resource": "a"', b'{"resource": "a"} x', b'{"resource": "a",}', b"{'resource': 'a'}", b'{"resource": "\xff\xfe"}',
    b'{"resource": "\xed\xa0\x80"}', b'{"resource": "a\n"}', b'{"resource": NaN}', b"[" * 100_000, b'{"a":' * 50_000, b"\x00", b"\xef\xbb\xbf",
], ids=["empty", "open", "crossed", "words", "cut", "trailing", "comma", "single-quotes", "not-utf-8", "lone-surrogate", "raw-newline", "nan", "deep-array",
        "deep-object", "nul", "only-a-mark"])
def test_body_not_json_400(api: Api, raw: bytes) -> None:
    expect_problem(api.call("POST", "/v1/leases", raw=raw), 400, "invalid-request")
    assert api.get("/healthz").status == 200


@pytest.mark.parametrize("body", [[], "text", 5, True, [{"resource": "a"}]])
def test_body_not_an_object_400(api: Api, body: Any) -> None:
    expect_problem(api.call("POST", "/v1/leases", body), 400, "invalid-request")


def test_body_null_400(api: Api) -> None:
    expect_problem(api.call("POST", "/v1/leases", raw=b"null"), 400, "invalid-request")


def test_number_with_exponent_is_exact_or_refused(api: Api, resource: str) -> None:
    """1e3 is 1000 in JSON: the gateway reads it so or refuses it with a pointer."""
    answer = api.call("POST", "/v1/leases", raw=b'{"resource": "%s", "ttl_ms": 1e3}' % resource.encode())
    if answer.status == 201:
        assert answer.json()["ttl_ms"] == 1_000
    else:
        assert pointers_of(answer) == ["/ttl_ms"]


def test_refused_body_makes_no_key(api: Api, resource: str) -> None:
    assert pointers_of(api.acquire(resource, ttl_ms=-1)) == ["/ttl_ms"]
    lease = api.must_acquire(resource)
    api.must_release(lease)


def test_request_with_faulty_field_names_it_in_detail(api: Api, resource: str) -> None:
    problem = expect_problem(api.acquire(resource, ttl_ms=1), 400, "invalid-request")
    assert "/ttl_ms has to be an integer" in problem["detail"], problem
    problem = expect_problem(api.acquire(resource, ttl_ms=1, wait_ms="x"), 400, "invalid-request")
    assert problem["detail"].startswith("The request has 2 faulty fields: /") and problem["detail"].endswith(" (1 more in errors)."), problem
    assert api.acquire(resource, ttl=1).json()["errors"][0]["detail"].startswith("is not a field of this request; there are resource,")
    assert api.get("/v1/history?limits=1").json()["errors"][0]["detail"].startswith("is not a parameter of this request; there are ")
    lease = api.must_acquire(resource)
    unknown = expect_problem(api.write(lease, {"update": "inventory", "where": {"sku": "x"}, "set": {"colour": 1}}), 422, "unprocessable")
    assert "/operations/0/set/colour" in unknown["detail"] and "colour" in unknown["errors"][0]["detail"], unknown
    api.must_release(lease)
