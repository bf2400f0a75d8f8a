"""One row of the ledger. The fields of ``Record`` define the columns of table, rows and export."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import sqlalchemy as sa

from mild_gateway.database.spool import ROW
from mild_gateway.database.tables import make_table, metadata
from mild_gateway.experts.replies import storable

OUTCOMES = ("ok", "cut", "cancelled", "refused", "failed")


@dataclass(slots=True)
class Record:
    """One accepted request.

    >>> Record("r1", 0.0, "alice", "mild", expert="small", chosen="small", propensity=0.95).outcome
    'ok'
    """

    request_id: str
    """The gateway's id of the request, as in the header `x-mild-request-id`."""
    time: float
    """When the request arrived, in seconds since 1970."""
    key: str
    """Name of the key, never the key itself."""
    asked: str
    """Model name that was asked for."""
    expert: str | None = None
    """The expert that answered; null if none did."""
    chosen: str | None = None
    """The expert that was drawn, before any failure, or `cascade`; null if the router was not
    asked.
    """
    probabilities: Sequence[float | None] | None = None
    """The router's distribution, in the order of its experts; null for an expert that could not
    serve the request.
    """
    propensity: float | None = None
    """Probability in (0, 1] with which `chosen` was drawn, exploration included."""
    expected_cost: float | None = None
    """Cost that the router expected of `chosen`, in the router's own units."""
    price: float | None = None
    """Dollars that were charged, by the usage that the expert reported or by an estimate."""
    tokens_in: int | None = None
    """Input tokens that were charged."""
    tokens_out: int | None = None
    """Output tokens that were charged."""
    latency_ms: float | None = None
    """Milliseconds from the end of the request's body to the last byte of the answer."""
    first_byte_ms: float | None = None
    """Milliseconds from the end of the request's body to the first byte of the answer."""
    overhead_ms: float | None = None
    """Milliseconds of the gateway itself, without the upload and the experts."""
    status: int = 200
    """HTTP status of the answer."""
    outcome: str = "ok"
    """`ok`; `cut`: broken off after the first byte; `cancelled`: the client left; `refused`: before an
    expert was asked, for example by a budget; or `failed`. Requests over the rate of a key have no row.
    """
    attempts: int = 1
    """Requests that were sent to experts."""
    streamed: bool = False
    """Whether the answer was a stream."""
    session: str | None = None
    """Hash of the session's name."""
    router: str = ""
    """Fingerprint of the router that decided."""
    text: str | None = None
    """What was routed, only with `keep_text = true` and only if there was an answer; a long text
    is stored without its middle.
    """
    error: str | None = None
    """Why the request failed, in a word or a sentence."""
    pinned_by: str | None = None
    """Request whose decision this one follows because their session is pinned. Such a row repeats
    `chosen` and `propensity` of that request: nothing new was drawn.
    """
    calls: Sequence[Mapping[str, Any]] | None = None
    """For a cascade, every call: `expert`, `step` (from 1), `outcome`, `dollars`, `tokens_in`,
    `tokens_out`, `latency_ms` and `reported`. The dollars and tokens add up to those of the
    row. A last call outside the steps, for which several experts were asked in turn, has no
    step; it has no expert if none answered.
    """
    preferred: str | None = None
    """What the router would choose without exploration, or `cascade`."""
    draws: Sequence[float] | None = None
    """Probability of each expert to be drawn, in the same order, exploration included; null if
    nothing was drawn.
    """
    reported: str | None = None
    """Model and fingerprint that the expert reported with its answer, as `MODEL` or `MODEL
    FINGERPRINT`.
    """
    features: str | None = None
    """Features of the text, only with `keep_features = true`."""
    novel: bool | None = None
    """Whether the text is far from the training data; null if not known."""


#: A draw with a propensity this near to 1 could not have had another result.
CERTAIN = 1 - 1e-9
COLUMNS = tuple(column.name for column in fields(Record))
# What clients and experts wrote.
_TEXTS = ("key", "asked", "text", "error", "reported")
_MAX_CHARACTERS = 256
_KINDS = {"str": sa.Text, "float": sa.Double, "int": sa.BigInteger, "bool": sa.BigInteger}


def column_of(name: str, annotation: str, key: bool = False) -> sa.Column[Any]:
    """The column of a field."""
    kind, _, optional = annotation.partition(" | ")
    return sa.Column(name, _KINDS.get(kind, sa.Text), primary_key=key, nullable=bool(optional))


# Sequences are texts of JSON, truth values are 0 and 1.
decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    *[column_of(field.name, str(field.type)) for field in fields(Record)],
    sa.UniqueConstraint("request_id"),
    sa.Index("decisions_by_time", "time", "id"),
    sa.Index("decisions_by_key", "key", "id"),
)
# Names behind the probabilities, as JSON.
routers = make_table(
    "routers",
    ["fingerprint"],
    {
        "fingerprint": "Fingerprint of a router, as in `decisions.router`.",
        "experts": "Names of its experts as JSON, in the order of `probabilities` and `draws`.",
    },
    fingerprint=sa.Text,
    experts=sa.Text,
)


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
    shortened = replace(record, asked=record.asked[:_MAX_CHARACTERS])
    if record.error is not None:
        shortened.error = record.error[:_MAX_CHARACTERS]
    is_answered = record.attempts and record.outcome != "refused" and record.status < 400
    if not is_answered:
        shortened.features = None
    if not (is_answered and keep_text):
        shortened.text = None
    elif record.text is not None:
        from mild_gateway.decide import abridge  # commands that read a ledger need no NumPy

        shortened.text = abridge(record.text)
    return shortened


def record_parts(record: Record | None) -> dict[str, Any]:
    """What the spool keeps of a record."""
    if record is None:
        return {}
    return {ROW: [getattr(record, name) for name in COLUMNS]}


def record_of_spool(values: Any) -> Record | None:
    """The record of a part of the spool; None if another version wrote it."""
    if not isinstance(values, list) or len(values) != len(COLUMNS):
        return None
    return Record(*values)


def as_text(text: str) -> str:
    """A text that any database takes: PostgreSQL does not take NUL."""
    return storable(text).replace("\0", "\ufffd")


def as_row(record: Record) -> dict[str, Any]:
    """Values of ``COLUMNS``."""
    row = {name: getattr(record, name) for name in COLUMNS}
    for name in _TEXTS:
        if row[name] is not None:
            row[name] = as_text(row[name])
    for name in ("probabilities", "draws"):
        if row[name] is not None:
            row[name] = _shares_as_json(row[name])
    row["streamed"] = int(record.streamed)
    if record.novel is not None:
        row["novel"] = int(record.novel)
    if record.calls is not None:
        row["calls"] = json.dumps(record.calls)
    return row


def _shares_as_json(shares: Sequence[float | None]) -> str:
    words = []
    for share in shares:
        if share is None:
            words.append("null")
        else:
            words.append(f"{share:.6g}")
    return f"[{','.join(words)}]"


def from_row(row: Sequence[Any]) -> Record:
    """The record of a row that has the columns ``COLUMNS``."""
    record = Record(*row)
    for name in ("probabilities", "draws", "calls"):
        value = getattr(record, name)
        if isinstance(value, str):
            setattr(record, name, json.loads(value))
    record.streamed = bool(record.streamed)
    if record.novel is not None:
        record.novel = bool(record.novel)
    return record
