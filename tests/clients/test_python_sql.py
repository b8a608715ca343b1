"""fenced() and async_fenced(): transactions of SQLAlchemy, psycopg, asyncpg and Django under a lease of the Python
client."""

from __future__ import annotations

import asyncio
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Callable, Iterator

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connection as connection_of_django
from python_clients import errors, fencegate
from python_transactions import KINDS, Article, address
from sqlalchemy.orm import Session
from support.polling import eventually
from support.stack import Stack


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[fencegate.Client]:
    with fencegate.Client(stack.facts["http"]) as made:
        yield made


@pytest.fixture(scope="module")
def engine(stack: Stack) -> Iterator[Any]:
    made = sqlalchemy.create_engine("postgresql+psycopg2://", creator=lambda: psycopg2.connect(stack.conninfo()))
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def django_connection(stack: Stack) -> Iterator[Any]:
    named = {name.upper(): value for name, value in address(stack).items() if name != "database"}
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": address(stack)["database"], **named}
    settings.configure(DATABASES={"default": database})
    yield connection_of_django
    connection_of_django.close()


@pytest.fixture(params=KINDS)
def open_session(
    request: pytest.FixtureRequest, stack: Stack, engine: Any, django_connection: Any
) -> Callable[[], Any]:
    """Returns a function that opens a session or connection of one kind in a transaction."""
    return lambda: KINDS[request.param](stack, engine, django_connection)


def take(sku: str) -> str:
    return f"update inventory set stock = stock - 1 where sku = '{sku}'"


def stock_of(stack: Stack, sku: str) -> int:
    return stack.query("select stock from inventory where sku = %s", (sku,))[0][0]


@pytest.fixture
def skus(stack: Stack) -> list[str]:
    """Two articles with a stock of 10 each."""
    stem = f"py-{uuid.uuid4().hex[:8]}-"
    stack.query("select shop_stock(%s, 2, 10)", (stem,))
    return [f"{stem}2", f"{stem}1"]


def test_transaction_changes_rows_of_the_leases_resources(
    stack: Stack, client: fencegate.Client, open_session: Callable[[], Any], skus: list[str]
) -> None:
    with client.lease(*(f"inventory/{sku}" for sku in skus)) as lease:
        assert lease.fencing_token > 2**32, "more than an int of PostgreSQL"
        session = open_session()
        session.run("set lock_timeout = '7s'")
        with session.fenced(lease) as entered:
            assert entered is session.session
            for sku in skus:
                session.run(take(sku))
            session.run("do $$ begin assert current_setting('lock_timeout') = '7s'; end $$")
        session.run("commit")
        assert [stock_of(stack, sku) for sku in skus] == [9, 9]
        session.close()
    written = [
        event
        for event in client.history(resource=f"inventory/{skus[0]}", event="write_applied")
        if event.fencing_token == lease.fencing_token
    ]
    assert len(written) == 1 and written[0].detail["direct"] is True


def test_shared_resources_may_be_read_alone(
    stack: Stack, client: fencegate.Client, open_session: Callable[[], Any], skus: list[str]
) -> None:
    written, read = (f"inventory/{sku}" for sku in skus)
    with client.lease(written, shared=[read]) as lease, client.lease(read, mode="shared") as reader:
        with closing(open_session()) as session, session.fenced(lease):
            session.run(take(skus[0]))
            session.run("commit")
        for refused in (lease, reader):
            with closing(open_session()) as session, pytest.raises((errors.ChangeNotCovered, errors.EnterRequired)):
                with session.fenced(refused):
                    session.run(take(skus[1]))
        assert [stock_of(stack, sku) for sku in skus] == [9, 10]
        with pytest.raises(psycopg2.Error, match="stale") as older:
            stack.query("select fencing.enter(%s, %s)", (read, lease.fencing_token - 1))
        assert older.value.pgcode == "FG412"


def test_refusals_of_the_guard_have_exceptions(
    stack: Stack, client: fencegate.Client, open_session: Callable[[], Any], skus: list[str]
) -> None:
    with client.lease(f"inventory/{skus[0]}") as lease:
        session = open_session()
        with pytest.raises(errors.ChangeNotCovered) as refused, session.fenced(lease):
            session.run(take(skus[1]))
        assert (
            refused.value.sqlstate == "FG403"
            and refused.value.detail["resource"] == f"inventory/{skus[1]}"
            and refused.value.__cause__ is not None
        )
        session.close()
        session = open_session()
        with pytest.raises(errors.EnterRequired), session.fenced(lease):
            session.run("commit")
            session.run(take(skus[0]))
        session.close()
        stack.query("select fencing.enter(%s, %s)", (f"inventory/{skus[0]}", lease.fencing_token + 1))
        session = open_session()
        with pytest.raises(errors.TokenRefused) as stale, session.fenced(lease):
            raise AssertionError("the block must not begin")
        assert stale.value.detail == {
            "resource": f"inventory/{skus[0]}",
            "fencing_token": lease.fencing_token,
            "last_fencing_token": lease.fencing_token + 1,
        }
        assert "new lease" in stale.value.hint
        session.close()
        with pytest.raises(errors.LeaseLost), client.lease(f"inventory/{skus[1]}") as lost:
            stack.api().must_revoke(f"inventory/{skus[1]}")
            with pytest.raises(errors.StaleFencingToken):
                lost.write({"update": "inventory", "where": {"sku": skus[1]}, "add": {"stock": -1}})
            with pytest.raises(errors.LeaseLost), fencegate.fenced(None, lost):
                raise AssertionError("nothing is sent under a lost lease")
    assert [stock_of(stack, sku) for sku in skus] == [10, 10]


def test_error_of_the_block_is_not_changed(
    client: fencegate.Client, open_session: Callable[[], Any], skus: list[str]
) -> None:
    with client.lease(f"inventory/{skus[0]}") as lease:
        session = open_session()
        with pytest.raises(Exception) as refused, session.fenced(lease):
            session.run(f"update inventory set stock = -1 where sku = '{skus[0]}'")
        assert not isinstance(refused.value, errors.FencegateError) and "inventory_stock_check" in str(refused.value)
        session.close()


def test_wait_for_the_guard_row_is_limited(
    stack: Stack, client: fencegate.Client, open_session: Callable[[], Any], skus: list[str]
) -> None:
    resource = f"inventory/{skus[0]}"
    with client.lease(resource) as lease:
        holder = psycopg2.connect(stack.conninfo())
        holder.cursor().execute("select fencing.enter(%s, %s)", (resource, lease.fencing_token))
        session = open_session()
        with pytest.raises(Exception, match="lock timeout"), session.fenced(lease, lock_timeout=0.2):
            raise AssertionError("the block must not begin")
        session.close()
        holder.close()
        with closing(open_session()) as session, pytest.raises(ValueError, match="lock_timeout"):
            with session.fenced(lease, lock_timeout=0):
                pass


def start_older_holder(stack: Stack, sku: str, token: int) -> Any:
    """Returns the connection of a holder whose lease is over, in a transaction in which it has sold all."""
    connection = psycopg2.connect(stack.conninfo())
    connection.cursor().execute("select fencing.enter(%s, %s)", (f"inventory/{sku}", token))
    connection.cursor().execute(f"update inventory set stock = 0 where sku = '{sku}'")
    return connection


def commit_when_awaited(stack: Stack, holder: Any) -> None:
    pid = holder.info.backend_pid
    waiting = "select true from pg_stat_activity where %s = any (pg_blocking_pids(pid))"
    eventually(lambda: stack.query(waiting, (pid,)), 30, goal="enter waits for the older holder")
    holder.commit()
    holder.close()


def test_block_begins_after_the_older_holder_has_committed(
    stack: Stack, client: fencegate.Client, open_session: Callable[[], Any], skus: list[str]
) -> None:
    """An older holder pauses inside its transaction beyond its lease. What the session has read before is not kept."""
    with client.lease(f"inventory/{skus[0]}") as lease, ThreadPoolExecutor(1) as pool:
        session = open_session()
        holder = start_older_holder(stack, skus[0], lease.fencing_token - 1)
        before = session.find(skus[0])
        assert session.read_stock(skus[0]) == 10
        committing = pool.submit(commit_when_awaited, stack, holder)
        with session.fenced(lease):
            assert session.read_stock(skus[0]) == 0
            assert before is None or before.stock == 0
        committing.result()
        session.close()


def test_change_made_before_the_block_is_refused_by_the_guard(
    stack: Stack, client: fencegate.Client, engine: Any, skus: list[str]
) -> None:
    """It was computed from what was read before. A new object may be added before."""
    with client.lease(f"inventory/{skus[0]}", f"inventory/{skus[0]}-new") as lease:
        with Session(engine, future=True) as session, session.begin(), pytest.raises(errors.EnterRequired):
            session.get(Article, skus[0]).stock -= 4
            with fencegate.fenced(session, lease):
                raise AssertionError("the block must not begin")
        with Session(engine, future=True) as session, session.begin():
            session.add(Article(sku=f"{skus[0]}-new", stock=3, initial_stock=3))
            with fencegate.fenced(session, lease):
                pass
    assert [stock_of(stack, sku) for sku in (skus[0], f"{skus[0]}-new")] == [10, 3]


def test_session_is_flushed_at_the_end_of_the_block(
    stack: Stack, client: fencegate.Client, engine: Any, skus: list[str]
) -> None:
    """The ORM sends changes late; the refusal of one is raised inside the block, and not at the commit."""
    with client.lease(f"inventory/{skus[0]}") as lease:
        with Session(engine, future=True) as session, session.begin(), fencegate.fenced(session, lease):
            session.get(Article, skus[0]).stock -= 4
        with pytest.raises(errors.ChangeNotCovered):
            with Session(engine, future=True) as session, session.begin():
                with fencegate.fenced(session, lease):
                    session.get(Article, skus[1]).stock -= 4
    assert [stock_of(stack, sku) for sku in skus] == [6, 10]


def test_autocommit_and_other_objects_are_refused(stack: Stack, client: fencegate.Client, engine: Any) -> None:
    with client.lease("python/autocommit") as lease:
        for session in (
            psycopg.connect(stack.conninfo(), autocommit=True),
            stack.sql(),
            engine.connect().execution_options(isolation_level="AUTOCOMMIT"),
        ):
            with pytest.raises(ValueError, match="autocommit"), fencegate.fenced(session, lease):
                pass
            session.close()
        with engine.connect() as connection, pytest.raises(ValueError, match="begin"), fencegate.fenced(
            connection, lease
        ):
            pass
        with psycopg.connect(
            stack.conninfo(), autocommit=True
        ) as connection, connection.transaction(), fencegate.fenced(connection, lease):
            pass
        with pytest.raises(TypeError, match="session"), fencegate.fenced(object(), lease):
            pass
    assert stack.query("select fencing.fence('python/autocommit')") == [(lease.fencing_token,)]


def test_proof_is_sent_where_it_is_asked_for(stack: Stack, client: fencegate.Client, engine: Any) -> None:
    with client.lease("python/proof") as lease:
        with pytest.raises(errors.ProofRefused) as refused, psycopg.connect(
            stack.conninfo()
        ) as connection, fencegate.fenced(connection, lease, proof=True):
            raise AssertionError("the database has no key to check it with")
        assert refused.value.detail["fault"] == "not_authentic"
        with pytest.raises(errors.ProofRefused) as shown, engine.connect() as bound, bound.begin(), fencegate.fenced(
            bound, lease, proof=True
        ):
            raise AssertionError("as above")
        assert lease.lease_id not in "".join(traceback.format_exception(shown.type, shown.value, shown.tb))
        key = (stack.data / "signing.key").read_text().strip()
        stack.query("select fencing.add_proof_key(convert_to(%s, 'UTF8'), null, 'python')", (key,))
        try:
            with psycopg.connect(stack.conninfo()) as connection, fencegate.fenced(connection, lease, proof=True):
                pass
        finally:
            stack.query("select fencing.retire_proof_key('python')")


def test_login_without_writers_role_has_hint(stack: Stack, client: fencegate.Client) -> None:
    role = f"python_{uuid.uuid4().hex[:8]}"
    stack.query(f"create role {role} login")
    conninfo = stack.conninfo().rsplit("user=", 1)[0] + f"user={role}"
    with client.lease("python/no-writer") as lease:
        for connect in (psycopg.connect, psycopg2.connect):
            with pytest.raises(errors.WriterRoleMissing) as refused, connect(conninfo) as connection, fencegate.fenced(
                connection, lease
            ):
                raise AssertionError("the login may not use the schema")
            assert "grant fencing_writer" in refused.value.hint and refused.value.sqlstate == "42501"
        with pytest.raises(psycopg.errors.InsufficientPrivilege), psycopg.connect(
            stack.conninfo()
        ) as connection, fencegate.fenced(connection, lease):
            connection.execute(f"set local role {role}; select * from inventory")
    stack.query(f"drop role {role}")


def test_async_connection_without_transaction_is_refused(stack: Stack, client: fencegate.Client) -> None:
    async def check(connection: Any, named: str) -> None:
        with pytest.raises(ValueError, match=named):
            async with fencegate.async_fenced(connection, lease):
                pass
        await connection.close()

    async def work() -> None:
        await check(await psycopg.AsyncConnection.connect(stack.conninfo(), autocommit=True), "autocommit")
        of_asyncpg = await asyncpg.connect(**address(stack))
        await check(of_asyncpg, "transaction")
        with pytest.raises(TypeError, match="needs async_fenced"), fencegate.fenced(of_asyncpg, lease):
            pass

    with client.lease("python/async") as lease:
        asyncio.run(work())


def test_errors_outside_of_the_block_are_translated(
    stack: Stack, client: fencegate.Client, skus: list[str], django_connection: Any
) -> None:
    """Without `fenced`, as where a statement is forgotten, or at the commit."""
    with client.lease("python/django") as lease, pytest.raises(ValueError, match="atomic"):
        with fencegate.fenced(django_connection, lease):
            pass
    with pytest.raises(psycopg.Error) as forgotten, psycopg.connect(stack.conninfo()) as connection:
        connection.execute(take(skus[0]))
    assert isinstance(fencegate.guard_error_of(forgotten.value), errors.EnterRequired)
    with pytest.raises(Exception) as of_django, django_connection.cursor() as cursor:
        cursor.execute(take(skus[0]))
    assert isinstance(fencegate.guard_error_of(of_django.value), errors.EnterRequired)
    assert fencegate.guard_error_of(ValueError("another")) is None
