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
        settings = self._context.settings.ledger
        if settings.path is None:
            message = "Feedback is kept beside the ledger, and this gateway has none."
            raise Refusal(501, message, code="no_ledger")
        # Feedback has a rate limit of its own, so that it does not count towards the key's requests.
        feedback_caller = replace(
            caller,
            name=f"feedback of {caller.name}",
            digest=b"feedback",
            requests_per_minute=PER_MINUTE,
        )
        await self._context.access.admit(feedback_caller)
        judgement = _read(parse_body(await request.body()))
        if not settings.keep_text:
            judgement = replace(judgement, comment=None)
        for pause in (*PAUSES, 0.0):
            answer = await self._write(settings.path, caller, judgement)
            if answer is not None:
                return JSONResponse(answer)
            await asyncio.sleep(pause)
        if self._context.ledger.trouble is not None:
            # Trouble that lasts: the row may wait in memory.
            raise _ledger_unavailable()
        message = "The ledger has no request of this id; it may have been deleted."
        raise Refusal(404, message, code="unknown_request", param="request_id")

    async def _write(
        self, path: Location, caller: Caller, judgement: Feedback
    ) -> dict[str, Any] | None:
        """What was done with a judgement; None while the ledger does not have its request."""
        # Of a ledger that cannot be written, one at a time finds out whether it can be again.
        if self._context.ledger.trouble is not None and self._writing.locked():
            return None
        try:
            async with self._writing:
                return await asyncio.to_thread(_judge, path, caller, judgement)
        except (DatabaseError, DataFileError):
            raise _ledger_unavailable() from None


def _ledger_unavailable() -> Refusal:
    message = "The ledger cannot be used at the moment; nothing was written."
    return Refusal(503, message, code="ledger_unavailable", retry_after=1.0)


def _read(document: dict[str, Any]) -> Feedback:
    """Feedback on an answer of a request; whose answer, the ledger knows."""
    request_id = document.get("request_id")
    comment = document.get("comment")
    correct = document.get("correct")
    score: Any = document.get("score")
    if not isinstance(request_id, str) or not request_id:
        raise _invalid("request_id", "the header x-mild-request-id")
    if not isinstance(comment, str | None):
        raise _invalid("comment", "text")
    if not isinstance(correct, bool | None):
        raise _invalid("correct", "true or false")
    if score is None and correct is not None:
        score = float(correct)
    elif correct is not None or type(score) not in (int, float) or not 0 <= score <= 1:
        raise _invalid("score", "a number in [0, 1], or left out where correct is given")
    return check_feedback(
        Feedback(request_id, "", "client", float(score), None, time.time(), comment)
    )


def _invalid(field: str, rule: str) -> Refusal:
    return Refusal(400, f"{field} must be {rule}.", code="invalid_feedback", param=field)


def _judge(path: Location, caller: Caller, judgement: Feedback) -> dict[str, Any] | None:
    """Write feedback on a request of this caller in one transaction; None if there is no such request."""
    row = decisions.c
    with (
        closing(open_database(path, patience=PATIENCE)) as database,
        database.transaction() as connection,
    ):
        query = sa.select(row.key, row.time, row.expert, row.status)
        request = connection.execute(query.where(row.request_id == judgement.request_id)).first()
        if request is None:
            return None
        # A key that was added again under an old name did not make the requests before.
        is_own_request = request.key == caller.name and request.time >= caller.created
        if not is_own_request and not caller.admin:
            message = "Only the key that made a request, or an admin key, may judge its answer."
            raise Refusal(403, message, code="foreign_request", param="request_id")
        if request.expert is None or request.status >= 400:
            message = "This request has no answer that could be judged."
            raise Refusal(409, message, code="no_answer", param="request_id")
        result = _result(connection, judgement, request.expert)
        # Not written if the request was deleted meanwhile.
        if result != "unchanged" and not write_feedback(connection, [judgement])["written"]:
            return None
    return {
        "request_id": judgement.request_id,
        "expert": request.expert,
        "score": judgement.score,
        "result": result,
    }


def _result(connection: sa.Connection, judgement: Feedback, expert: str) -> str:
    """What writing a judgement does: "created", "replaced" or "unchanged"."""
    row = feedback.c
    query = sa.select(row.score, row.comment).where(
        row.request_id == judgement.request_id,
        row.expert == expert,
        row.source == judgement.source,
    )
    earlier = connection.execute(query).first()
    if earlier is None:
        return "created"
    if tuple(earlier) == (judgement.score, judgement.comment):
        return "unchanged"
    return "replaced"
