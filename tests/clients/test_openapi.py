"""openapi.json as a source of clients: its schemas give types,
and a gateway answers each of its examples as it says."""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from typing import Any, Iterator

import pytest
from support import contract, openapi_examples
from support.api import Answer, Api, Json
from support.openapi_examples import Request
from support.polling import eventually
from support.stack import Stack

REQUESTS = openapi_examples.requests()
# The resources of the lease that a request uses, if its example is about others.
RESOURCES = {
    "insert_rows": ["orders/7001"],
    "delete_rows": ["orders/7003"],
    "call_function": ["inventory/sku-9", "orders/7002"],
}
ROWS = "select id from orders where id between 7001 and 7003"


# Schemas


def parts_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every object of the document with its path."""
    if isinstance(value, dict):
        yield path, value
        for name, part in value.items():
            if name not in ("example", "examples"):
                yield from parts_of(part, f"{path}/{name}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from parts_of(part, f"{path}/{number}")


PARTS = list(parts_of(contract.DOCUMENT))


def test_openapi_has_no_default_that_makes_input_compulsory() -> None:
    """Generators make a member with a default one that is always there; a caller would have to give it."""
    assert not [path for path, part in PARTS if "default" in part and not path.endswith("/properties")]


def test_openapi_arrays_have_items_and_open_objects_say_so() -> None:
    """A generator reads an object without members, and without additionalProperties, as an object that has none."""
    schemas = [(path, part) for path, part in PARTS if "type" in part and not path.endswith("/properties")]
    assert len(schemas) > 100
    assert not [path for path, part in schemas if "array" in part["type"] and "items" not in part]
    assert not [
        path
        for path, part in schemas
        if "object" in part["type"] and not {"properties", "additionalProperties"} & set(part)
    ]


def test_openapi_branches_are_schemas_of_their_own() -> None:
    """A branch that only requires a member gives no type."""
    branches = [(path, branch) for path, part in PARTS for word in ("oneOf", "anyOf") for branch in part.get(word, [])]
    assert len(branches) > 10
    assert not [(path, branch) for path, branch in branches if not {"$ref", "type"} & set(branch)]


def test_openapi_bodies_and_answers_have_one_named_schema() -> None:
    found = []
    for path, method, _, operation in openapi_examples.operations():
        contents = [("body", operation.get("requestBody", {}))] + [
            (status, contract.resolve(response)) for status, response in operation["responses"].items()
        ]
        for where, part in contents:
            found += [
                f"{method} {path} {where}"
                for kind, content in part.get("content", {}).items()
                if "json" in kind and "ndjson" not in kind and set(content["schema"]) != {"$ref"}
            ]
    assert not found
    assert "oneOf" not in contract.resolve({"$ref": "#/components/schemas/resource_state"})


@pytest.mark.parametrize(
    "body, valid",
    [
        ({"resource": "a"}, True),
        ({"resources": ["a", "b"], "ttl_ms": 100}, True),
        ({"resource": "a", "resources": ["b"]}, False),
        ({"ttl_ms": 100}, False),
        ({"resource": "a", "unknown": 1}, False),
    ],
)
def test_openapi_lease_request_has_one_of_two_members(body: Json, valid: bool) -> None:
    for schema in ("lease_request", "write_lease"):
        assert contract.validator_of(json.dumps({"$ref": f"#/components/schemas/{schema}"})).is_valid(body) is valid


def test_openapi_operations_have_tags_and_examples() -> None:
    """An answer with a body has an example; `requests` fails if a request lacks one."""
    tags = {tag["name"] for tag in contract.DOCUMENT["tags"]}
    responses = {
        operation["operationId"]: operation["responses"] for _, _, _, operation in openapi_examples.operations()
    }
    assert responses.keys() == {request.operation for request in REQUESTS}
    assert not [
        operation["operationId"]
        for _, _, _, operation in openapi_examples.operations()
        if len(operation["tags"]) != 1 or not set(operation["tags"]) <= tags
    ]
    assert not [
        request
        for request in REQUESTS
        if not openapi_examples.answers_of(request.operation, request.name)
        and "204" not in responses[request.operation]
    ]
    assert contract.DOCUMENT["servers"]


# Examples


def remove_orders(stack: Stack) -> None:
    """Removes the orders of earlier examples, and puts their pieces back."""
    entered = (
        "select fencing.enter(r, greatest(fencing.fence(r), 1)) from unnest(array['inventory/sku-9', 'orders/7001', "
        "'orders/7002', 'orders/7003']) r"
    )
    stack.query(
        f"begin; {entered}; delete from orders where id between 7001 and 7003; "
        "update inventory set stock = initial_stock where sku = 'sku-9'; commit"
    )


@contextmanager
def prepared(stack: Stack, request: Request) -> Iterator[Request]:
    """Acquires the lease that the request uses, and puts its lease_id into the request;
    afterwards nobody holds the resources."""
    api = stack.api()
    remove_orders(stack)
    lease_id = ""
    if (
        openapi_examples.has_lease_id(request)
        or request.operation
        in "revoke_lease revoke_lease_by_query list_leases show_resource show_resource_by_query".split()
    ):
        resources = RESOURCES.get(request.operation, ["inventory/sku-9"])

        def acquire() -> Json:
            answer = api.post(
                "/v1/leases", {"resources": resources, "ttl_ms": 20_000, "wait_ms": 10_000, "owner": "orders-7f3a"}
            )
            assert answer.status == 201, answer
            return answer.json()

        lease = eventually(acquire, 20)
        lease_id = lease["lease_id"]
        if request.operation == "delete_rows":
            api.must_write(lease, {"insert": "orders", "values": {"id": 7003, "sku": "sku-9", "quantity": 1}})
    if openapi_examples.KEY_HEADER in request.headers:  # one key for each run and operation
        request.headers[openapi_examples.KEY_HEADER] += f"-{uuid.uuid4().hex[:12]}"
    try:
        yield request.for_lease(lease_id)
    finally:
        for resource in ("inventory/sku-9", "orders/7001", "orders/7002", "orders/7003"):
            assert api.revoke(resource).status in (204, 404)


def send(api: Api, request: Request) -> Answer:
    return api.call(request.method, request.path, request.body, request.headers)


def read_event(api: Api, request: Request) -> str:
    """Returns the first event of a stream, and ends the stream."""
    with api.connection() as connection:
        connection.send(request.method, request.path, None, request.headers)
        response = connection.wire.getresponse()
        assert (response.status, response.headers.get_content_type()) == (200, "text/event-stream")
        event = "".join(iter(lambda: response.readline().decode(), "\n"))
        connection.wire.close()
        return event


@pytest.mark.parametrize(
    "request_", REQUESTS, ids=[f"{request.operation}-{request.name}".strip("-") for request in REQUESTS]
)
def test_openapi_example_is_answered_as_it_says(stack: Stack, request_: Request) -> None:
    examples = openapi_examples.answers_of(request_.operation, request_.name)
    with prepared(stack, request_) as request:
        if request.operation == "follow_history":
            eventually(lambda: stack.api().history(resource="inventory/sku-9"), goal="the history has an event")
            ((_, example),) = examples.items()
            assert not openapi_examples.missing_words(example, read_event(stack.api(), request))
            return
        answer = send(stack.api(), request)
        assert 200 <= answer.status < 300, answer
        kind = answer.headers.get_content_type()
        if not answer.body:
            return
        example = examples[str(answer.status), kind]
        if kind != "application/json":
            assert not openapi_examples.missing_words(example, answer.body.decode())
        elif request.operation not in ("show_openapi", "describe_tables"):
            assert not list(openapi_examples.differs(example, json.loads(answer.body)))
        if request.operation in ("insert_rows", "delete_rows", "call_function"):
            assert len(stack.query(ROWS)) == (request.operation != "delete_rows"), "the rows of the example"
