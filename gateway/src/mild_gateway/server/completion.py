"""One completion request: selected, asked, answered, settled and recorded.

Whoever is admitted (``middleware.RequestGuard``) comes here with the request it has sent. ``Calls`` has
every call of an expert with its money, ``ClientReply`` what the client has been sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mild_gateway.access import Caller
from mild_gateway.experts.errors import ExpertError
from mild_gateway.refusals import Refusal
from mild_gateway.selection.models import ModelRequest
from mild_gateway.selection.selector import Selection
from mild_gateway.server.body import Receive
from mild_gateway.server.calls import Calls, ExpertCall
from mild_gateway.server.cascade import Cascade
from mild_gateway.server.completion_request import CompletionRequest
from mild_gateway.server.context import AppContext
from mild_gateway.server.expert_answer import ExpertAnswer
from mild_gateway.server.grader import Grader, PickedAnswer
from mild_gateway.server.headers import answer_headers
from mild_gateway.server.middleware import refusal_response
from mild_gateway.server.recording import begin_record, count_request, finish_record
from mild_gateway.server.relay import client_error_content, error_event
from mild_gateway.server.reply import ClientReply
from mild_gateway.server.time_limit import TimeLimit, until_disconnect


class Completion:
    """One request, from the choice of its experts to its row in the ledger."""

    def __init__(
        self,
        context: AppContext,
        caller: Caller,
        request: CompletionRequest,
        model: ModelRequest,
        reply: ClientReply,
        grader: Grader | None = None,
    ) -> None:
        self.context = context
        self.serving = context.serving
        self.request = request
        self.model = model
        self.reply = reply
        self.grader = grader
        trace = None
        if context.tracing is not None:
            trace = context.tracing.start(request.endpoint, request.headers, reply.start)
        self.calls = Calls(context, caller, request, trace)
        self.record = begin_record(request, caller, self.serving)
        self.time_limit = TimeLimit(context.access, caller, context.settings.longest_request)
        self.selection: Selection | None = None
        self.picked: PickedAnswer | None = None  # to be graded
        self._is_recorded = False
        reply.before_last_byte = self._record_answer

    async def run(self, receive: Receive) -> None:
        """Serve the request; whatever happens, its money is settled and one row is written."""
        reply = self.reply
        async with until_disconnect(receive, self._leave):
            try:
                async with self.time_limit.of(reply):
                    selection = await self._select()
                    call = await self._ask(selection)
                    await self._answer(call)
            except Refusal as refusal:
                await self._refuse(refusal)
            except ExpertError as error:
                await self._end_broken_stream(error)
            except asyncio.CancelledError:
                if reply.is_started:
                    reply.status = 200
                raise
            except BaseException as error:
                reply.outcome = "failed"
                reply.status = 500
                reply.error = type(error).__name__
                raise
            finally:
                # Else the reply and this request would keep each other until the collector runs.
                reply.forget_callback()
                if not self._is_recorded:
                    self._settle_and_record()

    def _leave(self) -> None:
        """The client has left: nobody else is asked, and what was asked is read on for what it costs."""
        if not self._is_recorded:
            self.reply.client_left = True
            self.calls.client_left = True

    async def _select(self) -> Selection:
        """Choose the experts; whether the answer is graded is drawn before it is known."""
        request = self.request
        selector = self.serving.selector
        selection = await selector.select(
            self.model,
            request.text,
            request.session,
            request.number,
            request.document,
            request.bytes_in,
        )
        self.selection = selection
        if selection.chosen is not None and selection.pinned_by is None:
            self.context.note_novelty(self.record, selector.router, request.text)
        if self.grader is not None:
            self.picked = self.grader.pick(selection, request)
        return selection

    async def _ask(self, selection: Selection) -> ExpertCall:
        """The call whose answer the client gets: of the cascade, or of the first expert that has one."""
        clients = self.request.able([self.context.clients[name] for name in selection.order])
        cascade = None
        if selection.cascade_plan is not None:
            cascade = Cascade(self.calls, selection.cascade_plan, self.serving.selector.names)
        self.request.forget(keep_text=self.context.settings.ledger.keep_text)
        if cascade is not None:
            accepted = await cascade.run(self.reply.start)
            if self.picked is not None:
                self.picked.readers |= cascade.readers
            if accepted is not None:
                return accepted
            clients = cascade.others(clients)
        call = self.calls.new()
        await self.calls.ask(call, clients)
        return call

    async def _answer(self, call: ExpertCall) -> None:
        """Send the answer of a call to the client."""
        answer = call.answer
        assert answer is not None
        reply = self.reply
        reply.call = call
        reply.status = answer.response.status
        if call.content is None and answer.events is not None:
            await self._stream(call, answer)
            return
        content = self._whole_content(call, answer)
        headers = answer_headers(answer, self.calls, reply, self.selection)
        if answer.events is None:
            headers.append((b"content-length", b"%d" % len(content)))
        self.calls.forget_answers()
        answer.close()
        self.time_limit.lift()
        await reply.send_whole(reply.status, headers, content)

    async def _stream(self, call: ExpertCall, answer: ExpertAnswer) -> None:
        """Send a stream as it comes. From its first byte on, no other attempt is made."""
        reply = self.reply
        self.calls.forget_answers()
        reply.relay = self.calls.relay(call, answer, self._reader_for_grading(call, answer))
        headers = answer_headers(answer, self.calls, reply, self.selection)
        await reply.begin(reply.status, headers)
        last = await reply.relay.run(reply.write)
        answer.close(finished=True)
        await reply.end(last)

    def _whole_content(self, call: ExpertCall, answer: ExpertAnswer) -> bytes:
        """The bytes that the client gets of an answer that was read whole."""
        note_document = self._reader_for_grading(call, answer)
        if call.content is not None:
            return bytes(call.content)
        if answer.document is not None:
            note_document(answer.document)
            return answer.content
        self.reply.error = "client_error"
        content = client_error_content(answer, self.request.endpoint)
        return self.context.redact(content.decode()).encode()

    def _reader_for_grading(
        self, call: ExpertCall, answer: ExpertAnswer
    ) -> Callable[[dict[str, Any]], None]:
        """What is told the documents of the answer, in case that it is graded."""
        if self.picked is None:
            return lambda document: None
        return self.picked.give(call.name, answer.client.expert)

    async def _refuse(self, refusal: Refusal) -> None:
        """Answer with a refusal, or end a stream with it that has begun."""
        reply = self.reply
        if self._is_recorded:
            return
        reply.error = refusal.code or refusal.kind
        if reply.relay is not None:
            self._note_closed_here()
            await self._end_stream(refusal)
            return
        reply.outcome = "failed"
        if self.calls.refused or self.calls.attempts == 0:
            reply.outcome = "refused"
        reply.status = refusal.status
        self.context.note_shed(refusal)
        response = refusal_response(refusal, self.request.endpoint)
        response.headers["x-mild-request-id"] = self.request.request_id
        await reply.send_whole(refusal.status, response.raw_headers, bytes(response.body))

    async def _end_broken_stream(self, error: ExpertError) -> None:
        """The expert broke its stream off, or its time is over."""
        reply = self.reply
        if self._is_recorded:
            # The answer is whole: it was the client that took too long to read it.
            return
        reply.outcome = "cut"
        reply.error = str(error)
        if reply.relay is None:
            return
        answer = reply.relay.answer
        self.calls.note_cut(answer, error)
        if error.kind == "timeout":
            self._note_closed_here()
        message = (
            f"The expert {answer.client.name} {error.description} in the middle of the stream."
        )
        await self._end_stream(Refusal(502, message, code="stream_broken"))

    def _note_closed_here(self) -> None:
        """The gateway ends the stream, so that what it would have cost is not known."""
        if self.reply.call is not None:
            self.reply.call.closed_here = True

    async def _end_stream(self, refusal: Refusal) -> None:
        """After the first byte, the reply ends with an error, and never as if it were whole."""
        reply = self.reply
        assert reply.relay is not None
        reply.outcome = "cut"
        reply.relay.answer.close()
        event = error_event(refusal, self.request.endpoint, reply.relay.translator)
        self._settle_and_record()
        await reply.write(event)

    def _record_answer(self) -> None:
        """Record an answer that lacks only its last byte."""
        reply = self.reply
        # A refusal has said before how the request ends.
        if reply.outcome == "cancelled":
            reply.outcome = "ok" if reply.status < 400 else "failed"
        self._settle_and_record()

    def _settle_and_record(self) -> None:
        """End the reservation, write the row, and offer the answer for grading."""
        self._is_recorded = True
        record = self.record
        calls = self.calls
        settlement = finish_record(record, calls, self.reply, self.selection, self.serving)
        if calls.trace is not None:
            calls.trace.finish(record, self.selection)
        self.context.settle_and_record(settlement, record)
        if self.grader is not None and self.picked is not None:
            self.grader.offer(self.picked, record)
        count_request(record, calls, self.selection)
