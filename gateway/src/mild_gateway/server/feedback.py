"""``POST /v1/feedback``: the score of an answer, by who got it."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mild.errors import DataFileError
from mild_gateway.access import Caller
from mild_gateway.database import DatabaseError
from mild_gateway.database.engine import Location, open_database
from mild_gateway.ledger.feedback import Feedback, check_feedback, feedback, write_feedback
from mild_gateway.ledger.records import decisions
from mild_gateway.refusals import Refusal
from mild_gateway.server.body import parse_body

if TYPE_CHECKING:
    from mild_gateway.server.context import AppContext

# Feedback that a key may send in a minute, over all workers, besides its limit of requests.
PER_MINUTE = 600
# Seconds to wait for a ledger that somebody else writes.
PATIENCE = 10.0
# Seconds between looks for a row that another worker may still hold.
PAUSES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.5)


class FeedbackEndpoint:
    """Writes what clients say about the answers that they got."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._writing = asyncio.Lock()

    async def take(self, request: Request) -> Response:
        """Read the body, and answer what was done with it."""
        caller: Caller = request.scope["mild.caller"]
        settings, ledger = self._context.settings.ledger, self._context.ledger
        if settings.path is None:
            message = "Feedback is kept beside the ledger, and this gateway has none."
            raise Refusal(501, message, code="no_ledger")
        own = replace(caller, name=f"feedback of {caller.name}", digest=b"feedback")
        await self._context.access.admit(replace(own, requests_per_minute=PER_MINUTE))
        given = _read(parse_body(await request.body()))
        if not settings.keep_text:
            given = replace(given, comment=None)
        for pause in (*PAUSES, 0.0):
            found = None
            # Of a ledger that cannot be written, one at a time finds out whether it can be again.
            is_lost = ledger.trouble is not None and self._writing.locked()
            try:
                if not is_lost:
                    async with self._writing:
                        found = await asyncio.to_thread(_judge, settings.path, caller, given)
            except (DatabaseError, DataFileError):
                is_lost = True
                break
            if found is not None:
                return JSONResponse(found)
            await asyncio.sleep(pause)
        # Trouble that lasts: the row may wait in memory.
        if is_lost or ledger.trouble is not None:
            message = "The ledger cannot be used at the moment; nothing was written."
            raise Refusal(503, message, code="ledger_unavailable", retry_after=1.0)
        message = "The ledger has no request of this id; it may have been deleted."
        raise Refusal(404, message, code="unknown_request", param="request_id")


def _read(document: dict[str, Any]) -> Feedback:
    """Feedback on an answer of a request; whose answer, the ledger knows."""
    given: list[Any] = list(map(document.get, ("request_id", "comment", "correct", "score")))
    name, comment, correct, score = given
    is_one = (score is None) != (correct is None)
    is_number = score is None or (type(score) in (int, float) and 0 <= score <= 1)
    rules = {
        "request_id": (bool(name) and isinstance(name, str), "the header x-mild-request-id"),
        "comment": (isinstance(comment, str | None), "text"),
        "correct": (isinstance(correct, bool | None), "true or false"),
        "score": (is_one and is_number, "a number in [0, 1], or left out where correct is given"),
    }
    for field, (holds, rule) in rules.items():
        if not holds:
            message = f"{field} must be {rule}."
            raise Refusal(400, message, code="invalid_feedback", param=field)
    value = float(correct if score is None else score)
    return check_feedback(Feedback(name, "", "client", value, None, time.time(), comment))


def _judge(place: Location, caller: Caller, given: Feedback) -> dict[str, Any] | None:
    """Write feedback on a request of this caller in one transaction; None if there is no such request."""
    row, known = decisions.c, feedback.c
    with (
        closing(open_database(place, patience=PATIENCE)) as database,
        database.transaction() as connection,
    ):
        query = sa.select(row.key, row.expert, row.status)
        found = connection.execute(query.where(row.request_id == given.request_id)).first()
        if found is None:
            return None
        if found.key != caller.name and not caller.admin:
            message = "Only the key that made a request, or an admin key, may judge its answer."
            raise Refusal(403, message, code="foreign_request", param="request_id")
        if found.expert is None or found.status >= 400:
            message = "This request has no answer that could be judged."
            raise Refusal(409, message, code="no_answer", param="request_id")
        query = sa.select(known.score, known.comment).where(
            known.request_id == given.request_id,
            known.expert == found.expert,
            known.source == given.source,
        )
        before = connection.execute(query).first()
        result = "created" if before is None else "replaced"
        if before is not None and tuple(before) == (given.score, given.comment):
            result = "unchanged"
        # Not written if the request was deleted meanwhile.
        elif not write_feedback(connection, [given])["written"]:
            return None
    said = {"request_id": given.request_id, "expert": found.expert, "score": given.score}
    return {**said, "result": result}
