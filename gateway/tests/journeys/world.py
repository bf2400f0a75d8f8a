"""Three experts that answer three kinds of questions: what each knows and takes, and tables of that.

``small`` can do sums, ``medium`` also knows rivers, and ``large`` does everything and is dear.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from journeys import adapter
from journeys.processes import post_all
from waiting import wait_until

# Dollars per million tokens; every answer takes 1,000 of them.
PRICES = {"small": 0.1, "medium": 2.0, "large": 4.0}
DOLLARS = {name: price / 1000 for name, price in PRICES.items()}
TOKENS = [600, 400]
#: Share of right answers by a word of the question.
RIGHT = {
    "plus": {"small": 0.95, "medium": 0.95, "large": 0.95},
    "river": {"small": 0.02, "medium": 0.95, "large": 0.95},
    "primes": {"small": 0.02, "medium": 0.02, "large": 0.95},
}
#: Wrong answers one dollar is worth, and whom to ask then.
PRICE_WEIGHT = 50
BEST = {"plus": "small", "river": "medium", "primes": "large"}
# What an expert says if it is wrong.
WRONG = {"small": "1", "medium": "2", "large": "3"}


def questions(rng, counts):
    """So many questions of each kind in any order, each with its right answer."""
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    answers = {}
    for kind in rng.permutation(kinds):
        a, b = (int(number) for number in rng.integers(100_000, 1_000_000, 2))
        if kind == "plus":
            answers[f"What is {a} plus {b}?"] = str(a + b)
        elif kind == "river":
            answers[f"How long is the river from town {a} to town {b}?"] = str(abs(a - b))
        else:
            answers[f"How many primes are below {a} and divide {b}?"] = str(a % 100 + 10)
    return answers


def kind_of(question):
    return next(kind for kind in RIGHT if kind in question)


def outcomes(rng, asked):
    """A table of what each expert answers: a row per question."""
    columns = {adapter.QUERY: list(asked)}
    for name, dollars in DOLLARS.items():
        shares = np.array([RIGHT[kind_of(question)][name] for question in asked])
        is_right = rng.random(len(asked)) < shares
        columns |= adapter.outcome_columns(
            name,
            scores=is_right.astype(float),
            dollars=np.full(len(asked), dollars),
            answers=np.where(is_right, list(asked.values()), WRONG[name]),
        )
    return pa.table(columns)


def experts_of(models):
    """The experts as a gateway's settings name them."""
    return {
        name: adapter.expert(models.url, f"{name}-model", price) for name, price in PRICES.items()
    }


def set_knowledge(models, right=RIGHT):
    """Let the models answer so many of the questions of each kind right."""
    for name, wrong in WRONG.items():
        rules = []
        for kind, shares in right.items():
            rules.append(
                {"contains": kind, "right": shares[name], "wrong": wrong, "tokens": TOKENS}
            )
        models.set_rules(f"{name}-model", *rules)


def ask(gateway, asked):
    """Ask all questions: of each, the id of the request, the expert, and the score of the answer."""
    bodies = [adapter.chat(question) for question in asked]
    answers = post_all(gateway.address + adapter.CHAT, bodies)
    answered = []
    for answer, right in zip(answers, asked.values(), strict=True):
        assert answer.status == 200, answer
        score = float(adapter.said(answer.document) == right)
        answered.append((answer.headers[adapter.REQUEST_ID], answer.headers[adapter.EXPERT], score))
    return answered


def send_feedback(gateway, answered):
    """Score every answer, as its client."""
    left = [adapter.feedback(request_id, score) for request_id, _, score in answered]

    def are_taken():
        nonlocal left
        answers = post_all(gateway.address + adapter.FEEDBACK, left)
        assert {answer.status for answer in answers} <= {200, 404}
        # On a busy machine a row may come late.
        left = [body for body, answer in zip(left, answers, strict=True) if answer.status == 404]
        return not left

    wait_until(are_taken)
