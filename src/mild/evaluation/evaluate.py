"""Judge a router by known outcomes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mild.artifact import Router, load
from mild.artifact.frames import as_frame, default_library, html_table
from mild.artifact.router import in_order_of
from mild.artifact.sources import source_of
from mild.artifact.versions import find_version
from mild.core.arrays import as_python, check_integer, invalid
from mild.data import OutcomeTable, read_outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import InvalidInputError, check_arguments, listed
from mild.evaluation import sections
from mild.evaluation.cascades import known_answers
from mild.evaluation.displays import CalibrationDisplay, FrontierDisplay, SharesDisplay
from mild.evaluation.document import ELSEWHERE, JudgedRows, data_entries, document_header
from mild.evaluation.figures import RoutingFigures, named_baselines
from mild.metrics import Verdict
from mild.report import (
    EVALUATION_FILE,
    check_report,
    optimism,
    report_title,
    write_document,
    write_report,
)
from mild.tuning.fit import FittedData
from mild.tuning.fitting import router_features
from mild.tuning.tasks import make_task
from mild.tuning.training_rows import terms_of, with_router_experts, without_seen


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What a router did on rows with known outcomes, beside what it is compared with.

    Attributes
    ----------
    figures : the figures behind the verdict
    judged : the router and the rows
    random_state : seed of the intervals
    notes : what to know about the rows that were used

    Examples
    --------
    >>> import mild
    >>> from mild.data.datasets import load_outcomes
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
        cascade = self.figures.cascade
        return [
            self.verdict.sentence,
            *([] if cascade is None else [cascade["direct"]["sentence"]]),
        ]

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
        >>> judged.as_dict()["verdict"]["pays"]
        True
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
        >>> judged.to_frame()["key"].to_pylist()[:2]
        ['router', 'best_single']
        """
        library = self.judged.task.table.library
        return as_frame(self.figures.baselines, library or default_library())

    @check_arguments
    def document(
        self,
        *,
        group: str | None = None,
        comparison: Mapping[str, Any] | None = None,
        split: str | None = None,
        title: str = "Router report",
        queries: int = 20,
    ) -> dict[str, Any]:
        """The content of a report, JSON-ready.

        Parameters
        ----------
        group : column by which the report shows where routing helps; None for that of the task, or
            a usual column of subjects
        comparison : ``Comparison.as_dict()`` on the same table
        split : how the rows were chosen, in words
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
        judged, found = self.judged, self.figures
        router, task, X = judged.router, judged.task, judged.X
        names, table = list(router.expert_names), task.table
        cost = task.cost
        # A cascade decides by answers; it estimates no shares.
        shares = None if judged.run else router.predict_proba(X).astype(np.float64)
        texts = table.queries if table.has_queries else None
        routed = sections.RoutedRows(
            names, judged.outcomes, judged.chosen, shares, texts, table.row_numbers
        )
        groups = task.groups
        column = group or task.group_column or sections.find_group_column(table.columns)
        labels = None if column is None else table.column(column)
        if not found.rows.all():
            routed, X = routed.take(found.rows), X[found.rows]
            groups = groups[found.rows]
            if labels is not None:
                labels = [labels[i] for i in np.flatnonzero(found.rows)]
        confidence = found.verdict.confidence
        constant = found.summary["constant_expert"]
        n = len(routed.costs)
        name = "router" if judged.run is None else "router without answers"
        direct = router.direct
        sweep = [] if judged.run is None else [(name, direct.predict(direct.own_columns(X)))]
        frontier = sections.frontier(
            routed,
            [*sweep, *sections.operating_points(direct, X, routed, cost, name)],
            sections.method_points(comparison, names),
            sections.target_limits(router.info.target, found.verdict.target),
        )
        unused = router.info.target is None
        mark = judged.table.fingerprint()
        form, scale, strength = sections.reward_form(router.info.estimator)
        return document_header("evaluation", title, names, cost) | {
            "rows": n,
            "quality_name": found.quality_name,
            "left_out": found.left_out,
            "notes": list(self.notes),
            "verdict": found.verdict.as_dict(),
            "figures": found.summary
            | {
                "constant_losses": [
                    None if np.isnan(loss) else float(loss) for loss in found.constant_losses
                ],
                "means": {
                    "router": routed.means(routed.chosen),
                    "constant": routed.means(np.full(n, constant)),
                    "reference": None
                    if found.verdict.target is None
                    else routed.means(np.full(n, names.index(found.verdict.target.reference))),
                    "oracle": routed.means(routed.outcomes.oracle()),
                },
                "baselines": found.baselines,
            },
            "cascade": found.cascade,
            "frontier": frontier,
            "prices_unused": sections.unused_prices(frontier, cost) if unused else None,
            "calibration": sections.calibration(routed, form, scale, confidence, groups, strength),
            "groups": None
            if column is None or labels is None
            else sections.groups(routed, column, labels, constant, confidence),
            "regrets": sections.regrets(routed, queries, labels),
            "comparison": comparison,
            **judged.overlap,
            "router": [
                [name, fact] for name, fact in router.facts.items() if name not in ELSEWHERE
            ],
            "data": data_entries(names, table, n, mark, cost.get("words"), split),
            "settings": [
                ["confidence", f"{confidence * 100:g} %"],
                ["seed", str(self.random_state)],
            ],
        }

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

    def save(self, folder: str | os.PathLike[str], **options: Any) -> Path:
        """Write evaluation.json into a router's folder, for ``mild report``.

        Parameters
        ----------
        folder : folder of the router
        options : those of ``document``; the default title names the folder

        Returns
        -------
        path of the file

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     judged.save(router.save(f"{folder}/router")).name
        'evaluation.json'
        """
        if not isinstance(folder, (str, os.PathLike)):
            raise invalid("folder", f"must be the folder of the router; got {folder!r}.")
        document = self.document(**{"title": report_title(folder), **options})
        return write_document(document, find_version(folder)[0] / EVALUATION_FILE)

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
    def _loss_sentence(self) -> list[str]:
        """The loss that the verdict is about; nothing where it is about a target."""
        if self.verdict.target is not None:
            return []
        return [f"The loss is {self.formula}."]

    def __repr__(self) -> str:
        lines = [] if self.warning is None else [f"Warning: {self.warning}"]
        lines += [*self.sentences, *self._loss_sentence]
        return "\n".join([*lines, *(f"Note: {one}" for one in self.notes)])

    def _repr_html_(self) -> str:
        warning = [] if self.warning is None else [f"Warning: {self.warning}"]
        rows = f"{self.figures.summary['n_known']:,} rows"
        table = named_baselines(self.figures.baselines)
        sentences = [*warning, *self.sentences, *self._loss_sentence, *self.notes]
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
    keep_seen: bool = False,
    confidence: float = 0.95,
    random_state: int = 0,
) -> Evaluation:
    """Judge a router by known outcomes: does it do what was asked for?

    A router with a target is judged by it, against the expert that was best when it was tuned. Another one
    is compared with the expert that is best on this very data, a strict baseline. Use data that the router
    was not fitted on. The cost is counted as in the fit, unless its terms are given; a router with
    separate heads for errors and prices then decides by the new prices.

    A cascade is judged by the answers of the table (columns ``answer__<expert>``): what counts are the
    answer that it gives and everything that it paid. It is also compared with the same router without
    answers, and ``figures.cascade`` has its steps.

    Parameters
    ----------
    router : Router, folder of one, or a fitted router or Pipeline of scikit-learn's kind
    data : OutcomeTable, or whatever ``mild.read_outcomes`` takes; a router that was fitted on numbers needs
        a table of numbers, which ``OutcomeTable.from_arrays`` makes of arrays
    groups : column whose equal values count once in the interval, beside equal queries
    beta, price_weight, latency_weight : terms of the cost, as in ``mild.fit``
    keep_seen : whether rows stay whose query the router was trained on. By default they are left out where
        they are less than 5 % of the rows; where they are more, they stay, and a warning says so
    confidence : confidence level of the intervals
    random_state : seed of the intervals

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> import mild
    >>> from mild.data.datasets import load_outcomes
    >>> train, test = load_outcomes().split(random_state=0)
    >>> judged = mild.evaluate(mild.fit(train, price_weight=50), test)
    >>> judged.verdict.pays
    True
    >>> [row["key"] for row in judged.figures.baselines]
    ['router', 'best_single', 'fit_constant', 'same_mix', 'perfect']
    """
    check_integer("random_state", random_state, 0)
    asked = CostTerms(beta, price_weight, latency_weight)
    if isinstance(router, (str, os.PathLike)):
        router = load(router)
    elif not isinstance(router, Router):
        router = source_of(router)
    judged, notes = _known_rows(router, data, asked, groups, keep_seen)
    return Evaluation(judged.figures(confidence, random_state), judged, random_state, notes)


def evaluate_fit(fitted: FittedData, random_state: int = 0) -> Evaluation:
    """Judge a router by the rows that it was fitted on, whose features are known: optimistic figures."""
    router, X, task = fitted.router, fitted.features, fitted.task
    judged = JudgedRows(router, task.costs, X, router.predict(X), task)
    return Evaluation(judged.figures(0.95, random_state), judged, random_state)


def _is_nameless(router: Router) -> bool:
    """Whether the router was fitted on an array of costs, whose experts have no names."""
    return router.expert_names == [f"expert_{k}" for k in range(router.n_experts)]


def _known_rows(
    router: Router,
    data: Any,
    asked: CostTerms,
    groups: str | None,
    keep_seen: bool,
) -> tuple[JudgedRows, tuple[str, ...]]:
    table = _readable_table(router, data)
    notes = []
    if _is_nameless(router) and not set(router.expert_names) & set(table.expert_names):
        raise InvalidInputError(
            "the router's experts must have the names of the table's experts "
            f"({listed(table.expert_names, 6)}); it was fitted on an array of costs, which has no names. "
            "Fit it on a frame with a column per expert, or on the table with mild.fit.",
            parameter="router",
        )
    others = [name for name in table.expert_names if name not in router.expert_names]
    table = with_router_experts(router, table)
    router = in_order_of(router, table.expert_names)
    if others:
        notes.append(f"left out because the router does not know them: {', '.join(others)}.")
    whole, sentence = table, None
    if not keep_seen:
        table, sentence = without_seen(router, table)
    notes += [] if sentence is None else [sentence]
    fitted = terms_of(router)
    terms = asked
    if fitted is not None and not asked.stated and table.given_costs is None:
        terms = fitted
    task = replace(make_task(table, terms, groups), training_ranks=router.policy.ranks)
    notes += [] if task.left_out is None else [task.left_out]
    if asked.stated and router.has_prices:
        priced = router.with_prices(task.terms.beta, asked.price_weight, in_dollars=True)
        if router.mix is not None and priced.mix is None:
            notes.append(f"other prices drop the mix of the router: {priced.info.dropped_mix}.")
        router = priced
    elif asked.stated and router.info.cost is not None and task.terms != fitted:
        notes.append(f"the router was fitted with another cost: {router.info.cost.formula}.")
    X = router_features(task.table, router)
    seen, policy = whole.rows - table.rows, router.cascade
    if policy is None:
        return JudgedRows(router, task.costs, X, router.predict(X), task, whole, seen), tuple(notes)
    if not table.kind_detected and table.answer_kind != policy.answer_kind:
        notes.append(
            f"answers are compared as the cascade does ({policy.answer_kind}); the kind given for the "
            f"table ({table.answer_kind}) is not used."
        )
    run = policy.run(X, known_answers(task.table, policy))
    chosen = np.full(len(run.expert), len(router.expert_names))
    return JudgedRows(router, task.costs, X, chosen, task, whole, seen, run), tuple(notes)


def _readable_table(router: Router, data: Any) -> OutcomeTable:
    """The table to judge a router by, with what the router reads: queries, vectors or its features."""
    if isinstance(data, OutcomeTable):
        table = data
    else:
        table = read_outcomes(data, part="test", features=router.feature_names)
    if router.text is None:
        if table.vectors is None:
            rule = "must be a table of numbers, because this router was fitted on numbers"
            raise invalid("data", f"{rule}; got one of queries. See OutcomeTable.from_arrays.")
        return table.with_features(router.feature_names)
    if router.text.kind != "vectors" and not table.has_queries:
        rule = "must have queries, because this router reads them; got a table of vectors only."
        raise invalid("data", rule)
    return table
