"""Evaluate a router on rows with known outcomes: ``mild.evaluate``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mild.artifact import Router, load
from mild.artifact.frames import as_frame, default_library, html_table
from mild.artifact.info import TargetInfo
from mild.artifact.router import in_order_of, with_betas
from mild.artifact.sources import as_router
from mild.artifact.targets import Target, certainty_rows
from mild.core.arrays import BoolArray, IntArray, as_python, check_integer, invalid
from mild.data import Outcomes, read_outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import InvalidInputError, MildWarning, check_arguments, listed
from mild.evaluation import sections
from mild.evaluation.cascades import known_answers
from mild.evaluation.displays import CalibrationDisplay, FrontierDisplay, SharesDisplay
from mild.evaluation.document import ELSEWHERE, JudgedRows, data_entries, document_header
from mild.evaluation.figures import RoutingFigures, named_baselines
from mild.metrics import Verdict
from mild.metrics.operating_points import Frontier
from mild.policies import CascadePolicy, MixPolicy
from mild.report import GUARANTEE, check_report, write_report
from mild.tuning.fit import FittedData
from mild.tuning.fitting import router_features
from mild.tuning.tasks import Task, make_task
from mild.tuning.training_rows import optimism, terms_of, with_router_experts


@dataclass(frozen=True, eq=False)
class ReportedRows:
    """The rows that a report is about: those in which all experts can be compared."""

    routed: sections.RoutedRows
    X: Any  # (n_rows, n_features) features of the inputs
    groups: IntArray  # (n_rows,) rows of one group count once
    column: str | None  # by which the report shows where routing helps
    labels: list[Any] | None  # (n_rows,) the values of this column; None if there is none

    def take(self, rows: BoolArray) -> ReportedRows:
        """The rows of a mask."""
        labels = None
        if self.labels is not None:
            labels = [self.labels[number] for number in np.flatnonzero(rows)]
        return ReportedRows(
            self.routed.take(rows), self.X[rows], self.groups[rows], self.column, labels
        )


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What a router did on rows with known outcomes, and what it is compared with.

    Attributes
    ----------
    figures : the figures behind the verdict
    judged : the router and the rows
    random_state : seed of the intervals
    notes : what to know about the rows that were used

    Examples
    --------
    >>> import mild
    >>> from mild.datasets import load_outcomes
    >>> train, test = load_outcomes().split(random_state=0)
    >>> judged = mild.evaluate(mild.fit(train), test)
    >>> judged.to_frame()["key"].tolist()
    ['router', 'best_single', 'fit_constant', 'same_mix', 'perfect']
    >>> judged.figures.summary["n_known"]
    450
    """

    figures: RoutingFigures
    judged: JudgedRows
    random_state: int = 0
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Whether the router does what was asked for on these rows: its target, or a lower loss."""
        return self.figures.verdict

    @property
    def sentences(self) -> list[str]:
        """The verdict in words; of a cascade also that against the router without answers."""
        sentences = [self.verdict.sentence]
        if self.figures.cascade is not None:
            sentences.append(self.figures.cascade["direct"]["sentence"])
        return sentences

    @cached_property
    def overlap(self) -> dict[str, Any]:
        """Whether the router was fitted on these rows (``same_data_as_fit``, ``seen_in_fit``)."""
        return self.judged.overlap

    @property
    def warning(self) -> str | None:
        """A warning if the router was fitted on some of the rows; None if not."""
        return optimism(self.overlap)

    @property
    def formula(self) -> str:
        """The cost as a formula."""
        return self.judged.task.formula

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields.

        Returns
        -------
        dict

        Examples
        --------
        >>> judged.as_dict()["verdict"]["n_rows"]
        40
        """
        task = self.judged.task
        return {
            "cost": task.cost,
            **self.figures.as_dict(),
            **as_python(self.overlap),
            "notes": list(self.notes),
        }

    def to_frame(self) -> Any:
        """The router, the best single expert, the same mix at random and perfect choice, one row each.

        A cascade has one more: the same router without answers.

        Returns
        -------
        pandas, polars or pyarrow frame

        Examples
        --------
        >>> judged.to_frame().shape
        (5, 6)
        """
        library = self.judged.task.table.library
        return as_frame(self.figures.baselines, library or default_library())

    @check_arguments
    def document(
        self,
        *,
        group: str | None = None,
        title: str = "Router report",
        queries: int = 20,
    ) -> dict[str, Any]:
        """Return the content of a report, JSON-ready; ``mild.report.render`` turns it into a page.

        Parameters
        ----------
        group : column by which the report shows where routing helps; None for the group column of the
            task or, if it has none, a column with a common name for topics, such as ``subject``
        title : title of the page
        queries : number of queries with the largest regret; 0 leaves all texts out

        Returns
        -------
        dict

        Examples
        --------
        >>> judged.document(title="Week 1")["title"]
        'Week 1'
        """
        task = self.judged.task
        names = list(self.judged.router.experts)
        reported = self._reported_rows(group)
        n_rows = len(reported.routed.costs)
        frontier = self._frontier(reported)
        return {
            **document_header(title, names, task.cost),
            "rows": n_rows,
            "quality_name": self.figures.quality_name,
            "left_out": self.figures.left_out,
            "notes": list(self.notes),
            "verdict": self.verdict.as_dict(),
            "figures": self._document_figures(reported.routed),
            "cascade": self.figures.cascade,
            "frontier": frontier,
            "certainty": self._certainty(),
            "prices_unused": self._prices_unused(frontier),
            "calibration": self._calibration(reported),
            "groups": self._groups(reported),
            "regrets": sections.regrets(reported.routed, queries, reported.labels),
            "warning": self.warning,
            **self.judged.overlap,
            "router": self._router_facts(),
            "data": data_entries(names, task, n_rows),
            "settings": [
                ["confidence", f"{self.verdict.confidence * 100:g} %"],
                ["seed", str(self.random_state)],
            ],
        }

    def _router_facts(self) -> list[list[Any]]:
        """Facts about the router that have no other place in a report."""
        facts = []
        for name, fact in self.judged.router.facts.items():
            if name not in ELSEWHERE:
                facts.append([name, fact])
        return facts

    def _reported_rows(self, group: str | None) -> ReportedRows:
        """The rows that are compared, with the values of the column ``group`` or a usual one."""
        task = self.judged.task
        table = task.table
        column = group or task.group_column or sections.find_group_column(table.columns)
        labels = None
        if column is not None:
            labels = table.column(column)
        routed = self._routed_rows()
        reported = ReportedRows(routed, self.judged.X, task.groups, column, labels)
        if self.figures.rows.all():
            return reported
        return reported.take(self.figures.rows)

    def _routed_rows(self) -> sections.RoutedRows:
        """All rows, with what the router chose and what it estimated."""
        table = self.judged.task.table
        probabilities = None
        # A cascade decides by answers; it estimates no shares.
        if self.judged.run is None:
            probabilities = self.judged.router.predict_proba(self.judged.X).astype(np.float64)
        queries = None
        if table.has_queries:
            queries = table.queries
        return sections.RoutedRows(
            list(self.judged.router.experts),
            self.judged.outcomes,
            self.judged.chosen,
            probabilities,
            queries,
            table.row_numbers,
        )

    def _document_figures(self, routed: sections.RoutedRows) -> dict[str, Any]:
        """The figures behind the verdict, and the means of what is compared."""
        n_rows = len(routed.costs)
        constant = self.figures.summary["constant_expert"]
        target = self.verdict.target
        reference_means = None
        if target is not None:
            reference = routed.expert_names.index(target.reference)
            reference_means = routed.means(np.full(n_rows, reference))
        return {
            **self.figures.summary,
            "constant_losses": as_python(self.figures.constant_losses, finite=True),
            "means": {
                "router": routed.means(routed.chosen),
                "constant": routed.means(np.full(n_rows, constant)),
                "reference": reference_means,
                "oracle": routed.means(routed.outcomes.oracle()),
            },
            "baselines": self.figures.baselines,
        }

    def _certainty(self) -> list[dict[str, Any]]:
        """Return a row for each of several probabilities of meeting the target; none without a target."""
        router = self.judged.router
        target = router.info.target
        if target is None or router.info.frontier is None:
            return []
        frontier = Frontier.from_dict(router.info.frontier, router.experts)
        rows = certainty_rows(Target(**target.target), frontier, router.experts)
        if target.guarantee is not None:
            rows += _guarantee_rows(target, router.info.verdict)
        return rows

    def _frontier(self, reported: ReportedRows) -> dict[str, Any]:
        """Price against quality: the experts, the router and its other trade-offs."""
        router = self.judged.router
        direct = router.direct
        cost = self.judged.task.cost
        name = "router"
        sweep = []
        if self.judged.run is not None:
            name = "router without answers"
            choices = direct.predict(direct.own_columns(reported.X))
            sweep.append(sections.SweepPoint(name, choices))
        sweep += sections.operating_points(direct, reported.X, reported.routed, cost, name)
        return sections.frontier(
            reported.routed,
            sweep,
            sections.target_limits(router.info.target, self.verdict.target),
        )

    def _prices_unused(self, frontier: Mapping[str, Any]) -> str | None:
        """Return what a trade-off saves at the router's quality; None for a router with a target."""
        if self.judged.router.info.target is not None:
            return None
        return sections.unused_prices(frontier, self.judged.task.cost)

    def _calibration(self, reported: ReportedRows) -> dict[str, Any] | None:
        """Reliability of the router's probabilities; None if it has none."""
        reward = sections.reward_form(self.judged.router.info.estimator)
        return sections.calibration(
            reported.routed,
            reward.form,
            reward.scale,
            self.verdict.confidence,
            reported.groups,
            reward.strength,
        )

    def _groups(self, reported: ReportedRows) -> dict[str, Any] | None:
        """Where routing helps; None without a column to divide the rows by."""
        if reported.column is None or reported.labels is None:
            return None
        return sections.groups(
            reported.routed,
            reported.column,
            reported.labels,
            self.figures.summary["constant_expert"],
            self.verdict.confidence,
        )

    def write_report(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, **options: Any
    ) -> Path:
        """Write an HTML page that needs no network.

        Parameters
        ----------
        path : file to write, ending with .html
        overwrite : whether a file that is there is replaced
        options : those of ``document``

        Returns
        -------
        path of the file

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     judged.write_report(f"{folder}/report.html").name
        'report.html'
        """
        target = check_report(path, overwrite)
        write_report(self.document(**options), target, overwrite)
        return target

    def plot_frontier(self, ax: Any = None) -> FrontierDisplay:
        """Plot quality against dollars: the experts, the router, and its other trade-offs.

        Parameters
        ----------
        ax : axes of matplotlib; None for a new figure

        Returns
        -------
        FrontierDisplay, with ``ax_`` and ``figure_``

        Examples
        --------
        >>> judged.plot_frontier().ax_.get_ylabel()
        'quality (mean score)'
        """
        content = self._content
        return FrontierDisplay(content["frontier"], content["cascade"] is not None).plot(ax)

    def plot_calibration(self, ax: Any = None) -> CalibrationDisplay:
        """Plot each expert's predicted share of the reward against the share that it had.

        Parameters
        ----------
        ax : axes of matplotlib; None for a new figure

        Returns
        -------
        CalibrationDisplay, with ``ax_`` and ``figure_``

        Examples
        --------
        >>> judged.plot_calibration().ax_.get_xlabel()
        'predicted share of the reward'
        """
        content = self._content
        if content["calibration"] is None:
            raise invalid(
                "router", "must estimate probabilities for a calibration plot; this one does not."
            )
        return CalibrationDisplay(content["calibration"], content["experts"]).plot(ax)

    def plot_shares(self, ax: Any = None) -> SharesDisplay:
        """Plot how often the router, and perfect choice, ask each expert.

        Parameters
        ----------
        ax : axes of matplotlib; None for a new figure

        Returns
        -------
        SharesDisplay, with ``ax_`` and ``figure_``

        Examples
        --------
        >>> len(judged.plot_shares().ax_.patches) > 0
        True
        """
        figures = self._content["figures"]
        return SharesDisplay(
            self._content["experts"], figures["shares"], figures["oracle_shares"]
        ).plot(ax)

    @cached_property
    def _content(self) -> dict[str, Any]:
        return self.document(queries=0)

    @property
    def _warnings(self) -> list[str]:
        if self.warning is None:
            return []
        return [f"Warning: {self.warning}"]

    @property
    def _loss_sentence(self) -> list[str]:
        """The loss that the verdict is about; nothing where it is about a target."""
        if self.verdict.target is not None:
            return []
        return [f"The loss is {self.formula}."]

    def __repr__(self) -> str:
        notes = [f"Note: {note}" for note in self.notes]
        return "\n".join([*self._warnings, *self.sentences, *self._loss_sentence, *notes])

    def _repr_html_(self) -> str:
        rows = f"{self.figures.summary['n_known']:,} rows"
        table = named_baselines(self.figures.baselines)
        sentences = [*self._warnings, *self.sentences, *self._loss_sentence, *self.notes]
        return html_table(rows, table, sentences)


@check_arguments
def evaluate(
    router: Any,
    data: Any,
    *,
    groups: str | None = None,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
    confidence: float = 0.95,
    random_state: int = 0,
) -> Evaluation:
    """Evaluate a router on rows with known outcomes: does it do what was asked for?

    A router with a target is judged by it, against the expert that was best when it was tuned. Any other
    is compared with the expert that is best on this very data, a strict baseline. Use data that the router
    was not fitted on; a warning says how many rows it was. The cost is counted as in the fit, unless its
    terms are given; a router with separate heads for errors and prices then decides by the new prices.

    A cascade is judged by the answers of the table (columns ``answer__<expert>``): what counts are the
    answer that it gives and everything that it paid. It is also compared with the same router without
    answers, and ``figures.cascade`` has its steps.

    Parameters
    ----------
    router : Router, folder of one, or a fitted router or Pipeline with scikit-learn's interface
    data : Outcomes, or whatever ``mild.read_outcomes`` takes; a router that was fitted on numbers needs
        a table of numbers, which ``Outcomes.from_arrays`` makes of arrays
    groups : column whose equal values count once in the interval, in addition to equal queries
    beta, price_weight, latency_weight : terms of the cost, as in ``mild.fit``
    confidence : confidence level of the intervals
    random_state : seed of the intervals

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> import mild
    >>> from mild.datasets import load_outcomes
    >>> train, test = load_outcomes().split(random_state=0)
    >>> judged = mild.evaluate(mild.fit(train, price_weight=50), test)
    >>> judged.verdict.pays
    True
    >>> [row["key"] for row in judged.figures.baselines]
    ['router', 'best_single', 'fit_constant', 'same_mix', 'perfect']
    """
    check_integer("random_state", random_state, 0)
    if isinstance(router, (str, os.PathLike)):
        router = load(router)
    elif not isinstance(router, Router):
        router = as_router(router)
    stated_terms = CostTerms(beta, price_weight, latency_weight)
    judged_rows, notes = _apply_router(router, data, stated_terms, groups)
    figures = judged_rows.figures(confidence, random_state)
    evaluation = Evaluation(figures, judged_rows, random_state, notes)
    if evaluation.warning is not None:
        warnings.warn(evaluation.warning, MildWarning, stacklevel=3)
    return evaluation


def evaluate_fit(fitted: FittedData, random_state: int = 0) -> Evaluation:
    """Evaluate a router on the rows that it was fitted on, which gives optimistic figures."""
    router = fitted.router
    X = fitted.features
    judged_rows = JudgedRows(router, fitted.task.costs, X, router.predict(X), fitted.task)
    return Evaluation(judged_rows.figures(0.95, random_state), judged_rows, random_state)


def _guarantee_rows(target: TargetInfo, verdict: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return a row on what the router did on its calibration rows, or no row if it has no guarantee."""
    calibrated = (verdict or {}).get("target")
    if calibrated is None or calibrated["certified"] is None:
        return []
    row = {
        "certainty": f"{GUARANTEE} {target.guarantee:g}",
        "setting": target.setting,
        "quality": calibrated["quality"],
        "met": calibrated["certified"],
    }
    for name in ("quality_kept", "dollars_per_1000", "dollars_saved"):
        row[name] = None
        if calibrated[name] is not None:
            row[name] = calibrated[name]["estimate"]
    return [row]


def _is_nameless(router: Router) -> bool:
    """Whether the router was fitted on an array of costs, whose experts have no names."""
    return router.experts == [f"expert_{k}" for k in range(router.n_experts)]


def _check_expert_names(router: Router, table: Outcomes) -> None:
    """Refuse a router whose experts cannot be found in the table because they have no names."""
    if _is_nameless(router) and not set(router.experts) & set(table.experts):
        raise InvalidInputError(
            "the router's experts must have the names of the table's experts "
            f"({listed(table.experts, 6)}); it was fitted on an array of costs, which has no names. "
            "Fit it on a frame with a column per expert, or on the table with mild.fit.",
            parameter="router",
        )


def _apply_router(
    router: Router,
    data: Any,
    stated_terms: CostTerms,
    groups: str | None,
) -> tuple[JudgedRows, tuple[str, ...]]:
    """Apply a router to the rows of a table; ``stated_terms`` are the cost terms given to ``evaluate``.

    Returns
    -------
    judged_rows : the router, the rows and its choices
    notes : sentences on rows and experts that were left out, and on how the router was changed
    """
    table = _readable_table(router, data)
    _check_expert_names(router, table)
    notes = [_unknown_experts_note(router, table)]
    # Drop experts that the router does not know, and put the others in the same order in both.
    table = with_router_experts(router, table)
    router = in_order_of(router, table.experts)
    terms = _terms(router, table, stated_terms)
    # Ties between experts are broken as in training.
    task = replace(make_task(table, terms, groups), training_ranks=router.policy.ranks)
    notes.append(task.left_out)
    if stated_terms.stated:
        router, terms_note = _with_stated_terms(router, task, stated_terms)
        notes.append(terms_note)
    X = router_features(task.table, router)
    run = None
    if router.cascade is None:
        chosen = router.predict(X)
    else:
        notes.append(_answer_kind_note(table, router.cascade))
        run = router.cascade.run(X, known_answers(task.table, router.cascade))
        # The cascade's own column comes after those of the experts.
        chosen = np.full(len(run.expert), len(router.experts))
    judged_rows = JudgedRows(router, task.costs, X, chosen, task, run)
    return judged_rows, tuple(filter(None, notes))


def _with_stated_terms(
    router: Router, task: Task, stated_terms: CostTerms
) -> tuple[Router, str | None]:
    """Let a router decide by the prices that ``evaluate`` was called with, if it has a head for prices.

    Returns
    -------
    router : the router, unchanged if it has no such head
    note : a sentence if it drops its mix for that, or was fitted with another cost; otherwise None
    """
    if not router.has_prices:
        return router, _other_cost_note(router, task)
    price_weight = stated_terms.price_weight
    beta = task.terms.beta
    if beta is None:
        repriced = router.with_prices(price_weight=price_weight)
    elif price_weight is None:
        repriced = with_betas(router, beta)
    else:
        raise invalid(
            "price_weight",
            "cannot be changed after fitting together with beta: new betas replace all prices. Give one "
            "of them.",
        )
    if router.mix is not None and repriced.mix is None:
        dropped_mix = repriced.info.dropped_mix
        return repriced, f"other prices drop the mix of the router: {dropped_mix}."
    return repriced, None


def _terms(router: Router, table: Outcomes, stated_terms: CostTerms) -> CostTerms:
    """Return the terms of the cost: those that were stated, or by default those of the fit."""
    fitted_terms = terms_of(router)
    if fitted_terms is None or stated_terms.stated or table.given_costs is not None:
        return stated_terms
    return fitted_terms


def _unknown_experts_note(router: Router, table: Outcomes) -> str | None:
    unknown = [name for name in table.experts if name not in router.experts]
    if not unknown:
        return None
    return f"left out because the router does not know them: {', '.join(unknown)}."


def _other_cost_note(router: Router, task: Task) -> str | None:
    if router.info.cost is None or task.terms == terms_of(router):
        return None
    return f"the router was fitted with another cost: {router.info.cost.formula}."


def _answer_kind_note(table: Outcomes, policy: CascadePolicy | MixPolicy) -> str | None:
    if table.kind_detected or table.answer_kind == policy.answer_kind:
        return None
    return (
        f"answers are compared as the cascade does ({policy.answer_kind}); the kind given for the "
        f"table ({table.answer_kind}) is not used."
    )


def _readable_table(router: Router, data: Any) -> Outcomes:
    """The table to judge a router by, with what the router reads: queries, vectors or its features."""
    table = read_outcomes(data)
    if router.text is None:
        if table.vectors is None:
            rule = "must be a table of numbers, because this router was fitted on numbers"
            raise invalid("data", f"{rule}; got one of queries. See Outcomes.from_arrays.")
        return table.with_features(router.feature_names)
    if router.text.kind == "vectors" and table.vectors is None:
        rule = "must have vectors, because this router reads them; got one without a column of them"
        raise invalid("data", f"{rule}, such as embedding.")
    if router.text.kind != "vectors" and not table.has_queries:
        rule = "must have queries, because this router reads them; got a table of vectors only."
        raise invalid("data", rule)
    return table
