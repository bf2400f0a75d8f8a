"""How a request ends: its money is settled, and one row of the ledger says what happened."""

from __future__ import annotations

import time
from typing import Any

from mild_gateway.access import Caller, Settlement
from mild_gateway.ledger.records import CERTAIN, Record
from mild_gateway.metrics import MAX_STEP, NO_EXPERT
from mild_gateway.selection.models import CASCADE
from mild_gateway.selection.selector import Selection
from mild_gateway.selection.stored_features import pack_features
from mild_gateway.server.calls import Calls, ExpertCall
from mild_gateway.server.completion_request import CompletionRequest
from mild_gateway.server.context import Serving
from mild_gateway.server.middleware import name_request
from mild_gateway.server.reply import ClientReply


def begin_record(request: CompletionRequest, caller: Caller, serving: Serving) -> Record:
    """The row of a request that has come, before anything is known of its answer."""
    session = None
    if request.session is not None:
        session = request.session.hash.hex()
    return Record(
        request_id=request.request_id,
        time=time.time(),
        key=caller.name,
        asked=str(request.document.get("model")),
        streamed=request.streamed,
        router=serving.fingerprint,
        session=session,
        attempts=0,
    )


def charge_calls(
    record: Record, calls: Calls, reply: ClientReply, selection: Selection | None
) -> Settlement | None:
    """Put into the row what all calls cost; the settlement that ends the reservation with it, if any."""
    if reply.call is not None and reply.relay is not None:
        reply.call.outcome = reply.outcome
    rows = []
    for call in calls.all:
        if call.answer is not None:
            call.answer.close()  # where it was not closed yet, the client left
        rows.append(_charge(record, calls, call))
    if selection is not None and selection.cascade_plan is not None:
        record.calls = rows or None
        _count_cascade(calls, reply)
    calls.forget_answers()
    return calls.end_reservation(record.price or 0.0)


def _charge(record: Record, calls: Calls, call: ExpertCall) -> dict[str, Any]:
    """Add what a call costs to the row; what the row of a cascade says of this call."""
    metrics = calls.context.metrics
    usage, dollars = calls.charge(call)
    name = call.expert or NO_EXPERT
    if dollars is not None:
        record.price = (record.price or 0.0) + dollars
        metrics.add("mild_dollars_total", name, by=dollars)
    tokens_in: int | None = None
    tokens_out: int | None = None
    # Without an answer the tokens are a guess.
    if usage is not None and call.answer is not None:
        tokens_in = usage.tokens_in
        tokens_out = usage.tokens_out
        record.tokens_in = (record.tokens_in or 0) + tokens_in
        record.tokens_out = (record.tokens_out or 0) + tokens_out
        metrics.add("mild_tokens_total", name, "in", by=tokens_in)
        metrics.add("mild_tokens_total", name, "out", by=tokens_out)
    if call.trace is not None and call.trace is not calls.trace:
        tokens = {
            "gen_ai.usage.input_tokens": tokens_in,
            "gen_ai.usage.output_tokens": tokens_out,
        }
        call.trace.end_attempt(tokens)
    return {
        "expert": call.name or call.expert,
        "step": call.step or None,
        "outcome": call.outcome,
        "dollars": dollars,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "latency_ms": round(call.seconds * 1000, 3),
        "reported": call.usage.version,
    }


def _count_cascade(calls: Calls, reply: ClientReply) -> None:
    metrics = calls.context.metrics
    last_step = "none"
    if reply.call is not None and reply.call.step:
        last_step = str(min(reply.call.step, MAX_STEP))
    metrics.add("mild_cascades_total", last_step)
    steps = {call.step for call in calls.all if call.step}
    metrics.add("mild_cascade_escalations_total", by=max(len(steps) - 1, 0))


def finish_record(
    record: Record, calls: Calls, reply: ClientReply, selection: Selection | None, serving: Serving
) -> Settlement | None:
    """Fill the row in from what was asked, what it cost, and what the client has been sent.

    The settlement is written with the row, see ``AppContext.settle_and_record``.
    """
    settlement = charge_calls(record, calls, reply, selection)
    settings = calls.context.settings.ledger
    record.attempts = calls.attempts
    record.outcome = reply.outcome
    record.status = reply.status
    if reply.client_left:
        # However its answer ended, which was read on.
        record.outcome = "cancelled"
        record.status = 200 if reply.is_started else 499
    record.first_byte_ms = reply.first_byte_ms
    record.overhead_ms = reply.overhead_ms
    record.latency_ms = reply.milliseconds()
    if reply.call is not None:
        record.expert = reply.call.expert
        record.reported = reply.call.usage.version
    if selection is not None:
        _add_decision(record, selection)
    record.error = _error_of(calls, reply)
    if settings.keep_text:
        record.text = calls.request.text
    if settings.keep_features and selection is not None and selection.features is not None:
        record.features = pack_features(selection.features, serving.selector.features_tag)
    return settlement


def _add_decision(record: Record, selection: Selection) -> None:
    record.chosen = selection.chosen
    record.propensity = selection.propensity
    record.probabilities = selection.probabilities
    record.preferred = selection.preferred
    if (selection.propensity or 0.0) < CERTAIN:
        record.draws = selection.draws
    record.expected_cost = expected_cost(selection, selection.chosen)
    if selection.pinned_by is not None:
        record.pinned_by = name_request(selection.pinned_by)


def expected_cost(selection: Selection | None, expert: str | None) -> float | None:
    """What the router expects an answer of this expert to cost; None if it does not know."""
    if selection is None or selection.expected is None or expert is None:
        return None
    return selection.expected.get(expert)


def _error_of(calls: Calls, reply: ClientReply) -> str | None:
    """Why the request failed: what the client was told, or the last failure of an expert."""
    error = reply.error
    if error is None and reply.outcome != "ok":
        for call in calls.all:
            if call.errors:
                error = call.errors[-1]
    if error is None:
        return None
    return calls.context.redact(error)


def count_request(record: Record, calls: Calls, selection: Selection | None) -> None:
    """Count a request that has ended in the metrics."""
    metrics = calls.context.metrics
    name = record.expert or NO_EXPERT
    metrics.add("mild_requests_total", name, record.outcome)
    metrics.observe("mild_request_seconds", name, seconds=(record.latency_ms or 0.0) / 1000)
    if record.first_byte_ms is not None:
        metrics.observe("mild_first_byte_seconds", name, seconds=record.first_byte_ms / 1000)
    if record.overhead_ms is not None:
        metrics.observe("mild_overhead_seconds", seconds=record.overhead_ms / 1000)
    if selection is not None and selection.explored:
        metrics.add("mild_explored_total")
    if record.expert is not None and record.chosen not in (None, CASCADE, record.expert):
        metrics.add("mild_fallbacks_total", str(record.chosen))
