"""Wide: ``correct__<model>`` or ``score__<model>``, ``cost__<model>``, ``latency_ms__<model>``.

Or with the names after the model: ``<model>_correct``, ``<model>_cost``, ``<model>_latency_ms``.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
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
    columns_of,
    read_with,
)
from mild.data.tables import is_scalar, names_except
from mild.errors import DataFileError, listed

#: Prefixes of columns that hold outcomes; those behind the scores need a score of the same model.
PREFIXES = (CORRECT, SCORE, PRICE, LATENCY, TOKENS_IN, TOKENS_OUT)
# Prefixes of columns about answers, which need a score of the same model, too.
ANSWER_PREFIXES = (ANSWER, LOGPROB)
# A prefix that is so similar to one of PREFIXES is a mistake.
SIMILAR = 0.8


def split_name(column: str) -> tuple[str, str]:
    """Split the name of a column into prefix and expert; both are empty if it has no ``__``.

    >>> split_name("cost__large"), split_name("prompt")
    (('cost__', 'large'), ('', ''))
    """
    start, mark, expert = column.partition("__")
    if not mark:
        return "", ""
    return start + mark, expert


def detect_wide(schema: Any) -> Layout | None:
    """Return the layout of columns with the usual prefixes; ``score__`` is preferred to ``correct__``."""
    by_prefix: dict[str, dict[str, str]] = {CORRECT: {}, SCORE: {}, PRICE: {}, LATENCY: {}}
    # Experts in the order in which they first appear.
    experts: dict[str, None] = {}
    for column in schema.names:
        prefix, expert = split_name(column)
        if expert and prefix in by_prefix:
            by_prefix[prefix][expert] = column
            if prefix in (CORRECT, SCORE):
                experts[expert] = None
    if not experts:
        return None
    layout = Layout(
        "wide",
        scores=columns_of(experts, by_prefix[CORRECT] | by_prefix[SCORE]),
        prices=columns_of(experts, by_prefix[PRICE]),
        latencies=columns_of(experts, by_prefix[LATENCY]),
    )
    return layout.with_notes(*_notes(schema, layout))


def _notes(schema: Any, layout: Layout) -> list[str]:
    """Say which score column is used if an expert has two, and which columns are not read as outcomes."""
    names = set(schema.names)
    notes = []
    both = [expert for expert in layout.scores if {CORRECT + expert, SCORE + expert} <= names]
    if both:
        notes.append(f"score__ is used instead of correct__ for {listed(both, 4)}")
    outcome_columns = layout.outcome_columns
    n_by_prefix: Counter[str] = Counter()
    for name in schema.names:
        prefix, expert = split_name(name)
        if not prefix or name in outcome_columns or prefix in ANSWER_PREFIXES:
            continue
        if expert in layout.scores or prefix in (PRICE, LATENCY):
            n_by_prefix[prefix] += 1
    if n_by_prefix:
        plain_columns = [f"{prefix}<model> ({count})" for prefix, count in n_by_prefix.items()]
        notes.append(f"kept as plain columns: {listed(plain_columns, 8)}")
    return notes


def check_prefixes(names: Sequence[str], experts: Sequence[str]) -> None:
    """Raise an error for columns of an expert without scores, and for misspelt prefixes."""
    for column in names:
        prefix, expert = split_name(column)
        if prefix in ("", "__") or not expert:
            continue
        if prefix in PREFIXES + ANSWER_PREFIXES:
            if expert not in experts:
                raise _scoreless(column, prefix, expert, names, experts)
            continue
        similar = difflib.get_close_matches(prefix, PREFIXES, 1, SIMILAR)
        if similar and similar[0] + expert not in names:
            raise DataFileError(
                f"column {column!r} has no known name; did you mean {similar[0] + expert!r}? Rename it, or "
                f"keep it as it is and name the scores: {read_with('scores=NAMES')}.",
                parameter="scores",
            )


def _scoreless(
    column: str, prefix: str, expert: str, names: Sequence[str], experts: Sequence[str]
) -> DataFileError:
    """Return the error for a column of outcomes of an expert that has no scores."""
    score_columns = [CORRECT + expert, SCORE + expert]
    # A misspelt prefix of the same expert, or a misspelt expert.
    same_expert = [name for name in names if name.endswith(f"__{expert}") and name != column]
    similar = _similar_names(score_columns, same_expert)
    similar += [prefix + close for close in difflib.get_close_matches(expert, experts, 1)]
    hint = f"scores are known of {listed(experts, 6)}."
    if similar:
        hint = f"did you mean {similar[0]!r}?"
    return _needs_scores(column, expert, score_columns, hint)


def _similar_names(expected: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return, for each expected name, the name that is nearly the same, if there is one."""
    similar = []
    for name in expected:
        similar += difflib.get_close_matches(name, names, 1, SIMILAR)
    return similar


def check_misspelt_scores(names: Sequence[str]) -> None:
    """Raise an error if a table has no scores, but a column whose name nearly is that of scores."""
    for column in names:
        start, mark, expert = column.partition("__")
        if not mark:
            # One underscore in place of two.
            start, _, expert = column.partition("_")
        if not expert:
            continue
        for prefix in (CORRECT, SCORE):
            word = prefix.rstrip("_")
            if difflib.SequenceMatcher(None, start, word).ratio() >= SIMILAR:
                raise DataFileError(
                    f"scores must be in columns {CORRECT}<model> or {SCORE}<model>; there are none. Found "
                    f"column {column!r}: did you mean {prefix + expert!r}? Rename it, or name the scores: "
                    f"{read_with('scores=NAMES')}.",
                    parameter="scores",
                )


def _needs_scores(
    column: str, expert: str, score_columns: Sequence[str], hint: str
) -> DataFileError:
    """Return the error for a column of an expert whose scores are in none of the expected columns."""
    return DataFileError(
        f"column {column!r} needs the scores of {expert!r} in {' or '.join(map(repr, score_columns))}, "
        f"which are not there; {hint} Rename the column, leave it out, or name the scores: "
        f"{read_with('scores=NAMES')}.",
        parameter="scores",
    )


# What stands after the name of a model.
_ENDING = re.compile(rf"(.+?)[_.]+({'|'.join(SCORE_NAMES + PRICE_NAMES + LATENCY_NAMES)})")
# Names of figures and flags, not of models.
_NO_MODEL = re.compile(r"(is|has|was|total|mean|avg|average|overall|max|min|sum|best|oracle|final)")


def detect_endings(schema: Any) -> Layout | None:
    """Return the layout of columns such as ``<model>_correct``; only names with a score are models."""
    by_ending: dict[tuple[str, str], str] = {}
    for field in schema:
        match = _ENDING.fullmatch(field.name)
        if match and is_scalar(field.type) and not _NO_MODEL.fullmatch(match[1]):
            by_ending[match[1], match[2]] = field.name
    models = _scored_models(by_ending)
    if not models:
        return None
    layout = Layout(
        "endings",
        scores=_first_columns(models, SCORE_NAMES, by_ending),
        prices=_first_columns(models, PRICE_NAMES, by_ending),
        latencies=_first_columns(models, LATENCY_NAMES, by_ending),
    )
    notes = [f"experts are the names before {listed(_endings(layout))}"]
    plain_columns = names_except(by_ending.values(), layout.outcome_columns)
    if plain_columns:
        notes.append(f"kept as plain columns: {listed(plain_columns, 8)}")
    return layout.with_notes(*notes)


def _scored_models(by_ending: Mapping[tuple[str, str], str]) -> list[str]:
    """Return the models with a score; if several share the ending of its column, only these."""
    models_by_ending: dict[str, list[str]] = {}
    models: dict[str, None] = {}
    for model, ending in by_ending:
        if ending in SCORE_NAMES:
            models_by_ending.setdefault(ending, []).append(model)
            models[model] = None
    largest_group = max(models_by_ending.values(), key=len, default=[])
    if len(largest_group) > 1:
        # Beside several <model>_correct, toxicity_score is not that of a model.
        return largest_group
    return list(models)


def _first_columns(
    models: Sequence[str], endings: Sequence[str], by_ending: Mapping[tuple[str, str], str]
) -> dict[str, str]:
    """Return, for each model, its column with the first of these endings that it has."""
    columns = {}
    for model in models:
        for ending in endings:
            if (model, ending) in by_ending:
                columns[model] = by_ending[model, ending]
                break
    return columns


def _endings(layout: Layout) -> list[str]:
    """Return what follows the names of the models: _correct, _cost, ..."""
    endings: dict[str, None] = {}
    for columns in (layout.scores, layout.prices, layout.latencies):
        for model, column in columns.items():
            endings[column.removeprefix(model)] = None
    return list(endings)


def check_endings(names: Sequence[str], layout: Layout) -> None:
    """Raise an error for columns of a model whose score column is misspelt."""
    score_endings = _endings(Layout("endings", layout.scores))
    others = names_except(names, layout.outcome_columns)
    for column in others:
        match = _ENDING.fullmatch(column)
        if match is None or match[1] in layout.scores or _NO_MODEL.fullmatch(match[1]):
            continue
        model = match[1]
        score_columns = [model + ending for ending in score_endings]
        similar = _similar_names(score_columns, names_except(others, [column]))
        if similar:
            raise _needs_scores(column, model, score_columns, f"did you mean {similar[0]!r}?")


WIDE = Format("wide", "wide", "wide (columns correct__<model> or score__<model>)", detect_wide)
ENDINGS = Format(
    "endings",
    "wide by endings",
    "endings (columns <model>_correct or <model>_score)",
    detect_endings,
    rank=2,
)
