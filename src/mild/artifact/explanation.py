"""Explanation of one decision: its figures, and the parts of the query that it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mild.artifact.cascade_path import CascadeReader, CascadeStep
from mild.artifact.estimates import Estimates
from mild.artifact.evidence import NO_EVIDENCE, Evidence, find_evidence
from mild.artifact.facts import setting_words
from mild.artifact.frames import html_table
from mild.artifact.novelty import NOVEL
from mild.core.arrays import FloatArray
from mild.features import TextFeatures
from mild.policies import Decisions, MixPolicy, Policy, cascade_of

# Leads that differ by less are shown alike.
LEAST_LEAD = 5e-5
# Parts of a query that the sentence names.
NAMED_PARTS = 3
# Names of what a choice is made by, as people read them.
SHOWN_AS = {
    "expected cost": "expected loss",
    "constant": "expected loss",
    "probability": "share of reward",
}
# Choices by a quantity of which less is better.
LOWER_IS_BETTER = ("expected cost", "constant")
# Choices that no part of a query is evidence for.
WITHOUT_EVIDENCE = ("constant", "first step")


@dataclass(frozen=True)
class DrawnPart:
    """The setting of a mix that decides a query."""

    draw: float  # of the text of the query, in [0, 1)
    share: float  # of the queries that this setting decides
    setting: str  # what it does, in words
    second: bool  # whether it is the second setting, which decides draws below its share

    @property
    def sentence(self) -> str:
        """Which setting decides, and why."""
        limit = f"from {1 - self.share:.4g}"
        if self.second:
            limit = f"below {self.share:.4g}"
        return (
            f"This router mixes two settings. {100 * self.share:.3g} % of the queries, those with a draw "
            f"{limit}, are decided by {self.setting}; the draw of this query is "
            f"{self.draw:.4f}."
        )


@dataclass(frozen=True, repr=False)
class Explanation:
    """One decision and its figures, expert by expert; its ``repr`` says in words why it was made.

    Attributes
    ----------
    expert : str
        The expert that is chosen; of a cascade, the first one that is asked.
    runner_up : str or None
        The next one; None where there is one expert, and for a cascade.
    probabilities : dict
        Estimates of the shares of the expected reward, by expert.
    expected_costs : dict or None
        Expected cost of each expert; None where the router has not learned them.
    values : dict
        The quantity that the choice is the best of, by expert.
    by : str
        Its name: "expected cost", "probability", "score", "constant" or "first step".
    margins : dict or None
        Margin of each expert; None where the router has none.
    lead : float
        Lead of the chosen expert over the runner-up, in that quantity.
    evidence : tuple of Evidence
        What parts of the query add to the lead, the largest first.
    others : float
        Sum over the parts that are not listed.
    method : str
        How evidence was found: "terms", "words left out", "passages left out" or "none".
    unit : str
        Unit of the evidence.
    right : dict or None
        Probability of a right answer, by expert; None if unknown.
    novelty : float or None
        Share of the held-out inputs that are nearer to the training inputs.
    novel : bool or None
        Whether that share is above 99 %.
    graded : bool
        Whether what counts as right is a score between 0 and 1, and not a yes or no.
    first_step : tuple of str or None
        Experts that a cascade asks first, at the same time; None where the router is no cascade.
    path : tuple of CascadeStep
        Steps of a cascade whose answers are known.
    next_step : tuple of str
        Experts that it asks after them.
    possible : tuple of CascadeStep
        What may follow the first step, where no answers are given.
    threshold : float or None
        Probability from which a cascade accepts an answer.
    unread : tuple of str
        Experts whose answers were given, but which are not asked.
    mix : DrawnPart or None
        The setting that decides; None where the router is no mix.

    Examples
    --------
    >>> figures = {"small": 0.2, "large": 0.5}
    >>> evidence = (Evidence("hello", 0.2), Evidence("prove", -0.1))
    >>> explanation = Explanation(
    ...     "small", "large", figures, figures, figures, "expected cost", None, 0.3, evidence, 0.0,
    ...     "words left out", "expected cost",
    ... )
    >>> explanation.sentence.partition(": ")[2]
    "its expected loss is 0.3000 below that of large, the runner-up, mainly because of 'hello'."
    """

    expert: str
    runner_up: str | None
    probabilities: dict[str, float]
    expected_costs: dict[str, float] | None
    values: dict[str, float]
    by: str
    margins: dict[str, float] | None
    lead: float
    evidence: tuple[Evidence, ...]
    others: float
    method: str
    unit: str
    right: dict[str, float] | None = None
    novelty: float | None = None
    novel: bool | None = None
    graded: bool = False
    first_step: tuple[str, ...] | None = None
    path: tuple[CascadeStep, ...] = ()
    next_step: tuple[str, ...] = ()
    possible: tuple[CascadeStep, ...] = ()
    threshold: float | None = None
    unread: tuple[str, ...] = ()
    mix: DrawnPart | None = None

    @property
    def sentence(self) -> str:
        """Which expert is asked, by how much it leads, and which parts of the query support it."""
        if self.first_step is not None:
            verb = "are"
            if len(self.first_step) == 1:
                verb = "is"
            return (
                f"{' and '.join(self.first_step)} {verb} asked: this is the first step of a cascade, which "
                "accepts an answer or asks others."
            )
        if self.runner_up is None:
            return f"{self.expert} is asked: it is the only expert."
        reason = self._reason(self.runner_up)
        parts = self._supporting_parts()
        if parts:
            reason += f", mainly because of {', '.join(parts)}"
        return f"{self.expert} is asked: {reason}."

    def _reason(self, runner_up: str) -> str:
        """Why the expert is chosen, and not the runner-up."""
        if self.by == "constant":
            return "this router sends every query to it"
        if self.by == "score":
            return f"its score is {self.lead:.4f} above that of {runner_up}, the runner-up"
        if self.by != "expected cost":
            shares = self.probabilities
            return (
                f"its share of the expected reward is {shares[self.expert]:.3f}, that of {runner_up}, the "
                f"runner-up, {shares[runner_up]:.3f}"
            )
        reason = f"its expected loss is {self.lead:.4f} below that of {runner_up}, the runner-up"
        shown_lead = self.values[runner_up] - self.values[self.expert]
        if abs(shown_lead - self.lead) > LEAST_LEAD:
            reason += ", before both are limited to what is possible"
        return reason

    def _supporting_parts(self) -> list[str]:
        """The parts of the query that support the choice most, as the sentence names them."""
        supporting = [entry.part for entry in self.evidence if entry.effect > 0]
        names = []
        for part in supporting[:NAMED_PARTS]:
            # Names of numbers, such as the length of the text, are in parentheses; words are quoted.
            if part.startswith("("):
                names.append(part)
            else:
                names.append(repr(part))
        return names

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentence, the path of a cascade, and how far the query is from the training queries."""
        sentences = [self.sentence]
        if self.mix is not None:
            sentences.append(self.mix.sentence)
        sentences.extend(self._cascade_sentences())
        if self.novelty is not None:
            sentences.append(self._novelty_words(self.novelty))
        return tuple(sentences)

    def _cascade_sentences(self) -> list[str]:
        """The steps of a cascade, what it asks next, and which answers it does not read."""
        threshold = self.threshold or 0.0
        sentences = [step.sentence(threshold) for step in (*self.path, *self.possible)]
        if self.next_step and self.next_step != self.first_step:
            sentences.append(f"Next, {' and '.join(self.next_step)} would be asked.")
        if self.unread:
            which = "their answers are"
            if len(self.unread) == 1:
                which = "its answer is"
            names = " and ".join(self.unread)
            sentences.append(f"The cascade does not ask {names} here: {which} not read.")
        return sentences

    def _novelty_words(self, novelty: float) -> str:
        """How far the query is from the training queries."""
        distance = (
            f"farther from the training queries than {100 * novelty:.1f} % of held-out queries"
        )
        if not self.novel:
            return f"The query is {distance}; it counts as novel above {100 * NOVEL:g} %."
        return (
            f"The query is novel: it is {distance}. The estimates are extrapolated, and the choice is a "
            "guess. The gateway's setting on_novel names an expert for such queries."
        )

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The figures of each expert, the one that is asked first, by the name of the figure."""
        by = self.by
        if self.first_step is not None:
            by = "probability"
            if self.expected_costs is not None:
                by = "expected cost"
        names = sorted(self.values, key=self.values.__getitem__, reverse=by not in LOWER_IS_BETTER)
        names.sort(key=lambda name: name != self.expert)
        right_name = "P(right)"
        if self.graded:
            right_name = "expected score"
        figures: dict[str, dict[str, float] | None] = {
            SHOWN_AS.get(by, by): self.values,
            right_name: self.right,
            "margin": self.margins,
        }
        columns: dict[str, list[Any]] = {"expert": names}
        for figure, values in figures.items():
            if values is not None:
                columns[figure] = [values[name] for name in names]
        return columns

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields, and the sentence."""
        return {**asdict(self), "sentence": self.sentence}

    def __repr__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        """The figures of the experts and the sentences, for notebooks."""
        return html_table("experts", self.columns, self.sentences)


def drawn_part(mix: MixPolicy, text: str, expert_names: Sequence[str]) -> DrawnPart:
    """The setting of a mix that decides a text."""
    draw = float(mix.draws([text])[0])
    if draw < mix.share:
        return DrawnPart(draw, mix.share, setting_words(mix.second, expert_names), True)
    return DrawnPart(draw, 1 - mix.share, setting_words(mix.first, expert_names), False)


def explain(
    policy: Policy,
    features: TextFeatures,
    expert_names: Sequence[str],
    query: Any,
    estimates: Estimates,
    max_evidence: int = 12,
    graded: bool = False,
    answers: Mapping[int, Any] | None = None,
) -> Explanation:
    """Explain the decision on a text, or a vector.

    ``estimates`` say what can be expected of the experts on it, ``graded`` whether that is a score between
    0 and 1. ``answers`` to it, by expert, give the path of a cascade. A choice of one expert is explained
    by at most ``max_evidence`` parts of the text.
    """
    X = features.vectorize([query])
    decisions = policy.decide(X)
    figures = _figures(policy, decisions, expert_names, estimates, graded)
    cascade = cascade_of(policy)
    if cascade is not None:
        # Of a mix, the policy is the one that is drawn.
        (cascade_policy,) = cascade.cascades
        reader = CascadeReader(cascade_policy, expert_names)
        return _with_path(figures, reader, answers or {}, max_evidence)

    values = decisions.values[0]
    chosen = int(decisions.chosen[0])
    runner_up = _runner_up(values, chosen)
    if runner_up is None:
        return figures
    evidence = NO_EVIDENCE
    if isinstance(query, str) and decisions.by not in WITHOUT_EVIDENCE:
        evidence = find_evidence(policy, features, query, chosen, runner_up, decisions.by)
    return replace(
        figures,
        runner_up=expert_names[runner_up],
        lead=float(values[chosen] - values[runner_up]),
        evidence=tuple(evidence.entries[:max_evidence]),
        others=sum(entry.effect for entry in evidence.entries[max_evidence:]),
        method=evidence.method,
        unit=evidence.unit,
    )


def _figures(
    policy: Policy,
    decisions: Decisions,
    expert_names: Sequence[str],
    estimates: Estimates,
    graded: bool,
) -> Explanation:
    """The figures of the decision on one query, yet without a reason for it."""

    def by_name(figures: FloatArray | None) -> dict[str, float] | None:
        """A row of figures by expert; None if one of them is not known."""
        if figures is None or np.isnan(figures[0]).any():
            return None
        return _named(figures[0], expert_names)

    expected_costs = by_name(estimates.costs)
    values = _named(decisions.values[0], expert_names)
    if cascade_of(policy) is not None:
        # The order of the steps is no quantity that people would compare.
        values = _named(decisions.probabilities[0], expert_names)
    if expected_costs is not None and decisions.by in (*LOWER_IS_BETTER, "first step"):
        values = expected_costs
    margins = None
    if policy.margins is not None:
        margins = _named(policy.margins, expert_names)
    novelty = None
    if estimates.novelty is not None:
        novelty = float(estimates.novelty[0])
    novel = None
    if estimates.novel is not None:
        novel = bool(estimates.novel[0])
    return Explanation(
        expert=expert_names[int(decisions.chosen[0])],
        runner_up=None,
        probabilities=_named(decisions.probabilities[0], expert_names),
        expected_costs=expected_costs,
        values=values,
        by=decisions.by,
        margins=margins,
        lead=0.0,
        evidence=(),
        others=0,
        method=NO_EVIDENCE.method,
        unit=NO_EVIDENCE.unit,
        right=by_name(estimates.right),
        novelty=novelty,
        novel=novel,
        graded=graded,
    )


def _named(figures: FloatArray, expert_names: Sequence[str]) -> dict[str, float]:
    """Figures (n_experts,) by the names of the experts."""
    return dict(zip(expert_names, np.asarray(figures, float).tolist(), strict=True))


def _runner_up(values: FloatArray, chosen: int) -> int | None:
    """The best expert beside the chosen one, the first of equal ones; None if there is no other."""
    for expert in np.argsort(-values, kind="stable").tolist():
        if expert != chosen:
            return int(expert)
    return None


def _with_path(
    figures: Explanation, reader: CascadeReader, answers: Mapping[int, Any], max_steps: int
) -> Explanation:
    """The explanation with the path of a cascade; without answers, with the steps that are possible."""
    path, next_step = reader.path(answers)
    possible: tuple[CascadeStep, ...] = ()
    if not answers:
        possible = reader.possible_steps()[:max_steps]
    return replace(
        figures,
        first_step=reader.first_step,
        path=path,
        next_step=next_step,
        possible=possible,
        threshold=reader.policy.threshold,
        unread=reader.unread(answers, path, next_step),
    )
