"""The headers of an answer: who gave it, what it cost the gateway, and the limits of the expert."""

from __future__ import annotations

from urllib.parse import quote

from mild_gateway.experts.errors import rate_limit_headers
from mild_gateway.ledger.records import path_of
from mild_gateway.selection.selector import Selection
from mild_gateway.server.calls import Calls
from mild_gateway.server.completion_request import Headers
from mild_gateway.server.expert_answer import ExpertAnswer
from mild_gateway.server.recording import expected_cost
from mild_gateway.server.reply import ClientReply

# Characters of an expert's name that stand in a header as they are.
_SAFE = " !#$&'()*+,/:;=?@[]~<>|^`{}\""

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def answer_headers(
    answer: ExpertAnswer, calls: Calls, reply: ClientReply, selection: Selection | None
) -> Headers:
    """The headers of an expert's answer; notes in the reply what the gateway has added to its time."""
    reply.overhead_ms = reply.milliseconds() - calls.waited * 1000
    headers = [
        (b"x-mild-expert", _quoted(answer.client.name)),
        (b"x-mild-request-id", calls.request.request_id.encode("ascii")),
        (b"x-mild-overhead-ms", b"%.3f" % reply.overhead_ms),
    ]
    if answer.events is None:
        headers.append((b"content-type", b"application/json"))
    else:
        headers += _STREAM_HEADERS
    for name, value in rate_limit_headers(answer.response.headers).items():
        headers.append((name.encode(), value.encode()))
    if selection is not None and selection.cascade_plan is not None:
        headers.append((b"x-mild-path", _quoted(_path(calls))))
    cost = expected_cost(selection, answer.client.name)
    if cost is not None:
        headers.append((b"x-mild-expected-cost", b"%.6g" % cost))
    return headers


def _path(calls: Calls) -> str:
    """The experts of a cascade, by step."""
    asked = [(call.step, call.name or call.expert) for call in calls.all if call.attempts]
    return path_of(asked)


def _quoted(text: str) -> bytes:
    return quote(text, safe=_SAFE).encode("ascii")
