"""A routing task: a table of outcomes, its costs and splits, and routers fitted and evaluated on it."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mild.artifact import Router, fingerprint, save
from mild.artifact.novelty import Novelty
from mild.artifact.sources import source_of
from mild.core.arrays import FloatArray, IntArray, invalid
from mild.data import OutcomeTable, duplicate_groups
from mild.data.cost_terms import CostTerms
from mild.data.data_quality import examine
from mild.data.splits import Split, bundles, folds, random_splits, time_splits
from mild.errors import DataFileError, InvalidInputError, listed
from mild.features import TextFeatures, check_input, make_features
from mild.metrics import common_constant, expert_shares
from mild.metrics.outcomes import Stratified
from mild.metrics.rows import balanced_weights

if TYPE_CHECKING:
    from mild.routers.calibration import Calibration

#: Names of columns of topics, and how many values, and rows per value, one that is not named must have.
TOPICS = ("subject", "topic", "task", "category", "dataset", "domain", "source", "benchmark")
MAX_TOPICS, TOPIC_ROWS = 200, 10
#: Hashes of training queries that are kept: 800 KB of them.
MAX_HASHES = 100_000
# The usual shares are computed on this many training rows, at most about twice as many.
SHARE_ROWS = 5_000
# Parts into which rows are divided for calibration, each held out once, and for novelty, one held out.
CALIBRATION_FOLDS, NOVELTY_FOLDS = 3, 5


@dataclass(frozen=True, eq=False)
class Task(Stratified):
    """What routers are fitted and evaluated on."""

    table: OutcomeTable  # queries, experts, scores, prices
    terms: CostTerms  # terms of the cost, experts by their full names
    costs: FloatArray  # (n_samples, n_experts), NaN where an expert was not asked
    words: str  # the cost as a formula for people
    # (n_samples,) number of the rows that must stay together: equal inputs, and one group
    bundle: IntArray
    group: str | None = None  # column that makes the groups, or None
    balance: str | None = None  # column whose values count alike, or None
    strata: IntArray | None = None  # (n_samples,) number of each row's value in that column

    @property
    def largest(self) -> float | None:
        """Largest possible cost, the scale of complement rewards; None with dollars or seconds."""
        if self.terms.price_weight or self.terms.latency_weight:
            return None
        return 1.0 + max((self.terms.beta or {}).values(), default=0.0)

    @property
    def settled(self) -> int | None:
        """The first expert that was asked, and costs least, in every row; None if there is none."""
        least = np.nanmin(self.costs, axis=1)
        always = np.flatnonzero((self.costs == least[:, None]).all(axis=0))
        return int(always[0]) if always.size else None

    @property
    def settled_words(self) -> str | None:
        """Why there is nothing to route, in a sentence; None if there is something."""
        expert, scores = self.settled, self.table.scores
        if expert is None:
            return None
        name = self.table.expert_names[expert]
        if scores.shape[1] == 1:
            why = f"{name} is the only expert"
        elif np.all((scores == 1) | np.isnan(scores)):
            why = "every expert that was asked is right in every row"
        elif np.all((scores == 0) | np.isnan(scores)):
            why = "every expert that was asked is wrong in every row"
        else:
            why = f"in no row does another expert cost less than {name}"
        return f"there is nothing to route: {why}. The router always asks {name}."

    @property
    def has_queries(self) -> bool:
        """Whether there are texts, and not only vectors."""
        return any(self.table.queries)

    @property
    def unit(self) -> str:
        """What rows of one bundle are: "query" (equal queries) or "group"."""
        return "query" if self.group is None else "group"

    @property
    def cost(self) -> dict[str, Any]:
        """What counts as a cost, in words and numbers, JSON-ready."""
        return {"words": self.words, **self.terms.as_dict()}


def make_task(
    table: OutcomeTable, terms: CostTerms, group: str | None = None, balance: str | None = None
) -> Task:
    """Compute the costs of a table and find the rows that belong together.

    With ``balance``, a column, means are over its values instead of over rows.
    """
    if table.vectors is None or any(table.queries):
        labels: list[Any] = [duplicate_groups(table.queries)]
    else:
        labels = [[row.tobytes() for row in table.vectors]]
    if group is not None:
        labels.append(_groups(table, group))
    words, costs = terms.words(table), terms.costs(table)
    strata = None if balance is None else _strata(table, balance)
    return Task(table, terms.spelled(table), costs, words, bundles(*labels), group, balance, strata)


def check_rows(task: Task) -> None:
    """Refuse a task that is too small to learn from."""
    if task.table.rows < 2:
        raise InvalidInputError(
            "a table to learn from must have at least two rows; this has one.", parameter="table"
        )


def topics(table: OutcomeTable, name: str | None = None) -> tuple[str | None, list[str] | None]:
    """A column of subjects, tasks or sources and its values as text; None twice if there is none.

    Without a name the first of ``TOPICS`` is taken that the table has, with a few values in all; the name
    "none" takes none.
    """
    if name == "none":
        return None, None
    if name is not None:
        return name, [str(value) for value in _groups(table, name, "topic")]
    for known in TOPICS:
        if known in table.columns.column_names:
            values = table.column(known)
            count = len(set(values)) if all(isinstance(value, str) for value in values) else 0
            if 2 <= count <= min(MAX_TOPICS, table.rows // TOPIC_ROWS):
                return known, values
    return None, None


def _groups(table: OutcomeTable, name: str, parameter: str = "group") -> list[Hashable]:
    values = table.column(name)
    aim = "balance" if parameter == "balance" else "group"
    if any(not isinstance(value, Hashable) for value in values):
        raise InvalidInputError(
            f"column {name!r} must hold plain values to {aim} by; got lists or objects.",
            parameter=parameter,
        )
    known = {value for value in values if value is not None}
    if len(known) < 2:
        raise InvalidInputError(
            f"column {name!r} must hold at least two different values to {aim} by; "
            f"{'all rows have the same one' if known else 'it is empty'}.",
            parameter=parameter,
        )
    return values


def _strata(table: OutcomeTable, name: str) -> IntArray:
    """Number (n_samples,) of each row's value in a column that must be known everywhere."""
    try:
        values = _groups(table, name, "balance")
    except DataFileError as error:
        rule = f"{error} Balance by one of these, or leave --balance out."
        raise DataFileError(rule, parameter="balance") from error
    unknown = sum(map(_is_unknown, values))
    if unknown:
        raise InvalidInputError(
            f"column {name!r} must be known in every row to balance by; {unknown:,} of "
            f"{table.rows:,} are empty. Fill it in, or leave these rows out.",
            parameter="balance",
        )
    return np.unique([str(value) for value in values], return_inverse=True)[1]


def _is_unknown(value: Any) -> bool:
    """Whether a cell is empty: no value, NaN, or a text of spaces."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def with_experts(table: OutcomeTable, names: Sequence[str]) -> OutcomeTable:
    """The table with these experts, in this order, and the findings about them.

    Rows in which none of them was asked are left out.
    """
    if list(names) == table.expert_names:
        return table
    missing = [name for name in names if name not in table.expert_names]
    if missing:
        raise InvalidInputError(
            f"the router was trained on {listed(list(names), 6)}; the table has no {listed(missing, 6)}, "
            f"but {listed(table.expert_names, 6)}.",
            parameter="table",
        )
    order = [table.expert_names.index(name) for name in names]
    asked = ~np.isnan(table.scores[:, order]).all(axis=1)
    if not asked.any():
        raise InvalidInputError(
            "the table has no row in which the router's experts were asked.", parameter="table"
        )
    if not asked.all():
        table = table.take(asked)
    scores = table.scores[:, order]
    prices, latencies = (
        None if values is None else values[:, order] for values in (table.prices, table.latencies)
    )
    found = examine(table.queries, names, scores, prices, any(table.queries))
    return replace(
        table,
        expert_names=list(names),
        scores=scores,
        prices=prices,
        latencies=latencies,
        findings=tuple(found),
    )


def asking_prices(task: Task) -> tuple[FloatArray, Any, float]:
    """Errors (n_samples, n_experts), prices for ``PricedRouter.fit``, and their weight.

    Dollars alone stay dollars, so that their weight can be changed; betas alone are one price per expert;
    a mixture is a price in wrong answers.
    """
    table, terms = task.table, task.terms
    errors: FloatArray = 1 - table.scores
    betas = list((terms.beta or {}).values())
    if not (terms.price_weight or terms.latency_weight):
        return errors, betas or [0.0] * len(table.expert_names), 1.0
    if not any(betas) and not terms.latency_weight:
        return errors, table.prices, float(terms.price_weight or 0.0)
    return errors, task.costs - errors, 1.0


def task_notes(task: Task) -> dict[str, Any]:
    """The recipe of the queries, the cost and the table, JSON-ready, for a router's metadata."""
    table = task.table
    query = {} if table.recipe is None else {"query": table.recipe.as_dict()}
    return {
        **query,
        "cost": task.cost,
        "constant": table.expert_names[common_constant(task.costs, task.weight)],
        **({} if task.balance is None else {"balance": task.balance}),
        "table": {
            "fingerprint": table.fingerprint(),
            "rows": table.rows,
            "form": table.form,
            "explanation": table.explanation,
        },
    }


def terms_of(router: Router) -> CostTerms | None:
    """Terms of the cost that a saved router was fitted with; None if they are not recorded."""
    notes = router.metadata.get("notes") or {}
    fields = notes.get("cost")
    return None if fields is None else CostTerms.from_dict(fields)


def constant_at_fit(router: Router) -> int | None:
    """The expert of least mean loss when a saved router was fitted; None if it is not recorded."""
    name = (router.metadata.get("notes") or {}).get("constant")
    return router.expert_names.index(name) if name in router.expert_names else None


def possible_folds(
    task: Task, n_folds: int = 5, time: str | None = None, splits: Sequence[Split] = ()
) -> int:
    """``n_folds``, or the number of different queries or groups in a training part if that is less."""
    if splits:
        return min(n_folds, *(len(np.unique(task.bundle[part.train])) for part in splits))
    return n_folds if time is not None else min(n_folds, len(np.unique(task.bundle)))


def search_folds(
    task: Task, n_folds: int = 5, time: str | None = None, seed: int = 0
) -> list[tuple[IntArray, IntArray]]:
    """Folds for a search: (rows to fit on, rows to evaluate on) each.

    With ``time``, the rows in the order of that column are cut into ``n_folds + 1`` parts; a router that
    is fitted on everything before a part is evaluated on it.
    """
    if n_folds < 2:
        raise invalid("cv", f"must be at least 2 folds; got {n_folds}.")
    check_rows(task)
    if time is None:
        found = folds(task.bundle, n_folds, seed)
    else:
        share = n_folds / (n_folds + 1)
        parts = time_splits(time_values(task.table, time), task.bundle, n_folds, share)
        found = [(part.train, part.test) for part in parts]
    _check_training(task, min(len(train) for train, _ in found), "every fold of a search")
    return found


def task_splits(
    task: Task,
    n_splits: int | None = None,
    test_share: float = 0.3,
    time: str | None = None,
    seed: int = 0,
) -> list[Split]:
    """Splits to compare methods on: 5 random ones, or with ``time`` 1 that trains on the past."""
    check_rows(task)
    if time is None:
        found = random_splits(task.bundle, n_splits or 5, test_share, seed)
    else:
        values = time_values(task.table, time)
        found = time_splits(values, task.bundle, n_splits or 1, test_share)
    _check_training(task, min(len(split.train) for split in found), "every split", 3)
    return found


def _check_training(task: Task, rows: int, where: str, least: int = 2) -> None:
    """Refuse folds or splits that leave too few ``rows`` to fit on."""
    if rows < least:
        rule = f"a table must leave at least {least} rows to fit on in {where}"
        got = f"this one of {task.table.rows} rows leaves {rows}"
        raise InvalidInputError(f"{rule}; {got}. Add rows.", parameter="table")


def time_values(table: OutcomeTable, name: str) -> np.ndarray[Any, Any]:
    """A column of numbers, dates or dates as text (ISO 8601), ready to be sorted, (n_samples,)."""
    import pyarrow as pa

    table.column(name)  # raises an error that lists the columns if there is no such one
    column = table.columns[name]
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = _parsed_times(name, column)
    elif pa.types.is_temporal(kind):
        column = column.cast(pa.timestamp("us"), safe=False)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise DataFileError(
            f"column {name!r} must hold numbers or dates to split by time; got {kind}."
        )
    if column.null_count:
        raise DataFileError(
            f"column {name!r} must be known in every row to split by time; {column.null_count} of "
            f"{table.rows} are empty."
        )
    values: np.ndarray[Any, Any] = column.to_numpy()
    return values


def _parsed_times(name: str, column: Any) -> Any:
    import pyarrow as pa

    # With a zone such as +02:00 or Z last.
    for kind in (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            times = column.cast(kind)
        except pa.ArrowInvalid:
            continue
        return times if kind == pa.float64() else times.cast(pa.timestamp("us"), safe=False)
    example = next((value for value in column.to_pylist() if value is not None), None)
    raise DataFileError(
        f"column {name!r} must hold numbers or dates such as 2026-01-31T12:00:00 to split by time; got "
        f"{example!r}."
    )


@dataclass(frozen=True, eq=False)
class TrainingQueryIndex:
    """64-bit hashes of the training queries, whitespace aside: enough to recognise, not to read them.

    Of very many only the smallest hashes are kept. They are a fair sample, and every query whose hash is
    below the largest of them can still be checked.
    """

    marks: NDArray[np.uint64]  # (n,) uint64 hashes, ascending, different
    complete: bool = True  # whether every training query has its hash

    @classmethod
    def of(cls, table: OutcomeTable, most: int = MAX_HASHES) -> TrainingQueryIndex:
        """Index of a table's queries."""
        marks = np.unique(_query_hashes(table))
        return cls(marks[:most], marks.size <= most)

    @classmethod
    def by(cls, router: Router) -> TrainingQueryIndex | None:
        """Index of what a saved router was trained on; None if it is not recorded."""
        notes = router.metadata.get("notes") or {}
        if router.marks is None:
            return None
        return cls(router.marks, bool(notes.get("marks_complete", True)))

    def overlap(self, table: OutcomeTable) -> dict[str, int]:
        """How many of a table's queries were trained on, of those that could be checked."""
        asked = _query_hashes(table)
        if not self.complete and self.marks.size:
            asked = asked[asked <= self.marks[-1]]
        return {"queries": int(np.isin(asked, self.marks).sum()), "checked": asked.size}


def _query_hashes(table: OutcomeTable) -> NDArray[np.uint64]:
    if any(table.queries) or table.vectors is None:
        texts = (" ".join(text.split()) for text in table.queries)
        encoded = (text.encode("utf-8", "surrogatepass") for text in texts)
    else:
        encoded = (row.tobytes() for row in table.vectors)
    digests = b"".join(hashlib.blake2b(content, digest_size=8).digest() for content in encoded)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def training_overlap(
    router: Router, table: OutcomeTable | None, costs: FloatArray, X: Any
) -> dict[str, Any]:
    """Whether a router was fitted on these rows, and how many of their queries, if that is recorded."""
    metadata: Mapping[str, Any] = router.metadata or {}
    notes = metadata.get("notes") or {}
    fitted_on = [part["fingerprint"] for part in (metadata.get("data"), notes.get("table")) if part]
    index = TrainingQueryIndex.by(router)
    same = fingerprint(X, costs) in fitted_on or (
        table is not None and table.fingerprint() in fitted_on
    )
    seen = None if table is None or index is None else index.overlap(table)
    return {"same_data_as_fit": same, "seen_in_fit": seen}


def make_step(
    task: Task, text: str | None = None, options: Mapping[str, Any] | None = None
) -> TextFeatures:
    """An unfitted feature step for a task."""
    if text is None:
        if not task.has_queries and task.table.vectors is None:
            raise InvalidInputError(
                "every query is empty: there is nothing to route by. Name the column of the query, or one "
                "of vectors (--query, --vectors).",
                parameter="query",
            )
        text = "hashing" if task.has_queries else "vectors"
    step = make_features(text, **(options or {}))
    check_input(step, task.has_queries, task.table.vectors is not None)
    return step


def contents(task: Task, step: TextFeatures | None) -> Any:
    """What the step turns into features: queries, or vectors (n_samples, n_features)."""
    of_vectors = step is not None and step.kind == "vectors"
    return task.table.vectors if of_vectors else task.table.queries


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted router."""

    model: Any  # router, or Pipeline that ends in one
    step: TextFeatures  # the fitted step from texts to features
    features: Any  # (n_samples, n_features) of the training rows
    calibration: Calibration | None = None  # of expected costs; None where there are none
    novelty: Novelty | None = None


def fit_task(
    task: Task, model: Any, step: TextFeatures, topics: Sequence[str] | None = None
) -> Fitted:
    """Fit features on the queries, then the router on features and costs.

    ``topics`` (n_samples,) go to a search, which also gets the groups of the task.
    """
    from mild.routers.cost_models import PricedRouter

    check_rows(task)
    features = step.fit_transform(contents(task, step))
    steps = getattr(model, "steps", None)
    name, router = steps[-1] if steps else ("", model)
    prefix = f"{name}__" if steps else ""
    labels = fit_labels(router, task.strata, prefix, topics, task.bundle)
    if isinstance(router, PricedRouter):
        errors, prices, weight = asking_prices(task)
        router.set_params(price_weight=weight)
        model.fit(features, errors, **{f"{prefix}prices": prices}, **labels)
    else:
        model.fit(features, task.costs, **labels)
    return Fitted(model, step, features, *_fit_trust(task, model, step, features))


def _fit_trust(
    task: Task, model: Any, step: TextFeatures, features: Any
) -> tuple[Calibration | None, Novelty | None]:
    """How far the expected costs of a fitted router can be trusted, by rows that are held out."""
    from mild.routers.baselines import mean_costs
    from mild.routers.calibration import fit_calibration, fit_novelty
    from mild.routers.cost_models import PricedRouter

    count = len(np.unique(task.bundle))
    if count < 2:
        return None, None
    steps = getattr(model, "steps", None)
    router, scaled = (model[-1], model[:-1].transform(features)) if steps else (model, features)
    parts = folds(task.bundle, min(CALIBRATION_FOLDS, count))
    held_out = folds(task.bundle, min(NOVELTY_FOLDS, count))[0]
    errors, prices = None, None
    weight = task.weight
    means = mean_costs(task.costs, weight)[None]
    if isinstance(router, PricedRouter):
        errors, prices, _ = asking_prices(task)
        rows = [np.asarray(part, float) for part in (errors, prices)]
        means = np.stack([part if part.ndim == 1 else mean_costs(part, weight) for part in rows])
    novelty = fit_novelty(step, contents(task, step), features, held_out, means)
    return fit_calibration(router, scaled, task.costs, parts, errors, prices, weight), novelty


def fit_labels(
    router: Any, strata: Any, prefix: str = "", topics: Any = None, groups: Any = None
) -> dict[str, Any]:
    """Arguments of ``fit`` with which strata (n_rows,) count alike; a search gets all labels."""
    from mild.routers.search import RouterCV

    given = {} if strata is None else {"sample_weight": balanced_weights(strata)}
    if isinstance(router, RouterCV):
        given |= {"strata": strata, "topics": topics, "groups": groups}
    return {f"{prefix}{name}": value for name, value in given.items() if value is not None}


def fit_texts(task: Task, model: Any) -> Fitted:
    """Fit a router that reads the queries themselves, such as a TransformerRouter."""
    check_rows(task)
    model.fit(task.table.queries, task.costs, **fit_labels(model, task.strata))
    return Fitted(model, model.text_features(), model.features(task.table.queries))


def save_task(
    fitted: Fitted,
    task: Task,
    out: str,
    overwrite: bool = False,
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Save the router with its features, costs, usual shares and hashes of its training queries.

    ``notes`` are more JSON-ready facts to keep with it.
    """
    index = TrainingQueryIndex.of(task.table)
    names = task.table.expert_names
    some = fitted.features[:: 1 + task.table.rows // SHARE_ROWS]
    found = fitted.calibration
    source = replace(source_of(fitted.model), novelty=fitted.novelty)
    if found is not None and found.decides:
        source = replace(source, policy=source.policy.calibrated(*found.numbers))
    elif found is not None:
        source = replace(source, calibration=found.numbers)
    shares = expert_shares(source.policy.predict(some), len(names)).tolist()
    trained = {"rows": some.shape[0], "experts": dict(zip(names, shares, strict=True))}
    calibration = {} if found is None else {"calibration": found.as_dict()}
    return save(
        source,
        out,
        expert_names=names,
        text=fitted.step,
        data=(fitted.features, task.costs),
        notes={
            **task_notes(task),
            "marks_complete": index.complete,
            "shares": trained,
            **(notes or {}),
            **calibration,
        },
        marks=index.marks,
        overwrite=overwrite,
    )
