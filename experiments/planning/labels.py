"""Which queries to send to which experts next, for a sum of dollars."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from experiments.planning import cells as cells_to_ask
from mild.artifact.frames import as_frame, default_library, html_table, library_of
from mild.core.arrays import FloatArray, IntArray, check_integer, invalid
from mild.data import Outcomes, read_outcomes, write_columns
from mild.data.cost_terms import CostTerms
from mild.data.tables import naming, read_table, short
from mild.errors import DataFileError, InvalidInputError, OptionError, count_noun, listed
from mild.features import TextFeatures
from mild.money import amount
from mild.tuning.fitting import make_text_features
from mild_gateway.collect import Collected, collect_outcomes
from mild_gateway.collect.config import find_experts
from mild_gateway.collect.prompts import lettered_options
from mild_gateway.collect.questions import Question, Questions, read_questions
from mild_gateway.collect.runs import check_prices
from mild_gateway.collect.session import ledger_path
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.prices import Usage, estimate_tokens
from mild_gateway.learning.pooled_heads import SparseOutcomes, pooled_heads


@dataclass(frozen=True, eq=False, repr=False)
class LabelPlan:
    """Calls to make, and what their outcomes are expected to save.

    Regret is the mean loss, in wrong answers per query, of a decision against one that knows each expert's
    level. ``planned`` are the number of queries and calls, the dollars, and the regret that is removed;
    ``random`` are those of random experts about random queries for the same dollars, ``all_experts`` of
    every expert about random queries.

    Attributes
    ----------
    columns : query, expert and expected dollars, a row per call
    spend : dollars that were asked for
    regret : mean loss of the decisions as they are, against those that know each expert's level
    planned : queries, calls, dollars and the regret that is removed
    random : the same for random calls
    all_experts : the same for every expert about random queries
    like : library of the frames that are returned

    Examples
    --------
    >>> columns = {"query": ["Who wrote Emma?"], "expert": ["large"], "dollars": [0.01]}
    >>> bought = {"queries": 1, "calls": 1, "dollars": 0.01, "removed": 0.1}
    >>> nothing = {**bought, "removed": 0.0}
    >>> LabelPlan(columns, 0.01, 0.2, bought, nothing, nothing).sentence[:66]
    '1 call for $0.010: expected to remove 50.0% of the decision regret'
    """

    columns: dict[str, list[Any]]
    spend: float
    regret: float
    planned: dict[str, float]
    random: dict[str, float]
    all_experts: dict[str, float]
    like: Any = None

    @property
    def sentence(self) -> str:
        """What the plan buys, beside the two baselines."""
        plan, plans = self.planned, (self.planned, self.random, self.all_experts)
        shares = [f"{one['removed'] / self.regret if self.regret else 0:.1%}" for one in plans]
        rows = count_noun(int(self.all_experts["queries"]), "random query", "random queries")
        return (
            f"{count_noun(int(plan['calls']), 'call')} for ${amount(plan['dollars'])}: expected to remove "
            f"{shares[0]} of the decision regret; random calls for the same dollars: {shares[1]}; asking "
            f"all experts about {rows}: {shares[2]}."
        )

    def as_dict(self) -> dict[str, Any]:
        """The figures of the plan, and the calls and dollars of each expert."""
        experts: dict[str, Any] = {}
        for name, dollars in zip(self.columns["expert"], self.columns["dollars"], strict=True):
            one = experts.setdefault(name, {"calls": 0, "dollars": 0.0})
            one["calls"] += 1
            one["dollars"] += dollars
        names = ("spend", "regret", "random", "all_experts", "sentence")
        return {
            **self.planned,
            **{name: getattr(self, name) for name in names},
            "experts": experts,
        }

    def to_frame(self) -> Any:
        """A row per call: query, expert, dollars."""
        return as_frame(self.columns, self.like or default_library())

    def write(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the calls to a .csv, .parquet or .jsonl file, which ``collect_planned`` takes."""
        return write_columns(self.columns, path, overwrite)

    def __repr__(self) -> str:
        return f"<LabelPlan: {self.sentence}>"

    def _repr_html_(self) -> str:
        experts = self.as_dict()["experts"].items()
        return html_table(repr(self), [{"expert": name, **found} for name, found in experts])


def _texts(one: Question) -> tuple[str, str]:
    """A question, and with its choices right under it, as in some tables of outcomes."""
    if not one.options:
        return one.query, one.query
    return one.query, f"{one.query}\n{lettered_options(one.options)}"


def _column(table: Outcomes, values: FloatArray | None, name: str) -> FloatArray:
    """Prices or latencies of an expert, NaN where they are not known."""
    if values is None or name not in table.experts:
        return np.full(len(table), np.nan)
    return values[:, table.experts.index(name)]


def _expected_dollars(
    paid: FloatArray, rows: IntArray, texts: list[str], asked: Expert | None
) -> Any:
    """Dollars of a call for each text: its tokens in, and what answers have cost beyond those so far.

    ``paid`` are dollars of earlier answers about ``texts[rows]``. An expert without any counts with the
    longest answer that it may give.
    """
    known = ~np.isnan(paid)
    if asked is None:
        return paid[known].mean() if known.any() else 0.0
    sent = [estimate_tokens((asked.system or "") + text) for text in texts]
    read = np.array([asked.price.of(Usage(tokens, 0)) for tokens in sent])
    if known.any():
        return read + max(0.0, (paid - read[rows])[known].mean())
    return read + asked.price.of(Usage(0, asked.max_tokens)) - asked.price.of(Usage(0, 0))


def make_plan(
    table: Any,
    experts: str | os.PathLike[str] | Sequence[Expert],
    spend: float,
    *,
    queries: Any = None,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
    text: str | TextFeatures | None = None,
    random_state: int = 0,
) -> LabelPlan:
    """Which queries to send to which experts next, for a sum of dollars.

    Ridge heads estimate every expert's error. Where draws of the experts' levels choose different experts
    for a query, these experts are asked about it, cheap ones sooner: they are compared on the same query.
    Plan in several rounds: what one buys makes the next better.

    Parameters
    ----------
    table : Outcomes, or whatever ``mild.read_outcomes`` takes; outcomes that are missing can be bought
    experts : TOML file of ``mild collect``, or a list of ``Expert``, with prices
    spend : dollars, expected; ``collect_outcomes(max_spend=...)`` sets a limit
    queries : more queries, of which no outcome is known: questions of ``mild_gateway.collect_outcomes``
    beta, price_weight, latency_weight : the cost of a choice, as in ``mild.tune``
    text : features, as in ``mild.fit``
    random_state : seed

    Returns
    -------
    LabelPlan

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.datasets import load_outcomes
    >>> from mild_gateway.experts.expert import Expert
    >>> table = load_outcomes()
    >>> known = table[:40]
    >>> url = "http://127.0.0.1:8080/v1"
    >>> asked = [Expert(name, url, name, price_per_query=0.01) for name in table.experts]
    >>> more = pa.table({"query": table.queries[40:]})
    >>> found = make_plan(known, asked, spend=0.5, queries=more)
    >>> found.planned["calls"]
    50
    """
    if not (isinstance(spend, Real) and 0 < float(spend) < math.inf):
        raise OptionError(parameter="spend", rule=f"must be dollars above 0; got {spend!r}.")
    check_integer("random_state", random_state, 0)
    known = read_outcomes(table)
    step = make_text_features(known, text)
    if step.kind == "vectors":
        raise invalid("text", "must read queries, which are what experts are asked; got vectors.")
    found = find_experts(experts, need_secrets=False).experts
    asked = {expert.name: expert for expert in found}
    check_prices("a plan", found, "experts")
    # Experts of the table that cannot be asked stay rivals. A query may have several rows, as where an
    # older table and new outcomes are read together.
    rivals = [*asked, *(name for name in known.experts if name not in asked)]
    more = [] if queries is None else read_questions(queries, scorer=True).items
    choices = known.recipe is not None and bool(known.recipe.choices)
    texts = list(dict.fromkeys([*known.queries, *(_texts(one)[choices] for one in more)]))
    number = {text: place for place, text in enumerate(texts)}
    rows = np.array([number[text] for text in known.queries])
    row, k = np.nonzero(~np.isnan(known.scores))
    place = np.array([rivals.index(name) for name in known.experts])[k]
    cells = SparseOutcomes(rows[row], place, 1 - known.scores[row, k], np.ones(len(k)))
    unknown = np.zeros((len(texts), len(rivals)), bool)
    unknown[:, : len(asked)] = True
    unknown[cells.row, cells.expert] = False
    unknown[[not text.strip() for text in texts]] = False
    if not unknown.any():
        raise _nothing("every expert's outcome of every query is known already")
    dollars, terms = np.empty(unknown.shape), CostTerms(beta, price_weight, latency_weight)
    for one, name in enumerate(rivals):
        paid = _column(known, known.prices, name)
        dollars[:, one] = _expected_dollars(paid, rows, texts, asked.get(name))
    costs = np.array(terms.betas(cast(Any, SimpleNamespace(experts=rivals))))
    costs = costs + (terms.price_weight or 0.0) * dollars
    if terms.latency_weight:
        columns = [_column(known, known.latencies, name) for name in rivals]
        seconds = np.ma.masked_invalid(columns)
        if not seconds.count():
            raise invalid("latency_weight", "needs latencies, but the table has none.")
        # An unknown latency is the mean of the others.
        costs = costs + terms.latency_weight * seconds.mean(axis=1).filled(seconds.mean())
    cheapest = float(dollars[unknown].min())
    if cheapest > spend:
        rule = f"must pay for one call; the cheapest is expected to cost ${amount(cheapest)}, and spend is"
        raise OptionError(parameter="spend", rule=f"{rule} ${amount(float(spend))}.")
    X = cells_to_ask.head_features(step.fit_transform(texts))
    heads = pooled_heads(X, cells, len(rivals))
    costs = costs + heads.expected(X)
    rng = np.random.default_rng(random_state)
    calls = cells_to_ask.plan_cells(costs, heads, unknown, dollars, spend, rng)
    if not len(calls):
        raise _nothing("no call is worth its price, because the heads agree about every query")

    def measured(found: IntArray) -> dict[str, float]:
        return {
            "queries": len(np.unique(found[:, 0])),
            "calls": len(found),
            "dollars": float(dollars[found[:, 0], found[:, 1]].sum()),
            "removed": cells_to_ask.removed_regret(costs, heads, found),
        }

    columns = {
        "query": [texts[row] for row in calls[:, 0]],
        "expert": [rivals[k] for k in calls[:, 1]],
        "dollars": dollars[calls[:, 0], calls[:, 1]].tolist(),
    }
    return LabelPlan(
        columns,
        float(spend),
        cells_to_ask.removed_regret(costs, heads, None),
        measured(calls),
        measured(cells_to_ask.random_cells(unknown, dollars, spend, rng)),
        measured(cells_to_ask.row_cells(unknown, dollars, spend, rng)),
        library_of(table),
    )


def _nothing(why: str) -> InvalidInputError:
    rule = f"{why}; give more queries (--queries) or other experts."
    return InvalidInputError(rule, parameter="table", code="nothing_to_ask")


def read_plan(source: Any, questions: Questions) -> dict[str, set[int]]:
    """Expert -> places of the questions that a plan asks it: a ``LabelPlan``, or a file or frame of one."""
    if isinstance(source, LabelPlan):
        source = pa.table(source.columns)
    is_path = isinstance(source, str | os.PathLike)
    with naming(Path(source)) if is_path else contextlib.nullcontext():
        columns = read_table(source, ("query", "expert")).to_pydict()
        if missing := [name for name in ("query", "expert") if name not in columns]:
            raise DataFileError(
                f"a plan must have the columns query and expert; got no {missing[0]!r}.",
                parameter="plan",
            )
    places: dict[str, list[int]] = {}
    for place, one in enumerate(questions.items):
        for text in set(_texts(one)):
            places.setdefault(text, []).append(place)
    wanted: dict[str, set[int]] = {}
    unknown = [text for text in columns["query"] if text not in places]
    if unknown:
        count = count_noun(len(set(unknown)), "query", "queries")
        raise DataFileError(
            f"the questions must have every query of the plan; {count} of it are not among them, such as "
            f"{short(str(unknown[0]))}.",
            parameter="plan",
        )
    for text, expert in zip(columns["query"], columns["expert"], strict=True):
        wanted.setdefault(expert, set()).update(places[text])
    return wanted


def collect_planned(
    plan: Any,
    questions: Any,
    experts: str | os.PathLike[str] | Sequence[Expert],
    out: str | os.PathLike[str] | None = None,
    *,
    ledger: str | os.PathLike[str] | None = None,
) -> Collected:
    """Ask only what a plan says; the table also has what the ledger knew before.

    Parameters
    ----------
    plan : ``LabelPlan``, or a file or frame of one
    questions, experts, out, ledger : as in ``mild_gateway.collect_outcomes``
    """
    asked = read_questions(questions)
    path = ledger_path(ledger, out)
    wanted = read_plan(plan, asked)
    names = [expert.name for expert in find_experts(experts, need_secrets=False).experts]
    for expert in wanted:
        if expert not in names:
            rule = f"must name experts that are asked: {listed(names)}; got {expert!r}."
            raise OptionError(parameter="plan", rule=rule)
    for expert, places in wanted.items():
        part = _part_of(asked, sorted(places))
        collect_outcomes(part, experts, names=[expert], ledger=path)
    # Nothing more may be spent: this call only writes the table of what the ledger knows.
    return collect_outcomes(asked, experts, out, ledger=path, max_spend=0.0)


def _part_of(questions: Questions, places: Sequence[int]) -> Questions:
    items = [questions.items[place] for place in places]
    columns = {}
    for name, values in questions.columns.items():
        columns[name] = [values[place] for place in places]
    return Questions(items, columns, questions.explanation)
