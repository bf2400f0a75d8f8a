"""What to run: an experiment, its table of outcomes, settings, methods, splits and features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mild.exceptions import InvalidInputError, check_option
from mild.reproduce.llm.costs import Noise, Skew
from mild.reproduce.llm.inputs import KINDS
from mild.reproduce.llm.linear import ALPHAS
from mild.reproduce.llm.trio import BETA, check_beta
from mild.reproduce.methods import Method

if TYPE_CHECKING:
    from mild.tables import OutcomeTable

__all__ = ["COSTS", "EXPERIMENTS", "TEST_SHARE", "LLMRequest", "usual_methods"]

EXPERIMENTS = ("llm", "ablation", "noise", "extreme")
COSTS = ("error", "cost")
#: The paper's 2,000 of 6,000.
TEST_SHARE = 1 / 3

# Readings that the paper leaves open; for linear routers the sum of the margins means nothing beside
# the strength of the penalty, which is searched.
_LINEAR = (
    *("tdef", "mild", "mild:counts=best", "mild:rewards=complement"),
    *("mild:rewards=complement,counts=best", "mild:rewards=contrast"),
    *("mild:rewards=contrast,counts=best", "tuned", "ce", "cwce", "ldam"),
)
_TRANSFORMER = (
    *("tdef", "mild", "mild:total=mean1", "mild:counts=best"),
    *("mild:rewards=complement,total=mean1", "tuned", "ce", "cwce", "ldam"),
)
_ABLATION = ("tdef", "uniform:total=1", "mild", "mild:counts=best", "tuned:total=1")


def usual_methods(experiment: str, features: str) -> tuple[Method, ...]:
    """What an experiment compares where nothing else is asked for.

    Examples
    --------
    >>> [method.text for method in usual_methods("noise", "transformer")][:2]
    ['tdef', 'mild:rewards=others,counts=reward,margins=theory,total=1']
    """
    texts: tuple[str, ...] = _TRANSFORMER if features == "transformer" else _LINEAR
    if experiment == "ablation":
        texts = _ABLATION
    return tuple(Method.parse(text) for text in texts)


@dataclass(frozen=True, eq=False)
class LLMRequest:
    """An experiment on a table of outcomes of three experts. It checks itself.

    Parameters
    ----------
    experiment : "llm", "ablation", "noise" or "extreme"
    table : outcomes of three experts, from strong to tiny, every score known
    name : what results call the table
    results : JSON lines file that every finished training is added to
    beta : what asking each expert costs, for the setting "cost"
    costs : settings, among "error" and "cost"; the paper has both for "llm" and "cost" alone elsewhere
    methods : what to compare; none for the usual ones
    seeds : how many: 0 to seeds - 1; a seed is a split of the rows, and the seed of what is drawn
    features : how queries are seen, one of KINDS
    model : folder or name of an encoder, of static embeddings or of the transformer
    vectors : (n_rows, d), for the features "vectors"; None for those of the table
    test_share : share of the rows that are tested on
    noise : on the training costs, for "noise"
    skew : of the prices, for "extreme"
    alphas : strengths of a linear router's penalty to choose from by cross-validation; one is used as
        it is
    transformer : options of the transformer router that are not the paper's
    jobs : parallel workers of the searches
    """

    experiment: str
    table: OutcomeTable
    name: str
    results: Path
    beta: tuple[float, ...] = BETA
    costs: tuple[str, ...] | None = None
    methods: tuple[Method, ...] = ()
    seeds: int = 5
    features: str = "hashing"
    model: str | None = None
    vectors: Any = None
    test_share: float = TEST_SHARE
    noise: Noise = field(default_factory=Noise)
    skew: Skew = field(default_factory=Skew)
    alphas: tuple[float, ...] = ALPHAS
    transformer: dict[str, Any] = field(default_factory=dict)
    jobs: int | None = None

    def __post_init__(self) -> None:
        check_option("experiment", self.experiment, EXPERIMENTS)
        check_option("features", self.features, KINDS)
        self._check_table()
        object.__setattr__(self, "beta", check_beta(self.beta, self.table.expert_names))
        for cost in self.costs or ():
            check_option("cost", cost, COSTS)
        if isinstance(self.seeds, bool) or not isinstance(self.seeds, int) or self.seeds < 1:
            raise InvalidInputError(f"seeds must be an integer of at least 1; got {self.seeds!r}.")
        if not 0 < self.test_share < 1:
            raise InvalidInputError(f"test_share must lie between 0 and 1; got {self.test_share}.")
        for alpha in self.alphas:
            if not (math.isfinite(alpha) and alpha > 0):
                raise InvalidInputError(f"alpha must be positive and finite; got {alpha}.")
        if not self.name.strip():
            raise InvalidInputError("name must be a text that results can call the table by.")
        if self.results.is_dir():
            raise InvalidInputError(
                f"results must be a file; {self.results} is a folder. Name a file in it."
            )
        self._check_methods()

    def _check_table(self) -> None:
        names, scores = self.table.expert_names, self.table.scores
        if len(names) != 3:
            raise InvalidInputError(
                f"these experiments need three experts, from strong to tiny; got {len(names)}: "
                f"{', '.join(names)}. Name three with --experts."
            )
        missing = np.isnan(scores)
        if missing.any():
            row, expert = np.argwhere(missing)[0]
            raise InvalidInputError(
                f"scores must be known for every expert and query; {int(missing.sum()):,} of "
                f"{missing.size:,} are missing, such as {names[expert]}'s in row {row}. Leave out such "
                f"rows, or name other experts with --experts."
            )

    def _check_methods(self) -> None:
        texts = [method.text for method in self.methods]
        for method in self.methods:
            if texts.count(method.text) > 1:
                raise InvalidInputError(
                    f"methods must be named once each; got {method.text} twice."
                )
            if isinstance(method.margins, tuple) and len(method.margins) != 3:
                raise InvalidInputError(
                    f"method {method.text} must have one margin per expert, 3 of them; got "
                    f"{len(method.margins)}."
                )
            if self.features == "transformer" and method.margins == "grid":
                raise InvalidInputError(
                    "the margins 'grid' take a network per point; use 'tuned' with a transformer."
                )

    @property
    def asked_methods(self) -> Sequence[Method]:
        """The methods that were named, or the usual ones."""
        return self.methods or usual_methods(self.experiment, self.features)

    @property
    def asked_costs(self) -> tuple[str, ...]:
        """The settings that were named, or the paper's."""
        return self.costs or (COSTS if self.experiment == "llm" else ("cost",))
