"""Base classes of policies: the interface, policies that score, policies that estimate costs."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from mild.core.arrays import FloatArray, IntArray, as_python, invalid
from mild.core.costs import cheapest_expected, reward_distribution
from mild.core.costs import rewards as make_rewards
from mild.core.surrogates import Surrogate
from mild.core.threads import thread_count
from mild.errors import InvalidInputError, UnsupportedError
from mild.policies.decoder import Decoder, ranks_of

# Rows per block, so that the block and its scores stay in cache.
BLOCK = 16384
# How many scores are held before they are decoded.
WAITING = 16_000_000

Settings = dict[str, Any]
Tensors = dict[str, FloatArray]


# Kind -> class of every policy that can be saved.
POLICIES: dict[str, type[Policy]] = {}


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions for n inputs among p experts."""

    chosen: IntArray  # (n,) index of the expert
    probabilities: FloatArray  # (n, p) estimate of each expert's share of the expected reward
    costs: FloatArray | None  # (n, p) expected costs; None where the router has not learned them
    values: FloatArray  # (n, p) the quantity that the choice maximises
    # name of that quantity: "expected cost" (negated), "probability" or "score"; "constant" for negated
    # costs by which no choice is made, "first step" for minus the place in the order of a cascade,
    # "mix" where it is not the same for all rows
    by: str


class Policy(ABC):
    """Decides for inputs, which are not validated here.

    Policies are dataclasses. Their state consists of the fields in ``setting_names`` and ``tensor_names``.
    One that can be saved states its kind as a class argument, which adds it to ``POLICIES``.
    """

    kind: ClassVar[str]
    setting_names: ClassVar[tuple[str, ...]] = ()
    tensor_names: ClassVar[tuple[str, ...]] = ()
    # Whether every input gets the same decision.
    is_constant: ClassVar[bool] = False
    n_features: int
    n_experts: int

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:
            cls.kind = kind
            POLICIES[kind] = cls

    def __repr__(self) -> str:
        # Without the arrays, which are long.
        return f"{type(self).__name__}({self.n_features} features, {self.n_experts} experts)"

    @property
    def n_columns(self) -> int:
        """Columns of an input: the features, and for a mix the draw of the text."""
        return self.n_features

    def part_of(self, x: FloatArray) -> Policy:
        """The policy that decides one input (n_columns,): itself, or a part of a mix."""
        return self

    @abstractmethod
    def decision_function(self, X: Any) -> FloatArray:
        """Scores (n, p), larger is better."""

    @abstractmethod
    def predict_proba(self, X: Any) -> FloatArray:
        """Estimate (n, p) of the reward distribution."""

    @abstractmethod
    def predict(self, X: Any) -> IntArray:
        """Expert of each row."""

    @abstractmethod
    def with_experts(self, experts: IntArray) -> Policy:
        """The policy for some of its experts, by index, or for all of them in another order."""

    def without(self, expert: int) -> Policy:
        """The policy with one expert removed; the others keep their order."""
        if not 0 <= expert < self.n_experts:
            raise invalid("expert", f"must be an index in [0, {self.n_experts}); got {expert}.")
        if self.n_experts == 1:
            raise InvalidInputError(
                "a router must keep at least one expert; this one has one.", parameter="expert"
            )
        return self.with_experts(np.delete(np.arange(self.n_experts), expert))

    @property
    def ranks(self) -> IntArray | None:
        """Rank (n_experts,) of each expert: of experts that tie, the lowest is chosen (``expert_ranks``).

        None where indices decide.
        """
        return None

    def with_ranks(self, ranks: IntArray | None) -> Policy:
        """The policy that decides ties by these ranks; itself if it has no ties to decide."""
        return self

    def state(self) -> tuple[Settings, Tensors]:
        """JSON-ready settings and arrays from which ``from_state`` builds the policy again."""
        settings = {name: as_python(getattr(self, name)) for name in self.setting_names}
        tensors = {}
        for name in self.tensor_names:
            tensor = dense(getattr(self, name))
            if tensor is not None:
                tensors[name] = tensor
        if self.ranks is not None:
            tensors["ranks"] = stored_ranks(self.ranks)
        return settings, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        """Build the policy from what ``state`` returned."""
        fields = {name: settings[name] for name in cls.setting_names}
        for name in cls.tensor_names:
            if name in tensors:
                fields[name] = tensors[name]
        return cls(**fields)

    @property
    def parts(self) -> list[str]:
        """Kinds of this policy and of the policies inside, outermost first."""
        return [self.kind]

    @property
    def margins(self) -> FloatArray | None:
        """Margins (n_experts,) of the policy that decides in the end; None if it has none."""
        return None

    @property
    def has_prices(self) -> bool:
        """Whether error and price are separate heads, so that ``with_prices`` works."""
        return False

    @property
    def has_errors(self) -> bool:
        """Whether the policy that decides has a head for errors, for ``expected_errors``."""
        return False

    def predict_checked(self, X: Any, check: Callable[[Any, int], None]) -> IntArray:
        """Expert of each row; ``check(block, first_row)`` gets every block that may not be finite."""
        result = np.empty(X.shape[0], np.intp)
        for rows in blocks(X):
            check(X[rows], rows.start)
            result[rows] = self.predict(X[rows])
        return result

    def decide_one(self, x: FloatArray) -> int:
        """Expert for one feature vector (n_features,)."""
        return int(self.predict(x[None])[0])

    def decide(self, X: Any) -> Decisions:
        """Choice, probabilities and expected costs of each row, in one pass."""
        return Decisions(
            chosen=self.predict(X),
            probabilities=self.predict_proba(X),
            costs=None,
            values=self.decision_function(X),
            by="score",
        )

    def slopes(self, x: FloatArray, chosen: int, other: int) -> FloatArray | None:
        """Derivative (n_features,) of the lead of an expert over another; None if it is not linear.

        The lead is a difference of scores or of expected costs, or of log-odds where the choice is the
        largest probability.
        """
        return None

    def expected_costs(self, X: Any) -> FloatArray:
        """Expected cost (n, p) of each expert, if the policy has learned it."""
        raise UnsupportedError(
            f"a {self.kind} router learned which expert is best, not what each will cost. "
            f"Use RidgeRouter, KNNRouter or PricedRouter for expected costs."
        )

    def expected_errors(self, X: Any) -> FloatArray:
        """Expected error (n, p) of each expert, if errors have a head of their own."""
        raise UnsupportedError(f"a {self.kind} router has no separate head for errors.")

    def expected_prices(self, X: Any) -> FloatArray:
        """Expected price (n, p) of each expert, if prices have a head of their own."""
        raise UnsupportedError(f"a {self.kind} router has no separate head for prices.")

    def with_decision(self, rule: str) -> Policy:
        """The policy with another rule, "stationary" or "argmax", if it decides by scores."""
        raise UnsupportedError(
            f"a {self.kind} router takes the expert with the lowest expected cost and has no other rule; "
            "leave decision out.",
            parameter="decision",
        )

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> Policy:
        """The policy under new prices, if error and price are separate heads."""
        raise UnsupportedError(
            f"a {self.kind} router has one head for errors and prices together, so new prices need a "
            "refit. Fit PricedRouter, as mild.fit(TABLE, router='priced'), which keeps an error head and a "
            "price head."
        )


class ScorePolicy(Policy):
    """Scores experts and decodes the scores; the decoder is part of the state."""

    decoder: Decoder
    # Whether finite scores imply that the input was finite.
    scores_tell: ClassVar[bool] = False

    def predict_proba(self, X: Any) -> FloatArray:
        return in_blocks(lambda block: self.decoder.distribution(self.decision_function(block)), X)

    def predict(self, X: Any) -> IntArray:
        return self._predict(X, None)

    def predict_checked(self, X: Any, check: Callable[[Any, int], None]) -> IntArray:
        return self._predict(X, check)

    def _predict(self, X: Any, check: Callable[[Any, int], None] | None) -> IntArray:
        """``predict_checked``; None for ``check`` checks nothing."""
        chosen = np.empty(X.shape[0], np.intp)
        choose = self.decoder.choose
        if self.decoder.by_argmax or X.shape[0] <= BLOCK:
            for rows in blocks(X):
                chosen[rows] = choose(self._scores_of_block(X, rows, check))
            return chosen
        # First all scores of a span, then all its decisions: BLAS threads spin for a while after a
        # product and would compete with ours.
        all_blocks = blocks(X)
        span_size = max(1, WAITING // (BLOCK * self.n_experts))
        with ThreadPoolExecutor(thread_count()) as pool:
            for first in range(0, len(all_blocks), span_size):
                span = all_blocks[first : first + span_size]
                scores = [self._scores_of_block(X, rows, check) for rows in span]
                for rows, chosen_in_block in zip(span, pool.map(choose, scores), strict=True):
                    chosen[rows] = chosen_in_block
        return chosen

    def _scores_of_block(
        self, X: Any, rows: slice, check: Callable[[Any, int], None] | None
    ) -> FloatArray:
        """Scores (n, p) of a block of rows, which ``check`` gets if it may not be finite."""
        block = X[rows]
        # Infinities of both signs add up to NaN: ``check`` reports them, not a NumPy warning.
        with np.errstate(invalid="ignore", over="ignore"):
            scores = self.decision_function(block)
            if check is None:
                return scores
            is_finite = self.scores_tell and np.isfinite(scores.sum())
        if not is_finite:
            check(block, rows.start)
        return scores

    def decide(self, X: Any) -> Decisions:
        scores = self.decision_function(X)
        shares = self.decoder.distribution(scores)
        if self.decoder.by_argmax:
            return Decisions(self.decoder.highest_score(scores), shares, None, scores, "score")
        return Decisions(self.decoder.largest_share(shares), shares, None, shares, "probability")

    @property
    def margins(self) -> FloatArray:
        return self.decoder.margins

    @property
    def ranks(self) -> IntArray | None:
        return self.decoder.ranks

    def with_ranks(self, ranks: IntArray | None) -> Self:
        if ranks is self.ranks:
            return self
        return self._with_decoder(self.decoder.with_ranks(ranks))

    def with_decision(self, rule: str) -> Self:
        return self._with_decoder(self.decoder.with_rule(rule))

    def _with_decoder(self, decoder: Decoder) -> Self:
        changed = copy.copy(self)
        changed.decoder = decoder
        return changed

    def network_weights(self) -> dict[str, Any]:
        """Arrays or tensors by the names that torch gives them; empty if the policy is not a network."""
        return {}

    def state(self) -> tuple[Settings, Tensors]:
        settings, tensors = super().state()
        surrogate = self.decoder.surrogate
        tensors["margins"] = self.decoder.margins
        decoder_settings = {
            "decision": self.decoder.rule,
            "surrogate": [surrogate.form, surrogate.tau],
        }
        return {**decoder_settings, **settings}, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        create: Any = cls
        arrays = {name: tensors[name] for name in cls.tensor_names}
        return create(**arrays, decoder=cls.stored_decoder(settings, tensors))

    @staticmethod
    def stored_decoder(settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Decoder:
        """The decoder that ``state`` wrote."""
        form, tau = settings["surrogate"]
        margins = tensors["margins"].astype(np.float64)
        surrogate = Surrogate(form, float(tau))
        return Decoder(margins, settings["decision"], surrogate, loaded_ranks(tensors))


@dataclass(eq=False, repr=False)
class CostPolicy(Policy):
    """Chooses the lowest expected cost; among costs that tie up to rounding, the lowest rank.

    Scores are minus expected costs. Where costs tie, the choice need not have the largest score.
    """

    # (n_experts,), as ``expert_ranks`` gives them; None for the highest index
    ranks: IntArray | None = field(default=None, kw_only=True)

    @abstractmethod
    def expected_costs(self, X: Any) -> FloatArray: ...

    def decision_function(self, X: Any) -> FloatArray:
        return -self.expected_costs(X)

    def predict_proba(self, X: Any) -> FloatArray:
        return self.distribution_of(self.expected_costs(X))

    def decide(self, X: Any) -> Decisions:
        costs = self.expected_costs(X)
        return Decisions(
            chosen=cheapest_expected(costs, self.ranks),
            probabilities=self.distribution_of(costs),
            costs=costs,
            values=-costs,
            by="expected cost",
        )

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        return super().from_state(settings, tensors).with_ranks(loaded_ranks(tensors))

    def with_ranks(self, ranks: IntArray | None) -> Self:
        if ranks is self.ranks:
            return self
        return replace(self, ranks=ranks)

    def _ranks_of(self, experts: IntArray) -> IntArray | None:
        """Ranks of some of the experts among each other, by index."""
        return ranks_of(self.ranks, experts, np.arange(self.n_experts)[::-1])

    def distribution_of(self, costs: FloatArray) -> FloatArray:
        """Reward distribution (``others``) of expected costs (n, n_experts); uniform where all are 0."""
        non_negative_costs = np.maximum(costs, 0)
        distribution = reward_distribution(make_rewards(non_negative_costs, "others"))
        distribution[distribution.sum(axis=1) == 0] = 1 / self.n_experts
        return distribution

    def predict(self, X: Any) -> IntArray:
        return in_blocks(lambda block: cheapest_expected(self.expected_costs(block), self.ranks), X)


def stored_ranks(ranks: IntArray) -> FloatArray:
    """Ranks as they are written to a file."""
    return ranks.astype(np.float64)


def loaded_ranks(tensors: Mapping[str, Any]) -> IntArray | None:
    """Ranks among the tensors of a file; None if there are none."""
    if "ranks" not in tensors:
        return None
    return np.asarray(tensors["ranks"], np.intp)


def can_be_saved(policy: object) -> bool:
    """Whether a policy is one of those that can be saved."""
    return POLICIES.get(getattr(policy, "kind", "")) is type(policy)


def blocks(X: Any) -> list[slice]:
    """Slices of rows that cover X."""
    return [slice(start, start + BLOCK) for start in range(0, X.shape[0], BLOCK)]


def in_blocks(method: Callable[[Any], Any], X: Any) -> Any:
    """What a method gives for each block of X, joined; a block stays in cache, and is small when dense."""
    # Of no rows there is one empty block, which gives the result its shape and type.
    all_blocks = blocks(X) or [slice(None)]
    return np.concatenate([method(X[rows]) for rows in all_blocks])


def dense(X: Any) -> Any:
    """A sparse matrix as an array; anything else as it is."""
    if hasattr(X, "toarray"):
        return X.toarray()
    return X
