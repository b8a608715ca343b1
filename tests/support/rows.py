"""Rows of psycopg2's cursors."""

from __future__ import annotations

from typing import Any


def rows_of(cursor: Any) -> list[Any]:
    """Returns the rows of the statement; none if it returns none. psycopg2 has no rows of one without columns,
    such as `select from t`."""
    if cursor.description:
        return cursor.fetchall()
    return [()] * cursor.rowcount if cursor.statusmessage.startswith("SELECT ") else []
