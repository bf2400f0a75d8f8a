"""Lines in, answers out, in order."""

from __future__ import annotations

import io
import json
import os
import threading

import numpy as np
import pytest

from mild.artifact import Router, load
from mild.batch.streaming import route_stream
from mild.errors import UnsupportedError
from mild.policies import ConstantPolicy
from outcome_cases import make_columns


def routed(folder, content, **options):
    sink = io.BytesIO()
    found = route_stream(load(folder), io.BytesIO(content), sink, **options)
    return found, [json.loads(line) for line in sink.getvalue().splitlines()]


def test_answers_are_the_router_s_in_the_order_of_the_lines(folders):
    prompts = make_columns(300, 1)["prompt"]
    found, answers = routed(folders("linear"), "\n".join(prompts).encode(), block_bytes=500)
    router = load(folders("linear"))
    expected = [router.experts[k] for k in router.predict_texts(prompts)]
    assert [answer["expert"] for answer in answers] == expected
    assert found.queries == 300
    assert found.counts == {name: expected.count(name) for name in router.experts}
    assert found.lines.kind == "text"


def test_bad_lines_keep_their_place_and_are_reported(folders):
    said = []
    content = b'{"query": "add"}\n{"query": 1}\n\nnonsense\n{"query": "boil"}\n'
    report = {"on_bad": lambda number, reason: said.append((number, reason))}
    found, answers = routed(folders("linear"), content, **report)
    assert ["error" in answer for answer in answers] == [False, True, False, True, False]
    assert [answer["line"] for answer in answers[1:4]] == [2, 3, 4]
    assert [number for number, _ in said] == [2, 4]
    assert found.bad == 2
    found, answers = routed(folders("linear"), content, skip_bad=True, **report)
    assert len(answers) == 2
    assert found.bad == 2


def test_an_empty_stream_has_no_answers(folders):
    found, answers = routed(folders("linear"), b"")
    assert (found.queries, answers, found.lines) == (0, [], None)


@pytest.mark.parametrize("text", ["hashing", "vectors"])
@pytest.mark.parametrize(
    ("content", "blank"),
    [
        (b"\n\n", [0, 1]),
        (b"\n", [0]),
        (b"%s\n\n \t\r\n%s\n", [1, 2]),
        (b"%s\n\n%s", [1]),
        (b"\n%s\n\n\n", [0, 2, 3]),
    ],
)
def test_there_are_as_many_answers_as_lines(folders, text, content, blank):
    folder = folders("linear", text)
    query = b"add"
    if text == "vectors":
        query = json.dumps([1.0] * load(folder).n_features).encode()
    content = content.replace(b"%s", query)
    found, answers = routed(folder, content)
    assert len(answers) == len(content.splitlines())
    assert [i for i, answer in enumerate(answers) if answer["expert"] is None] == blank
    assert [answers[i]["line"] for i in blank] == [i + 1 for i in blank]
    assert (found.blank, found.bad) == (len(blank), 0)
    _, fewer = routed(folder, content, skip_bad=True)
    assert len(fewer) == len(answers) - len(blank)


def test_one_question_is_answered_before_the_next_is_asked(folders):
    asking, questions = os.pipe()
    answers, answering = os.pipe()
    folder = folders("linear")
    source, sink = os.fdopen(asking, "rb"), os.fdopen(answering, "wb")
    worker = threading.Thread(target=lambda: route_stream(load(folder), source, sink))
    worker.start()
    with os.fdopen(questions, "wb") as ask, os.fdopen(answers, "rb") as hear:
        for _ in range(3):
            ask.write(b"add seven\n")
            ask.flush()
            assert b'"expert"' in hear.readline()
        ask.close()
        worker.join(10)
        source.close()
        sink.close()
    assert not worker.is_alive()


def test_vectors_are_routed_as_vectors(folders):
    folder = folders("linear", "vectors")
    found, answers = routed(folder, b'[60.0, 3.0]\n{"embedding": [50, 9]}\n[1]\n[1, NaN]\n')
    assert [("expert" in answer) for answer in answers] == [True, True, False, False]
    assert "2 numbers each; got 1" in answers[2]["error"]
    assert found.lines.vectors


def test_a_router_on_numbers_is_refused():
    router = Router(ConstantPolicy(np.array([0.5, 0.2]), 1), ["a", "b"])
    with pytest.raises(UnsupportedError, match="columns of numbers"):
        route_stream(router, io.BytesIO(b"x"), io.BytesIO())
