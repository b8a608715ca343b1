"""Makes requests of the examples in openapi.json, and compares answers with the examples of answers."""

from __future__ import annotations

import json
import re
import urllib.parse
from dataclasses import dataclass
from typing import Any, Iterator

from support import contract

# Examples that belong to one run: the test replaces them.
LEASE_ID = contract.DOCUMENT["components"]["parameters"]["fencing_lease"]["example"]
KEY_HEADER = "Idempotency-Key"


@dataclass(frozen=True)
class Request:
    """One request of an operation; `name` is that of the example of its body, empty without a body."""

    operation: str
    name: str
    method: str
    path: str
    headers: dict[str, str]
    body: Any

    def for_lease(self, lease_id: str) -> "Request":
        """Returns the request with the lease_id in place of the example's."""

        def replace(value: Any) -> Any:
            return json.loads(json.dumps(value).replace(LEASE_ID, lease_id))

        path = self.path.replace(quote(LEASE_ID), quote(lease_id))
        return Request(self.operation, self.name, self.method, path, replace(self.headers), replace(self.body))


def quote(value: str) -> str:
    return urllib.parse.quote(value, safe="-._~")


def has_lease_id(request: Request) -> bool:
    return LEASE_ID in json.dumps([request.body, request.headers]) or quote(LEASE_ID) in request.path


def parameters_of(item: dict[str, Any], method: str) -> list[dict[str, Any]]:
    """Returns the parameters of an operation, those of its path included."""
    return [
        contract.resolve(parameter) for parameter in [*item.get("parameters", []), *item[method].get("parameters", [])]
    ]


def operations() -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Yields path, method, the members of the path, and the operation."""
    for path, item in contract.DOCUMENT["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method, item, operation


def requests() -> list[Request]:
    """Returns a request for each operation and each example of its body, with every parameter that has an example."""
    found = []
    for path, method, item, operation in operations():
        query: dict[str, Any] = {}
        headers: dict[str, str] = {}
        target = path
        for parameter in parameters_of(item, method):
            if "example" not in parameter:
                assert not parameter.get(
                    "required"
                ), f"{operation['operationId']}: {parameter['name']} is required and has no example"
                continue
            value = parameter["example"]
            if parameter["in"] == "path":
                target = target.replace("{" + parameter["name"] + "}", quote(value))
            elif parameter["in"] == "header":
                headers[parameter["name"]] = str(value)
            else:
                query.update(value if isinstance(value, dict) else {parameter["name"]: value})
        target += f"?{urllib.parse.urlencode(query)}" if query else ""
        bodies = operation.get("requestBody", {"content": {"application/json": {"examples": {"": {"value": None}}}}})[
            "content"
        ]["application/json"]["examples"]
        found += [
            Request(operation["operationId"], name, method.upper(), target, headers, body["value"])
            for name, body in bodies.items()
        ]
    return found


def answers_of(operation: str, name: str = "") -> dict[tuple[str, str], Any]:
    """Returns the examples of an operation's answers by status and media type: those of this name,
    where a request has several."""
    responses = next(found["responses"] for _, _, _, found in operations() if found["operationId"] == operation)
    contents = {
        (status, kind): content
        for status, response in responses.items()
        for kind, content in contract.resolve(response).get("content", {}).items()
    }
    examples = {
        key: {"": content["example"]}
        if "example" in content
        else {known: part["value"] for known, part in content.get("examples", {}).items()}
        for key, content in contents.items()
    }
    return {key: named.get(name, named.get("")) for key, named in examples.items() if named.keys() & {name, ""}}


def differs(example: Any, actual: Any, where: str = "") -> Iterator[str]:
    """Yields where two JSON values differ in their members or types.
    Elements of an array are compared with the first of the example."""
    if isinstance(example, dict) and isinstance(actual, dict):
        for name in sorted(set(example) ^ set(actual)):
            yield f"{where}/{name} is only in the {'example' if name in example else 'answer'}"
        for name in sorted(set(example) & set(actual)):
            if name not in ("detail", "counts", "totals"):  # their members depend on what happened
                yield from differs(example[name], actual[name], f"{where}/{name}")
    elif isinstance(example, list) and isinstance(actual, list):
        for element in actual if example else []:
            yield from differs(example[0], element, f"{where}/*")
    elif example is not None and actual is not None and type(example) is not type(actual):
        yield f"{where} is {actual!r}, in the example {example!r}"


def missing_words(example: str, actual: str) -> list[str]:
    """Returns the first words of the example's lines that the answer does not have."""
    return [
        words[0]
        for line in example.splitlines()
        if (words := re.split(r"[\s{:]", line.strip(), maxsplit=1)) and words[0] not in actual
    ]
