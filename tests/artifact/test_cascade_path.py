"""The path of a query through a cascade."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cascade_cases import EASY, cascade_router
from mild.errors import InvalidInputError, UnsupportedError

ROUTER = cascade_router()


def test_without_answers_the_first_step_and_what_would_be_accepted() -> None:
    found = ROUTER.explain(EASY)
    assert (found.first_step, found.next_step) == (("small", "medium"), ("small", "medium"))
    assert found.path == ()
    shown = [(one.agreed, one.others, one.rows, one.accepted) for one in found.possible]
    assert shown == [
        (("small", "medium"), (), 205, True),
        (("medium",), ("small",), 50, False),
        (("medium",), ("small",), 10, False),
    ]
    assert found.sentences[1].startswith(
        "If small and medium agree (as in 205 training rows): right"
    )
    assert json.loads(json.dumps(found.as_dict()))["possible"][0]["rows"] == 205


def test_an_agreement_is_accepted() -> None:
    found = ROUTER.explain(EASY, answers={"small": "391", "medium": "391.0"})
    (step,) = found.path
    assert (step.leading, step.agreed) == ("medium", ("small", "medium"))
    assert step.accepted
    assert step.said == {"small": "391", "medium": "391.0"}
    accepted = ROUTER.next(EASY, {"small": "391", "medium": "391"})
    assert (step.leading, step.probability) == (accepted.accepted, accepted.probability)
    assert found.next_step == ()
    assert found.sentences[1] == (
        "Asked small and medium: small and medium agree ('391.0', as in 205 training rows): right with "
        f"probability {step.probability:.4f}, 0.9000 is needed; accepted."
    )


def test_a_disagreement_goes_on_to_the_last_step() -> None:
    answers = {"small": "1", "medium": "2", "large": "2"}
    first, last = ROUTER.explain(EASY, answers=answers).path
    assert not first.accepted
    assert first.probability < 0.9
    assert (last.asked, last.leading, last.agreed) == (("large",), "large", ("medium", "large"))
    assert last.accepted
    assert last.others == ("small",)
    waiting = ROUTER.explain(EASY, answers={"small": "1", "medium": "2"})
    assert (len(waiting.path), waiting.next_step) == (1, ("large",))
    assert "Next, large would be asked." in waiting.sentences
    half = ROUTER.explain(EASY, answers={"small": "1"})
    assert (half.path, half.next_step, half.unread) == ((), ("medium",), ())


def test_answers_of_experts_that_are_not_asked_are_named() -> None:
    early = ROUTER.explain(EASY, answers={"large": "2"})
    assert (early.path, early.unread) == ((), ("large",))
    assert "The cascade does not ask large here: its answer is not read." in early.sentences


def test_experts_without_an_answer_disagree() -> None:
    first, last = ROUTER.explain(EASY, answers={"small": None, "medium": "2", "large": None}).path
    assert (first.leading, first.others, first.rows) == ("medium", ("small",), 10)
    assert (last.leading, last.agreed) == ("medium", ("medium",))
    assert (first.silent, last.silent) == (("small",), ("small", "large"))
    assert "only medium gives the leading answer and small none ('2', as in 10" in first.sentence(
        0.9
    )
    silent = ROUTER.explain(EASY, answers=dict.fromkeys(("small", "medium", "large"))).path
    assert [step.leading for step in silent] == [None, None]
    assert silent[0].accepted is False
    assert silent[0].sentence(0.9) == "Asked small and medium: nobody has an answer."


def test_sentences_describe_what_may_follow_the_first_step() -> None:
    possible = ROUTER.explain(EASY, answers=None).possible
    silent = replace(possible[0], leading=None, agreed=(), accepted=False)
    assert silent.sentence(0.9) == "If nobody has an answer, nothing is accepted."


def test_answers_must_be_those_of_its_experts() -> None:
    with pytest.raises(InvalidInputError, match="answers must map experts"):
        ROUTER.explain(EASY, answers={"nobody": "1"})
    with pytest.raises(UnsupportedError, match="not a cascade"):
        ROUTER.direct.explain(EASY, answers={"small": "1"})
