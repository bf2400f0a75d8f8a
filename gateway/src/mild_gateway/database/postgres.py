"""Connections to PostgreSQL with psycopg."""

from __future__ import annotations

import logging
import re
import time
from typing import Any

import sqlalchemy as sa

from mild.errors import DataFileError, MissingExtraError, install_hint
from mild_gateway.database.address import Address
from mild_gateway.database.schema import NAMESPACE

# How soon a machine that is gone is noticed; what the address says goes first.
_LIBPQ = {
    "connect_timeout": "5",
    "application_name": "mild",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
# Seconds that PostgreSQL may take to answer a statement before the connection is given up.
ANSWER_SECONDS = 30.0
_UNKNOWN_OPTION = re.compile(r'invalid URI query parameter: "(\w+)"\s*')


def postgres_engine(address: Address) -> sa.Engine:
    """An engine; what the address leaves out, libpq's variables and files say (PGPASSWORD, ~/.pgpass)."""
    try:
        import psycopg
    except ImportError as error:
        hint = install_hint("postgres", "mild-gateway")
        raise MissingExtraError(
            f"a store in PostgreSQL needs psycopg; install it with: {hint}"
        ) from error
    options = _connection_options(address)

    class BoundedConnection(psycopg.Connection[Any]):
        """A connection that is closed where the server does not answer a statement in time."""

        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            return super().wait(self._bounded(gen), *arguments, **options)

        def _bounded(self, gen: Any) -> Any:
            # psycopg looks up every 0.1 s. A server that is frozen, or behind a dead proxy, keeps no
            # time-out of its own.
            deadline = time.monotonic() + ANSWER_SECONDS
            ready = None
            while True:
                try:
                    wanted = gen.send(ready)
                except StopIteration as done:
                    return done.value
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    gen.close()
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {ANSWER_SECONDS:g} s")

    # What goes wrong is raised and told in our words.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    # Poolers may give the next transaction to another connection: nothing is prepared.
    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: BoundedConnection.connect(**options, prepare_threshold=None),
        poolclass=sa.NullPool,
        use_native_hstore=False,
    )
    return engine.execution_options(schema_translate_map={None: NAMESPACE})


def _connection_options(address: Address) -> dict[str, Any]:
    import psycopg
    from psycopg import conninfo

    try:
        return {**_LIBPQ, **conninfo.conninfo_to_dict(address.value)}
    except psycopg.Error as error:
        # The driver's message may hold the password, unless it names an option.
        option = _UNKNOWN_OPTION.fullmatch(str(error))
        problem = "it is not one"
        if option is not None:
            problem = f"it has the unknown option {option[1]!r}"
        raise DataFileError(
            f"{address.shown}: the address must be a connection URI of libpq; {problem}."
        ) from None
