"""Reads the metrics of a gateway."""

from __future__ import annotations

import re

from support.api import Api

Sample = tuple[str, frozenset[tuple[str, str]]]


def scrape(api: Api) -> dict[Sample, float]:
    answer = api.call("GET", "/metrics")
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    out = {}
    for line in answer.body.decode().splitlines():
        if line and not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
            out[(name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels or "")))] = float(value)
    return out


def sum_samples(samples: dict[Sample, float], name: str, **labels: str) -> float:
    """Returns the sum of the samples that have these labels."""
    return sum(v for (n, have), v in samples.items() if n == name and set(labels.items()) <= have)
