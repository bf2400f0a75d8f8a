"""Which queries to send to which experts next, for a sum of dollars."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mild.artifact.frames import as_frame, default_library, html_table, library_of
from mild.collect.config import find_experts
from mild.collect.prompts import bare_prompt
from mild.collect.questions import Questions
from mild.core.arrays import FloatArray, IntArray, check_integer, invalid
from mild.data import OutcomeTable, read_outcomes, write_columns
from mild.data.cost_terms import CostTerms
from mild.data.queries import Recipe, choose_query, query_texts
from mild.data.tables import naming, read_table, short
from mild.endpoints.expert import Expert
from mild.endpoints.prices import Usage, estimate_tokens
from mild.errors import (
    DataFileError,
    InvalidInputError,
    OptionError,
    check_arguments,
    counted,
    listed,
)
from mild.features import TextFeatures
from mild.money import amount


@dataclass(frozen=True, eq=False, repr=False)
class LabelPlan:
    """Calls to make, and what their outcomes are expected to save.

    Regret is the mean loss, in wrong answers per query, of a decision against one that knows what the
    features tell about each expert. ``random`` asks random experts about random queries for the same
    dollars, ``all_experts`` every expert about random queries.
    """

    queries: list[str] = field(repr=False)
    experts: list[str] = field(repr=False)
    dollars: list[float] = field(repr=False)  # expected, per call
    spend: float
    regret: float  # of the decisions as they are
    removed: float  # expected of the plan
    random: dict[str, float]  # queries, calls, dollars and removed
    all_experts: dict[str, float]  # the same
    saturated: bool = False  # whether dollars are left because no other call is worth its price
    like: Any = None

    @property
    def sentence(self) -> str:
        """What the plan buys, beside the two baselines."""
        rows = int(self.all_experts["queries"])
        others = (
            f"random calls for the same dollars: {self._share(self.random['removed'])}; asking all "
            f"experts about {counted(rows, 'random query', 'random queries')}: "
            f"{self._share(self.all_experts['removed'])}"
        )
        return (
            f"{counted(len(self.queries), 'call')} for ${amount(sum(self.dollars))}: expected to remove "
            f"{self._share(self.removed)} of the decision regret; {others}."
            f"{' The heads agree about the other queries: the rest is not spent.' * self.saturated}"
        )

    def _share(self, removed: float) -> str:
        return f"{removed / self.regret:.1%}" if self.regret > 0 else "0.0%"

    def as_dict(self) -> dict[str, Any]:
        """What ``mild plan --json`` prints."""
        found = {name: {"calls": 0, "dollars": 0.0} for name in dict.fromkeys(self.experts)}
        for name, dollars in zip(self.experts, self.dollars, strict=True):
            found[name]["calls"] += 1
            found[name]["dollars"] += dollars
        names = ("spend", "regret", "removed", "random", "all_experts", "saturated", "sentence")
        return {
            "calls": len(self.queries),
            "queries": len(set(self.queries)),
            "dollars": sum(self.dollars),
            **{name: getattr(self, name) for name in names},
            "experts": found,
        }

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Columns query, expert and dollars, a row per call."""
        return {"query": self.queries, "expert": self.experts, "dollars": self.dollars}

    def to_frame(self) -> Any:
        """A row per call: query, expert, dollars."""
        return as_frame(self.columns, self.like or default_library())

    def write(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the calls to a .csv, .parquet or .jsonl file, which ``mild collect --plan`` takes."""
        return write_columns(self.columns, path, overwrite)

    def __repr__(self) -> str:
        return f"<LabelPlan: {self.sentence}>"

    def _repr_html_(self) -> str:
        experts = self.as_dict()["experts"].items()
        return html_table(repr(self), [{"expert": name, **found} for name, found in experts])


@dataclass(frozen=True, eq=False)
class _Pool:
    """Different queries with what is known of them; the experts to ask come first."""

    texts: list[str]
    expert_names: list[str]
    scores: FloatArray  # (n, p), NaN where an expert was not asked; so are the next two
    prices: FloatArray
    latencies: FloatArray

    @classmethod
    def of(cls, table: OutcomeTable, asked: Sequence[str], queries: Any) -> _Pool:
        """The queries of a table and more; experts of the table that cannot be asked stay rivals."""
        names = [*asked, *(name for name in table.expert_names if name not in asked)]
        places = [names.index(name) for name in table.expert_names]
        texts = list(dict.fromkeys([*table.queries, *_more_queries(queries, table.recipe)]))
        number = {text: place for place, text in enumerate(texts)}
        cells = np.ix_([number[text] for text in table.queries], places)
        matrices = []
        for values in (table.scores, table.prices, table.latencies):
            # A query may have several rows, as where an older table and new outcomes are read together.
            sums, counts = np.zeros((2, len(texts), len(names)))
            if values is not None:
                known = ~np.isnan(values)
                np.add.at(sums, cells, np.where(known, values, 0.0))
                np.add.at(counts, cells, known)
            with np.errstate(invalid="ignore"):
                matrices.append(sums / counts)
        return cls(texts, names, *matrices)

    def expected_dollars(self, asked: Mapping[str, Expert]) -> FloatArray:
        """Dollars (n, p) of a call: its tokens in, and what answers have cost beyond those so far.

        An expert without known costs counts with the longest answer that it may give.
        """
        dollars = np.empty(self.scores.shape)
        for k, name in enumerate(self.expert_names):
            paid = self.prices[~np.isnan(self.prices[:, k]), k]
            expert = asked.get(name)
            if expert is None:
                dollars[:, k] = paid.mean() if paid.size else 0.0
            elif expert.command is not None:
                dollars[:, k] = expert.price.of(None)
            else:
                sent = [estimate_tokens((expert.system or "") + text) for text in self.texts]
                read = np.array([expert.price.of(Usage(tokens, 0)) for tokens in sent])
                known = read[~np.isnan(self.prices[:, k])]
                most = expert.price.of(Usage(0, expert.max_tokens)) - expert.price.of(Usage(0, 0))
                dollars[:, k] = read + (max(0.0, (paid - known).mean()) if paid.size else most)
        return dollars

    def asking_costs(self, terms: CostTerms, dollars: FloatArray) -> FloatArray:
        """What a choice costs (n, p) beside its error; an unknown latency is the mean of the others."""
        costs = np.array(terms.betas(self)) + (terms.price_weight or 0.0) * dollars
        if terms.latency_weight:
            seconds = np.ma.masked_invalid(self.latencies)
            if not seconds.count():
                raise invalid("latency_weight", "needs latencies, but the table has none.")
            costs = costs + terms.latency_weight * seconds.mean(axis=0).filled(seconds.mean())
        return np.asarray(costs)


def _named(experts: Sequence[Expert]) -> dict[str, Expert]:
    """Experts by name; one of several samples is there for each, as in a table of outcomes."""
    return {
        f"{expert.name}#{number}" if number > 1 else expert.name: expert
        for expert in experts
        for number in range(1, expert.samples + 1)
    }


def _more_queries(source: Any, recipe: Recipe | None) -> list[str]:
    """Texts of a file or frame, made as the queries of the table are."""
    if source is None:
        return []
    is_path = isinstance(source, str | os.PathLike)
    with naming(Path(source)) if is_path else contextlib.nullcontext():
        rows = read_table(pa.table(source) if isinstance(source, Mapping) else source)
        needed = {*recipe.columns, *recipe.choices} if recipe else {""}
        if not needed <= set(rows.column_names):
            recipe = choose_query(rows.schema, None, choices=bool(recipe and recipe.choices))
        if recipe is None:
            raise DataFileError(
                f"there must be a column query (or prompt, question); found {listed(rows.column_names)}.",
                parameter="queries",
            )
        return [text for text in query_texts(rows, recipe) if text.strip()]


@check_arguments
def plan(
    table: Any,
    experts: str | os.PathLike[str] | Sequence[Expert],
    spend: float,
    *,
    queries: Any = None,
    names: str | Sequence[str] | None = None,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
    text: str | TextFeatures | None = None,
    random_state: int = 0,
) -> LabelPlan:
    """Which queries to send to which experts next, for a sum of dollars.

    Bayesian ridge heads estimate every expert's error. Where draws of the heads choose different experts
    for a query, these experts are asked about it, cheap ones sooner: they are compared on the same query.
    Plan in several rounds: what one buys makes the next better.

    Parameters
    ----------
    table : OutcomeTable, or whatever ``mild.read_outcomes`` takes; outcomes that are missing can be bought
    experts : TOML file of ``mild collect``, or a list of ``Expert``, with prices
    spend : dollars, expected; ``collect_outcomes(max_spend=...)`` sets a limit
    queries : file or frame with more queries, of which no outcome is known
    names : experts to ask, as a list or as "a,b"; None for all
    beta, price_weight, latency_weight : the cost of a choice, as in ``mild.tune``
    text : features, as in ``mild.fit``
    random_state : seed

    Examples
    --------
    >>> import mild
    >>> from mild.data.datasets import load_outcomes
    >>> from mild.endpoints.expert import Expert
    >>> table = load_outcomes()
    >>> known = table.take(range(40))
    >>> asked = [Expert(name, command=(name,), price_per_query=0.01) for name in table.expert_names]
    >>> found = mild.plan(known, asked, spend=0.5, queries={"query": table.queries[40:]})
    >>> len(found.queries)
    50
    """
    # Imports scikit-learn, which collecting does not need.
    from mild.tuning import planning
    from mild.tuning.fitting import make_step

    if not (isinstance(spend, Real) and 0 < float(spend) < math.inf):
        raise OptionError(parameter="spend", rule=f"must be dollars above 0; got {spend!r}.")
    check_integer("random_state", random_state, 0)
    outcomes = read_outcomes(table)
    step = make_step(outcomes, text)
    if step.kind == "vectors":
        raise invalid("text", "must read queries, which are what experts are asked; got vectors.")
    asked = _named(find_experts(experts, names, need_secrets=False).experts)
    if missing := [name for name, expert in asked.items() if not expert.price.known]:
        raise OptionError(
            f"a plan needs the price of every expert; {missing[0]!r} has none. Set price_in and "
            f"price_out, or price_per_query (0 if it is free).",
            parameter="experts",
        )
    pool = _Pool.of(outcomes, list(asked), queries)
    dollars = pool.expected_dollars(asked)
    asking = pool.asking_costs(CostTerms(beta, price_weight, latency_weight), dollars)
    unknown = np.isnan(pool.scores)
    unknown[:, len(asked) :] = False
    if not unknown.any():
        raise InvalidInputError(
            "every expert's outcome of every query is known already; give more queries (--queries).",
            parameter="table",
            code="nothing_to_ask",
        )
    cheapest = float(dollars[unknown].min())
    if cheapest > spend:
        rule = f"must pay for one call; the cheapest is expected to cost ${amount(cheapest)}, and spend is"
        raise OptionError(parameter="spend", rule=f"{rule} ${amount(float(spend))}.")
    X = planning.head_features(step.fit_transform(pool.texts))
    posterior = planning.fit_posterior(X, 1 - pool.scores)
    rng = np.random.default_rng(random_state)
    cells = planning.plan_cells(posterior, X, asking, unknown, dollars, spend, rng)
    if not len(cells):
        raise InvalidInputError(
            "no call is worth its price: the heads agree about every query. Give other experts or queries.",
            parameter="table",
            code="nothing_to_ask",
        )

    def measured(found: IntArray) -> dict[str, float]:
        return {
            "queries": len(np.unique(found[:, 0])),
            "calls": len(found),
            "dollars": float(dollars[found[:, 0], found[:, 1]].sum()),
            "removed": planning.removed_regret(posterior, X, asking, found),
        }

    return LabelPlan(
        [pool.texts[row] for row in cells[:, 0]],
        [pool.expert_names[k] for k in cells[:, 1]],
        dollars[cells[:, 0], cells[:, 1]].tolist(),
        float(spend),
        planning.removed_regret(posterior, X, asking, None),
        planning.removed_regret(posterior, X, asking, cells),
        measured(planning.random_cells(unknown, dollars, spend, rng)),
        measured(planning.row_cells(unknown, dollars, spend, rng)),
        bool(spend - dollars[cells[:, 0], cells[:, 1]].sum() > dollars.max()),
        library_of(table),
    )


def read_plan(source: Any, questions: Questions) -> dict[str, set[int]]:
    """Expert -> places of the questions that a plan asks it: a ``LabelPlan``, or a file or frame of one."""
    if isinstance(source, LabelPlan):
        source = pa.table(source.columns)
    is_path = isinstance(source, str | os.PathLike)
    with naming(Path(source)) if is_path else contextlib.nullcontext():
        columns = read_table(source, ("query", "expert")).to_pydict()
        if missing := [name for name in ("query", "expert") if name not in columns]:
            raise DataFileError(
                f"a plan must have columns query and expert, as mild plan writes; got no {missing[0]!r}.",
                parameter="plan",
            )
    places: dict[str, list[int]] = {}
    for place, one in enumerate(questions.items):
        # In a table of outcomes the choices may stand right under the question.
        for text in {one.query, one.query + bare_prompt("", one.options)[1:]}:
            places.setdefault(text, []).append(place)
    wanted: dict[str, set[int]] = {}
    unknown = [text for text in columns["query"] if text not in places]
    if unknown:
        count = counted(len(set(unknown)), "query", "queries")
        raise DataFileError(
            f"the questions must have every query of the plan; {count} of it are not among them, such as "
            f"{short(str(unknown[0]))}.",
            parameter="plan",
        )
    for text, expert in zip(columns["query"], columns["expert"], strict=True):
        wanted.setdefault(expert, set()).update(places[text])
    return wanted
