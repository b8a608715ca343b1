"""The installation refuses a server on which the guard can't hold, before anything is changed. server_fault.sql has the versions."""
import psycopg2
import pytest
from test_catalogue import SCHEMA_FILES, rows


def test_install_on_a_server_with_a_fault_is_refused(server):
    fresh = server.create("template0")
    connection = server.connect(fresh, autocommit=False)
    with connection.cursor() as cursor, pytest.raises(psycopg2.Error) as refused:
        for file in SCHEMA_FILES:
            cursor.execute(file.read_text().replace("(0, 130008)", "(0, 990000)"))
    connection.close()
    assert refused.value.pgcode == "0A000" and refused.value.diag.message_primary.endswith("; upgrade it to 99.0 or later"), refused.value
    assert rows(server, fresh, "select to_regnamespace('fencing')") == [(None,)]
    server.drop(fresh)
