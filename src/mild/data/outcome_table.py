"""Outcomes of queries with several experts, in memory."""

from __future__ import annotations

import difflib
import hashlib
import importlib
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from mild.artifact.facts import feature_line
from mild.artifact.frames import default_library, html_table
from mild.core.answers import Answers, canonical_answer, kind_by_scores
from mild.core.arrays import BoolArray, FloatArray, IntArray, check_integer, invalid
from mild.data.cost_terms import CostTerms
from mild.data.data_quality import Finding, duplicate_groups, examine, row_number
from mild.data.describing import Description, describe
from mild.data.expert_order import name_order
from mild.data.formats.base import ANSWER, CORRECT, LATENCY, LOGPROB, PRICE, SCORE
from mild.data.given_arrays import check_costs, check_features, names_of
from mild.data.queries import Recipe
from mild.data.splits import joined_groups, random_splits, time_splits, time_values
from mild.data.tables import infer_array, names_except
from mild.errors import DataFileError, InvalidInputError, check_arguments, count_noun, listed

# Columns of the query and of vectors in the wide format.
QUERY = "prompt"
VECTORS = "embedding"
# Arrays with one row per query and one column per expert; all but the scores may be None.
EXPERT_ARRAYS = ("scores", "prices", "latencies", "given_costs")
# Arrays with one row per query, in the order in which a fingerprint reads them.
ROW_ARRAYS = ("scores", "prices", "latencies", "vectors", "given_costs")
# How answers are compared is detected from a sample of about this many of them.
KIND_SAMPLE = 2_000


@dataclass(frozen=True, eq=False, repr=False)
class Outcomes:
    """The outcome of each query with each expert: a row per query, a column per expert.

    Every row has the outcome of at least one expert. ``mild.read_outcomes`` reads a table from a file or a
    frame. Experts are always sorted by name; numbers in names are compared as numbers.

    Attributes
    ----------
    queries : list of str
        The n_queries texts; empty ones if the table has vectors and no query.
    experts : list of str
        The n_experts different names, sorted.
    scores : ndarray of shape (n_queries, n_experts)
        Scores in [0, 1] as float64, NaN where an expert was never asked, and everywhere in a table of
        numbers, which has ``given_costs`` instead.
    prices : ndarray of shape (n_queries, n_experts) or None
        Dollars per query, NaN where unknown; None if there are none.
    latencies : ndarray of shape (n_queries, n_experts) or None
        Seconds, to the nanosecond; None if there are none.
    columns : pyarrow.Table
        All other columns of the source, with the same rows.
    vectors : ndarray of shape (n_queries, n_features) or None, default=None
        Vectors of the queries as float32; the features of a table of numbers, float32 or float64.
    form : str, default="wide"
        Format of the source, one of ``mild.data.FORMS``.
    layout : str, default=""
        How the source was read, in one sentence.
    findings : tuple of Finding, default=()
        What users should know about it, such as repeated queries.
    recipe : Recipe or None, default=None
        How the text of a query is made from the columns of the source.
    row_numbers : ndarray of shape (n_queries,) or None, default=None
        Row numbers in the file, from 0; None if they are 0 to n_queries - 1.
    library : {"pandas", "polars", "pyarrow"} or None, default=None
        Library of the frame that the table was made from; None if it was read from a file.
    answer_kind : str or None, default=None
        How answers are compared, one of ``mild.core.answers.KINDS``; None detects it.
    kind_detected : bool, default=True
        Whether ``answer_kind`` was detected, and not set by the caller.
    given_costs : ndarray of shape (n_queries, n_experts) or None, default=None
        The whole cost of each expert in a table of numbers, NaN where an expert was never asked; None in a
        table with scores.
    feature_names : list of str or None, default=None
        Names of the features of a table of numbers; None if they have none.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> table = read_outcomes(pa.table({
    ...     "prompt": ["2 + 2?", "3 + 4?", "Who wrote Faust?", "Who wrote Emma?"],
    ...     "correct__small": [1, 1, 0, 0], "correct__large": [1, 0, 1, 1],
    ... }))
    >>> table
    Outcomes(4 queries, 2 experts: large, small)
    >>> train, test = table.split(test_size=0.5, random_state=0)
    >>> len(train), len(test)
    (2, 2)
    >>> table.costs(beta={"large": 0.25})[:2]
    array([[0.25, 0.  ],
           [1.25, 0.  ]])
    """

    queries: list[str]
    experts: list[str]
    scores: FloatArray
    prices: FloatArray | None
    latencies: FloatArray | None
    columns: Any
    vectors: FloatArray | None = None
    form: str = "wide"
    layout: str = ""
    findings: tuple[Finding, ...] = ()
    recipe: Recipe | None = None
    row_numbers: IntArray | None = None
    library: str | None = None
    answer_kind: str | None = None
    kind_detected: bool = True
    given_costs: FloatArray | None = None
    feature_names: list[str] | None = None

    @classmethod
    @check_arguments
    def from_arrays(
        cls,
        X: Any,
        costs: Any,
        *,
        experts: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> Outcomes:
        """Make a table from arrays of features and costs, for ``tune`` or ``compare``.

        Such a table has features in place of queries, and whole costs in place of scores.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or frame
            Features of the inputs.
        costs : array-like of shape (n_queries, n_experts) or frame
            Whole cost of each expert; NaN where it was never asked.
        experts : list of str or None, default=None
            The n_experts different names; None takes those of the columns of ``costs``, or else expert_0,
            expert_1, ...
        feature_names : list of str or None, default=None
            The n_features different names; None takes those of the columns of ``X``, if it has any.

        Returns
        -------
        Outcomes
            The table, which has a row per input.

        Examples
        --------
        >>> made = Outcomes.from_arrays([[0.5], [2.0]], [[0, 1], [1, 0]], experts=["a", "b"])
        >>> made
        Outcomes(2 queries, 2 experts: a, b, with vectors, given costs)
        >>> made.costs()
        array([[0., 1.],
               [1., 0.]])
        """
        features = check_features(X)
        n_rows, n_features = features.shape
        given_costs = check_costs(costs, n_rows)
        n_experts = given_costs.shape[1]
        names_of_experts = names_of("experts", experts, costs, n_experts)
        names_of_features = names_of("feature_names", feature_names, X, n_features)
        return cls(
            queries=[""] * n_rows,
            experts=names_of_experts or [f"expert_{k}" for k in range(n_experts)],
            scores=np.full(given_costs.shape, np.nan),
            prices=None,
            latencies=None,
            columns=pa.table({"row": np.zeros(n_rows, np.int8)}).select([]),
            vectors=features,
            form="arrays",
            layout=f"made from arrays: {count_noun(n_experts, 'expert')}, {count_noun(n_rows, 'row')}; "
            f"features: {feature_line(names_of_features, n_features)}; the whole cost of each expert is "
            "given.",
            given_costs=given_costs,
            feature_names=names_of_features,
        )

    def __post_init__(self) -> None:
        order = name_order(self.experts)
        if order == list(range(len(order))):
            return
        object.__setattr__(self, "experts", [self.experts[index] for index in order])
        for name in EXPERT_ARRAYS:
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, values[:, order])

    def __repr__(self) -> str:
        contents = [
            name for name in ("prices", "latencies", "vectors") if getattr(self, name) is not None
        ]
        if self.has_answers:
            contents.append("answers")
        if self.given_costs is not None:
            contents.append("given costs")
        n_queries = count_noun(len(self), "query", "queries")
        n_experts = count_noun(len(self.experts), "expert")
        text = f"{n_queries}, {n_experts}: {listed(self.experts, 4)}"
        if contents:
            text += f", with {', '.join(contents)}"
        return f"Outcomes({text})"

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.queries)

    # Python and numpy would otherwise iterate by table[0], table[1], ..., and rows are no items.
    __iter__ = None

    def __array__(self, *_: Any, **__: Any) -> FloatArray:
        raise InvalidInputError(
            "a table of outcomes is no array; got an Outcomes. Pass arrays, such as its vectors and "
            "its costs()."
        )

    @property
    def asked(self) -> BoolArray:
        """Mask (n_queries, n_experts) of the outcomes that exist: whether each expert was asked."""
        return ~np.isnan(self.quality)

    @property
    def quality(self) -> FloatArray:
        """Scores, or minus the costs of a table of numbers (n_queries, n_experts): higher is better."""
        if self.given_costs is None:
            return self.scores
        return -self.given_costs

    @property
    def has_answers(self) -> bool:
        """Whether there are columns ``answer__<expert>``."""
        return self._has_prefix(ANSWER, self.columns.column_names)

    @cached_property
    def answers(self) -> Answers | None:
        """What the experts answered, from columns ``answer__<expert>``.

        An expert without a column has no answers; None if nobody answered anything.
        """
        if not self.has_answers:
            return None
        answers = Answers.of(self._answer_rows(), self.kind_of_answers())
        if not (answers.codes >= 0).any():
            return None
        return answers

    def kind_of_answers(self) -> str:
        """Return how answers are compared: as set by the caller, or as detected.

        Returns
        -------
        str
            One of ``mild.core.answers.KINDS``.

        Examples
        --------
        >>> import mild, pyarrow as pa
        >>> columns = {"prompt": ["2 + 2?"], "correct__small": [1], "answer__small": ["4"]}
        >>> mild.read_outcomes(pa.table(columns)).kind_of_answers()
        'number'
        """
        if self.answer_kind is not None:
            return self.answer_kind
        sample = self.sample_rows()
        return kind_by_scores(self._answer_rows(sample), self.scores[sample])

    def sample_rows(self) -> IntArray:
        """Return a sample of rows, spread over the table, from which the kind of the answers is detected.

        Returns
        -------
        ndarray of int
            Row numbers at equal distances; all of them in a small table.

        Examples
        --------
        >>> table.sample_rows().shape
        (40,)
        """
        distance = max(1, self.scores.size // KIND_SAMPLE)
        return np.arange(0, len(self), distance)

    def _answer_rows(self, rows: IntArray | None = None) -> list[tuple[Any, ...]]:
        """Return the answers of all experts, a tuple per row; None selects all rows."""
        columns = self.columns
        if rows is not None:
            columns = columns.take(rows)
        by_expert = []
        for name in self.experts:
            answers = [None] * columns.num_rows
            if ANSWER + name in columns.column_names:
                answers = columns[ANSWER + name].to_pylist()
            by_expert.append(answers)
        return list(zip(*by_expert, strict=True))

    def with_equal_answers(self, equal: Callable[[Any, Any], bool]) -> Outcomes:
        """Return a table in which answers to a query that mean the same also read the same.

        Of such answers, the first one in the order of the experts replaces the others. For free text,
        ``equal`` may compare embeddings or ask a judge.

        Parameters
        ----------
        equal : callable
            Called with two answers; returns whether they mean the same.

        Returns
        -------
        Outcomes
            The same rows, with new columns of answers.

        Examples
        --------
        >>> import mild, pyarrow as pa
        >>> columns = {"prompt": ["Hi?"], "correct__a": [1], "correct__b": [1]}
        >>> columns |= {"answer__a": ["Hello"], "answer__b": ["hello!"]}
        >>> given = mild.read_outcomes(pa.table(columns), answer_kind="free_text")
        >>> same = given.with_equal_answers(lambda one, other: one[0].lower() == other[0].lower())
        >>> same.column("answer__b")
        ['Hello']
        """
        kind = self.kind_of_answers()
        rows = [_in_first_wordings(answers, kind, equal) for answers in self._answer_rows()]
        answers_by_expert = zip(*rows, strict=True)
        columns = self.columns
        for name, answers in zip(self.experts, answers_by_expert, strict=True):
            if ANSWER + name in columns.column_names:
                index = columns.column_names.index(ANSWER + name)
                columns = columns.set_column(index, ANSWER + name, infer_array(list(answers)))
        return replace(self, columns=columns, answer_kind=kind)

    def _pass_answers_to(self, table: Outcomes, change: Callable[[Answers], Answers]) -> Outcomes:
        """Give ``table`` the answers of this one, changed, so that it need not compare answers again.

        Nothing happens if this table has not compared its answers yet.
        """
        # A cached property keeps its value in the dictionary of the object.
        answers = self.__dict__.get("answers")
        if answers is not None:
            table.__dict__["answers"] = change(answers)
        return table

    def __getitem__(self, rows: ArrayLike | slice) -> Outcomes:
        """Return a table with some of the rows.

        Parameters
        ----------
        rows : array-like of int, mask of shape (n_queries,), or slice
            Row numbers from 0, or whether to take each row.

        Returns
        -------
        Outcomes
            These rows in the order of their numbers in ``rows``, without the findings about the table.

        Examples
        --------
        >>> table[[0, 39]].queries
        ['What is 2 + 1?', 'Who wrote Dracula, act 4?']
        """
        indices = self._checked_rows(rows)
        arrays = {}
        for name in ROW_ARRAYS:
            values = getattr(self, name)
            if values is not None:
                arrays[name] = values[indices]
        row_numbers = indices
        if self.row_numbers is not None:
            row_numbers = self.row_numbers[indices]
        table = replace(
            self,
            queries=[self.queries[index] for index in indices.tolist()],
            columns=self.columns.take(indices),
            findings=(),
            row_numbers=row_numbers,
            **arrays,
        )
        return self._pass_answers_to(table, lambda answers: answers.take(indices))

    def _checked_rows(self, rows: ArrayLike | slice) -> IntArray:
        """Return row numbers from row numbers, a mask or a slice; raise an error for those outside."""
        if isinstance(rows, slice):
            return np.arange(len(self))[rows]
        array = np.asarray(rows)
        if array.dtype == np.bool_ and array.shape == (len(self),):
            return np.flatnonzero(array)
        if array.shape == (0,):
            return np.empty(0, np.intp)
        rule = f"must be row numbers from 0 to {len(self) - 1}, or a mask of {len(self):,} rows"
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise invalid("rows", f"{rule}; got {rows!r}.")
        outside = array[(array < 0) | (array >= len(self))].tolist()
        if outside:
            raise invalid("rows", f"{rule}; got {outside[0]!r}.")
        return array.astype(np.intp, copy=False)

    @check_arguments
    def select(self, experts: Sequence[str]) -> Outcomes:
        """Return a table with only these experts.

        Rows in which none of them was asked are left out, and the findings are computed again for the rows
        that remain. The experts keep the order of the table.

        Parameters
        ----------
        experts : list of str
            Names of experts of the table.

        Returns
        -------
        Outcomes
            The table itself if these are all of its experts.

        Examples
        --------
        >>> table.select(["large"])
        Outcomes(40 queries, 1 expert: large, with prices)
        """
        self._check_expert_names(experts)
        if set(experts) == set(self.experts):
            return self
        kept = [index for index, name in enumerate(self.experts) if name in experts]
        any_asked = self.asked[:, kept].any(axis=1)
        if not any_asked.any():
            raise InvalidInputError(
                f"the table has no row in which {listed(list(experts), 6)} answered.",
                parameter="experts",
            )
        rows = self
        if not any_asked.all():
            rows = self[any_asked]
        selected = rows._select_experts(kept)
        selected = replace(selected, findings=selected._compute_findings())
        return rows._pass_answers_to(selected, lambda answers: answers.of_experts(kept))

    def _check_expert_names(self, names: Sequence[str]) -> None:
        """Raise an error unless ``names`` is a list of experts of the table."""
        if isinstance(names, str) or not len(names):
            raise invalid("experts", f"must be a list of at least one expert; got {names!r}.")
        for name in names:
            if name not in self.experts:
                existing = listed(self.experts, 6)
                raise InvalidInputError(
                    f"the table has no expert {name!r}; it has {existing}.", parameter="experts"
                )

    def _select_experts(self, indices: Sequence[int]) -> Outcomes:
        """Return the same rows with the experts at these indices only, without findings."""
        names = [self.experts[index] for index in indices]
        dropped = names_except(self.experts, names)
        arrays = {}
        for array_name in EXPERT_ARRAYS:
            values = getattr(self, array_name)
            if values is not None:
                arrays[array_name] = values[:, indices]
        return replace(
            self,
            experts=names,
            columns=without_answers(self.columns, dropped),
            findings=(),
            **arrays,
        )

    def _compute_findings(self) -> tuple[Finding, ...]:
        """Return findings about the rows; there are none for a table of numbers."""
        if self.given_costs is not None:
            return ()
        findings = examine(
            self.queries,
            self.experts,
            self.scores,
            self.prices,
            self.has_queries,
            self.row_numbers,
        )
        return tuple(findings)

    def with_features(self, names: Sequence[str] | None) -> Outcomes:
        """Return a table from arrays with these features, in this order.

        Parameters
        ----------
        names : list of str or None
            Names of features. Features from an array without names get these names, of which there must be
            as many. None keeps the features as they are.

        Returns
        -------
        Outcomes
            The same rows with these features; the table itself if nothing changes or it has no features.

        Examples
        --------
        >>> X = [[40.0, 1.0], [50.0, 2.0]]
        >>> made = Outcomes.from_arrays(X, [[0, 1], [1, 0]], feature_names=["age", "length"])
        >>> made.with_features(["length"]).vectors
        array([[1.],
               [2.]])
        """
        if names is None or self.vectors is None or list(names) == self.feature_names:
            return self
        if self.feature_names is None:
            n_features = self.vectors.shape[1]
            if n_features != len(names):
                expected = listed(list(names))
                rule = f"must have the features {expected}; it has {n_features} without names."
                raise invalid("table", rule)
            return replace(self, feature_names=list(names))
        columns = []
        for name in names:
            if name in self.feature_names:
                columns.append(self.vectors[:, self.feature_names.index(name)])
            else:
                existing = listed(self.feature_names)
                raise invalid("table", f"must have a feature {name!r}; it has {existing}.")
        return replace(self, vectors=np.column_stack(columns), feature_names=list(names))

    def outcomes_of(self, names: Sequence[str]) -> list[FloatArray]:
        """Return the scores, dollars and seconds of some experts, NaN where they are unknown.

        Parameters
        ----------
        names : list of str
            Names of experts. If the table does not have an expert, all of its outcomes are unknown.

        Returns
        -------
        list of ndarray of shape (n_queries, len(names))
            Scores, dollars and seconds.

        Examples
        --------
        >>> scores, dollars, seconds = table.outcomes_of(["large"])
        >>> dollars[0]
        array([0.01])
        """
        outcomes = []
        for values in (self.scores, self.prices, self.latencies):
            selected = np.full((len(self), len(names)), np.nan)
            if values is not None:
                for index, name in enumerate(names):
                    if name in self.experts:
                        selected[:, index] = values[:, self.experts.index(name)]
            outcomes.append(selected)
        return outcomes

    @property
    def has_queries(self) -> bool:
        """Whether any query has a text; a table may have vectors only."""
        return any(self.queries)

    @check_arguments
    def costs(
        self,
        beta: Mapping[str, float] | None = None,
        price_weight: float | None = None,
        latency_weight: float | None = None,
    ) -> FloatArray:
        """Return the cost of each outcome, in units of one wrong answer: the ``y`` of a router's ``fit``.

        The cost of expert k on query i is

        ``c_ik = (1 - score_ik) + beta_k + price_weight * price_ik + latency_weight * seconds_ik``

        A table of numbers has its costs already, and no term can be added to them.

        Parameters
        ----------
        beta : dict of str to float or None, default=None
            Cost of asking an expert, by name, in wrong answers; that of the others is 0.
        price_weight : float or None, default=None
            Wrong answers that one dollar is worth; None leaves dollars out.
        latency_weight : float or None, default=None
            Wrong answers that one second is worth; None leaves seconds out.

        Returns
        -------
        ndarray of shape (n_queries, n_experts)
            NaN where an expert was not asked, or where a price or latency with a weight is unknown.

        Examples
        --------
        >>> table.costs(price_weight=10)[[0, 39]]
        array([[0.1 , 0.01],
               [0.1 , 1.01]])
        """
        return CostTerms(beta, price_weight, latency_weight).costs(self)

    @check_arguments
    def describe(
        self,
        beta: Mapping[str, float] | None = None,
        price_weight: float | None = None,
        latency_weight: float | None = None,
    ) -> Description:
        """Describe the experts, the best single expert, and what perfect choice among them would gain.

        Parameters
        ----------
        beta, price_weight, latency_weight : optional
            Terms of the cost, the same as in ``costs``.

        Returns
        -------
        Description
            Figures, as ``as_dict()`` and ``to_frame()`` return them; printed, it is a text.

        Examples
        --------
        >>> large = table.describe(price_weight=10).as_dict()["experts"][0]
        >>> round(large["mean_cost"], 2)
        0.1
        """
        return describe(self, CostTerms(beta, price_weight, latency_weight))

    def groups(self, column: str | None = None) -> IntArray:
        """Return the group of each row; a split must keep rows of one group on the same side.

        Rows with equal queries, or with equal vectors in a table without queries, are in one group.

        Parameters
        ----------
        column : str or None, default=None
            Column whose equal values are in one group as well.

        Returns
        -------
        ndarray of shape (n_queries,)
            Number of the group of each row.

        Examples
        --------
        >>> table.groups("subject")[[0, 1, 39]]
        array([0, 0, 1])
        """
        labels: list[Any] = []
        if self.vectors is None or self.has_queries:
            labels.append(duplicate_groups(self.queries))
        else:
            labels.append([vector.tobytes() for vector in self.vectors])
        if column is not None:
            labels.append(self.labels(column))
        return joined_groups(*labels)

    def labels(self, name: str) -> list[Hashable]:
        """Return the values of a column by which rows can be grouped, such as a subject.

        Parameters
        ----------
        name : str
            Name of the column. It must hold texts, numbers or the like, at least two of them different.

        Returns
        -------
        list
            The n_queries values; None where the column is empty.

        Examples
        --------
        >>> table.labels("subject")[:2]
        ['maths', 'maths']
        """
        values = self._column_of("groups", name)
        if any(not isinstance(value, Hashable) for value in values):
            raise InvalidInputError(
                f"column {name!r} must hold plain values to group by; got lists or objects.",
                parameter="groups",
            )
        n_different = len(set(values) - {None})
        if n_different < 2:
            contents = "it is empty"
            if n_different == 1:
                contents = "all rows have the same one"
            raise InvalidInputError(
                f"column {name!r} must hold at least two different values to group by; {contents}.",
                parameter="groups",
            )
        return values

    def times(self, name: str) -> np.ndarray[Any, Any]:
        """Return a column of numbers, dates or dates as text (ISO 8601) as an array that can be sorted.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        ndarray of shape (n_queries,)
            Numbers, or dates as datetime64.

        Examples
        --------
        >>> import mild, pyarrow as pa
        >>> columns = {"prompt": ["a", "b"], "correct__x": [1, 0], "day": ["2026-01-02", "2026-01-01"]}
        >>> mild.read_outcomes(pa.table(columns)).times("day").argsort()
        array([1, 0])
        """
        self._column_of("time", name)  # raises an error if there is no such column
        return time_values(name, self.columns[name])

    @check_arguments
    def split(
        self,
        test_size: float = 0.3,
        *,
        groups: str | None = None,
        time: str | None = None,
        random_state: int = 0,
    ) -> tuple[Outcomes, Outcomes]:
        """Divide the rows into a table to train on and a table to test on.

        Rows with equal queries are always in the same table.

        Parameters
        ----------
        test_size : float, default=0.3
            Share of the rows in the test table.
        groups : str or None, default=None
            Column whose equal values are kept in the same table, such as a subject or a customer.
        time : str or None, default=None
            Column of times. The latest rows are the test table; those whose query or group also occurs
            earlier are in neither table. By default rows are split at random.
        random_state : int, default=0
            Seed of a random split.

        Returns
        -------
        tuple of Outcomes
            The table to train on and the table to test on.

        Examples
        --------
        >>> train, test = table.split(test_size=0.25, random_state=0)
        >>> len(train), len(test)
        (30, 10)
        """
        check_integer("random_state", random_state, 0)
        group_of_row = self.groups(groups)
        if time is None:
            (split,) = random_splits(group_of_row, 1, test_size, random_state)
        else:
            (split,) = time_splits(self.times(time), group_of_row, 1, test_size)
        return self[split.train], self[split.test]

    def to_frame(self) -> Any:
        """Return the table in the wide format (see ``mild.data.write_outcomes``) as a frame.

        A table that was made from a frame returns one of the same library. A table that was read from a
        file returns a pandas frame if pandas is installed, otherwise a pyarrow table.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame or pyarrow.Table
            A row per query.

        Examples
        --------
        >>> table.to_frame().shape
        (40, 6)
        """
        table = pa.table(self.wide_columns())
        library = self.library or default_library()
        if library == "pandas":
            return table.to_pandas()
        if library == "pyarrow":
            return table
        return importlib.import_module(library).from_arrow(table)

    def wide_columns(self) -> dict[str, Any]:
        """Return the columns of the wide format by name: query, vectors, other columns, outcomes.

        A table from arrays has its features and ``cost__<expert>`` instead.

        Returns
        -------
        dict of str to pyarrow.Array
            Name -> column.

        Examples
        --------
        >>> list(table.wide_columns())[:3]
        ['prompt', 'subject', 'correct__large']
        """
        if self.given_costs is not None:
            return self._number_columns(self.given_costs)
        columns = self._content_columns()
        latencies_ms = None
        if self.latencies is not None:
            latencies_ms = self.latencies * 1e3
        outcomes_by_prefix = {
            self._score_prefix(columns): self.scores,
            PRICE: self.prices,
            LATENCY: latencies_ms,
        }
        for prefix, values in outcomes_by_prefix.items():
            if values is None:
                continue
            if self._has_prefix(prefix, columns):
                raise DataFileError(
                    f"the table has columns {prefix}<model> besides its outcomes; rename them."
                )
            arrow_type = pa.float64()
            if prefix == CORRECT:
                arrow_type = pa.int8()
            for index, name in enumerate(self.experts):
                column = pa.array(values[:, index], from_pandas=True)
                columns[prefix + name] = column.cast(arrow_type)
        return columns

    def _content_columns(self) -> dict[str, Any]:
        """Return queries, vectors and the other columns, by their names in the wide format."""
        columns: dict[str, Any] = {}
        if self.has_queries:
            columns[QUERY] = pa.array(self.queries, pa.large_string())
        if self.vectors is not None:
            flat = pa.array(self.vectors.reshape(-1))
            columns[VECTORS] = pa.FixedSizeListArray.from_arrays(flat, self.vectors.shape[1])
        for name in self.columns.column_names:
            new_name = name
            if name in (QUERY, VECTORS):
                new_name = f"{name}_of_source"
            columns[new_name] = self.columns[name]
        return columns

    def _has_prefix(self, prefix: str, columns: Collection[str]) -> bool:
        """Return whether an expert has a column with this prefix among these names of columns."""
        return any(prefix + name in columns for name in self.experts)

    def _score_prefix(self, columns: Mapping[str, Any]) -> str:
        """Return the prefix of scores: ``correct__`` if all are 0 or 1 and no other column has it."""
        n_scores = (~np.isnan(self.scores)).sum()
        is_binary = np.isin(self.scores, (0, 1)).sum() == n_scores
        if is_binary and not self._has_prefix(CORRECT, columns):
            return CORRECT
        return SCORE

    def _number_columns(self, given_costs: FloatArray) -> dict[str, Any]:
        """Return the columns of a table of numbers: features, then the experts' costs."""
        assert self.vectors is not None
        names = self.feature_names
        if names is None:
            names = [f"feature_{index}" for index in range(self.vectors.shape[1])]
        columns: dict[str, Any] = {}
        for index, name in enumerate(names):
            columns[name] = pa.array(self.vectors[:, index])
        for index, name in enumerate(self.experts):
            columns[PRICE + name] = pa.array(given_costs[:, index], from_pandas=True)
        return columns

    def _repr_html_(self) -> str:
        return html_table(repr(self), self.describe().as_dict()["experts"])

    def column(self, name: str) -> list[Any]:
        """Return the values of a column that is neither the query nor an outcome.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        list
            The n_queries values.

        Examples
        --------
        >>> table.column("subject")[0]
        'maths'
        """
        return self._column_of("name", name)

    def _column_of(self, parameter: str, name: str) -> list[Any]:
        """Return the values of a column; errors name the parameter by which the caller chose it."""
        others = self.columns.column_names
        if not isinstance(name, str):
            got = type(name).__name__
            rule = f"must be the name of a column, one of {listed(others)}; got {got}."
            raise invalid(parameter, rule)
        if name not in others:
            raise self._no_column(parameter, name)
        values: list[Any] = self.columns[name].to_pylist()
        return values

    def _no_column(self, parameter: str, name: str) -> DataFileError:
        """Return the error for a column that does not exist, or is not one of the other columns."""
        others = self.columns.column_names
        rule = f"must be the name of a column; there is no column {name!r}"
        if self.recipe is not None and name in (*self.recipe.columns, self.recipe.vectors):
            rule = f"must be the name of another column; {name!r} holds the queries"
        elif name.partition("__")[2] in self.experts:
            rule = f"must be the name of another column; {name!r} holds outcomes of an expert"
        hint = ""
        similar = difflib.get_close_matches(name, others, n=1)
        if similar:
            hint = f" Did you mean {similar[0]!r}?"
        return DataFileError(parameter=parameter, rule=f"{rule}. Found {listed(others)}.{hint}")

    def row_number(self, row: int) -> int:
        """Return the number of a row in its file, from 1, for messages.

        Parameters
        ----------
        row : int
            Row of this table, from 0.

        Returns
        -------
        int
            Its number in the file, from 1.

        Examples
        --------
        >>> table[[5]].row_number(0)
        6
        """
        return row_number(row, self.row_numbers)

    def fingerprint(self) -> str:
        """Return a SHA-256 over queries, experts, scores, prices, latencies, vectors and given costs.

        It does not depend on the file that the outcomes came from, nor on other columns.

        Returns
        -------
        str
            64 hexadecimal digits.

        Examples
        --------
        >>> table.fingerprint() == table[:40].fingerprint()
        True
        """
        arrays = {}
        for name in ROW_ARRAYS:
            # Added when tables of numbers came; the fingerprints of other tables must not change.
            if name != "given_costs" or self.given_costs is not None:
                arrays[name] = getattr(self, name)
        return outcomes_fingerprint(self.experts, self.queries, arrays)


def outcomes_fingerprint(
    expert_names: Sequence[str], queries: Sequence[str], arrays: Mapping[str, FloatArray | None]
) -> str:
    """Return the fingerprint of a table with these experts, in this order, and these named arrays."""
    digest = hashlib.sha256()
    for texts in (expert_names, queries):
        digest.update(f"{len(texts)} texts;".encode())
        for text in texts:
            encoded = text.encode()
            digest.update(b"%d:" % len(encoded) + encoded)
    for name, values in arrays.items():
        if values is None:
            digest.update(f"{name} None;".encode())
            continue
        digest.update(f"{name} {values.shape};".encode())
        # NaN have many bit patterns, and 0 has two: -0.0 + 0.0 is 0.0.
        normalized = np.where(np.isnan(values), np.nan, values + 0.0)
        digest.update(normalized.astype(normalized.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _in_first_wordings(
    answers: Sequence[Any], kind: str, equal: Callable[[Any, Any], bool]
) -> list[Any]:
    """Replace each answer of a row by the first answer that means the same."""
    wordings: list[Any] = []
    worded = []
    for answer in answers:
        if canonical_answer(answer, kind) is None:
            # Missing answers are never equal to each other.
            worded.append(answer)
            continue
        wording = _first_equal(answer, wordings, equal)
        if wording is None:
            wording = answer
            wordings.append(answer)
        worded.append(wording)
    return worded


def _first_equal(
    answer: Any, wordings: Sequence[Any], equal: Callable[[Any, Any], bool]
) -> Any | None:
    """Return the first wording that means the same as an answer; None if none does."""
    for wording in wordings:
        if wording == answer or equal(wording, answer):
            return wording
    return None


def without_answers(columns: Any, experts: Sequence[str]) -> Any:
    """Return an Arrow table without the columns of the answers of these experts."""
    dropped: set[str] = set()
    for expert in experts:
        dropped.update((ANSWER + expert, LOGPROB + expert))
    return columns.select(names_except(columns.column_names, dropped))
