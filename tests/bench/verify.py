#!/usr/bin/python3
"""verify.py --stack DIR/stack.json --sales FILE   Compares the answers that `load --sales FILE` received
with the data in PostgreSQL.

1. For every article: initial stock - stock = sales that the gateway accepted,
   plus at most those whose answer was lost; the stock is not below zero, and the history has one row per sale.
2. Orders, if the run placed some: as many as were accepted, and as many pieces as were sold.
3. Tokens in the history, per resource in the order of the rows: those of lease_granted strictly grow,
   those of write_applied never fall; the fence is the highest token that wrote. The history has every grant.

Prints one JSON line. Exit code 0 without violations, else 1, with the violations on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psycopg2

Cursor = Any
HISTORY_TIMEOUT = 60.0


def connect(stack: dict[str, Any]) -> Any:
    postgres = stack["postgres"]
    connection = psycopg2.connect(
        host=postgres["host"], port=postgres["port"], dbname=postgres["database"], user=postgres["superuser"]
    )
    connection.autocommit = True
    return connection


def rows(cursor: Cursor, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    cursor.execute(statement, arguments)
    return cursor.fetchall()


def wait_for_grants(cursor: Cursor, patterns: list[str], expected: int) -> int:
    """Waits until the history has the expected number of grants, because it receives lease events asynchronously;
    returns the number."""
    deadline = time.monotonic() + HISTORY_TIMEOUT
    while True:
        ((count,),) = rows(
            cursor,
            "select count(*) from fencing.history where event = 'lease_granted' and resource like any (%s)",
            patterns,
        )
        if count >= expected or time.monotonic() > deadline:
            return count
        time.sleep(0.1)


def check_stock(cursor: Cursor, sales: dict[str, Any]) -> list[str]:
    prefix = sales["prefix"]
    found = {
        sku: (stock, initial)
        for sku, stock, initial in rows(
            cursor, "select sku, stock, initial_stock from inventory where starts_with(sku, %s)", prefix
        )
    }
    applied = dict(
        rows(
            cursor,
            "select resource, count(*) from fencing.history where event = 'write_applied' "
            "and starts_with(resource, %s) group by 1",
            f"inventory/{prefix}",
        )
    )
    violations = []
    for article in sales["skus"]:
        sku = article["sku"]
        if sku not in found:
            violations.append(f"{sku} is not in the inventory")
            continue
        stock, initial = found[sku]
        sold = initial - stock
        if not article["accepted"] <= sold <= article["accepted"] + article["unknown"]:
            violations.append(f"{sku}: sold {sold}, accepted {article['accepted']}, unknown {article['unknown']}")
        if stock < 0:
            violations.append(f"{sku}: stock {stock}")
        writes = applied.get(f"inventory/{sku}", 0)
        if writes != sold + 1:  # one write created the article
            violations.append(f"{sku}: sold {sold}, but {writes} writes in the history")
    return violations


def check_orders(cursor: Cursor, sales: dict[str, Any]) -> list[str]:
    ordered = {
        sku: (count, pieces)
        for sku, count, pieces in rows(
            cursor,
            "select sku, count(*), sum(quantity) from orders where starts_with(sku, %s) "
            "and status = 'placed' group by 1",
            sales["prefix"],
        )
    }
    violations = []
    for article in sales["skus"]:
        count, pieces = ordered.get(article["sku"], (0, 0))
        if not article["ordered"] <= count <= article["ordered"] + article["orders_unknown"]:
            violations.append(
                f"{article['sku']}: {count} orders, accepted {article['ordered']}, unknown {article['orders_unknown']}"
            )
        if not article["unknown"] and not article["orders_unknown"] and pieces != article["accepted"]:
            violations.append(f"{article['sku']}: sold {article['accepted']}, ordered {pieces}")
    return violations


def check_tokens(cursor: Cursor, patterns: list[str], gateways: int) -> list[str]:
    violations = []
    granted: dict[str, list[int]] = defaultdict(list)
    written: dict[str, list[int]] = defaultdict(list)
    for event, resource, token in rows(
        cursor,
        "select event, resource, fencing_token from fencing.history "
        "where event in ('lease_granted', 'write_applied') and resource like any (%s) order by id",
        patterns,
    ):
        (granted if event == "lease_granted" else written)[resource].append(token)
    for resource, tokens in granted.items():
        if len(set(tokens)) != len(tokens):
            violations.append(f"{resource}: a token was granted twice")
        # Each gateway writes its events in batches of its own,
        # so that with several the order of the rows is not that of the grants.
        if gateways == 1 and tokens != sorted(tokens):
            first = next(at for at in range(1, len(tokens)) if tokens[at] <= tokens[at - 1])
            violations.append(f"{resource}: granted {tokens[first - 1]} and then {tokens[first]}")
    fences = dict(
        rows(cursor, "select resource, last_fencing_token from fencing.guard where resource like any (%s)", patterns)
    )
    for resource, tokens in written.items():
        if tokens != sorted(tokens):
            first = next(at for at in range(1, len(tokens)) if tokens[at] < tokens[at - 1])
            violations.append(f"{resource}: written with {tokens[first - 1]} and then with {tokens[first]}")
        # The fence is one higher if the last write sealed its token.
        if fences.get(resource) not in (max(tokens), max(tokens) + 1):
            violations.append(f"{resource}: fence {fences.get(resource)}, highest that wrote {max(tokens)}")
        if not set(tokens) <= set(granted[resource]):
            violations.append(f"{resource}: written with a token that was never granted")
    return violations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", type=Path, required=True)
    parser.add_argument("--sales", type=Path, required=True)
    arguments = parser.parse_args()
    stack = json.loads(arguments.stack.read_text())
    sales = json.loads(arguments.sales.read_text())
    patterns = [f"inventory/{sales['prefix']}%", f"load/{sales['prefix']}%"]
    with connect(stack).cursor() as cursor:
        grants = wait_for_grants(cursor, patterns, sales["granted"])
        violations = []
        if grants < sales["granted"]:
            violations.append(f"{sales['granted']} leases were granted, {grants} are in the history")
        violations += check_stock(cursor, sales)
        if sales["mode"] == "order":
            violations += check_orders(cursor, sales)
        violations += check_tokens(cursor, patterns, len(stack["gateways"]))
        ((rejected,),) = rows(
            cursor,
            "select count(*) from fencing.history where event = 'write_rejected' and resource like any (%s)",
            patterns,
        )
    for line in violations[:50]:
        print(line, file=sys.stderr)
    print(
        json.dumps(
            {
                "mode": sales["mode"],
                "prefix": sales["prefix"],
                "holds": not violations,
                "violations": len(violations),
                "sold": sales["sold"],
                "ordered": sales["ordered"],
                "granted": grants,
                "rejected": rejected,
            }
        )
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
