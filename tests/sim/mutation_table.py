"""Reads mutations/table.tsv. The comment at its beginning describes its columns."""

import pathlib
from typing import Any

TABLE = pathlib.Path(__file__).resolve().parent / "mutations" / "table.tsv"
COLUMNS = ("name", "checker", "profile", "seed", "rule", "left_out", "goes_wrong", "model")


def read_table() -> list[dict[str, Any]]:
    """Returns the rows of the table in their order; `model` is a list of the names of checks."""
    rows = []
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            fields = line.split("\t")
            row: dict[str, Any] = dict(zip(COLUMNS, fields + [""] * (len(COLUMNS) - len(fields)), strict=True))
            rows.append({**row, "model": row["model"].split()})
    return rows


def is_run(row):
    """Returns whether run_mutations.py runs the row."""
    return row["name"] != "-"
