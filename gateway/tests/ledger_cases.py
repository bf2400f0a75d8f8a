"""Records and writers for the tests of the ledger, the replay and the page."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from mild_gateway.database.spool import ROW, Spool, spool_place
from mild_gateway.ledger import LedgerWriter, Record
from mild_gateway.ledger.feedback import Feedback, feedback
from mild_gateway.ledger.reading import open_ledger
from mild_gateway.ledger.writer import WAITING_BYTES

EXPERTS = ["small", "middle", "large"]


@dataclass(frozen=True)
class Keep:
    """Settings of a ledger."""

    path: Path | None
    keep_text: bool = False
    keep_days: float | None = None
    max_bytes: int | None = None


def record(number=0, time=1_000_000.0, **fields):
    """A record with a name of its own; every field can be said."""
    usual = {
        "key": "alice",
        "asked": "mild",
        "expert": "small",
        "chosen": "small",
        "probabilities": [0.7, 0.2, 0.1],
        "propensity": 0.9,
        "price": 0.001,
        "tokens_in": 10,
        "tokens_out": 20,
        "latency_ms": 12.5,
        "router": "f" * 12,
    }
    usual |= fields
    is_decision = usual["propensity"] is not None and usual.get("pinned_by") is None
    if is_decision and "preferred" not in fields:
        usual["preferred"] = usual["chosen"]
    return Record(f"r{number}", time, **usual)


@contextmanager
def writing(path, experts=EXPERTS, max_waiting_bytes=WAITING_BYTES, clock=None, **settings):
    """A writer that runs; closed at the end."""
    extra = {} if clock is None else {"clock": clock}
    spool = Spool(spool_place(path, None, None))
    writer = LedgerWriter(
        Keep(path, **settings), experts, max_waiting_bytes=max_waiting_bytes, spool=spool, **extra
    )
    writer.start()
    spool.open({ROW: writer.take_over})
    try:
        yield writer
    finally:
        writer.close()
        spool.close()


def read_feedback(place):
    """All feedback in a ledger, in the order of time."""
    query = sa.select(feedback).order_by(feedback.c.time, feedback.c.request_id)
    with open_ledger(place) as database, database.transaction() as connection:
        rows = connection.execute(query).all()
    return [Feedback(*row) for row in rows]


def write_all(path, records, **settings):
    """A ledger that holds these records."""
    with writing(path, **settings) as writer:
        for entry in records:
            writer.write(entry)
        assert writer.flush(20)
    return path
