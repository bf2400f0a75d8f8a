"""What mild has to beat: a router by text and two rules for answers, as an engineer writes them by hand.

Both are fitted on one half of a table. They give a path of settings, from the cheapest to the best on that
half, of which two neighbours can be mixed; it is judged on other rows.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, cross_val_predict

NO_ANSWER = ("", "none", "nan", "null", "no answer", "undetermined")

Floats = NDArray[np.float64]


class Rows(NamedTuple):
    """Rows of a table, as arrays."""

    texts: NDArray[Any]  # (n,)
    scores: Floats  # (n, p)
    dollars: Floats  # (n, p) per query
    answers: NDArray[np.int64] | None  # (n, p) equal where the answers are, -1 where there is none


def answer_codes(answers: NDArray[Any]) -> NDArray[np.int64]:
    """Codes (n, p) of answers: equal where trimmed, lower-case texts are; -1 for no answer."""
    codes = dict.fromkeys(NO_ANSWER, -1)
    texts = [[str(answer).strip().lower() for answer in row] for row in answers]
    return np.array([[codes.setdefault(text, len(codes)) for text in row] for row in texts])


def hull(quality: Floats, dollars: Floats) -> list[int]:
    """Settings that no mix of others beats, from the cheapest to the best."""
    kept: list[int] = []
    for setting in np.lexsort((-quality, dollars)).tolist():
        if kept and quality[setting] <= quality[kept[-1]]:
            continue
        while len(kept) > 1:
            a, b = kept[-2:]
            rise = (quality[b] - quality[a]) * (dollars[setting] - dollars[a])
            if rise > (quality[setting] - quality[a]) * (dollars[b] - dollars[a]):
                break
            kept.pop()
        kept.append(setting)
    return kept


def dollars_at(path: Floats, quality: float) -> float:
    """Least dollars for which a path (settings, [quality, dollars]) has this quality.

    Neighbours can be mixed. Where no mix reaches the quality, the dollars of the best setting.
    """
    found = [dollars for reached, dollars in path if reached >= quality]
    for (low, low_dollars), (high, high_dollars) in itertools.pairwise(path):
        if min(low, high) < quality < max(low, high):
            share = (quality - low) / (high - low)
            found.append(low_dollars + share * (high_dollars - low_dollars))
    return float(min(found)) if found else float(path[path[:, 0].argmax(), 1])


def means(quality: Floats, dollars: Floats) -> Floats:
    """(settings, [quality, dollars]) of values (n, settings)."""
    return np.column_stack([quality.mean(axis=0), dollars.mean(axis=0)])


def single_path(judged: Rows) -> Floats:
    """The coin: single experts, which are mixed at random, chosen on the rows that judge."""
    points = means(judged.scores, judged.dollars)
    return points[hull(*points.T)]


def text_router_path(train: Rows, judged: Rows) -> Floats:
    """TF-IDF, one ridge regression of the quality of every expert, and a choice by quality minus price."""
    tfidf = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    X, X_judged = tfidf.fit_transform(train.texts), tfidf.transform(judged.texts)
    ridges = [Ridge(alpha) for alpha in (0.3, 1, 3, 10, 30, 100)]
    folds = GroupKFold(5)
    held_out = [
        cross_val_predict(ridge, X, train.scores, groups=train.texts, cv=folds) for ridge in ridges
    ]
    best = int(np.argmin([((found - train.scores) ** 2).mean() for found in held_out]))
    prices = train.dollars.mean(axis=0)
    weights = np.r_[0, np.geomspace(1e-4, 100, 60)] / prices.max()
    seen = _routed(held_out[best], prices, weights, train)
    new = _routed(ridges[best].fit(X, train.scores).predict(X_judged), prices, weights, judged)
    return new[hull(*seen.T)]


def _routed(predicted: Floats, prices: Floats, weights: Floats, rows: Rows) -> Floats:
    """Means of the choices at each price weight, and of the single experts."""
    chosen = np.stack([(predicted - weight * prices).argmax(axis=1) for weight in weights], axis=1)
    quality = np.take_along_axis(rows.scores, chosen, 1)
    dollars = np.take_along_axis(rows.dollars, chosen, 1)
    return np.vstack([means(quality, dollars), means(rows.scores, rows.dollars)])


def rules_path(train: Rows, judged: Rows) -> Floats:
    """Ask two and accept if they agree, else a third; or one, and another if it gives no answer."""
    return _rules(judged)[hull(*_rules(train).T)]


def _rules(rows: Rows) -> Floats:
    answers, scores, dollars = rows.answers, rows.scores, rows.dollars
    assert answers is not None
    experts = range(scores.shape[1])
    quality = [*scores.T]
    paid = [*dollars.T]
    for i, j in itertools.permutations(experts, 2):
        given = answers[:, i] >= 0
        quality.append(np.where(given, scores[:, i], scores[:, j]))
        paid.append(dollars[:, i] + np.where(given, 0, dollars[:, j]))
    for i, j in itertools.combinations(experts, 2):
        agree = (answers[:, i] >= 0) & (answers[:, i] == answers[:, j])
        for k in set(experts) - {i, j}:
            quality.append(np.where(agree, scores[:, i], scores[:, k]))
            paid.append(dollars[:, i] + dollars[:, j] + np.where(agree, 0, dollars[:, k]))
    return means(np.column_stack(quality), np.column_stack(paid))
