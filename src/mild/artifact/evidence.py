"""Evidence for a decision: what the parts of a query add to the lead of the chosen expert."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from mild.core.arrays import FloatArray
from mild.core.long_texts import shorten
from mild.features import HashingFeatures, TextFeatures
from mild.policies import Policy

# Texts of at most so many words are explained word by word, longer ones passage by passage.
MAX_WORDS = 150
MAX_CHARACTERS = 50 * MAX_WORDS
N_PASSAGES = 50
# Effects that are smaller are rounding.
LEAST_EFFECT = 1e-6
# Characters of a part that are shown.
SHOWN = 48
# Readable names of the plain numbers.
NUMBER_WORDS = {
    "<log_length>": "(length of the text)",
    "<log_lines>": "(number of lines)",
    "<log_questions>": "(question marks)",
    "<digits>": "(share of digits)",
    "<capitals>": "(share of capitals)",
    "<code>": "(share of code signs)",
    "<arithmetic>": "(share of arithmetic signs)",
    "<spaces>": "(share of spaces)",
    "<not_ascii>": "(share outside ASCII)",
}


@dataclass(frozen=True)
class Evidence:
    """A part of a query, and what it adds to the lead of the chosen expert over the next one."""

    part: str
    effect: float


@dataclass(frozen=True)
class EvidenceList:
    """All pieces of evidence for a decision, those of the largest effect first."""

    entries: list[Evidence]
    method: str  # how they were found: "terms", "words left out", "passages left out", "none"
    unit: str  # of the effects


#: What there is to say of a decision for which no part of the query is evidence.
NO_EVIDENCE = EvidenceList([], "none", "")


def find_evidence(
    policy: Policy, features: TextFeatures, text: str, chosen: int, runner_up: int, by: str
) -> EvidenceList:
    """What the parts of a text add to the lead of the chosen expert over the runner-up.

    For a linear router on hashed text the evidence is exact: the lead is a sum over terms. For any other
    router, words (or passages of a long text) are left out one by one. ``by`` is the quantity that the
    choice is made by.
    """
    terms = evidence_by_terms(text, features, policy, chosen, runner_up)
    if terms is not None:
        unit = by
        if by == "probability":
            unit = "log-odds"
        return EvidenceList(terms, "terms", unit)

    def lead(texts: list[str]) -> FloatArray:
        values = policy.decide(features.vectorize(texts)).values
        return np.asarray(values[:, chosen] - values[:, runner_up], np.float64)

    entries, part_kind = evidence_by_leaving_out(text, lead)
    if all(abs(entry.effect) <= LEAST_EFFECT for entry in entries):
        return NO_EVIDENCE
    return EvidenceList(entries, f"{part_kind}s left out", by)


def evidence_by_terms(
    text: str, features: TextFeatures, policy: Policy, chosen: int, runner_up: int
) -> list[Evidence] | None:
    """Shares of a linear router's lead, term by term, largest first; None for other routers.

    The features of a text are a sum over its terms, and the lead is linear in the features::

        features = sum over terms of parts[term]        # each (n_features,)
        effect[term] = parts[term] @ slope

    The lead is a difference of scores or of expected costs, and the effects are exact; with unequal
    margins it is one of log-odds, and they are exact to first order. The effect of a piece of a
    word is added to the words that contain it.
    """
    if not isinstance(features, HashingFeatures):
        return None
    slope = policy.slopes(features.transform_one(text), chosen, runner_up)
    if slope is None:
        return None
    names, parts = features.explain(text)
    effects = (np.asarray(parts, np.float64) @ slope).tolist()
    # The mean is the same for every text, so it is no evidence.
    shares = [
        (name, effect) for name, effect in zip(names, effects, strict=True) if name != "<mean>"
    ]
    text_read = shorten(text, features.first, features.last)
    entries = []
    for name, effect in by_words(text_read, shares):
        entries.append(Evidence(NUMBER_WORDS.get(name, name), effect))
    return _largest_first(entries)


def by_words(text: str, shares: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Add the shares of pieces of words (``…xxxxx…``) to the words of the text that contain them.

    The share of a piece is divided evenly among its words, so the sum does not change.
    """
    words = dict.fromkeys(re.findall(r"\w+", text.lower()))
    # A piece never spans two words, so a space marks either edge of a word.
    words_on_lines = "\n".join(f" {word} " for word in words)
    effects: dict[str, float] = {}
    for name, effect in shares:
        owners = _words_with_piece(name, words_on_lines) or [name]
        for owner in owners:
            effects[owner] = effects.get(owner, 0.0) + effect / len(owners)
    return list(effects.items())


def _words_with_piece(name: str, words_on_lines: str) -> list[str]:
    """Words, one per line, that contain a piece ``…xxxxx…``; none if the name is no piece."""
    is_piece = len(name) > 2 and name[0] == name[-1] == "…"
    if not is_piece:
        return []
    piece = re.escape(re.sub(r"\W", " ", name[1:-1]))
    lines = re.findall(rf"^.*{piece}.*$", words_on_lines, re.MULTILINE)
    return [line.strip() for line in lines]


def evidence_by_leaving_out(
    text: str, lead: Callable[[list[str]], FloatArray]
) -> tuple[list[Evidence], str]:
    """Return by how much the lead falls without each word, or without each passage of a long text.

    Parameters
    ----------
    text : str
        The query.
    lead : callable
        Maps n texts to the lead (n,) of the chosen expert over the next one.

    Returns
    -------
    evidence : list of Evidence
        The parts of the text, in order of falling absolute effect.
    part_kind : str
        "word" or "passage": what the text was divided into.
    """
    words = re.findall(r"\S+", text)
    different_words = list(dict.fromkeys(word.lower() for word in words))
    if len(different_words) <= MAX_WORDS and len(text) <= MAX_CHARACTERS:
        part_kind = "word"
        parts = different_words
        texts_without = [" ".join(word for word in words if word.lower() != part) for part in parts]
    else:
        part_kind = "passage"
        parts, texts_without = _without_passages(text)
    if not parts:
        return [], part_kind
    effects = (lead([text])[0] - lead(texts_without)).tolist()
    entries = []
    for part, effect in zip(parts, effects, strict=True):
        entries.append(Evidence(_on_one_line(part), effect))
    return _largest_first(entries), part_kind


def _without_passages(text: str) -> tuple[list[str], list[str]]:
    """The passages of a text, and for each one the text without it."""
    length = math.ceil(len(text) / N_PASSAGES)
    passages = []
    texts_without = []
    for start in range(0, len(text), length):
        end = start + length
        passages.append(text[start:end])
        texts_without.append(f"{text[:start]} {text[end:]}")
    return passages, texts_without


def _on_one_line(part: str) -> str:
    """A part of a text on one line, shortened."""
    line = " ".join(part[: 4 * SHOWN].split())
    if len(line) <= SHOWN:
        return line
    return f"{line[: SHOWN - 1]}…"


def _largest_first(entries: list[Evidence]) -> list[Evidence]:
    return sorted(entries, key=lambda entry: -abs(entry.effect))
