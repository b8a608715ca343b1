"""Transactions of the caller's own connection under a lease, for SQLAlchemy, Django, psycopg and asyncpg."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, contextmanager
from typing import Any, AsyncIterator, Generator, Iterator, Mapping, Optional, Sequence, Tuple, TypeVar

from ._lease import LeaseHandle, milliseconds
from .errors import GuardError, WriterRoleMissing

Session = TypeVar("Session")
Statement = Tuple[str, Mapping[str, Any]]

# The names of the parameters are those of SQLAlchemy's text(); psycopg gets %(name)s, asyncpg $1.
READ_LOCK_TIMEOUT = "select current_setting('lock_timeout')"
SET_LOCK_TIMEOUT = "select set_config('lock_timeout', :value, true)"
ENTER = "select fencing.enter(cast(:resources as text[]), cast(:token as bigint), cast(:proof as text))"
ENTER_SHARED = (
    "select max(fencing.enter_shared(name, cast(:token as bigint), cast(:proof as text)))"
    " from (select unnest(cast(:resources as text[])) as name) as names"
)
IDLE = 0  # libpq's PQTRANS_IDLE


@contextmanager
def fenced(
    session: Session, lease: LeaseHandle, *, lock_timeout: float = 5.0, proof: bool = False
) -> Iterator[Session]:
    """Enters the resources of the lease in the current transaction of the session:
    `with Session() as session, session.begin(), fenced(session, lease)`. What the lease shares may only be read.

    session: a Session or Connection of SQLAlchemy, django.db.connection in transaction.atomic(),
    or a connection of psycopg or psycopg2.
    A transaction that has not begun begins here; the caller commits it.
    lock_timeout: how many seconds to wait for other transactions with the same resources;
    afterwards the driver raises its error for SQLSTATE 55P03.
    proof: pass the lease_id, for a database that requires proofs.
    Errors: LeaseLost before anything is sent; a GuardError for each refusal of the guard, here and in the block;
    ValueError for a connection in autocommit mode.
    Read in the block what the change depends on: what was read before may be older than the last change of the holder
    before. Objects that an ORM session has loaded before are expired,
    so that they are read again; changes of them are sent before the resources are entered,
    so that the guard refuses those of protected rows.
    What the session has not sent yet is flushed at the end of the block, so that its refusal is raised here.
    """
    if hasattr(session, "is_in_transaction"):
        raise TypeError("session: a connection of asyncpg needs async_fenced")
    lease.check()
    with translated_errors():
        enter(session, lease, lock_timeout, proof)
        yield session
        if is_orm_session(session):
            session.flush()  # type: ignore[attr-defined]


def enter(session: Any, lease: LeaseHandle, lock_timeout: float, proof: bool) -> None:
    """Enters the resources of the lease, and expires what an ORM session has loaded before."""
    orm = session if is_orm_session(session) else None
    target = orm.connection() if orm else session
    if hasattr(target, "in_atomic_block"):  # Django
        if not target.in_atomic_block:
            raise ValueError("session: the connection is in no transaction; call transaction.atomic() first")
        target = target.connection
    require_transaction(target)
    if orm and orm.dirty:
        orm.flush()
    steps = enter_steps(lease, lock_timeout, proof)
    value = None
    while (statement := advance(steps, value)) is not None:
        value = execute(target, *statement)
    if orm:
        orm.expire_all()


@asynccontextmanager
async def async_fenced(
    connection: Session, lease: LeaseHandle, *, lock_timeout: float = 5.0, proof: bool = False
) -> AsyncIterator[Session]:
    """As `fenced`, for an AsyncSession or AsyncConnection of SQLAlchemy, an AsyncConnection of psycopg,
    or a connection of asyncpg in a transaction."""
    lease.check()
    target: Any = connection
    with translated_errors():
        if hasattr(target, "run_sync"):  # SQLAlchemy
            await target.run_sync(enter, lease, lock_timeout, proof)
        else:
            await enter_async(target, lease, lock_timeout, proof)
        yield connection
        if hasattr(target, "run_sync") and is_orm_session(target):
            await target.flush()


async def enter_async(target: Any, lease: LeaseHandle, lock_timeout: float, proof: bool) -> None:
    is_asyncpg = hasattr(target, "is_in_transaction")
    if not is_asyncpg:
        require_transaction(target)
    elif not target.is_in_transaction():
        raise ValueError("connection: it is in no transaction; call transaction() first")
    steps = enter_steps(lease, lock_timeout, proof)
    value = None
    while (statement := advance(steps, value)) is not None:
        if is_asyncpg:
            value = await target.fetchval(*to_numbered(*statement))
            continue
        async with open_cursor(target) as cursor:
            await cursor.execute(to_format(statement[0]), statement[1])
            (value,) = await cursor.fetchone()


def enter_steps(lease: LeaseHandle, lock_timeout: float, proof: bool) -> Generator[Statement, Any, None]:
    """Yields the statements, and gets the value of each. The caller's own lock_timeout applies again afterwards."""
    if not lock_timeout > 0:
        raise ValueError("lock_timeout: has to be greater than 0")
    before = yield READ_LOCK_TIMEOUT, {}
    yield SET_LOCK_TIMEOUT, {"value": f"{milliseconds(lock_timeout)}ms"}
    is_shared = lease.mode == "shared"
    given = {"token": lease.fencing_token, "proof": lease.lease_id if proof else None}
    for statement, names in (  # in the order of gateways: another one could deadlock
        (ENTER_SHARED, lease.resources if is_shared else lease.shared),
        (ENTER, () if is_shared else lease.resources),
    ):
        if names:
            yield statement, {"resources": sorted(names), **given}
    yield SET_LOCK_TIMEOUT, {"value": before}


def advance(steps: Generator[Statement, Any, None], value: Any) -> Optional[Statement]:
    try:
        return steps.send(value)
    except StopIteration:
        return None


def is_orm_session(session: Any) -> bool:
    return hasattr(session, "flush") and hasattr(session, "connection")


def to_format(statement: str) -> str:
    for name in ("value", "resources", "token", "proof"):
        statement = statement.replace(f":{name}", f"%({name})s")
    return statement


def to_numbered(statement: str, parameters: Mapping[str, Any]) -> Sequence[Any]:
    """Returns the statement with $1, and the values."""
    for number, name in enumerate(parameters, 1):
        statement = statement.replace(f":{name}", f"${number}")
    return [statement, *parameters.values()]


def execute(target: Any, statement: str, parameters: Mapping[str, Any]) -> Any:
    """Executes a statement, and returns the value of its row."""
    if hasattr(target, "exec_driver_sql"):  # SQLAlchemy
        from sqlalchemy import BigInteger, bindparam, text

        sent = text(statement)
        if "token" in parameters:  # the dialect of asyncpg takes an int for one of 32 bits
            sent = sent.bindparams(bindparam("token", type_=BigInteger))
        value = target.execute(sent, parameters).scalar()
        if (
            not target.in_transaction()
        ):  # a Connection of SQLAlchemy 1.4 without begin() commits after each statement that changes something
            raise ValueError("session: the connection is in no transaction; call begin() first")
        return value
    with open_cursor(target) as cursor:
        cursor.execute(to_format(statement), parameters)
        (value,) = cursor.fetchone()
        return value


def open_cursor(connection: Any) -> Any:
    """Returns a cursor whose rows are tuples, whatever those of the connection are."""
    if hasattr(connection, "row_factory"):
        from psycopg.rows import tuple_row

        return connection.cursor(row_factory=tuple_row)
    from psycopg2.extensions import cursor

    return connection.cursor(cursor_factory=cursor)


def require_transaction(target: Any) -> None:
    """Raises an exception if this is no connection, or each statement would be a transaction of its own."""
    connection = target.connection.dbapi_connection if hasattr(target, "exec_driver_sql") else target
    if not hasattr(connection, "cursor"):
        raise TypeError(
            "session: has to be a Session or Connection of SQLAlchemy or a connection of Django, psycopg or asyncpg, "
            f"not {type(target).__name__}"
        )
    status = getattr(getattr(connection, "info", None), "transaction_status", IDLE)
    if getattr(connection, "autocommit", False) and status == IDLE:
        raise ValueError(
            "session: the connection is in autocommit mode, "
            "so the resources would be closed again before the next statement; begin a transaction"
        )


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raises a GuardError in place of an exception of the driver whose SQLSTATE is one of the guard's."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "hide_parameters"):  # SQLAlchemy would show the proof, a secret
            error.hide_parameters = True
        refusal = guard_error_of(error)
        if refusal is None:
            raise
        raise refusal from error


def guard_error_of(error: Exception) -> Optional[GuardError]:
    """Returns the refusal of the guard that an exception of SQLAlchemy, Django or a driver reports."""
    original: Any = getattr(error, "orig", None) or error
    # Django's exceptions, and those of SQLAlchemy for asyncpg, have that of the driver as their cause.
    original = original.__cause__ if is_of_driver(original.__cause__) else original
    sqlstate = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    diagnosis = getattr(original, "diag", None)
    message = getattr(diagnosis, "message_primary", None) or getattr(original, "message", None) or str(original)
    if sqlstate == WriterRoleMissing.sqlstate and message.endswith(
        " fencing"
    ):  # permission denied for schema fencing, in any language
        return WriterRoleMissing(
            message, sqlstate, hint="The owner of the schema runs: grant fencing_writer to the login of this connection"
        )
    if not isinstance(sqlstate, str) or not sqlstate.startswith("FG"):
        return None
    try:
        shown = getattr(diagnosis, "message_detail", None) or getattr(original, "detail", None)
        detail = json.loads(shown or "{}")
    except ValueError:
        detail = {}
    return GuardError.classes.get(sqlstate, GuardError)(
        message, sqlstate, detail, getattr(diagnosis, "message_hint", None) or getattr(original, "hint", None)
    )


def is_of_driver(error: Any) -> bool:
    return hasattr(error, "sqlstate") or hasattr(error, "pgcode")
