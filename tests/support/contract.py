"""Checks every answer that a test gets against openapi.json: status, headers, content type and fields."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator

import jsonschema

if TYPE_CHECKING:
    from support.api import Answer

DOCUMENT = json.loads((Path(__file__).resolve().parents[2] / "gateway/api/service/openapi.json").read_text())
# Headers of every answer (those of limits where a caller has some, those of CORS and compression where it asked
# for them), and the security headers of the console.
COMMON_HEADERS = set(
    (
        "date content-type content-length connection x-request-id cache-control transfer-encoding "
        "ratelimit ratelimit-policy content-security-policy cross-origin-opener-policy referrer-policy "
        "x-content-type-options x-frame-options vary content-encoding access-control-allow-origin "
        "access-control-expose-headers"
    ).split()
)


def resolve(part: Any) -> Any:
    """Follows `$ref` and returns the part it names."""
    while "$ref" in part:
        found = DOCUMENT
        for name in part["$ref"].removeprefix("#/").split("/"):
            found = found[name.replace("~1", "/")]
        part = found
    return part


@lru_cache(maxsize=None)
def responses_of(method: str, path: str) -> dict[str, Any] | None:
    """Returns the responses of an operation, or None where the document has no such operation."""
    for template, methods in DOCUMENT["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) and method in resolve(methods):
            return resolve(methods)[method]["responses"]
    return None


@lru_cache(maxsize=None)
def validator_of(schema: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**json.loads(schema), "components": DOCUMENT["components"]})


def described_fields(schema: Any) -> tuple[set[str], dict[str, Any], bool]:
    """Returns the names and schemas of an object's fields, and whether it may have further ones."""
    schema = resolve(schema)
    fields, allows_more = dict(schema.get("properties", {})), bool(schema.get("additionalProperties"))
    for branch in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(branch, []):
            _, others, open_ = described_fields(part)
            fields, allows_more = {**others, **fields}, allows_more or open_
    return set(fields), fields, allows_more


def undescribed_fields(schema: Any, value: Any, where: str = "") -> Iterator[str]:
    """Yields the paths of fields that the document does not have. A schema without fields allows any."""
    if isinstance(value, list):
        for item in value:
            yield from undescribed_fields(resolve(schema).get("items", {}), item, f"{where}/*")
    elif isinstance(value, dict):
        names, fields, allows_more = described_fields(schema)
        for name, inner in value.items():
            if name in names:
                yield from undescribed_fields(fields[name], inner, f"{where}/{name}")
            elif names and not allows_more:
                yield f"{where}/{name}"


def check(method: str, target: str, answer: "Answer") -> None:
    """Fails if the document does not describe the answer."""
    path = target.partition("?")[0]
    responses = responses_of("get" if method == "HEAD" else method.lower(), path)
    if responses is None:
        return

    def expect(good: bool, part: str) -> None:
        assert good, f"openapi.json does not have {part} of {method} {path} {answer.status}: {answer.body[:300]!r}"

    expect(str(answer.status) in responses, "the status")
    response = resolve(responses[str(answer.status)])
    headers = {name.lower() for name in response.get("headers", {})} | COMMON_HEADERS
    if answer.headers.get("Server", "").startswith("nginx"):
        headers.add("server")  # of the proxy that the answer came through
    extra = {name.lower() for name in answer.headers} - headers
    expect(not extra, f"headers {sorted(extra)}")
    if not answer.body:
        return
    kind = answer.headers.get_content_type()
    expect(kind in response.get("content", {}), f"the type {kind}")
    schema = response["content"][kind].get("schema")
    if schema is None or kind not in ("application/json", "application/problem+json"):
        return
    value = json.loads(answer.body)
    for wrong in validator_of(json.dumps(schema)).iter_errors(value):
        expect(False, f"{wrong.json_path} ({wrong.message})")
    fields = sorted(set(undescribed_fields(schema, value)))
    expect(not fields, f"fields {fields}")
