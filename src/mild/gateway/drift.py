"""Drift: experts that report another version or whose feedback changes, and queries that are novel.

One worker of a gateway looks at what is new in the ledger. The tests lie in the ledger, too, so that they
outlast a restart, and gateways with one ledger share them: who was first has counted a row.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp
import sqlalchemy as sa

from mild.artifact import Router
from mild.gateway.config import DriftSettings
from mild.gateway.database.engine import Database, Location, open_database, upsert
from mild.gateway.ledger.feedback import feedback
from mild.gateway.ledger.records import Record, decisions
from mild.gateway.ledger.store import drift
from mild.gateway.ledger.summary import reported_by
from mild.gateway.logs import logger
from mild.gateway.selection.models import configured_name
from mild.metrics.sequential import MeanTest

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


class DriftWatch:
    """Looks at the ledger for a gateway; ``flags`` are those of the router that serves.

    A flag stays until another router serves, or the gateway is told to reload: then all flags end, and
    the tests begin anew.
    """

    def __init__(
        self,
        settings: DriftSettings,
        place: Location | None,
        experts: Sequence[str],
        redact: Callable[[bytes], bytes] = bytes,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.enabled = settings.enabled and place is not None
        self.flags: list[dict[str, Any]] = []
        self._settings, self._place, self._experts = settings, place, list(experts)
        self._redact, self._clock = redact, clock
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

    def look(self, router: str) -> list[dict[str, Any]]:
        """Look at what is new; flags that are new are logged, and returned. DatabaseError if that fails."""
        new: list[dict[str, Any]] = []
        assert self._place is not None
        database = open_database(self._place)
        try:
            more = True
            while more:
                tests, serial = _read_tests(database, self._settings, self._experts)
                tests.begin(router, self._restart)
                found, more = tests.look(database, self._clock())
                if not _write_tests(database, tests.state, serial):
                    continue  # another gateway was first
                self._restart = False
                new += found
                self.flags = tests.state["flags"]
        finally:
            database.close()
        for flag in new:
            logger.warning(
                "drift: %s", flag["text"], extra={k: flag[k] for k in ("kind", "expert")}
            )
        return new

    async def send(self, flags: Sequence[Mapping[str, Any]]) -> None:
        """Tell the webhook, where there is one; what it does not take is logged."""
        address, variable = self._settings.webhook, self._settings.webhook_key_env
        if address is None or not flags:
            return
        headers = {"Content-Type": "application/json"}
        if variable is not None:
            headers["Authorization"] = f"Bearer {os.environ[variable].strip()}"
        # The gateway has no context of aiohttp's own.
        tls = ssl.create_default_context() if address.startswith("https:") else True
        limit = aiohttp.ClientTimeout(POST_SECONDS)
        async with aiohttp.ClientSession(
            timeout=limit, headers=headers, connector=aiohttp.TCPConnector(ssl=tls)
        ) as session:
            for flag in flags:
                content, reason = self._redact(json.dumps({"event": "drift", **flag}).encode()), ""
                for wait in WAITS:
                    await asyncio.sleep(wait)
                    try:
                        # The key is for this address only.
                        async with session.post(
                            address, data=content, allow_redirects=False
                        ) as got:
                            if got.status < 300:
                                break
                            reason = f"status {got.status}"
                    except (aiohttp.ClientError, TimeoutError, OSError) as error:
                        reason = type(error).__name__
                else:
                    logger.warning("drift: the webhook did not take a flag: %s.", reason)


class DriftTests:
    """The tests of all experts; ``state`` is all of it, ready for JSON.

    With K experts each test has alpha / (2 K + 1): one for every expert and kind of judge, the grader or an
    imported sample, and one for novel queries. So with one router the probability of any false flag on
    feedback or novelty is at most alpha.
    """

    def __init__(
        self, settings: DriftSettings, experts: Sequence[str], state: dict[str, Any]
    ) -> None:
        self._settings, self._experts, self.state = settings, experts, state
        self._alpha = settings.alpha / (2 * len(experts) + 1)

    def begin(self, router: str, anew: bool = False) -> None:
        """Begin anew where another router serves, or the settings are others; known versions stay."""
        key = [router, self._alpha, self._settings.baseline, self._settings.novel_share]
        if anew or self.state.get("key") != key:
            self.state |= {"key": key, "flags": [], "feedback": {}}
            self.state["novelty"] = MeanTest(self._alpha, (0.0, self._settings.novel_share)).state()
            self.state.setdefault("versions", {})

    def look(self, database: Database, now: float) -> tuple[list[dict[str, Any]], bool]:
        """New flags by a block of new rows, and whether there may be more rows."""
        state, row, given = self.state, decisions.c, feedback.c
        router, until = state["key"][0], now - SETTLED_SECONDS
        with database.transaction() as connection:
            if "row" not in state:
                # What was before the first look is not judged.
                state["row"] = connection.scalar(sa.select(sa.func.max(row.id))) or 0
                state["judged"] = [until, ""]
            rows = connection.execute(
                sa.select(
                    row.id, row.time, row.router, row.expert, row.reported, row.calls, row.novel
                )
                .where(row.id > state["row"])
                .order_by(row.id)
                .limit(BLOCK)
            ).all()
            order = sa.tuple_(given.time, given.request_id)
            last = sa.tuple_(*map(sa.literal, state["judged"]))
            judged = connection.execute(
                sa.select(given.time, given.request_id, given.expert, given.source, given.score)
                .join(decisions, row.request_id == given.request_id)
                .where(
                    order > last,
                    given.time <= until,
                    given.rate.is_not(None),
                    row.router == router,
                    # Queries for which the router prefers the expert: exploration may change its share.
                    sa.func.coalesce(row.chosen == row.preferred, row.propensity > 0.5),
                    row.pinned_by.is_(None),
                )
                .order_by(given.time, given.request_id)
                .limit(BLOCK)
            ).all()
        flags: list[dict[str, Any]] = []
        for line in rows:
            for name, version in reported_by(line.expert, line.reported, line.calls):
                flags += self._add_version(name, version, line.time)
        novel = [
            float(line.novel) for line in rows if line.novel is not None and line.router == router
        ]
        flags += self._add_novel(novel, now)
        scores: dict[tuple[str, str], list[float]] = {}
        for _, _, name, source, score in judged:
            scores.setdefault((configured_name(name), source), []).append(score)
        for (name, source), values in scores.items():
            flags += self._add_scores(name, source, values, now)
        if rows:
            state["row"] = rows[-1].id
        if judged:
            state["judged"] = list(judged[-1][:2])
        state["flags"] += flags
        return flags, BLOCK in (len(rows), len(judged))

    def _add_version(self, name: str, version: str, when: float) -> list[dict[str, Any]]:
        """Count an answer of a version. Those among the first answers of an expert are known."""
        known = self.state["versions"].setdefault(name, {"answers": 0, "counts": {}, "known": []})
        counts, usual = known["counts"], known["known"]
        known["answers"] += 1
        # The newest is the last: of too many, those that were not seen for long are forgotten.
        counts[version] = counts.pop(version, 0) + 1
        while len(counts) > MAX_VERSIONS:
            del counts[next(iter(counts))]
        is_first = known["answers"] <= self._settings.baseline
        if version in usual or not (is_first or counts[version] >= NEW_ANSWERS):
            return []
        known["known"] = [*usual, version][-MAX_VERSIONS:]
        if is_first or not usual:
            return []
        old = next((one for one in reversed(counts) if one in usual), usual[-1])
        text = f"{name} reports {version}; before, it reported {old}."
        return [self._flag("version", name, when, text, old=old, new=version)]

    def _add_novel(self, values: list[float], now: float) -> list[dict[str, Any]]:
        test = MeanTest.from_state(self.state["novelty"])
        before = test.alarm
        self.state["novelty"] = test.add(values).state()
        if before or not test.alarm:
            return []
        text = (
            f"{test.recent:.0%} of the last queries are novel, far from the training data; at most "
        )
        return [
            self._flag(
                "novelty", None, now, f"{text}{self._settings.novel_share:.0%} are expected."
            )
        ]

    def _add_scores(
        self, name: str, source: str, values: list[float], now: float
    ) -> list[dict[str, Any]]:
        tests = self.state["feedback"].setdefault(name, {})
        test = MeanTest(self._alpha, baseline=self._settings.baseline)
        if source in tests:
            test = MeanTest.from_state(tests[source])
        before = test.alarm
        tests[source] = test.add(values).state()
        if before or not test.alarm:
            return []
        text = f"The feedback on {name} has left its interval: {_feedback_words(test, source)}."
        return [self._flag("feedback", name, now, text, interval=test.interval, mean=test.recent)]

    def _flag(
        self, kind: str, expert: str | None, when: float, text: str, **more: Any
    ) -> dict[str, Any]:
        router = self.state["key"][0]
        return {
            "kind": kind,
            "expert": expert,
            "time": when,
            "text": text,
            "router": router,
            **more,
        }


def _read_tests(
    database: Database, settings: DriftSettings, experts: Sequence[str]
) -> tuple[DriftTests, int]:
    """The tests as they are in the ledger, and their serial number."""
    with database.transaction() as connection:
        upsert(connection, drift, [{"name": "tests", "serial": 0, "document": "{}"}])
        serial, document = connection.execute(sa.select(drift.c.serial, drift.c.document)).one()
    return DriftTests(settings, experts, json.loads(document)), serial


def _write_tests(database: Database, state: Mapping[str, Any], serial: int) -> bool:
    """Write the tests; False if somebody has written them since they were read."""
    with database.transaction() as connection:
        change = drift.update().where(drift.c.serial == serial)
        return (
            connection.execute(
                change, {"serial": serial + 1, "document": json.dumps(state)}
            ).rowcount
            == 1
        )


def _feedback_words(test: MeanTest, source: str) -> str:
    if test.interval is None:
        return f"{len(test.values):,} of the first {test.baseline:,} answers judged ({source})"
    low, high = test.interval
    return (
        f"{test.recent:.2f} in the last answers ({source}), {low:.2f} to {high:.2f} by the first "
        f"{test.baseline:,}"
    )


def drift_document(state: Mapping[str, Any]) -> dict[str, Any]:
    """What the dashboard shows: flags, and a line about each expert and the queries."""
    words: dict[str, list[str]] = {}
    for name, known in state.get("versions", {}).items():
        words.setdefault(name, []).append(f"reports {list(known['counts'])[-1]}")
    for name, tests in state.get("feedback", {}).items():
        said = [_feedback_words(MeanTest.from_state(tests[source]), source) for source in tests]
        words.setdefault(name, []).extend(f"feedback {one}" for one in said)
    lines = [{"name": name, "text": "; ".join(words[name])} for name in sorted(words)]
    novelty = MeanTest.from_state(state.get("novelty", {}))
    if novelty.n and novelty.interval:
        text = (
            f"{novelty.recent:.1%} of the last are novel, up to {novelty.interval[1]:.1%} expected"
        )
        lines.append({"name": "queries", "text": text})
    return {"flags": state.get("flags", []), "lines": lines}
