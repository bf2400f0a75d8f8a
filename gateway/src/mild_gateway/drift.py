"""Drift: experts that report another version or whose feedback changes, and queries that are novel.

One worker of a gateway looks at what is new in the ledger. The tests lie in the ledger, too, so that they
outlast a restart, and gateways with one ledger share them: who was first has counted a row.
"""

from __future__ import annotations

import asyncio
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
from mild_gateway.config import DriftSettings
from mild_gateway.database.engine import Location, open_database, upsert
from mild_gateway.ledger.feedback import feedback
from mild_gateway.ledger.records import Record, decisions
from mild_gateway.ledger.store import drift
from mild_gateway.logs import logger
from mild_gateway.selection.models import configured_name

KINDS = ("version", "feedback", "novelty")
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

    A flag stays until another router serves, or the gateway is told to reload: then all flags end, and
    the tests begin anew. With K experts each test has alpha / (2 K + 1): one for every expert and kind of
    judge, the grader or an imported sample, and one for novel queries. So with one router the probability
    of any false flag on feedback or novelty is at most alpha.
    """

    def __init__(
        self,
        settings: DriftSettings,
        place: Location | None,
        experts: Sequence[str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.enabled = settings.enabled and place is not None
        self.flags: list[Flag] = []
        self._settings, self._place, self._clock = settings, place, clock
        self._alpha = settings.alpha / (2 * len(experts) + 1)
        self._restart = False
        self._next_text = 0.0

    def restart(self) -> None:
        """Somebody has seen the flags: end them with the next look."""
        self._restart = True

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
        new: list[Flag] = []
        assert self._place is not None
        with closing(open_database(self._place)) as database:
            more = True
            while more:
                with database.transaction() as connection:
                    upsert(connection, drift, [{"name": "tests", "document": "{}"}])
                    # Another gateway waits until this one has counted its block.
                    document = connection.execute(sa.select(drift.c.document).with_for_update())
                    state = self._begin(json.loads(document.scalar_one()), router)
                    found, more = self._count(connection, state)
                    connection.execute(drift.update(), {"document": json.dumps(state)})
                self._restart = False
                self.flags = state["flags"]
                new += found
        for flag in new:
            logger.warning(
                "drift: %s", flag["text"], extra={k: flag[k] for k in ("kind", "expert")}
            )
        return new

    async def send(self, flags: Sequence[Flag]) -> None:
        """Tell the webhook, where there is one; what it does not take is logged."""
        for flag in flags if self._settings.webhook else ():
            for wait in WAITS:
                await asyncio.sleep(wait)
                reason = await asyncio.to_thread(self._post, {"event": "drift", **flag})
                if reason is None:
                    break
            else:
                logger.warning("drift: the webhook did not take a flag: %s.", reason)

    def _post(self, document: Flag) -> str | None:
        """Send a document; why that failed."""
        content, kind = json.dumps(document).encode(), {"Content-Type": "application/json"}
        try:
            with urlopen(Request(str(self._settings.webhook), content, kind), timeout=POST_SECONDS):
                return None
        except (OSError, HTTPException) as error:
            return f"status {error.code}" if isinstance(error, HTTPError) else type(error).__name__

    def _begin(self, state: dict[str, Any], router: str) -> dict[str, Any]:
        """Begin anew where another router serves, or the settings are others; known versions stay."""
        key = [router, self._alpha, self._settings.baseline, self._settings.novel_share]
        if self._restart or state.get("key") != key:
            state |= {"key": key, "flags": [], "tests": {}}
        return {"versions": {}, **state}

    def _count(self, connection: sa.Connection, state: dict[str, Any]) -> tuple[list[Flag], bool]:
        """New flags by a block of new rows, and whether there may be more rows."""
        row, given, now, router = decisions.c, feedback.c, self._clock(), state["key"][0]
        until, baseline = now - SETTLED_SECONDS, self._settings.baseline
        if "row" not in state:
            # What was before the first look is not judged.
            state["row"] = connection.scalar(sa.select(sa.func.max(row.id))) or 0
            state["judged"] = [until, ""]
        rows = connection.execute(
            sa.select(row.id, row.time, row.router, row.expert, row.reported, row.calls, row.novel)
            .where(row.id > state["row"])
            .order_by(row.id)
            .limit(BLOCK)
        ).all()
        order = given.time, given.request_id
        judged = connection.execute(
            sa.select(*order, given.expert, given.source, given.score)
            .join(decisions, row.request_id == given.request_id)
            .where(
                sa.tuple_(*order) > sa.tuple_(*map(sa.literal, state["judged"])),
                given.time <= until,
                given.rate.is_not(None),
                row.router == router,
                # Queries for which the router prefers the expert: exploration may change its share.
                sa.func.coalesce(row.chosen == row.preferred, row.propensity > 0.5),
                row.pinned_by.is_(None),
            )
            .order_by(*order)
            .limit(BLOCK)
        ).all()
        flags: list[Flag] = []

        def flag(kind: str, name: str | None, text: str, when: float = now, **more: Any) -> None:
            found = {"kind": kind, "expert": name, "time": when, "text": text, "router": router}
            flags.append({**found, **more})

        def alarms(name: str, values: Sequence[float], **fields: Any) -> MeanTest | None:
            """The test of that name, if these values make it alarm."""
            test = MeanTest(**state["tests"].get(name, {"alpha": self._alpha, **fields}))
            before = test.alarm
            state["tests"][name] = vars(test.add(values))
            return None if before or not test.alarm else test

        for line in rows:
            for name, version in _reported(line.expert, line.reported, line.calls):
                old = _count_version(state["versions"].setdefault(name, {}), version, baseline)
                if old is not None:
                    text = f"{name} reports {version}; before, it reported {old}."
                    flag("version", name, text, line.time, old=old, new=version)
        novel = [float(one.novel) for one in rows if one.novel is not None and one.router == router]
        expected = self._settings.novel_share
        if test := alarms("queries", novel, interval=(0.0, expected)):
            share = f"{test.recent:.0%} of the last queries are novel, far from the training data"
            flag("novelty", None, f"{share}; at most {expected:.0%} are expected.")
        scores: dict[tuple[str, str], list[float]] = {}
        for _, _, name, source, score in judged:
            scores.setdefault((configured_name(name), source), []).append(score)
        for (name, source), values in scores.items():
            if test := alarms(f"{source} {name}", values, baseline=baseline):
                low, high = test.interval or (0.0, 1.0)
                text = (
                    f"The feedback on {name} has left its interval: {test.recent:.2f} in the last answers "
                    f"({source}), {low:.2f} to {high:.2f} by the first {baseline:,}."
                )
                flag("feedback", name, text, interval=test.interval, mean=test.recent)
        if rows:
            state["row"] = rows[-1].id
        if judged:
            state["judged"] = list(judged[-1][:2])
        state["flags"] += flags
        return flags, BLOCK in (len(rows), len(judged))


def _reported(expert: str | None, reported: str | None, calls: str | None) -> list[tuple[str, str]]:
    """Experts with what they reported, from columns of a row; ``calls`` is JSON."""
    told = [(call["expert"], call.get("reported")) for call in json.loads(calls or "[]")]
    return [
        (configured_name(name), one) for name, one in told or [(expert, reported)] if name and one
    ]


def _count_version(counts: dict[str, int], version: str, baseline: int) -> str | None:
    """Count an answer of a version; if that makes it a new one, the version before.

    What came in ``NEW_ANSWERS`` answers, or among the first of an expert, is known. The newest is the last:
    of too many, those that were not seen for long are forgotten.
    """
    is_first = counts.setdefault("", 0) < baseline  # no version is empty
    answers = counts.pop("") + 1
    count = counts.pop(version, 0) + 1
    known = [one for one in counts if counts[one] >= NEW_ANSWERS]
    counts[version] = max(count, NEW_ANSWERS) if is_first else count
    while len(counts) > MAX_VERSIONS:
        del counts[next(iter(counts))]
    counts[""] = answers
    return known[-1] if known and count == NEW_ANSWERS and not is_first else None
