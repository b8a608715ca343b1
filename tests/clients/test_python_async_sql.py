"""fenced() and async_fenced() with what adapts the drivers: AsyncSession and AsyncConnection of SQLAlchemy, asyncpg,
and Django."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator, Iterator

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from python_clients import errors, fencegate
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from support.stack import Stack


def take(sku: str) -> str:
    return f"update inventory set stock = stock - 1 where sku = '{sku}'"


def stock_of(stack: Stack, sku: str) -> int:
    return stack.query("select stock from inventory where sku = %s", (sku,))[0][0]


@pytest.fixture
def skus(stack: Stack) -> list[str]:
    """Two articles with a stock of 10 each."""
    stem = f"py-{uuid.uuid4().hex[:8]}-"
    stack.query("select shop_stock(%s, 2, 10)", (stem,))
    return [f"{stem}1", f"{stem}2"]


def address(stack: Stack) -> dict[str, Any]:
    parts = conninfo_to_dict(stack.conninfo())
    named = {"host": parts["host"], "port": int(parts["port"]), "user": parts["user"], "database": parts["dbname"]}
    return {**named, **({"password": parts["password"]} if "password" in parts else {})}


@asynccontextmanager
async def transaction(stack: Stack, kind: str) -> AsyncIterator[Any]:
    """A session or connection in a transaction, which ends with the block."""
    if kind == "asyncpg":
        connection = await asyncpg.connect(**address(stack))
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()
        return
    engine = create_async_engine("postgresql+asyncpg://", connect_args=address(stack))
    try:
        async with AsyncSession(engine) if kind == "session" else engine.connect() as session, session.begin():
            yield session
    finally:
        await engine.dispose()


async def run(session: Any, statement: str) -> None:
    await session.execute(statement if isinstance(session, asyncpg.Connection) else text(statement))


@pytest.mark.parametrize("kind", ["session", "connection", "asyncpg"])
def test_async_transaction_is_fenced(stack: Stack, skus: list[str], kind: str) -> None:
    async def work() -> None:
        async with fencegate.AsyncClient(stack.facts["http"]) as client:
            async with client.lease(f"inventory/{skus[0]}") as lease:
                assert lease.fencing_token > 2**32, "more than an int of PostgreSQL"
                async with transaction(stack, kind) as session:
                    async with fencegate.async_fenced(session, lease) as entered:
                        assert entered is session
                        await run(session, take(skus[0]))
                with pytest.raises(errors.ChangeNotCovered) as refused:
                    async with transaction(stack, kind) as session:
                        async with fencegate.async_fenced(session, lease):
                            await run(session, take(skus[1]))
                assert refused.value.detail["resource"] == f"inventory/{skus[1]}"
            async with client.lease(f"inventory/{skus[0]}", fence_on_grant=True) as newer:
                lease._state.released = False  # as if this process had not noticed the end of its lease
                with pytest.raises(errors.TokenRefused):
                    async with transaction(stack, kind) as session, fencegate.async_fenced(session, lease):
                        pass
                lease._state.released = True
                assert newer.fencing_token > lease.fencing_token

    asyncio.run(work())
    assert [stock_of(stack, sku) for sku in skus] == [9, 10]


def test_asyncpg_without_transaction_or_async_is_refused(stack: Stack) -> None:
    async def work() -> None:
        async with fencegate.AsyncClient(stack.facts["http"]) as client, client.lease("python/asyncpg") as lease:
            connection = await asyncpg.connect(**address(stack))
            with pytest.raises(ValueError, match="transaction"):
                async with fencegate.async_fenced(connection, lease):
                    pass
            with pytest.raises(TypeError, match="needs async_fenced"), fencegate.fenced(connection, lease):
                pass
            await connection.close()

    asyncio.run(work())


@pytest.fixture(scope="module")
def django_connection(stack: Stack) -> Iterator[Any]:
    from django.conf import settings
    from django.db import connection

    named = {name.upper(): value for name, value in address(stack).items() if name != "database"}
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": address(stack)["database"], **named}
    settings.configure(DATABASES={"default": database})
    yield connection
    connection.close()


def test_django_transaction_is_fenced(stack: Stack, skus: list[str], django_connection: Any) -> None:
    from django.db import transaction as django

    with fencegate.Client(stack.facts["http"]) as client, client.lease(f"inventory/{skus[0]}") as lease:
        with pytest.raises(ValueError, match="atomic"), fencegate.fenced(django_connection, lease):
            pass
        with django.atomic(), fencegate.fenced(django_connection, lease), django_connection.cursor() as cursor:
            cursor.execute(take(skus[0]))
        with pytest.raises(errors.ChangeNotCovered) as refused, django.atomic():
            with fencegate.fenced(django_connection, lease), django_connection.cursor() as cursor:
                cursor.execute(take(skus[1]))
        assert refused.value.detail["resource"] == f"inventory/{skus[1]}"
    assert [stock_of(stack, sku) for sku in skus] == [9, 10]


def test_errors_outside_of_the_block_are_translated(stack: Stack, skus: list[str], django_connection: Any) -> None:
    """Without `fenced`, as where a statement is forgotten, or at the commit."""
    with pytest.raises(psycopg.Error) as forgotten, psycopg.connect(stack.conninfo()) as connection:
        connection.execute(take(skus[0]))
    assert isinstance(fencegate.guard_error_of(forgotten.value), errors.EnterRequired)
    with pytest.raises(Exception) as of_django, django_connection.cursor() as cursor:
        cursor.execute(take(skus[0]))
    assert isinstance(fencegate.guard_error_of(of_django.value), errors.EnterRequired)
    assert fencegate.guard_error_of(ValueError("another")) is None
