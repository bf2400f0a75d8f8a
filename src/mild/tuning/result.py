"""What ``mild.tune`` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mild.artifact import Router
from mild.artifact.frames import as_frame, default_library, html_table
from mild.artifact.info import TargetInfo
from mild.core.arrays import as_python
from mild.metrics import Verdict
from mild.tuning.baselines import Coin

# Candidates that a notebook shows.
SHOWN = 10
# Columns of the candidates that a notebook shows, without a target.
SHOWN_COLUMNS = ("family", "params", "mean_cost", "standard_error", "difference", "taken")


@dataclass(frozen=True, eq=False, repr=False)
class TuneResult:
    """What a search found: the router, the verdict on it, and the candidates.

    With a target, the candidates are settings of the router, and the verdict is on the one that was taken.
    Without a target, the verdict is on the candidate that was taken. Where ``routes_as_constant``, the
    router always asks one expert instead.

    Attributes
    ----------
    router : decides as the verdict or the target says; ``router.save(folder)`` writes it
    verdict : whether the router does what was asked for, on held-out rows
    family : kind of the router that was found
    params : its parameters
    rows : candidates: family, params, mean_cost, ..., taken; with a target setting, quality, ..., taken
    choice : why it was taken: "lowest mean cost", "one standard error", "stack", "target"
    routes_as_constant : whether the router always asks one expert
    target : the setting that meets the target; None without a target
    certainty_rows : what more certainty of meeting the target costs: probability, setting, ...
    shares : with a target, a row for each expert: its share of the queries, and what it is paid
    baselines : with a target, quality and dollars of the router, the named expert, the cheapest single
        expert that holds the target, and the coin
    coin : the random mix of two experts with the router's quality, and what is saved beyond it; None if the
        router always asks one expert, and with a guarantee
    level : names of experts whose quality cannot be told apart, the named one among them, the cheapest
        first; empty if no other is level with it
    prices_unused : prices that the loss leaves out: what they could save, and a sentence; None
        where there are none
    cascade : the cascade that was considered: path, steps, seconds, sentences; None if there is none
    answers_unused : what a cascade would keep and save, and a sentence; None with ``cascade``, or
        without answers
    cost : terms of the cost
    text : kind of the text features; None for a table of numbers
    n_folds : number of folds
    skipped_families : families whose package is missing
    dropped_margins : margin vectors that were left out
    goal : the target that was taken because no goal was given, in a sentence; otherwise None
    notes : what to know about the rows that were used
    library : library of the frames that are returned

    Examples
    --------
    >>> import mild
    >>> from mild.datasets import load_outcomes
    >>> search = mild.RouterCV(families="linear", alphas=[0.01], cv=3)
    >>> found = mild.tune(load_outcomes(), price_weight=0, search=search)
    >>> found.decides_as, found.verdict.constant
    ('linear', 'rules')
    >>> found.candidates.columns[:3].tolist()
    ['family', 'params', 'mean_cost']
    """

    router: Router
    verdict: Verdict
    family: str
    params: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    choice: str | None = None
    routes_as_constant: bool = False
    target: TargetInfo | None = None
    certainty_rows: tuple[Mapping[str, Any], ...] = ()
    shares: tuple[Mapping[str, Any], ...] = ()
    baselines: tuple[Mapping[str, Any], ...] = ()
    coin: Coin | None = None
    level: tuple[str, ...] = ()
    prices_unused: Mapping[str, Any] | None = None
    cascade: Mapping[str, Any] | None = None
    answers_unused: Mapping[str, Any] | None = None
    cost: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    n_folds: int = 0
    skipped_families: tuple[str, ...] = ()
    dropped_margins: int = 0
    goal: str | None = None
    notes: tuple[str, ...] = ()
    library: str | None = None

    @property
    def met(self) -> bool:
        """Whether the target is expected to be met, at its probability; True without a target.

        With a guarantee, whether the calibration rows certify it.
        """
        if self.target is None:
            return True
        if self.target.certified is not None:
            return self.target.certified
        return bool(self.target.likely)

    @property
    def candidates(self) -> Any:
        """The candidates as a frame: best first, with a target the cheapest first."""
        return self.to_frame()

    @property
    def certainty(self) -> Any:
        """What more certainty of meeting the target costs, as a frame; empty without a target.

        One row per probability: the setting, the quality and the dollars to expect.
        """
        return as_frame(list(self.certainty_rows), self.library or default_library())

    def to_frame(self) -> Any:
        """Return a row per candidate, best first; with a target, a row per setting, the cheapest first.

        Returns
        -------
        pandas, polars or pyarrow frame

        Examples
        --------
        >>> found.to_frame().shape[0]
        6
        """
        return as_frame(self.ranked, self.library or default_library())

    @property
    def ranked(self) -> list[Mapping[str, Any]]:
        """The candidates, best first; with a target the cheapest first."""
        key = "mean_cost"
        if self.target is not None:
            key = "dollars_per_1000"
        return sorted(self.rows, key=lambda entry: entry[key])

    @property
    def uses_cascade(self) -> bool:
        """Whether the router is a cascade, or a mix of cascades."""
        return self.router.cascade is not None

    @property
    def decides_as(self) -> str:
        """What the router is: a family, a setting, a cascade, or always one expert."""
        if self.target is not None and self.target.setting is not None:
            return self.target.setting
        if self.uses_cascade:
            return "a cascade"
        if self.routes_as_constant:
            return f"always {self.verdict.constant}"
        return self.family

    @property
    def sentences(self) -> list[str]:
        """The verdict, the target and the coin in words, and what in the table is not used."""
        sentences = [self.verdict.sentence]
        if self.goal is not None:
            sentences.insert(0, self.goal)
        if self.target is not None:
            sentences.append(self.target.sentence)
        elif self.routes_as_constant and self.rows:
            sentences.append(self._why_constant())
        if self.coin is not None:
            sentences.append(self.coin.sentence)
        if self.level:
            sentences.append(self._level_sentence())
        if self.cascade is not None:
            sentences.extend(self.cascade["sentences"])
        sentences.extend(
            unused["sentence"]
            for unused in (self.prices_unused, self.answers_unused)
            if unused is not None
        )
        return sentences

    def _level_sentence(self) -> str:
        """Return a sentence about the experts that are level with the named one."""
        *others, last = self.level
        return (
            f"{', '.join(others)} and {last} are level: on these rows their quality cannot be told from "
            f"the best one's (90 % interval). {self.level[0]} costs least."
        )

    def _why_constant(self) -> str:
        """Return a sentence on why the router always asks one expert, not the best candidate's choice."""
        reason = "its gain is not certain, and safe=True"
        if self.verdict.estimate >= 0:
            reason = (
                "its mean cost on held-out rows is not lower; "
                "search=RouterCV(constant_if_better=False) keeps it"
            )
        return (
            f"The best candidate is not used ({reason}): the router decides as {self.decides_as}."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON-ready dict; None where a number is not finite.

        Returns
        -------
        dict

        Examples
        --------
        >>> found.as_dict()["best_family"]
        'ridge'
        """
        target = None
        if self.target is not None:
            target = self.target.as_dict()
        fields = {
            "text": self.text,
            "cost": self.cost,
            "best_family": self.family,
            "best_params": self.params,
            "skipped_families": list(self.skipped_families),
            "dropped_margins": self.dropped_margins,
            "choice": self.choice,
            "routes_as_constant": self.routes_as_constant,
            "candidates": list(self.rows),
            "verdict": self.verdict.as_dict(),
            "met": self.met,
            "target": target,
            "certainty": list(self.certainty_rows),
            "shares": list(self.shares),
            "baselines": list(self.baselines),
            "coin": None if self.coin is None else self.coin.as_dict(),
            "level": list(self.level),
            "prices_unused": self.prices_unused,
            "cascade": self.cascade,
            "answers_unused": self.answers_unused,
            "goal": self.goal,
            "notes": list(self.notes),
        }
        return as_python(fields, finite=True)

    def __repr__(self) -> str:
        return f"TuneResult({self.decides_as})\n" + "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        if self.target is not None:
            title = "What more certainty of meeting the target costs"
            return html_table(title, list(self.certainty_rows), self.sentences)
        best = [{name: entry[name] for name in SHOWN_COLUMNS} for entry in self.ranked[:SHOWN]]
        title = f"Best of {len(self.rows)} candidates, {self.n_folds} folds"
        return html_table(title, best, self.sentences)
