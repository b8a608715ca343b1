#!/usr/bin/python3
"""verify.py --stack DIR/stack.json --sales FILE   compares what `load --sales FILE` was told with what PostgreSQL holds.

1. Of every article: stock at the beginning - stock now = sales that the gateway accepted (plus those whose answer was
   lost, at most), never below zero, and as many rows of the history.
2. Orders, where the run placed some: as many as accepted, and as many pieces as were sold.
3. Tokens in the history: of every resource, those of lease_granted strictly grow and those of write_applied never fall, in the
   order of the rows; the fence is the highest that wrote. Every grant is there.

Prints one JSON line; exits with 0 if all of it holds, else with 1 and every violation on stderr.
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
HISTORY_WITHIN = 60.0


def connect(stack: dict[str, Any]) -> Any:
    postgres = stack["postgres"]
    connection = psycopg2.connect(host=postgres["host"], port=postgres["port"], dbname=postgres["database"], user=postgres["superuser"])
    connection.autocommit = True
    return connection


def rows(cursor: Cursor, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    cursor.execute(statement, arguments)
    return cursor.fetchall()


def wait_for_grants(cursor: Cursor, below: list[str], expected: int) -> int:
    """Lease events reach the history a moment after their answers; gives how many there are in the end."""
    deadline = time.monotonic() + HISTORY_WITHIN
    while True:
        ((count,),) = rows(cursor, "select count(*) from fencing.history where event = 'lease_granted' and resource like any (%s)", below)
        if count >= expected or time.monotonic() > deadline:
            return count
        time.sleep(0.1)


def check_stock(cursor: Cursor, sales: dict[str, Any]) -> list[str]:
    prefix = sales["prefix"]
    found = {sku: (stock, initial) for sku, stock, initial in
             rows(cursor, "select sku, stock, initial_stock from inventory where starts_with(sku, %s)", prefix)}
    applied = dict(rows(cursor, "select resource, count(*) from fencing.history where event = 'write_applied' and starts_with(resource, %s) group by 1",
                        f"inventory/{prefix}"))
    wrong = []
    for one in sales["skus"]:
        sku = one["sku"]
        if sku not in found:
            wrong.append(f"{sku} is not in the inventory")
            continue
        stock, initial = found[sku]
        sold = initial - stock
        if not one["accepted"] <= sold <= one["accepted"] + one["unknown"]:
            wrong.append(f"{sku}: sold {sold}, accepted {one['accepted']}, unknown {one['unknown']}")
        if stock < 0:
            wrong.append(f"{sku}: stock {stock}")
        writes = applied.get(f"inventory/{sku}", 0)
        if writes != sold + 1:  # one made the article
            wrong.append(f"{sku}: sold {sold}, but {writes} writes in the history")
    return wrong


def check_orders(cursor: Cursor, sales: dict[str, Any]) -> list[str]:
    ordered = {sku: (count, pieces) for sku, count, pieces in
               rows(cursor, "select sku, count(*), sum(quantity) from orders where starts_with(sku, %s) and status = 'placed' group by 1", sales["prefix"])}
    wrong = []
    for one in sales["skus"]:
        count, pieces = ordered.get(one["sku"], (0, 0))
        if not one["ordered"] <= count <= one["ordered"] + one["orders_unknown"]:
            wrong.append(f"{one['sku']}: {count} orders, accepted {one['ordered']}, unknown {one['orders_unknown']}")
        if not one["unknown"] and not one["orders_unknown"] and pieces != one["accepted"]:
            wrong.append(f"{one['sku']}: sold {one['accepted']}, ordered {pieces}")
    return wrong


def check_tokens(cursor: Cursor, below: list[str], gateways: int) -> list[str]:
    wrong = []
    granted: dict[str, list[int]] = defaultdict(list)
    written: dict[str, list[int]] = defaultdict(list)
    for event, resource, token in rows(cursor, "select event, resource, fencing_token from fencing.history "
                                               "where event in ('lease_granted', 'write_applied') and resource like any (%s) order by id", below):
        (granted if event == "lease_granted" else written)[resource].append(token)
    for resource, tokens in granted.items():
        if len(set(tokens)) != len(tokens):
            wrong.append(f"{resource}: a token was granted twice")
        # Several gateways write their events in batches of their own: the rows' order is not the grants'.
        if gateways == 1 and tokens != sorted(tokens):
            first = next(at for at in range(1, len(tokens)) if tokens[at] <= tokens[at - 1])
            wrong.append(f"{resource}: granted {tokens[first - 1]} and then {tokens[first]}")
    fences = dict(rows(cursor, "select resource, last_fencing_token from fencing.guard where resource like any (%s)", below))
    for resource, tokens in written.items():
        if tokens != sorted(tokens):
            first = next(at for at in range(1, len(tokens)) if tokens[at] < tokens[at - 1])
            wrong.append(f"{resource}: written with {tokens[first - 1]} and then with {tokens[first]}")
        # One higher where the last write sealed its token.
        if fences.get(resource) not in (max(tokens), max(tokens) + 1):
            wrong.append(f"{resource}: fence {fences.get(resource)}, highest that wrote {max(tokens)}")
        if not set(tokens) <= set(granted[resource]):
            wrong.append(f"{resource}: written with a token that was never granted")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", type=Path, required=True)
    parser.add_argument("--sales", type=Path, required=True)
    given = parser.parse_args()
    stack = json.loads(given.stack.read_text())
    sales = json.loads(given.sales.read_text())
    below = [f"inventory/{sales['prefix']}%", f"load/{sales['prefix']}%"]
    with connect(stack).cursor() as cursor:
        grants = wait_for_grants(cursor, below, sales["granted"])
        wrong = []
        if grants < sales["granted"]:
            wrong.append(f"{sales['granted']} leases were granted, {grants} are in the history")
        wrong += check_stock(cursor, sales)
        if sales["mode"] == "order":
            wrong += check_orders(cursor, sales)
        wrong += check_tokens(cursor, below, len(stack["gateways"]))
        ((rejected,),) = rows(cursor, "select count(*) from fencing.history where event = 'write_rejected' and resource like any (%s)", below)
    for line in wrong[:50]:
        print(line, file=sys.stderr)
    print(json.dumps({"mode": sales["mode"], "prefix": sales["prefix"], "holds": not wrong, "violations": len(wrong), "sold": sales["sold"],
                      "ordered": sales["ordered"], "granted": grants, "rejected": rejected}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
