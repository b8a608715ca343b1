"""What the tests of fenced() and async_fenced() run in: sessions and connections of each kind, in a transaction, behind
one interface."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import Any, Callable, Coroutine, Iterator

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import sqlalchemy
from django.db import transaction as django
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from python_clients import fencegate
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, declarative_base
from sqlalchemy.pool import NullPool
from support.stack import Stack

Base = declarative_base()
STOCK = "select stock from inventory where sku = '{}'"


class Article(Base):  # type: ignore[misc, valid-type]
    __tablename__ = "inventory"
    sku = sqlalchemy.Column(sqlalchemy.Text, primary_key=True)
    stock = sqlalchemy.Column(sqlalchemy.Integer, nullable=False)
    initial_stock = sqlalchemy.Column(sqlalchemy.Integer, nullable=False)


class Blocking:
    """A session or connection in a transaction."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def run(self, statement: str) -> None:
        if isinstance(self.session, (Session, sqlalchemy.engine.Connection)):
            self.session.execute(sqlalchemy.text(statement))
        else:
            self.session.cursor().execute(statement)

    def find(self, sku: str) -> Any:
        """Returns the object of an article; None without an ORM."""
        return self.session.get(Article, sku) if isinstance(self.session, Session) else None

    def read_stock(self, sku: str) -> int:
        """Returns the stock as a program reads it: with the ORM, a session gives the object that it has."""
        if isinstance(self.session, Session):
            return self.find(sku).stock
        if isinstance(self.session, sqlalchemy.engine.Connection):
            return self.session.execute(sqlalchemy.text(STOCK.format(sku))).scalar()
        cursor = self.session.cursor()
        cursor.execute(STOCK.format(sku))
        row = cursor.fetchone()
        return row["stock"] if isinstance(row, dict) else row[0]

    def fenced(self, lease: Any, **options: Any) -> Any:
        return fencegate.fenced(self.session, lease, **options)

    def close(self) -> None:
        self.session.close()


class OfDjango(Blocking):
    """Django's connection in transaction.atomic()."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.block = django.atomic()
        self.block.__enter__()

    def close(self) -> None:
        django.set_rollback(True)
        self.block.__exit__(None, None, None)


class Awaited:
    """A session or connection for asyncio in a transaction, with the interface of Blocking."""

    def __init__(self, session: Coroutine[Any, Any, Any]) -> None:
        self.loop = asyncio.new_event_loop()
        self.session = self.wait(session)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def run(self, statement: str) -> Any:
        is_driver = isinstance(self.session, (asyncpg.Connection, psycopg.AsyncConnection))
        return self.wait(self.session.execute(statement if is_driver else sqlalchemy.text(statement)))

    def find(self, sku: str) -> Any:
        return self.wait(self.session.get(Article, sku)) if isinstance(self.session, AsyncSession) else None

    def read_stock(self, sku: str) -> int:
        if isinstance(self.session, AsyncSession):
            return self.find(sku).stock
        if isinstance(self.session, asyncpg.Connection):
            return self.wait(self.session.fetchval(STOCK.format(sku)))
        found = self.run(STOCK.format(sku))
        return self.wait(found.fetchone())[0] if isinstance(found, psycopg.AsyncCursor) else found.scalar()

    @contextmanager
    def fenced(self, lease: Any, **options: Any) -> Iterator[Any]:
        block = fencegate.async_fenced(self.session, lease, **options)
        entered = self.wait(block.__aenter__())
        try:
            yield entered
        except Exception as error:
            self.wait(block.__aexit__(type(error), error, error.__traceback__))
            raise
        self.wait(block.__aexit__(None, None, None))

    def close(self) -> None:
        self.wait(self.session.close())
        self.loop.close()


def begun(connection: Any) -> Any:
    connection.begin()
    return connection


async def begun_async(stack: Stack, kind: type) -> Any:
    """Returns an AsyncSession or AsyncConnection in a transaction."""
    bound = create_async_engine("postgresql+asyncpg://", connect_args=address(stack), poolclass=NullPool)
    session = AsyncSession(bound) if kind is AsyncSession else await bound.connect()
    await session.begin()
    return session


async def begun_asyncpg(stack: Stack) -> Any:
    connection = await asyncpg.connect(**address(stack))
    await connection.transaction().start()
    return connection


def address(stack: Stack) -> dict[str, Any]:
    parts = conninfo_to_dict(stack.conninfo())
    named = {"host": parts["host"], "port": int(parts["port"]), "user": parts["user"], "database": parts["dbname"]}
    return {**named, **({"password": parts["password"]} if "password" in parts else {})}


KINDS: dict[str, Callable[[Stack, Any, Any], Any]] = {
    "session": lambda _, engine, __: Blocking(Session(engine, future=True)),
    "connection": lambda _, engine, __: Blocking(begun(engine.connect())),
    "psycopg": lambda stack, *_: Blocking(psycopg.connect(stack.conninfo())),
    "psycopg2": lambda stack, *_: Blocking(psycopg2.connect(stack.conninfo())),
    "dict_rows": lambda stack, *_: Blocking(psycopg.connect(stack.conninfo(), row_factory=dict_row)),
    "real_dict_cursor": lambda stack, *_: Blocking(
        psycopg2.connect(stack.conninfo(), cursor_factory=psycopg2.extras.RealDictCursor)
    ),
    "django": lambda _, __, connection: OfDjango(connection),
    "async_session": lambda stack, *_: Awaited(begun_async(stack, AsyncSession)),
    "async_connection": lambda stack, *_: Awaited(begun_async(stack, AsyncConnection)),
    "async_psycopg": lambda stack, *_: Awaited(psycopg.AsyncConnection.connect(stack.conninfo())),
    "asyncpg": lambda stack, *_: Awaited(begun_asyncpg(stack)),
}
