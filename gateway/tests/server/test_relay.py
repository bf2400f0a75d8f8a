"""A stream on its way, event by event, whatever stands in it."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.prices import UsageMeter
from mild_gateway.experts.translation.streams import StreamTranslator
from mild_gateway.server.relay import StreamRelay


class Events:
    """Events that came in pieces: those of a list came together."""

    def __init__(self, pieces):
        self.pieces = [list(piece) for piece in pieces]
        self.left_over = False

    def ready(self):
        return self.pieces[0].pop(0) if self.pieces and self.pieces[0] else b""

    async def next(self):
        while self.pieces and not self.pieces[0]:
            self.pieces.pop(0)
        return self.ready()


class Request:
    def __init__(self):
        self.written = []
        self.ended = False

    async def write(self, body):
        self.written.append(body)

    def end(self, body):
        self.written.append(body)
        self.ended = True


CLIENT = SimpleNamespace(name="small")


def relay(*pieces, strip=False):
    events, request = Events(pieces), Request()
    usage = UsageMeter()

    async def run():
        response = SimpleNamespace(events=events, first=await events.next(), client=CLIENT)
        try:
            relay = StreamRelay(response, usage, strip)
            request.end(await relay.run(request.write))
        except ExpertError as fault:
            return fault
        return None

    return asyncio.run(run()), b"".join(request.written), request.ended, usage


@pytest.mark.parametrize(
    "bad",
    [
        {"choices": [{"delta": {"content": 7}}]},
        {"choices": [{"delta": {}, "finish_reason": ["stop"]}]},
        b"data: {\n\n",
    ],
)
@pytest.mark.parametrize("endpoint", ["/messages", "/responses"])
def test_a_translated_stream_of_another_shape_is_cut(endpoint, bad):
    first = event({"id": "a", "choices": [{"delta": {"content": "x"}}]})
    bad = bad if isinstance(bad, bytes) else event(bad)
    events, request = Events([[first, bad, DONE]]), Request()

    async def run():
        response = SimpleNamespace(events=events, first=await events.next(), client=CLIENT)
        translator = StreamTranslator(endpoint, "openai", "small", {})
        relay = StreamRelay(response, UsageMeter(), False, translator)
        request.end(await relay.run(request.write))

    with pytest.raises(ExpertError) as found:
        asyncio.run(run())
    assert found.value.kind == "garbled"
    assert not request.ended
    assert b"message_stop" not in b"".join(request.written)
    assert b"response.completed" not in b"".join(request.written)


def event(document):
    return b"data: " + json.dumps(document).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
FINISH = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


@pytest.mark.parametrize("model", ["x", "small", "small-and-much-longer"])
@pytest.mark.parametrize(
    "document",
    [
        {"id": "small", "model": None, "choices": [{"delta": {"content": "a"}}]},
        {"provider": "small", "model": None, "object": "chunk", "choices": []},
        {"choices": [{"delta": {"content": "small"}}], "model": None},
        {"meta": {"model": "small"}, "model": None, "choices": []},
    ],
)
def test_the_model_is_replaced_in_every_event_and_nothing_else(document, model):
    sent = [{**document, "model": model, "created": number} for number in range(3)]
    fault, said, ended, _ = relay(*([event(one)] for one in sent), [event(FINISH), DONE])
    assert (fault, ended) == (None, True)
    wanted = [event({**one, "model": "small"}) for one in sent]
    assert said == b"".join(wanted) + event(FINISH) + DONE


def test_what_came_together_with_an_error_goes_out_before_it():
    words = [event({"choices": [{"delta": {"content": word}}]}) for word in ("a", "b", "c")]
    fault, said, ended, usage = relay([words[0]], [*words[1:], event({"error": "down"}), DONE])
    assert fault.kind == "server"
    assert said == b"".join(words)
    assert not ended
    assert (usage.events, usage.bytes_out) == (3, 3)


def test_an_error_event_without_the_word_in_its_data_is_no_content():
    first = event({"choices": [{"delta": {"content": "a"}}]})
    fault, said, ended, _ = relay([first], [b'event: error\ndata: {"message": "x"}\n\n', DONE])
    assert fault.kind == "server"
    assert (said, ended) == (first, False)


def test_an_end_without_a_finish_is_a_cut():
    fault, _, ended, _ = relay([event({"choices": [{"delta": {"content": "a"}}]})])
    assert fault.kind == "cut"
    assert not ended


def test_a_stream_is_whole_only_if_every_choice_is():
    def chunk(index, finish):
        choice = {"index": index, "delta": {"content": "a"}, "finish_reason": finish}
        return b"data: " + json.dumps({"model": "m", "choices": [choice]}).encode() + b"\n\n"

    whole = [chunk(0, "stop"), chunk(1, None), chunk(1, "stop")]
    assert relay(whole)[0] is None
    assert relay(whole[:2])[0].kind == "cut"
