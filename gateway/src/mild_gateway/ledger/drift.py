"""What has changed, as far as a ledger tells: versions of experts, novel requests, scores."""

from __future__ import annotations

import json
import math
from collections import defaultdict, deque
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import sqlalchemy as sa

from mild_gateway.ledger.feedback import feedback, mean_and_interval
from mild_gateway.ledger.records import decisions
from mild_gateway.selection.models import configured_name

# Scored answers of an expert with which as many of its latest ones are compared.
BASELINE = 200
# Fewer answers or requests than this say nothing.
ENOUGH = 30
# A version that came in fewer answers is left out.
MIN_ANSWERS = 3


def find_drift(connection: sa.Connection, start: float, end: float) -> dict[str, Any]:
    """What has changed among the requests from a time until before another, as JSON.

    ``versions`` are those that an expert reported, if there were several. Novelty and scores are those of
    the router that decided last: another one has other training data, and sends other requests to an
    expert. All intervals have a confidence of 95 %.
    """
    row = decisions.c
    in_span = sa.and_(row.time >= start, row.time < end)
    newest = sa.select(row.router).where(in_span, row.propensity.is_not(None))
    newest = newest.order_by(row.time.desc()).limit(1)
    decided = sa.and_(in_span, row.router == newest.scalar_subquery())
    return {
        "versions": _versions(connection, in_span),
        "novel": _novel_share(connection, decided),
        "scores": _score_changes(connection, decided),
    }


def _versions(
    connection: sa.Connection, in_span: sa.ColumnElement[bool]
) -> dict[str, list[dict[str, Any]]]:
    """By expert, where there are several: each version, in how many answers, and first and last when."""
    row = decisions.c
    first, last = sa.func.min(row.time), sa.func.max(row.time)
    answers = connection.execute(
        sa.select(row.expert, row.reported, sa.func.count(), first, last)
        .where(in_span, row.reported.is_not(None), row.calls.is_(None))
        .group_by(row.expert, row.reported)
    )
    cascades = connection.execute(
        sa.select(row.time, row.calls).where(in_span, row.calls.is_not(None))
    )
    calls = (
        (call["expert"], call["reported"], 1, time, time)
        for time, calls in cascades
        for call in json.loads(calls)
        if call.get("reported")
    )
    by_expert: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for expert, version, count, first_time, last_time in chain(answers, calls):
        new = {"version": version, "answers": 0, "first": first_time, "last": last_time}
        entry = by_expert[configured_name(expert)].setdefault(version, new)
        entry["answers"] += count
        entry["first"] = min(entry["first"], first_time)
        entry["last"] = max(entry["last"], last_time)
    versions = {}
    for expert, entries in sorted(by_expert.items()):
        known = [entry for entry in entries.values() if entry["answers"] >= MIN_ANSWERS]
        if len(known) > 1:
            versions[expert] = sorted(known, key=lambda entry: entry["first"])
    return versions


def _novel_share(
    connection: sa.Connection, decided: sa.ColumnElement[bool]
) -> dict[str, Any] | None:
    """The share of novel requests among those that were looked at; None if these are too few."""
    row = decisions.c
    query = sa.select(sa.func.count(row.novel), sa.func.sum(row.novel)).where(decided)
    count, novel = connection.execute(query).one()
    if count < ENOUGH:
        return None
    return mean_and_interval(count, count, int(novel), count)


def _score_changes(
    connection: sa.Connection, decided: sa.ColumnElement[bool]
) -> list[dict[str, Any]]:
    """By expert and source, the mean score of the latest answers against that of the first ones.

    Answers are those of requests for which the router prefers what was asked: exploration may change its
    share.
    """
    row = decisions.c
    score = feedback.c
    query = (
        sa.select(score.expert, score.source, score.score)
        .join(decisions, row.request_id == score.request_id)
        .where(decided, row.chosen == row.preferred, row.pinned_by.is_(None))
        .order_by(row.time)
    )
    first: dict[tuple[str, str], list[float]] = defaultdict(list)
    latest: dict[tuple[str, str], deque[float]] = defaultdict(partial(deque, maxlen=BASELINE))
    for expert, source, value in connection.execute(query):
        judged = configured_name(expert), source
        if len(first[judged]) < BASELINE:
            first[judged].append(value)
        else:
            latest[judged].append(value)
    return [
        {"expert": expert, "source": source, **_difference(first[expert, source], scores)}
        for (expert, source), scores in sorted(latest.items())
        if len(scores) >= ENOUGH
    ]


def _difference(first: Sequence[float], latest: Sequence[float]) -> dict[str, Any]:
    """Both means, and their difference with Newcombe's interval, from Wilson's intervals of the means."""
    old = mean_and_interval(len(first), len(first), sum(first), len(first))
    new = mean_and_interval(len(latest), len(latest), sum(latest), len(latest))
    assert old is not None
    assert new is not None
    change = new["mean"] - old["mean"]
    return {
        "first": old,
        "latest": new,
        "change": change,
        "low": change - math.hypot(new["mean"] - new["low"], old["high"] - old["mean"]),
        "high": change + math.hypot(new["high"] - new["mean"], old["mean"] - old["low"]),
    }
