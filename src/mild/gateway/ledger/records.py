"""One row of the ledger. The fields of ``Record`` define the columns of table, rows and export."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import sqlalchemy as sa

from mild.core.long_texts import abridge
from mild.endpoints.replies import storable
from mild.gateway.database.engine import make_table, metadata

OUTCOMES = ("ok", "cut", "cancelled", "refused", "failed")


@dataclass(slots=True)
class Record:
    """One accepted request.

    >>> Record("r1", 0.0, "alice", "mild", expert="small", chosen="small", propensity=0.95).outcome
    'ok'
    """

    request_id: str  # as in the header ``x-mild-request-id``
    time: float  # when it came, in seconds since 1970
    key: str  # name of the key, never the key
    asked: str  # model name that was asked for
    expert: str | None = None  # who answered; None if nobody did
    # The expert that was drawn among all, before any fault, or "cascade"; None if the router was not asked.
    chosen: str | None = None
    # The router's distribution, in the order of its experts; None for one that could not serve the request.
    probabilities: Sequence[float | None] | None = None
    # Probability in (0, 1] with which ``chosen`` was drawn, exploration included.
    propensity: float | None = None
    expected_cost: float | None = None  # what the router expected of ``chosen``, in its own units
    # Dollars and tokens that were charged, by the usage that the expert reported or by an estimate.
    price: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    latency_ms: float | None = None  # from the end of the request's body to the last byte
    first_byte_ms: float | None = None  # from there to the first byte of the answer
    overhead_ms: float | None = None  # of the gateway itself, without the upload and the experts
    status: int = 200  # HTTP status of the answer
    # One of ``OUTCOMES``: "cut" is broken behind the first byte, "cancelled" that the client left,
    # "refused" by budget or rate.
    outcome: str = "ok"
    attempts: int = 1  # requests that were sent to experts
    streamed: bool = False  # whether the answer was a stream
    session: str | None = None  # hash of the session's name
    router: str = ""  # fingerprint of the router that decided
    # What was routed, only where the settings keep it and no 4xx answers it; without the middle of a
    # long text.
    text: str | None = None
    error: str | None = None  # why it failed, in a word or a sentence
    # Request whose decision this one follows because their session is pinned. Such a row repeats
    # ``chosen`` and ``propensity`` of that request: nothing new was drawn.
    pinned_by: str | None = None
    # Of a cascade, every call: expert, step (from 1), outcome, dollars, tokens_in, tokens_out,
    # latency_ms and reported. Their dollars and tokens add up to those of the row. The last may be one
    # beside the steps, for which several experts were asked in turn: without a step, and without an
    # expert if none answered.
    calls: Sequence[Mapping[str, Any]] | None = None
    preferred: str | None = None  # what the router would choose without exploration, or "cascade"
    # Probability of each expert to be drawn, in the same order, exploration included; None without any.
    draws: Sequence[float] | None = None
    # Model and fingerprint that the expert reported with its answer, as "MODEL" or "MODEL FINGERPRINT".
    reported: str | None = None
    # Features of the text, only where the settings keep them (``pack_features``).
    features: str | None = None
    novel: bool | None = None  # whether the text is far from those of training; None if not known


#: Revision of the schema -> the columns that came with it.
NEW_COLUMNS = {"0005": ("calls",), "0006": ("preferred", "draws", "reported", "features", "novel")}
COLUMNS = tuple(column.name for column in fields(Record))
# What clients and experts wrote.
_TEXTS = ("key", "asked", "text", "error", "reported")
_MAX_CHARACTERS = 256
_KINDS = {"str": sa.Text, "float": sa.Double, "int": sa.BigInteger, "bool": sa.BigInteger}


def column_of(name: str, annotation: str, key: bool = False) -> sa.Column[Any]:
    """The column of a field."""
    kind, _, optional = annotation.partition(" | ")
    return sa.Column(name, _KINDS.get(kind, sa.Text), primary_key=key, nullable=bool(optional))


# Nobody answered: such a row may have cost nothing. As text: with a parameter a database would not use
# the index.
REFUSED = sa.text("status >= 400")
# Sequences are texts of JSON, truth values are 0 and 1.
decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    *(column_of(field.name, str(field.type)) for field in fields(Record)),
    sa.UniqueConstraint("request_id"),
    sa.Index("decisions_by_time", "time", "id"),
    sa.Index("decisions_refused", "time", sqlite_where=REFUSED, postgresql_where=REFUSED),
)
# Names behind the probabilities, as JSON.
routers = make_table("routers", ["fingerprint"], fingerprint=sa.Text, experts=sa.Text)


def path_of(calls: Iterable[tuple[int | None, str | None]]) -> str:
    """The steps of a cascade with their experts; those outside of the steps come last.

    >>> path_of([(1, "small"), (1, "medium"), (None, "spare"), (2, "large")])
    'small,medium>large>spare'
    """
    steps: dict[float, list[str]] = {}
    for step, expert in calls:
        if expert is not None:
            steps.setdefault(step or math.inf, []).append(expert)
    return ">".join(",".join(steps[step]) for step in sorted(steps))


def shorten_record(record: Record, keep_text: bool) -> Record:
    """What is kept of a record: texts of clients and experts are cut, so that a row has a bounded size."""
    answered = record.attempts and record.outcome != "refused" and record.status < 400
    text = abridge(record.text) if keep_text and answered and record.text is not None else None
    asked, error = record.asked[:_MAX_CHARACTERS], record.error and record.error[:_MAX_CHARACTERS]
    features = record.features if answered else None
    return replace(record, asked=asked, error=error, text=text, features=features)


def as_text(text: str) -> str:
    """A text that any database takes: PostgreSQL does not take NUL."""
    return storable(text).replace("\0", "\ufffd")


def as_row(record: Record) -> dict[str, Any]:
    """Values of ``COLUMNS``."""
    row = {name: getattr(record, name) for name in COLUMNS}
    for name in _TEXTS:
        row[name] = row[name] and as_text(row[name])
    for name in ("probabilities", "draws"):
        if row[name] is not None:
            words = ("null" if share is None else f"{share:.6g}" for share in row[name])
            row[name] = "[" + ",".join(words) + "]"
    row["streamed"] = int(record.streamed)
    row["novel"] = None if record.novel is None else int(record.novel)
    row["calls"] = record.calls and json.dumps(record.calls)
    return row


def from_row(row: Sequence[Any]) -> Record:
    """The record of a row that has the columns ``COLUMNS``."""
    record = Record(*row)
    for name in ("probabilities", "draws", "calls"):
        value = getattr(record, name)
        if isinstance(value, str):
            setattr(record, name, json.loads(value))
    record.streamed = bool(record.streamed)
    record.novel = None if record.novel is None else bool(record.novel)
    return record
