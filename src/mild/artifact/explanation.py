"""Explanation of one decision: its figures, and the parts of the query that it rests on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mild.artifact.cascade_path import CascadeStep, path_of, possible_steps
from mild.artifact.estimates import Estimates
from mild.artifact.facts import setting_words
from mild.artifact.frames import html_table
from mild.artifact.novelty import NOVEL
from mild.core.arrays import FloatArray
from mild.core.long_texts import shorten
from mild.features import HashingFeatures, TextFeatures
from mild.policies import MixPolicy, Policy, cascade_of

# Texts of at most so many words are explained word by word, longer ones passage by passage.
MOST_WORDS = 150
PASSAGES = 50
# Leads that differ by less are shown alike.
LEAST_LEAD = 5e-5
# Effects that are smaller are rounding.
LEAST_EFFECT = 1e-6
# Characters of a part that are shown.
SHOWN = 48
# Parts of a query that the sentence names.
NAMED_PARTS = 3
# Names of what a choice is made by, as people read them.
SHOWN_AS = {
    "expected cost": "expected loss",
    "constant": "expected loss",
    "probability": "share of reward",
}
# Those of which less is better.
LOW = ("expected cost", "constant")
# Choices that no part of a query is evidence for.
WITHOUT_EVIDENCE = ("constant", "first step")
# Readable names of the plain numbers.
NUMBER_WORDS = {
    "<log_length>": "(length of the text)",
    "<log_lines>": "(number of lines)",
    "<log_questions>": "(question marks)",
    "<digits>": "(share of digits)",
    "<capitals>": "(share of capitals)",
    "<code>": "(share of code signs)",
    "<arithmetic>": "(share of arithmetic signs)",
    "<spaces>": "(share of spaces)",
    "<not_ascii>": "(share outside ASCII)",
}


@dataclass(frozen=True)
class Evidence:
    """A part of a query, and what it adds to the lead of the chosen expert over the next one."""

    part: str
    effect: float


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
        where = "from"
        limit = 1 - self.share
        if self.second:
            where = "below"
            limit = self.share
        return (
            f"This router mixes two settings. {100 * self.share:.3g} % of the queries, those with a draw "
            f"{where} {limit:.4g}, are decided by {self.setting}; the draw of this query is "
            f"{self.draw:.4f}."
        )


@dataclass(frozen=True, repr=False)
class Explanation:
    """One decision and its figures, expert by expert; its ``repr`` says in words why it was made.

    >>> figures = {"small": 0.2, "large": 0.5}
    >>> evidence = (Evidence("hello", 0.2), Evidence("prove", -0.1))
    >>> found = Explanation(
    ...     "small", "large", figures, figures, figures, "expected cost", None, 0.3, evidence, 0.0,
    ...     "words left out", "expected cost",
    ... )
    >>> found.sentence.partition(": ")[2]
    "its expected loss is 0.3000 below that of large, the runner-up, mainly because of 'hello'."
    """

    expert: str
    runner_up: str | None  # None where there is one expert
    probabilities: dict[str, float]  # estimates of the shares of the expected reward
    expected_costs: dict[str, float] | None  # None where the router has not learned them
    values: dict[str, float]  # the quantity that the choice is the best of
    by: str  # its name: "expected cost", "probability", "score", "constant", "first step"
    margins: dict[str, float] | None  # None where the router has none
    lead: float  # of the chosen expert over the runner-up, in that quantity
    evidence: tuple[Evidence, ...]  # what parts of the query add to the lead, largest first
    others: float  # sum over the parts that are not listed
    method: str  # how evidence was found: "terms", "words left out", "passages left out", "none"
    unit: str  # of the evidence
    right: dict[str, float] | None = None  # probabilities of a right answer; None if unknown
    novelty: float | None = None  # share of held-out inputs nearer to the training inputs
    novel: bool | None = None  # whether that share is above 99 %
    # expected costs by a calibration that is only shown; None where there is none
    calibrated: dict[str, float] | None = None
    graded: bool = (
        False  # whether what counts as right is a score between 0 and 1, and not a yes or no
    )
    first_step: tuple[str, ...] | None = None  # experts that a cascade asks first, at the same time
    path: tuple[CascadeStep, ...] = ()  # steps of a cascade whose answers are known
    next_step: tuple[str, ...] = ()  # experts that it asks after them
    possible: tuple[CascadeStep, ...] = ()  # what may follow the first step, without answers
    threshold: float | None = None  # probability from which a cascade accepts an answer
    unread: tuple[str, ...] = ()  # experts whose answers were given, but which are not asked
    mix: DrawnPart | None = None  # the setting that decides; None where the router is no mix

    @property
    def sentence(self) -> str:
        """Which expert is asked, by how much it leads, and which parts of the query support it."""
        expert, other, shares = self.expert, self.runner_up, self.probabilities
        if self.first_step is not None:
            are = "is" if len(self.first_step) == 1 else "are"
            return (
                f"{' and '.join(self.first_step)} {are} asked: this is the first step of a cascade, which "
                "accepts an answer or asks others."
            )
        if other is None:
            return f"{expert} is asked: it is the only expert."
        if self.by == "constant":
            reason = "this router sends every query to it"
        elif self.by == "expected cost":
            reason = f"its expected loss is {self.lead:.4f} below that of {other}, the runner-up"
            shown = self.values[other] - self.values[expert]
            if abs(shown - self.lead) > LEAST_LEAD:
                reason += ", before both are limited to what is possible"
        elif self.by == "score":
            reason = f"its score is {self.lead:.4f} above that of {other}, the runner-up"
        else:
            reason = (
                f"its share of the expected reward is {shares[expert]:.3f}, that of {other}, the "
                f"runner-up, {shares[other]:.3f}"
            )
        parts = [entry.part for entry in self.evidence if entry.effect > 0][:NAMED_PARTS]
        # Names of numbers, such as the length of the text, are in parentheses.
        named = ", ".join(part if part.startswith("(") else repr(part) for part in parts)
        return f"{expert} is asked: {reason}{f', mainly because of {named}' if named else ''}."

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentence, the path of a cascade, and how far the query is from the training queries."""
        steps = [step.sentence(self.threshold or 0.0) for step in (*self.path, *self.possible)]
        if self.next_step and self.next_step != self.first_step:
            steps.append(f"Next, {' and '.join(self.next_step)} would be asked.")
        if self.unread:
            whose = "its answer is" if len(self.unread) == 1 else "their answers are"
            names = " and ".join(self.unread)
            steps.append(f"The cascade does not ask {names} here: {whose} not read.")
        mix = [] if self.mix is None else [self.mix.sentence]
        return (self.sentence, *mix, *steps, *self._novelty_words)

    @property
    def _novelty_words(self) -> tuple[str, ...]:
        if self.novelty is None:
            return ()
        far = (
            f"farther from the training queries than {100 * self.novelty:.1f} % of held-out queries"
        )
        if not self.novel:
            return (f"The query is {far}; it counts as novel above {100 * NOVEL:g} %.",)
        return (
            f"The query is novel: it is {far}. The estimates are extrapolated, and the choice is a guess. "
            "The gateway's setting on_novel names an expert for such queries.",
        )

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The figures of each expert, the one that is asked first, by the name of the figure."""
        low, by = self.by in LOW, self.by
        if self.first_step is not None:
            low = self.expected_costs is not None
            by = "expected cost" if low else "probability"
        names = sorted(
            self.values, key=lambda name: self.values[name] if low else -self.values[name]
        )
        names.sort(key=lambda name: name != self.expert)
        figures: dict[str, dict[str, float] | None] = {
            SHOWN_AS.get(by, by): self.values,
            "calibrated": self.calibrated,
            "expected score" if self.graded else "P(right)": self.right,
            "margin": self.margins,
        }
        found: dict[str, list[Any]] = {"expert": names}
        for figure, values in figures.items():
            if values is not None:
                found[figure] = [values[name] for name in names]
        return found

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
    step: TextFeatures,
    expert_names: Sequence[str],
    content: Any,
    trusted: Estimates,
    most: int = 12,
    graded: bool = False,
    answers: Mapping[int, Any] | None = None,
) -> Explanation:
    """Explain the decision on a text, or a vector, with at most ``most`` pieces of evidence.

    ``trusted`` says what can be expected of the experts on it, ``graded`` whether that is a score between
    0 and 1. ``answers`` to it, by expert, give the path of a cascade.

    For a linear router on hashed text the evidence is exact: the lead is a sum over terms. For any other
    router, words (or passages of a long text) are left out one by one. Cascades and a constant have no
    evidence.
    """
    X = step.vectorize([content])
    found = policy.decide(X)
    chosen, values, by = int(found.chosen[0]), found.values[0], found.by
    order = np.argsort(-values, kind="stable")
    other = next((int(k) for k in order if k != chosen), None)
    evidence: list[Evidence] = []
    method, unit = "none", ""
    if other is not None and isinstance(content, str) and by not in WITHOUT_EVIDENCE:
        terms = by_terms(content, step, policy, chosen, other)
        if terms is not None:
            evidence, method, unit = terms, "terms", "log-odds" if by == "probability" else by
        else:

            def lead(texts: list[str]) -> FloatArray:
                values = policy.decide(step.vectorize(texts)).values
                return np.asarray(values[:, chosen] - values[:, other], np.float64)

            left_out, part = by_leaving_out(content, lead)
            if any(abs(entry.effect) > LEAST_EFFECT for entry in left_out):
                evidence, method, unit = left_out, f"{part}s left out", by

    def named(figures: Any) -> dict[str, float]:
        return dict(zip(expert_names, np.asarray(figures, float).tolist(), strict=True))

    def known(figures: FloatArray | None) -> dict[str, float] | None:
        return None if figures is None or np.isnan(figures[0]).any() else named(figures[0])

    costs = known(trusted.costs)
    reading = cascade_of(policy)
    first = None
    told: dict[str, Any] = {}
    if reading is not None:
        # Of a mix, the policy is the one that is drawn.
        (cascade,) = reading.cascades
        named_steps = [tuple(expert_names[k] for k in step) for step in cascade.steps]
        first = named_steps[int(cascade.first_steps(X)[0])]
        other, values = None, found.probabilities[0]
        path, following = path_of(cascade, X[0], answers or {}, expert_names)
        possible = () if answers else possible_steps(cascade, X[0], expert_names)[:most]
        told = {"path": path, "next_step": following, "possible": possible}
        # A step of which some experts have answered waits for the others.
        waiting = next((step for step in named_steps if set(following) & set(step)), ())
        read = {name for step in path for name in step.asked}.union(waiting)
        told["unread"] = tuple(
            expert_names[k] for k in answers or {} if expert_names[k] not in read
        )
        told["threshold"] = cascade.threshold
    return Explanation(
        expert=expert_names[chosen],
        runner_up=None if other is None else expert_names[other],
        probabilities=named(found.probabilities[0]),
        expected_costs=costs,
        values=costs if costs is not None and by in (*LOW, "first step") else named(values),
        by=by,
        margins=None if policy.margins is None else named(policy.margins),
        lead=0.0 if other is None else float(values[chosen] - values[other]),
        evidence=tuple(evidence[:most]),
        others=sum(entry.effect for entry in evidence[most:]),
        method=method,
        unit=unit,
        right=known(trusted.right),
        novelty=None if trusted.novelty is None else float(trusted.novelty[0]),
        novel=None if trusted.novel is None else bool(trusted.novel[0]),
        calibrated=known(trusted.calibrated),
        graded=graded,
        first_step=first,
        **told,
    )


def by_terms(
    text: str, step: TextFeatures, policy: Policy, chosen: int, other: int
) -> list[Evidence] | None:
    """Shares of a linear router's lead, term by term, largest first; None for other routers.

    The lead is a difference of scores or of expected costs, and the shares are exact; with unequal margins
    it is one of log-odds, and they are exact to first order. Pieces of words count with their words.
    """
    if not isinstance(step, HashingFeatures):
        return None
    slope = policy.slopes(step.transform_one(text), chosen, other)
    if slope is None:
        return None
    names, parts = step.explain(text)
    effects = (np.asarray(parts, np.float64) @ slope).tolist()
    # The mean is the same for every text.
    shares = [pair for pair in zip(names, effects, strict=True) if pair[0] != "<mean>"]
    words = by_words(shorten(text, step.first, step.last), shares)
    return _ranked((NUMBER_WORDS.get(name, name), effect) for name, effect in words)


def by_words(text: str, shares: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Add the shares of pieces of words (``…xxxxx…``) to the words of the text that contain them.

    The share of a piece is divided evenly among its words, so the sum does not change.
    """
    words = dict.fromkeys(re.findall(r"\w+", text.lower()))
    # A piece never spans two words, so a space marks either edge.
    edged = "\n".join(f" {word} " for word in words)
    total: dict[str, float] = {}
    for name, effect in shares:
        owners = [name]
        if len(name) > 2 and name[0] == name[-1] == "…":
            inside = re.escape(re.sub(r"\W", " ", name[1:-1]))
            lines = re.findall(rf"^.*{inside}.*$", edged, re.MULTILINE)
            owners = [line.strip() for line in lines] or [name]
        for owner in owners:
            total[owner] = total.get(owner, 0.0) + effect / len(owners)
    return list(total.items())


def by_leaving_out(
    text: str, lead: Callable[[list[str]], FloatArray]
) -> tuple[list[Evidence], str]:
    """Leave out each word, or each passage of a long text, and measure the change of the lead.

    ``lead`` maps texts to the (n,) lead of the chosen expert over the next one. The second result says
    what was left out: "word" or "passage".
    """
    words = re.findall(r"\S+", text)
    parts, unit = list(dict.fromkeys(word.lower() for word in words)), "word"
    if len(parts) <= MOST_WORDS and len(text) <= 50 * MOST_WORDS:
        without = [" ".join(w for w in words if w.lower() != part) for part in parts]
    else:
        size, unit = -(-len(text) // PASSAGES), "passage"
        places = range(0, len(text), size)
        parts = [text[start : start + size] for start in places]
        without = [f"{text[:start]} {text[start + size :]}" for start in places]
    if not parts:
        return [], unit
    effects = (lead([text])[0] - lead(without)).tolist()
    # A part on one line, shortened.
    lines = [" ".join(part[: 4 * SHOWN].split()) for part in parts]
    shown = [line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…" for line in lines]
    return _ranked(zip(shown, effects, strict=True)), unit


def _ranked(effects: Iterable[tuple[str, float]]) -> list[Evidence]:
    return sorted((Evidence(*pair) for pair in effects), key=lambda entry: -abs(entry.effect))
