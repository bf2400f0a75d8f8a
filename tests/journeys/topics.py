"""Three experts that answer questions of three topics.

``small`` can do sums, ``medium`` also knows rivers, and ``large`` does everything and is dear.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from journeys import names

#: Dollars per answer.
DOLLARS = {"small": 0.0002, "medium": 0.002, "large": 0.01}
EXPERTS = list(DOLLARS)
#: Probability that each expert is right, by a word of the question.
RIGHT = {
    "plus": [0.95, 0.95, 0.95],
    "river": [0.02, 0.95, 0.95],
    "primes": [0.02, 0.02, 0.95],
}
TEXTS = {
    "plus": "What is {a} plus {b}?",
    "river": "How long is the river from town {a} to town {b}?",
    "primes": "How many primes are below {a} and divide {b}?",
}
#: Wrong answers that a dollar is worth.
PRICE_WEIGHT = 20
BEST = {"plus": "small", "river": "medium", "primes": "large"}


def questions(rng, count):
    """Questions of any topic."""
    texts = []
    for topic in rng.choice(list(TEXTS), count):
        a, b = rng.integers(100, 1000, 2)
        texts.append(TEXTS[topic].format(a=a, b=b))
    return texts


def topic_of(text):
    return next(topic for topic in TEXTS if topic in text)


def answered_right(rng, texts):
    """Whether each expert is right, a row per question."""
    return rng.random((len(texts), len(EXPERTS))) < [RIGHT[topic_of(text)] for text in texts]


def costs_of(right):
    """What answers cost: 1 for an error, and their price."""
    return 1 - right + PRICE_WEIGHT * np.array(list(DOLLARS.values()))


def share_of_best(texts, chosen):
    """How often the expert is chosen that is best for the topic."""
    return np.mean(
        [BEST[topic_of(text)] == expert for text, expert in zip(texts, chosen, strict=True)]
    )


def outcomes(rng, count):
    """A table of what each expert answered."""
    texts = questions(rng, count)
    columns = {names.QUERY: texts}
    right = answered_right(rng, texts)
    for place, (name, dollars) in enumerate(DOLLARS.items()):
        answers = [
            text[-6:-1] if is_right else name
            for text, is_right in zip(texts, right[:, place], strict=True)
        ]
        columns |= names.outcome_columns(
            name, right[:, place].astype(float), np.full(count, dollars), answers
        )
    return pd.DataFrame(columns)
