"""Each file tests one behaviour: psql runs NAME.sql, and its output must equal NAME.out.

After an intended change: FENCING_WRITE_EXPECTED=1 python3 -m pytest tests/sql, then read the diff before committing it.
"""
import os
import pathlib

import pytest

HERE = pathlib.Path(__file__).resolve().parent
CASES = sorted(HERE.glob("*.sql"))


@pytest.mark.parametrize("case", CASES, ids=[case.stem for case in CASES])
def test_case(server, database, case):
    if case.stem.endswith("merge") and server.connect("postgres").server_version < 150000:
        pytest.skip("MERGE came with PostgreSQL 15")
    _, output = server.psql(database, case, "-a")
    expected = case.with_suffix(".out")
    if os.environ.get("FENCING_WRITE_EXPECTED"):
        expected.write_text(output)
    assert output == expected.read_text()
