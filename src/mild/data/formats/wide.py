"""Wide: ``correct__<model>`` or ``score__<model>``, ``cost__<model>``, ``latency_ms__<model>``.

Or with the names behind the model: ``<model>_correct``, ``<model>_cost``, ``<model>_latency_ms``.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mild.data.formats.base import (
    ANSWER,
    CORRECT,
    LATENCY,
    LATENCY_NAMES,
    LOGPROB,
    PRICE,
    PRICE_NAMES,
    SCORE,
    SCORE_NAMES,
    TOKENS_IN,
    TOKENS_OUT,
    Format,
    Layout,
    read_with,
)
from mild.data.tables import is_numeric, is_string
from mild.errors import DataFileError, listed

#: Prefixes of columns that hold outcomes; those behind the scores need a score of the same model.
PREFIXES = (CORRECT, SCORE, PRICE, LATENCY, TOKENS_IN, TOKENS_OUT)
# Prefixes of columns about answers, which need a score of the same model, too.
ANSWER_PREFIXES = (ANSWER, LOGPROB)
# A prefix that is so similar to one of PREFIXES is a mistake.
SIMILAR = 0.8


def detect_wide(schema: Any) -> Layout | None:
    """Columns by their prefixes; ``score__`` goes before ``correct__``."""
    found: dict[str, dict[str, str]] = {CORRECT: {}, SCORE: {}, PRICE: {}, LATENCY: {}}
    # Experts in the order in which they first appear.
    experts: dict[str, None] = {}
    for column in schema.names:
        prefix, mark, expert = column.partition("__")
        if expert and prefix + mark in found:
            found[prefix + mark][expert] = column
            if prefix + mark in (CORRECT, SCORE):
                experts[expert] = None
    if not experts:
        return None
    scores = {name: found[SCORE].get(name) or found[CORRECT][name] for name in experts}
    prices, latencies = (
        {name: column for name, column in found[prefix].items() if name in scores}
        for prefix in (PRICE, LATENCY)
    )
    layout = Layout("wide", scores, prices, latencies)
    both = [name for name in scores if name in found[CORRECT] and name in found[SCORE]]
    notes = [f"score__ is used instead of correct__ for {listed(both, 4)}"] if both else []
    others = Counter(
        prefix
        for name in schema.names
        for prefix, mark, expert in [name.partition("__")]
        if mark
        and name not in layout.taken
        and prefix + mark not in ANSWER_PREFIXES
        and (expert in scores or prefix + mark in (PRICE, LATENCY))
    )
    if others:
        left = [f"{prefix}__<model> ({count})" for prefix, count in others.items()]
        notes.append(f"kept as plain columns: {listed(left, 8)}")
    return Layout("wide", scores, prices, latencies, tuple(notes))


def check_prefixes(names: Sequence[str], experts: Sequence[str]) -> None:
    """Refuse columns of an expert without scores, and columns whose prefix is misspelt."""
    for column in names:
        prefix, mark, expert = column.partition("__")
        if not expert or not prefix:
            continue
        if prefix + mark in PREFIXES + ANSWER_PREFIXES:
            if expert in experts:
                continue
            wanted = [CORRECT + expert, SCORE + expert]
            # A misspelt prefix of the same expert, or a misspelt expert.
            same = [name for name in names if name.endswith(f"__{expert}") and name != column]
            close = [m for w in wanted for m in difflib.get_close_matches(w, same, 1, SIMILAR)]
            close += [prefix + mark + e for e in difflib.get_close_matches(expert, experts, 1)]
            known = f"scores are known of {listed(experts, 6)}."
            raise _scoreless(
                column, expert, wanted, f"did you mean {close[0]!r}?" if close else known
            )
        meant = difflib.get_close_matches(prefix + mark, PREFIXES, 1, SIMILAR)
        if meant and meant[0] + expert not in names:
            raise DataFileError(
                f"column {column!r} has no known name; did you mean {meant[0] + expert!r}? Rename it, or "
                f"keep it as it is and name the scores: {read_with('scores=NAMES')}.",
                parameter="scores",
            )


def check_misspelt_scores(names: Sequence[str]) -> None:
    """Refuse a table without scores some of whose columns nearly have the name of scores."""
    for column in names:
        for prefix in (CORRECT, SCORE):
            word = prefix.rstrip("_")
            start, mark, expert = column.partition("__")
            if not mark:
                # One underscore in place of two.
                start, _, expert = column.partition("_")
            is_close = difflib.SequenceMatcher(None, start, word).ratio() >= SIMILAR
            if is_close and expert:
                raise DataFileError(
                    f"scores must be in columns {CORRECT}<model> or {SCORE}<model>; there are none. Found "
                    f"column {column!r}: did you mean {prefix + expert!r}? Rename it, or name the scores: "
                    f"{read_with('scores=NAMES')}.",
                    parameter="scores",
                )


def _scoreless(column: str, expert: str, wanted: Sequence[str], hint: str) -> DataFileError:
    return DataFileError(
        f"column {column!r} needs the scores of {expert!r} in {' or '.join(map(repr, wanted))}, which are "
        f"not there; {hint} Rename the column, leave it out, or name the scores: "
        f"{read_with('scores=NAMES')}.",
        parameter="scores",
    )


# What stands behind the name of a model.
_ENDING = re.compile(rf"(.+?)[_.]+({'|'.join(SCORE_NAMES + PRICE_NAMES + LATENCY_NAMES)})")
# Names of figures and flags, not of models.
_NO_MODEL = re.compile(r"(is|has|was|total|mean|avg|average|overall|max|min|sum|best|oracle|final)")


def detect_endings(schema: Any) -> Layout | None:
    """Columns by what stands behind the name of a model; without a score there is no model."""
    by_ending: dict[tuple[str, str], str] = {}
    for field in schema:
        match = _ENDING.fullmatch(field.name)
        plain = is_numeric(field.type) or is_string(field.type)
        if match and plain and not _NO_MODEL.fullmatch(match[1]):
            by_ending[match[1], match[2]] = field.name
    scored = [(model, ending) for model, ending in by_ending if ending in SCORE_NAMES]
    # Beside several <model>_correct, toxicity_score is no model.
    common = max((e for _, e in scored), key=[e for _, e in scored].count, default="")
    several = sum(ending == common for _, ending in scored) > 1
    models = dict.fromkeys(model for model, ending in scored if ending == common or not several)
    if not models:
        return None
    scores, prices, latencies = (
        {
            model: next(by_ending[model, end] for end in endings if (model, end) in by_ending)
            for model in models
            if any((model, end) in by_ending for end in endings)
        }
        for endings in (SCORE_NAMES, PRICE_NAMES, LATENCY_NAMES)
    )
    layout = Layout("endings", scores, prices, latencies)
    notes = [f"experts are the names before {listed(_ends(layout))}"]
    if left := [name for name in by_ending.values() if name not in layout.taken]:
        notes.append(f"kept as plain columns: {listed(left, 8)}")
    return replace(layout, notes=tuple(notes))


def _ends(layout: Layout) -> list[str]:
    """What stands behind the names of the models: _correct, _cost, ..."""
    columns = (layout.scores, layout.prices, layout.latencies)
    return list(dict.fromkeys(n.removeprefix(model) for c in columns for model, n in c.items()))


def check_endings(names: Sequence[str], layout: Layout) -> None:
    """Refuse columns of a model whose score column is misspelt."""
    others = [name for name in names if name not in layout.taken]
    for column in others:
        match = _ENDING.fullmatch(column)
        if match is None or match[1] in layout.scores or _NO_MODEL.fullmatch(match[1]):
            continue
        wanted = [match[1] + end for end in _ends(Layout("endings", layout.scores))]
        rest = [name for name in others if name != column]
        close = [m for w in wanted for m in difflib.get_close_matches(w, rest, 1, SIMILAR)]
        if close:
            raise _scoreless(column, match[1], wanted, f"did you mean {close[0]!r}?")


WIDE = Format("wide", "wide", "wide (columns correct__<model> or score__<model>)", detect_wide)
ENDINGS = Format(
    "endings",
    "wide by endings",
    "endings (columns <model>_correct or <model>_score)",
    detect_endings,
    rank=2,
)
