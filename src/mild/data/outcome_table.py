"""Outcomes of queries with several experts, in memory."""

from __future__ import annotations

import difflib
import hashlib
import importlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from mild.artifact.frames import default_library, html_table
from mild.core.answers import Answers, canonical_answer, kind_by_scores
from mild.core.arrays import BoolArray, FloatArray, IntArray, check_integer, invalid
from mild.data.cost_terms import CostTerms
from mild.data.data_quality import Finding, duplicate_groups, examine, row_number
from mild.data.describing import Description, describe
from mild.data.expert_order import name_order
from mild.data.formats.base import ANSWER, CORRECT, LATENCY, LOGPROB, PRICE, SCORE
from mild.data.number_tables import (
    NumberColumns,
    array_columns,
    check_readable,
    neutral_columns,
)
from mild.data.queries import Recipe
from mild.data.splits import Split, joined_groups, random_splits, time_splits, time_values
from mild.data.tables import infer_array, numbers
from mild.errors import DataFileError, InvalidInputError, check_arguments, counted, listed

# Columns of the query and of vectors in the wide format.
QUERY = "prompt"
VECTORS = "embedding"
# Arrays with one row per query, those that may be None among them.
ROW_ARRAYS = ("scores", "prices", "latencies", "vectors", "given_costs")
# Answers that tell how they are to be compared.
KIND_SAMPLE = 2_000


@dataclass(frozen=True, eq=False, repr=False)
class OutcomeTable:
    """The outcome of each query with each expert; every row has a score.

    ``mild.read_outcomes`` makes one from a file or a frame. A table sorts its experts by name, whatever
    order they are given in; numbers in names are compared as numbers.

    Attributes
    ----------
    queries : (n,) texts; empty ones where the table has vectors and no query
    expert_names : (p,) different names, sorted
    scores : (n, p) float64 in [0, 1], NaN where an expert was never asked, and everywhere in a table of
        numbers, which has ``given_costs`` instead
    prices : (n, p) dollars per query, NaN where unknown; None if there are none
    latencies : (n, p) seconds, to the nanosecond; None if there are none
    columns : Arrow table of all other columns, same rows
    vectors : (n, n_features) float32; the features of a table of numbers, float32 or float64
    form : format of the source, one of FORMS
    explanation : how the source was read, in one sentence
    findings : what its user should know about it
    recipe : which columns make the query, and how
    row_numbers : (n,) row numbers in the file, from 0, if not 0 to n - 1
    library : "pandas", "polars" or "pyarrow" if the source was such a frame
    answer_kind : how answers are compared, one of KINDS; None detects it
    kind_detected : whether that was detected, and not set
    given_costs : (n, p) the whole cost of each expert, used as it is, in a table of numbers; NaN where an
        expert was never asked; None for a table with scores
    feature_names : names of the features of a table of numbers; None if they have none

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> table = read_outcomes(pa.table({
    ...     "prompt": ["2 + 2?", "3 + 4?", "Who wrote Faust?", "Who wrote Emma?"],
    ...     "correct__small": [1, 1, 0, 0], "correct__large": [1, 0, 1, 1],
    ... }))
    >>> table
    OutcomeTable(4 queries, 2 experts: large, small)
    >>> train, test = table.split(test_size=0.5, random_state=0)
    >>> train.rows, test.rows
    (2, 2)
    >>> table.costs(beta={"large": 0.25})[:2]
    array([[0.25, 0.  ],
           [1.25, 0.  ]])
    """

    queries: list[str]
    expert_names: list[str]
    scores: FloatArray
    prices: FloatArray | None
    latencies: FloatArray | None
    columns: Any
    vectors: FloatArray | None = None
    form: str = "wide"
    explanation: str = ""
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
        expert_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> OutcomeTable:
        """A table of numbers from features and the cost of each expert, for ``tune`` or ``compare``.

        Parameters
        ----------
        X : (n, n_features) array or frame
        costs : (n, p) array or frame; NaN where an expert was never asked
        expert_names : p different names; None for the columns of ``costs``, or expert_0, expert_1, ...
        feature_names : n_features different names; None for the columns of ``X``, if it has any

        Returns
        -------
        OutcomeTable

        Examples
        --------
        >>> made = OutcomeTable.from_arrays([[0.5], [2.0]], [[0, 1], [1, 0]], expert_names=["a", "b"])
        >>> made
        OutcomeTable(2 queries, 2 experts: a, b, with vectors, given costs)
        >>> made.costs()
        array([[0., 1.],
               [1., 0.]])
        """
        _check_given_names("expert_names", expert_names, costs)
        _check_given_names("feature_names", feature_names, X)
        return number_table(array_columns(X, costs, expert_names, feature_names))

    def __post_init__(self) -> None:
        order = name_order(self.expert_names)
        if order == list(range(len(order))):
            return
        object.__setattr__(self, "expert_names", [self.expert_names[index] for index in order])
        for name in ("scores", "prices", "latencies", "given_costs"):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, values[:, order])

    def __repr__(self) -> str:
        experts = listed(self.expert_names, 4)
        known = [
            name for name in ("prices", "latencies", "vectors") if getattr(self, name) is not None
        ]
        known += ["answers"] if self.has_answers else []
        known += [] if self.given_costs is None else ["given costs"]
        more = f", with {', '.join(known)}" if known else ""
        count = counted(self.rows, "query", "queries")
        return (
            f"OutcomeTable({count}, {counted(len(self.expert_names), 'expert')}: {experts}{more})"
        )

    @property
    def rows(self) -> int:
        """Number of queries."""
        return len(self.queries)

    @property
    def asked(self) -> BoolArray:
        """Whether each expert was asked (n, p)."""
        return ~np.isnan(self.quality)

    @property
    def quality(self) -> FloatArray:
        """What is better the higher it is (n, p): scores, or minus the given costs."""
        if self.given_costs is None:
            return self.scores
        return -self.given_costs

    @property
    def has_answers(self) -> bool:
        """Whether there are columns ``answer__<expert>``."""
        return any(ANSWER + name in self.columns.column_names for name in self.expert_names)

    @cached_property
    def answers(self) -> Answers | None:
        """What the experts answered, from columns ``answer__<expert>`` and ``logprob__<expert>``.

        An expert without a column has no answers; None where there is no answer at all.
        """
        if not self.has_answers:
            return None
        found = Answers.of(self._answer_rows(), self.kind_of_answers())
        if not (found.codes >= 0).any():
            return None
        for k, name in enumerate(self.expert_names):
            if LOGPROB + name in self.columns.column_names:
                means = numbers(LOGPROB + name, self.columns[LOGPROB + name])
                known = (found.codes[:, k] >= 0) & np.isfinite(means)
                found.signals[:, k, -1] = np.where(known, means, 0.0)
        return found

    def kind_of_answers(self) -> str:
        """How answers are compared: as set, or as detected.

        Returns
        -------
        one of ``mild.core.answers.KINDS``

        Examples
        --------
        >>> import mild, pyarrow as pa
        >>> columns = {"prompt": ["2 + 2?"], "correct__small": [1], "answer__small": ["4"]}
        >>> mild.read_outcomes(pa.table(columns)).kind_of_answers()
        'number'
        """
        if self.answer_kind is not None:
            return self.answer_kind
        some = self.sample_rows()
        return kind_by_scores(self._answer_rows(some), self.scores[some])

    def sample_rows(self) -> IntArray:
        """Rows all over the table that tell of what kind its answers are.

        Returns
        -------
        row numbers

        Examples
        --------
        >>> table.sample_rows().shape
        (40,)
        """
        return np.arange(self.rows)[:: max(1, self.scores.size // KIND_SAMPLE)]

    def _answer_rows(self, rows: IntArray | None = None) -> list[tuple[Any, ...]]:
        """Contents of the answers of all rows or of some, a tuple per row."""
        columns = self.columns if rows is None else self.columns.take(rows)
        given = [
            columns[name].to_pylist() if name in columns.column_names else [None] * columns.num_rows
            for name in (ANSWER + expert for expert in self.expert_names)
        ]
        return list(zip(*given, strict=True))

    def with_equal_answers(self, equal: Callable[[Any, Any], bool]) -> OutcomeTable:
        """The table with one wording for answers of a row that are the same to ``equal(one, other)``.

        The first wording replaces the others. For free text, ``equal`` may compare embeddings or ask a
        judge.

        Parameters
        ----------
        equal : called with two answers; whether they are the same

        Returns
        -------
        OutcomeTable

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
        kind, rows = self.kind_of_answers(), []
        for row in self._answer_rows():
            wordings: list[Any] = []
            for place, answer in enumerate(row):
                if canonical_answer(answer, kind) is None:
                    continue
                same = next((one for one in wordings if one == answer or equal(one, answer)), None)
                if same is None:
                    wordings.append(answer)
                else:
                    row = (*row[:place], same, *row[place + 1 :])
            rows.append(row)
        columns = self.columns
        for name, given in zip(self.expert_names, zip(*rows, strict=True), strict=True):
            if ANSWER + name in columns.column_names:
                place = columns.column_names.index(ANSWER + name)
                columns = columns.set_column(place, ANSWER + name, infer_array(list(given)))
        return replace(self, columns=columns, answer_kind=kind)

    def _carry(self, table: OutcomeTable, change: Callable[[Answers], Answers]) -> OutcomeTable:
        """A table made from this one, with its answers if they are known already."""
        if (answers := self.__dict__.get("answers")) is not None:
            table.__dict__["answers"] = change(answers)
        return table

    def take(self, rows: ArrayLike) -> OutcomeTable:
        """Some of the rows, by number or by a mask, in that order, without the findings.

        Parameters
        ----------
        rows : row numbers from 0, or a mask

        Returns
        -------
        OutcomeTable

        Examples
        --------
        >>> table.take([0, 39]).queries
        ['What is 2 + 1?', 'Who wrote Dracula, act 4?']
        """
        index = np.asarray(rows)
        if index.dtype == np.bool_ and index.shape == (self.rows,):
            index = np.flatnonzero(index)
        index = np.empty(0, np.intp) if index.shape == (0,) else index
        whole = index.ndim == 1 and index.dtype.kind in "iu"
        odd = index[(index < 0) | (index >= self.rows)][:1].tolist() if whole else [rows]
        if odd:
            rule = f"must be row numbers from 0 to {self.rows - 1}, or a mask of {self.rows:,} rows"
            raise invalid("rows", f"{rule}; got {odd[0]!r}.")
        index = index.astype(np.intp, copy=False)
        arrays = {name: getattr(self, name) for name in ROW_ARRAYS}
        taken = {name: array[index] for name, array in arrays.items() if array is not None}
        table = replace(
            self,
            queries=[self.queries[i] for i in index.tolist()],
            columns=self.columns.take(index),
            findings=(),
            row_numbers=index if self.row_numbers is None else self.row_numbers[index],
            **taken,
        )
        return self._carry(table, lambda answers: answers.take(index))

    @check_arguments
    def with_experts(self, names: Sequence[str]) -> OutcomeTable:
        """The table with these experts only, and the findings about them.

        Rows in which none of them was asked are left out.

        Parameters
        ----------
        names : names of experts of the table

        Returns
        -------
        OutcomeTable

        Examples
        --------
        >>> table.with_experts(["large"])
        OutcomeTable(40 queries, 1 expert: large, with prices)
        """
        if isinstance(names, str) or not len(names):
            raise invalid("names", f"must be a list of at least one expert; got {names!r}.")
        if set(names) == set(self.expert_names):
            return self
        for name in names:
            if name not in self.expert_names:
                known = listed(self.expert_names, 6)
                raise InvalidInputError(
                    f"the table has no expert {name!r}; it has {known}.", parameter="names"
                )
        kept = [index for index, name in enumerate(self.expert_names) if name in names]
        asked = self.asked[:, kept].any(axis=1)
        if not asked.any():
            raise InvalidInputError(
                f"the table has no row in which {listed(list(names), 6)} answered.",
                parameter="names",
            )
        table = self if asked.all() else self.take(asked)
        scores = table.scores[:, kept]
        prices, latencies, given_costs = (
            None if values is None else values[:, kept]
            for values in (table.prices, table.latencies, table.given_costs)
        )
        kept_names = [self.expert_names[index] for index in kept]
        findings = []
        if given_costs is None:
            findings = examine(
                table.queries, kept_names, scores, prices, table.has_queries, table.row_numbers
            )
        left = [name for name in self.expert_names if name not in names]
        chosen = replace(
            table,
            expert_names=kept_names,
            scores=scores,
            prices=prices,
            latencies=latencies,
            columns=without_answers(table.columns, left),
            findings=tuple(findings),
            given_costs=given_costs,
        )
        return table._carry(chosen, lambda answers: answers.of_experts(kept))

    def with_features(self, names: Sequence[str] | None) -> OutcomeTable:
        """The table of numbers with these features, in this order.

        Parameters
        ----------
        names : names of features or of other columns of numbers; None for the features as they are, and
            so for features without names if there are as many

        Returns
        -------
        OutcomeTable

        Examples
        --------
        >>> import pyarrow as pa
        >>> from mild.data import read_outcomes
        >>> columns = {"age": [40.0, 50.0], "length": [1.0, 2.0], "cost__a": [0, 1], "cost__b": [1, 0]}
        >>> read_outcomes(pa.table(columns)).with_features(["length"]).vectors
        array([[1.],
               [2.]])
        """
        if names is None or self.vectors is None or list(names) == self.feature_names:
            return self
        if self.feature_names is None:
            width = self.vectors.shape[1]
            if width == len(names):
                return replace(self, feature_names=list(names))
            rule = f"must have the features {listed(list(names))}; it has {width} without names."
            raise invalid("table", rule)
        columns = []
        for name in names:
            if name in self.feature_names:
                columns.append(self.vectors[:, self.feature_names.index(name)])
            elif name in self.columns.column_names:
                columns.append(numbers(name, self.columns[name]))
            else:
                known = listed(self.feature_names)
                raise invalid("table", f"must have a feature {name!r}; it has {known}.")
        return replace(self, vectors=np.column_stack(columns), feature_names=list(names))

    def outcomes_of(self, names: Sequence[str]) -> list[FloatArray]:
        """Scores, dollars and seconds (n, len(names)) of experts, NaN where they are unknown.

        Parameters
        ----------
        names : names of experts; unknown ones have no outcomes

        Returns
        -------
        list of three (n, len(names)) arrays

        Examples
        --------
        >>> scores, dollars, seconds = table.outcomes_of(["large"])
        >>> dollars[0]
        array([0.01])
        """
        count = len(self.expert_names)
        known = {name: k for k, name in enumerate(self.expert_names)}
        places, found = [known.get(name, count) for name in names], []
        for values in (self.scores, self.prices, self.latencies):
            padded = np.full((self.rows, count + 1), np.nan)
            if values is not None:
                padded[:, :count] = values
            found.append(padded[:, places])
        return found

    @property
    def has_queries(self) -> bool:
        """Whether there are texts, and not only vectors."""
        return any(self.queries)

    @check_arguments
    def costs(
        self,
        beta: Mapping[str, float] | None = None,
        price_weight: float | None = None,
        latency_weight: float | None = None,
    ) -> FloatArray:
        """Cost (n, p) of each outcome in wrong answers: the ``y`` of a router's ``fit``.

        ``c_ik = (1 - score_ik) + beta_k + price_weight * price_ik + latency_weight * seconds_ik``. The
        costs of a table of numbers are given, and no term can be added to them.

        Parameters
        ----------
        beta : cost of asking an expert, by name, in wrong answers
        price_weight : wrong answers that one dollar is worth
        latency_weight : wrong answers that one second is worth

        Returns
        -------
        (n, p) array; NaN where an expert was not asked

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
        """Figures of the experts, of the best single expert and of perfect choice under a cost.

        Parameters
        ----------
        beta : cost of asking an expert, by name, in wrong answers
        price_weight : wrong answers that one dollar is worth
        latency_weight : wrong answers that one second is worth

        Returns
        -------
        Description; its ``repr`` is a text

        Examples
        --------
        >>> large = table.describe(price_weight=10).as_dict()["experts"][0]
        >>> round(large["mean_cost"], 2)
        0.1
        """
        return describe(self, CostTerms(beta, price_weight, latency_weight))

    def groups(self, column: str | None = None) -> IntArray:
        """Number (n,) of the rows that must stay together: equal queries, and equal values of a column.

        Parameters
        ----------
        column : column whose equal values stay together as well

        Returns
        -------
        (n,) array of whole numbers

        Examples
        --------
        >>> table.groups("subject")[[0, 1, 39]]
        array([0, 0, 1])
        """
        if self.vectors is None or self.has_queries:
            labels: list[Any] = [duplicate_groups(self.queries)]
        else:
            labels = [[row.tobytes() for row in self.vectors]]
        if column is not None:
            labels.append(self.labels(column))
        return joined_groups(*labels)

    def labels(self, name: str) -> list[Hashable]:
        """Values of a column that divides the rows into kinds: plain ones, at least two different.

        Parameters
        ----------
        name : name of the column

        Returns
        -------
        list of n values

        Examples
        --------
        >>> table.labels("subject")[:2]
        ['maths', 'maths']
        """
        values = self._column_of("groups", name)
        if any(not isinstance(value, Hashable) for value in values):
            raise InvalidInputError(
                f"column {name!r} must hold plain values to group by; got lists or objects.",
                parameter="group",
            )
        known = {value for value in values if value is not None}
        if len(known) < 2:
            raise InvalidInputError(
                f"column {name!r} must hold at least two different values to group by; "
                f"{'all rows have the same one' if known else 'it is empty'}.",
                parameter="group",
            )
        return values

    def times(self, name: str) -> np.ndarray[Any, Any]:
        """A column of numbers, dates or dates as text (ISO 8601), ready to be sorted, (n,).

        Parameters
        ----------
        name : name of the column

        Returns
        -------
        (n,) array

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
    ) -> tuple[OutcomeTable, OutcomeTable]:
        """Divide the rows into a table to train on and one to test on.

        Equal queries are never on both sides.

        Parameters
        ----------
        test_size : share of the rows in the test table
        groups : column whose equal values are kept on one side, such as a subject or a customer
        time : column of times; the test table is the latest part, and test rows whose query or group is
            in the past are left out
        random_state : seed of a random split

        Returns
        -------
        the table to train on and the table to test on

        Examples
        --------
        >>> train, test = table.split(test_size=0.25, random_state=0)
        >>> train.rows, test.rows
        (30, 10)
        """
        found = self.split_rows(test_size, groups=groups, time=time, random_state=random_state)
        return self.take(found.train), self.take(found.test)

    def split_rows(
        self,
        test_size: float = 0.3,
        *,
        groups: str | None = None,
        time: str | None = None,
        random_state: int = 0,
    ) -> Split:
        """The numbers of the rows of ``split``, and how many are in neither part.

        Parameters
        ----------
        test_size : share of the rows in the test table
        groups : column whose equal values are kept on one side
        time : column of times; the test rows are the latest ones
        random_state : seed of a random split

        Returns
        -------
        Split, with ``train`` and ``test``

        Examples
        --------
        >>> len(table.split_rows(test_size=0.25).test)
        10
        """
        check_integer("random_state", random_state, 0)
        together = self.groups(groups)
        if time is None:
            (found,) = random_splits(together, 1, test_size, random_state)
        else:
            (found,) = time_splits(self.times(time), together, 1, test_size)
        return found

    def to_frame(self) -> Any:
        """The table in the wide format (see ``mild.data.write_outcomes``), as a frame.

        It is a frame of the library that the table was made from; of a table that was read from a file, a
        pandas frame if pandas is installed, otherwise a pyarrow table.

        Returns
        -------
        pandas, polars or pyarrow frame

        Examples
        --------
        >>> table.to_frame().num_columns
        6
        """
        table = pa.table(self.wide_columns())
        library = self.library or default_library()
        if library == "pandas":
            return table.to_pandas()
        return table if library == "pyarrow" else importlib.import_module(library).from_arrow(table)

    def wide_columns(self) -> dict[str, Any]:
        """Columns of the wide format by name: query, vectors, other columns, then the experts'.

        Those of a table of numbers are its features and ``cost__<expert>``; other columns are left out
        that would be read as a query or as a feature.

        Returns
        -------
        dict of name to Arrow array

        Examples
        --------
        >>> list(table.wide_columns())[:3]
        ['prompt', 'subject', 'correct__large']
        """
        if self.given_costs is not None:
            return self._number_columns(self.given_costs)
        columns: dict[str, Any] = {}
        if any(self.queries):
            columns[QUERY] = pa.array(self.queries, pa.large_string())
        if self.vectors is not None:
            flat = pa.array(self.vectors.reshape(-1))
            columns[VECTORS] = pa.FixedSizeListArray.from_arrays(flat, self.vectors.shape[1])
        for name in self.columns.column_names:
            columns[f"{name}_of_source" if name in (QUERY, VECTORS) else name] = self.columns[name]

        def has(prefix: str) -> bool:
            return any(prefix + name in columns for name in self.expert_names)

        binary = bool(np.isin(self.scores, (0, 1)).sum() == (~np.isnan(self.scores)).sum())
        prefix = CORRECT if binary and not has(CORRECT) else SCORE
        latencies = None if self.latencies is None else self.latencies * 1e3
        written = ((prefix, self.scores), (PRICE, self.prices), (LATENCY, latencies))
        for start, values in written:
            if values is None:
                continue
            if has(start):
                raise DataFileError(
                    f"the table has columns {start}<model> besides its outcomes; rename them."
                )
            kind = pa.int8() if start == CORRECT else pa.float64()
            for k, name in enumerate(self.expert_names):
                columns[start + name] = pa.array(values[:, k], from_pandas=True).cast(kind)
        return columns

    def _number_columns(self, given_costs: FloatArray) -> dict[str, Any]:
        """Columns of a table of numbers by name: features, other columns, then the experts' costs."""
        assert self.vectors is not None
        names = self.feature_names
        if names is None:
            names = [f"feature_{k}" for k in range(self.vectors.shape[1])]
        check_readable(names)
        columns: dict[str, Any] = {}
        for k, name in enumerate(names):
            columns[name] = pa.array(self.vectors[:, k])
        for name in neutral_columns(self.columns):
            columns[name] = self.columns[name]
        for k, name in enumerate(self.expert_names):
            columns[PRICE + name] = pa.array(given_costs[:, k], from_pandas=True)
        return columns

    def _repr_html_(self) -> str:
        return html_table(repr(self), self.describe().as_dict()["experts"])

    def column(self, name: str) -> list[Any]:
        """Values of one of the other columns.

        Parameters
        ----------
        name : name of the column

        Returns
        -------
        list of n values

        Examples
        --------
        >>> table.column("subject")[0]
        'maths'
        """
        return self._column_of("name", name)

    def _column_of(self, parameter: str, name: str) -> list[Any]:
        """Values of a column that a parameter names."""
        others = self.columns.column_names
        if not isinstance(name, str):
            got = type(name).__name__
            rule = f"must be the name of a column, one of {listed(others)}; got {got}."
            raise invalid(parameter, rule)
        if name not in others:
            rule = f"must be the name of a column; there is no column {name!r}"
            if self.recipe is not None and name in (*self.recipe.columns, self.recipe.vectors):
                rule = f"must be the name of another column; {name!r} holds the queries"
            elif name.partition("__")[2] in self.expert_names:
                rule = f"must be the name of another column; {name!r} holds outcomes of an expert"
            close = difflib.get_close_matches(name, others, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            found = f"Found {listed(others)}.{hint}"
            raise DataFileError(parameter=parameter, rule=f"{rule}. {found}")
        values: list[Any] = self.columns[name].to_pylist()
        return values

    def row_number(self, row: int) -> int:
        """Number of a row in the file, from 1, for messages.

        Parameters
        ----------
        row : row of this table, from 0

        Returns
        -------
        number in the file, from 1

        Examples
        --------
        >>> table.take([5]).row_number(0)
        6
        """
        return row_number(row, self.row_numbers)

    def fingerprint(self) -> str:
        """SHA-256 over queries, experts, scores, prices, latencies, vectors and given costs, as 64 digits.

        It does not depend on the file that the outcomes came from, nor on other columns.

        Returns
        -------
        64 hexadecimal digits

        Examples
        --------
        >>> table.fingerprint() == table.take(range(40)).fingerprint()
        True
        """
        names = [
            name for name in ROW_ARRAYS if name != "given_costs" or self.given_costs is not None
        ]
        arrays = {name: getattr(self, name) for name in names}
        return outcomes_fingerprint(self.expert_names, self.queries, arrays)


def outcomes_fingerprint(
    expert_names: Sequence[str], queries: Sequence[str], arrays: Mapping[str, FloatArray | None]
) -> str:
    """``OutcomeTable.fingerprint`` of experts in any order, and of arrays by name."""
    digest = hashlib.sha256()
    for texts in (expert_names, queries):
        digest.update(f"{len(texts)} texts;".encode())
        for text in texts:
            encoded = text.encode()
            digest.update(b"%d:" % len(encoded) + encoded)
    for name, values in arrays.items():
        digest.update(f"{name} {None if values is None else values.shape};".encode())
        if values is not None:
            # All NaN are equal, and so are 0 and -0.
            plain = np.where(np.isnan(values), np.nan, values + 0.0)
            digest.update(plain.astype(plain.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def number_table(found: NumberColumns) -> OutcomeTable:
    """The table of numbers that has these columns."""
    n_rows = len(found.X)
    return OutcomeTable(
        queries=[""] * n_rows,
        expert_names=list(found.expert_names),
        scores=np.full(found.costs.shape, np.nan),
        prices=None,
        latencies=None,
        columns=found.others,
        vectors=found.X,
        form="numbers",
        explanation=found.explanation,
        row_numbers=found.row_numbers,
        given_costs=found.costs,
        feature_names=found.feature_names,
    )


def without_answers(columns: Any, experts: Sequence[str]) -> Any:
    """An Arrow table without the columns of the answers of these experts."""
    gone = {prefix + name for name in experts for prefix in (ANSWER, LOGPROB)}
    return columns.select([name for name in columns.column_names if name not in gone])


def _check_given_names(parameter: str, names: Sequence[str] | None, values: Any) -> None:
    """Refuse empty and repeated names that are given with arrays, or are those of a frame's columns."""
    if names is None:
        names = getattr(values, "columns", None)
    if names is None or isinstance(names, str):
        return
    seen = set()
    for name in map(str, names):
        if not name:
            raise invalid(parameter, "must not be empty; got ''.")
        if name in seen:
            raise invalid(parameter, f"must differ from each other; {name!r} appears twice.")
        seen.add(name)
