"""Drift: experts that report another version or whose feedback changes, and queries that are novel.

One worker of a gateway looks at what is new in the ledger. The tests are kept in the ledger, too, so that
they outlast a restart, and gateways that share a ledger share them: each row is counted once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import sqlalchemy as sa

from mild.artifact import Router
from mild.metrics import MeanTest
from mild_gateway.config import DriftSettings, GradingSettings
from mild_gateway.database.engine import Location, open_database, upsert
from mild_gateway.ledger.feedback import feedback
from mild_gateway.ledger.records import Record, decisions
from mild_gateway.ledger.store import drift
from mild_gateway.logs import logger
from mild_gateway.selection.models import configured_name

KINDS = ("version", "feedback", "novelty")
# Probability of any false flag on feedback or novelty while one router serves.
ALPHA = 0.05
# Judged answers of an expert with which later ones are compared.
BASELINE = 200
# Share of novel queries that is expected.
NOVEL_SHARE = 0.05
# Seconds between looks, and between two texts of a worker that are looked at for novelty.
LOOK_SECONDS = 30.0
NOVELTY_SECONDS = 1.0
# Rows that are read at a time, and seconds after which no feedback of that time is still to be written.
BLOCK = 5000
SETTLED_SECONDS = 5.0
# A version is new when it came in so many answers; so many versions of an expert are kept.
NEW_ANSWERS = 3
MAX_VERSIONS = 50
# Seconds before each try to send a flag, and for it.
WAITS = (0.0, 2.0, 10.0)
POST_SECONDS = 10.0

Flag = dict[str, Any]


class DriftWatch:
    """Looks at the ledger for a gateway; ``flags`` are those of the router that serves.

    A flag stays until another router serves, or answers are graded in another way: then all flags end, and
    the tests begin anew. A new candidate changes nothing. With K experts each test has
    ``ALPHA / (2 K + 1)``: one for every expert and kind of judge, the grader or an imported sample, and one
    for novel queries. So with one router the probability of any false flag on feedback or novelty is at
    most ``ALPHA``.
    """

    def __init__(
        self,
        settings: DriftSettings,
        ledger: Location | None,
        experts: Sequence[str],
        clock: Callable[[], float] = time.time,
        grading: GradingSettings | None = None,
    ) -> None:
        self.enabled = settings.enabled and ledger is not None
        self.flags: list[Flag] = []
        self._webhook = settings.webhook
        self._ledger = ledger
        self._clock = clock
        self._alpha = ALPHA / (2 * len(experts) + 1)
        self._grading = _grading_name(grading)
        self._next_text = 0.0

    def examine(self, record: Record, router: Router, text: str) -> None:
        """Note whether a text is novel, in a thread, for at most one request a second."""
        now = time.monotonic()
        if not self.enabled or router.novelty is None or now < self._next_text:
            return
        self._next_text = now + NOVELTY_SECONDS

        def look() -> None:
            record.novel = bool(router.is_novel([text])[0])

        asyncio.get_running_loop().run_in_executor(None, look)

    def look(self, router: str) -> list[Flag]:
        """Look at what is new; flags that are new are logged, and returned. DatabaseError if that fails."""
        new_flags: list[Flag] = []
        assert self._ledger is not None
        with closing(open_database(self._ledger)) as database:
            more = True
            while more:
                with database.transaction() as connection:
                    upsert(connection, drift, [{"name": "tests", "document": "{}"}])
                    # Another gateway waits until this one has counted its block.
                    document = connection.execute(sa.select(drift.c.document).with_for_update())
                    state = self._begin(json.loads(document.scalar_one()), router)
                    flags, more = self._count(connection, state)
                    connection.execute(drift.update(), {"document": json.dumps(state)})
                self.flags = state["flags"]
                new_flags += flags
        for flag in new_flags:
            facts = {"kind": flag["kind"], "expert": flag["expert"]}
            logger.warning("drift: %s", flag["text"], extra=facts)
        return new_flags

    async def send(self, flags: Sequence[Flag]) -> None:
        """Send flags to the webhook, where there is one; what it does not take is logged."""
        if self._webhook is None:
            return
        for flag in flags:
            for wait in WAITS:
                await asyncio.sleep(wait)
                problem = await asyncio.to_thread(_post, self._webhook, {"event": "drift", **flag})
                if problem is None:
                    break
            else:
                logger.warning("drift: the webhook did not take a flag: %s.", problem)

    def _begin(self, state: dict[str, Any], router: str) -> dict[str, Any]:
        """Begin anew where another router serves, or answers are graded otherwise; known versions stay."""
        key = [router, self._alpha, self._grading]
        if state.get("key") != key:
            state |= {"key": key, "flags": [], "tests": {}}
        return {"versions": {}, **state}

    def _count(self, connection: sa.Connection, state: dict[str, Any]) -> tuple[list[Flag], bool]:
        """New flags by a block of new rows, and whether there may be more rows."""
        now = self._clock()
        router = state["key"][0]
        settled = now - SETTLED_SECONDS
        if "row" not in state:
            # What was before the first look is not judged.
            state["row"] = connection.scalar(sa.select(sa.func.max(decisions.c.id))) or 0
            state["judged"] = [settled, ""]
        rows = _new_rows(connection, state["row"])
        scores = _new_scores(connection, state["judged"], settled, router)
        flags = _version_flags(state["versions"], rows)
        flags += self._novelty_flags(state["tests"], rows, router, now)
        flags += self._feedback_flags(state["tests"], scores, now)
        for flag in flags:
            flag["router"] = router
        if rows:
            state["row"] = rows[-1].id
        if scores:
            state["judged"] = [scores[-1].time, scores[-1].request_id]
        state["flags"] += flags
        return flags, BLOCK in (len(rows), len(scores))

    def _novelty_flags(
        self, tests: dict[str, Any], rows: Sequence[Any], router: str, now: float
    ) -> list[Flag]:
        """A flag if these rows show that too many queries are novel."""
        novel = []
        for row in rows:
            if row.novel is not None and row.router == router:
                novel.append(float(row.novel))
        test = self._alarm(tests, "queries", novel, interval=(0.0, NOVEL_SHARE))
        if test is None:
            return []
        # A test that has raised an alarm has seen rows.
        assert test.recent is not None
        text = (
            f"{100 * test.recent:.0f} % of the last queries are novel, far from the training data; at most "
            f"{100 * NOVEL_SHARE:.0f} % are expected."
        )
        return [_flag("novelty", None, now, text)]

    def _feedback_flags(
        self, tests: dict[str, Any], scores: Sequence[Any], now: float
    ) -> list[Flag]:
        """A flag for each expert whose answers are no longer scored as its first ones were."""
        scores_by_judge: dict[tuple[str, str], list[float]] = {}
        for row in scores:
            judge = (configured_name(row.expert), row.source)
            scores_by_judge.setdefault(judge, []).append(row.score)
        flags = []
        for (expert, source), values in scores_by_judge.items():
            test = self._alarm(tests, f"{source} {expert}", values, baseline=BASELINE)
            if test is None:
                continue
            low, high = test.interval or (0.0, 1.0)
            text = (
                f"The feedback on {expert} has left its interval: {test.recent:.2f} in the last answers "
                f"({source}), {low:.2f} to {high:.2f} by the first {BASELINE:,}."
            )
            flag = _flag("feedback", expert, now, text)
            flag["interval"] = test.interval
            flag["mean"] = test.recent
            flags.append(flag)
        return flags

    def _alarm(
        self, tests: dict[str, Any], name: str, values: Sequence[float], **fields: Any
    ) -> MeanTest | None:
        """The test of that name if these values make it alarm; None if not, or if it did before."""
        test = MeanTest(**tests.get(name, {"alpha": self._alpha, **fields}))
        had_alarm = test.alarm
        tests[name] = vars(test.add(values))
        if had_alarm or not test.alarm:
            return None
        return test


def _grading_name(grading: GradingSettings | None) -> str:
    """A name of the way in which answers are graded: scores of two ways cannot be compared."""
    if grading is None:
        return ""
    settings = (grading.method, grading.expert, grading.rubric, str(grading.references))
    return hashlib.blake2b(repr(settings).encode(), digest_size=8).hexdigest()


def _post(address: str, document: Flag) -> str | None:
    """Send a document to a webhook; why that failed."""
    content = json.dumps(document).encode()
    request = Request(address, content, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=POST_SECONDS):
            return None
    except HTTPError as error:
        return f"status {error.code}"
    except (OSError, HTTPException) as error:
        return type(error).__name__


def _flag(kind: str, expert: str | None, moment: float, text: str) -> Flag:
    return {"kind": kind, "expert": expert, "time": moment, "text": text}


def _new_rows(connection: sa.Connection, after: int) -> Sequence[Any]:
    """The next decisions behind a row of the ledger."""
    row = decisions.c
    query = sa.select(row.id, row.time, row.router, row.expert, row.reported, row.calls, row.novel)
    return connection.execute(query.where(row.id > after).order_by(row.id).limit(BLOCK)).all()


def _new_scores(
    connection: sa.Connection, after: Sequence[Any], settled: float, router: str
) -> Sequence[Any]:
    """The next scores of answers that a router chose, behind a time and request, until ``settled``."""
    row = decisions.c
    score = feedback.c
    order = (score.time, score.request_id)
    query = (
        sa.select(*order, score.expert, score.source, score.score)
        .join(decisions, row.request_id == score.request_id)
        .where(
            sa.tuple_(*order) > sa.tuple_(*map(sa.literal, after)),
            score.time <= settled,
            score.rate.is_not(None),
            row.router == router,
            # Queries for which the router prefers the expert: exploration may change its share.
            row.chosen == row.preferred,
            row.pinned_by.is_(None),
        )
    )
    return connection.execute(query.order_by(*order).limit(BLOCK)).all()


def _version_flags(versions: dict[str, dict[str, int]], rows: Sequence[Any]) -> list[Flag]:
    """A flag for each version that experts report in these rows and did not report before."""
    flags = []
    for row in rows:
        for expert, version in _reported(row.expert, row.reported, row.calls):
            old = _count_version(versions.setdefault(expert, {}), version)
            if old is None:
                continue
            text = f"{expert} reports {version}; before, it reported {old}."
            flag = _flag("version", expert, row.time, text)
            flag["old"] = old
            flag["new"] = version
            flags.append(flag)
    return flags


def _reported(expert: str | None, reported: str | None, calls: str | None) -> list[tuple[str, str]]:
    """Experts with what they reported, from columns of a row; ``calls`` is JSON."""
    reports = [(expert, reported)]
    if calls and calls != "[]":
        reports = [(call["expert"], call.get("reported")) for call in json.loads(calls)]
    return [(configured_name(name), version) for name, version in reports if name and version]


def _count_version(counts: dict[str, int], version: str) -> str | None:
    """Count an answer of a version; if that makes it a new one, the version before.

    What came in ``NEW_ANSWERS`` answers, or among the first of an expert, is known. The newest is the last:
    of too many, those that were not seen for long are forgotten.
    """
    n_answers = counts.pop("", 0)  # of all versions: none has an empty name
    is_first = n_answers < BASELINE
    count = counts.pop(version, 0) + 1
    known = [name for name in counts if counts[name] >= NEW_ANSWERS]
    counts[version] = count
    if is_first:
        counts[version] = max(count, NEW_ANSWERS)
    while len(counts) > MAX_VERSIONS:
        oldest = next(iter(counts))
        del counts[oldest]
    counts[""] = n_answers + 1
    if known and count == NEW_ANSWERS and not is_first:
        return known[-1]
    return None
