"""Damaged requests, answers and events are translated or refused; nothing else is ever raised."""

import copy
import json
import random

import pytest

from experts.translation.test_examples import CONVERSATIONS, ENDPOINTS, EXAMPLES, PAIRS, SPEAKS
from mild_gateway.experts.translation.answers import translate_answer
from mild_gateway.experts.translation.fields import TranslationError
from mild_gateway.experts.translation.requests import translate_request
from mild_gateway.experts.translation.streams import StreamTranslator

ODD = (
    None, True, -1, 0, 1.5, "", "x", [], {}, [[]], [{}], [7], {"a": 1}, {"type": 7}, {"type": "text"},
    "tool_use", "data:x",
)  # fmt: skip


def places(value, path=()):
    """Paths to everything in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inner:
        yield (*path, key)
        if isinstance(one, dict | list):
            yield from places(one, (*path, key))


def damaged(document, rng):
    document = copy.deepcopy(document)
    for _ in range(rng.choice([1, 1, 2, 3])):
        *path, last = rng.choice(list(places(document)) or [("x",)])
        holder = document
        for key in path:
            holder = holder[key]
        if rng.random() < 0.2 and last != "x":
            del holder[last]
        elif isinstance(holder, dict | list) and (isinstance(holder, dict) or last != "x"):
            holder[last] = copy.deepcopy(rng.choice(ODD))
    return document


def stream(translator, events):
    return [translator.feed(one).decode() for one in events if isinstance(one, dict)]


def outcome(translate, *given):
    try:
        json.dumps(translate(*given))
    except TranslationError:
        return "refused"
    return "translated"


@pytest.mark.parametrize(("client", "expert"), PAIRS)
def test_damage_is_translated_or_refused(client, expert):
    rng = random.Random(f"{client} {expert}")
    endpoint, api = ENDPOINTS[client], SPEAKS[expert]
    seen = set()
    for _ in range(300):
        example = EXAMPLES[rng.choice(CONVERSATIONS)]
        request, answer = example[client]["request"], example[expert]["answer"]
        seen.add(outcome(translate_request, endpoint, damaged(request, rng), api, 10))
        seen.add(outcome(translate_answer, endpoint, damaged(answer, rng), api, request))
        events = damaged(example[expert].get("events", [{}]), rng)
        translator = StreamTranslator(endpoint, api, "small", request)
        seen.add(outcome(stream, translator, events))
        seen.add(outcome(lambda one: one.finish().decode(), translator))
    assert seen == {"refused", "translated"}
