"""A mix of two policies: a draw from the text of a query says which of them decides it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from mild.core.answers import Answers
from mild.core.arrays import BoolArray, FloatArray, IntArray, invalid
from mild.core.long_texts import abridge
from mild.errors import UnsupportedError
from mild.policies.base import Decisions, Policy, Settings, Tensors
from mild.policies.cascade import AgreementTable, CascadePolicy, CascadeRun
from mild.policies.compose import StandardizedPolicy, TradeoffPolicy, nested, unnested
from mild.policies.costs import ConstantPolicy

# Bits of a draw: a float32, as features are, holds every draw exactly.
DRAW_BITS = 24
# Largest number of bytes that BLAKE2 takes as a salt.
LONGEST_SALT = 16


def text_draw(text: str, salt: str) -> float:
    """The draw of a text in [0, 1): the same on every platform, and another one for another salt.

    Like features, it is that of the abridged text: a ledger keeps no more of a long one.

    >>> text_draw("Who wrote Emma?", "a"), text_draw("Who wrote Emma?", "b")
    (0.19631874561309814, 0.7838857769966125)
    """
    # JSON may hold half of a surrogate pair, for which UTF-8 has no bytes.
    content = abridge(text).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=DRAW_BITS // 8, salt=salt.encode()).digest()
    return int.from_bytes(digest, "big") / 2**DRAW_BITS


@dataclass(eq=False, repr=False)
class MixPolicy(Policy, kind="mix"):
    """Decides some queries by one policy and the others by another one.

    A query is decided by ``second`` where its draw, a hash of its text, is below ``share``, else by
    ``first``. A larger share moves queries from the first to the second policy, and none the other way.

    The two are settings of one kind: both decide without answers, or both are cascades. A single expert
    counts as either; beside a cascade, a ``ConstantPolicy`` becomes a cascade of one step.

    Inputs have one column more than the two policies take: the last one is the draw (``with_draws``).

    Parameters
    ----------
    first : Policy
        Decides the other queries.
    second : Policy
        Decides the queries whose draw is below the share.
    share : float
        Share of the queries that ``second`` decides, between 0 and 1.
    salt : str
        A text of at most 16 bytes that the draws depend on.

    Examples
    --------
    >>> always = [ConstantPolicy(np.zeros(2), 1, expert) for expert in (0, 1)]
    >>> mix = MixPolicy(*always, share=0.2, salt="a")
    >>> mix.predict(mix.with_draws(np.zeros((2, 1)), ["Who wrote Emma?", "What is 3 + 3?"]))
    array([1, 0])
    """

    first: Policy
    second: Policy
    share: float
    salt: str

    def __post_init__(self) -> None:
        _check_share(self.share)
        _check_salt(self.salt)
        first, second = self.first, self.second
        for part in (first, second):
            if isinstance(part, MixPolicy):
                raise invalid("first", "and second must not be mixes themselves; got one.")
        if first.n_features != second.n_features or first.n_experts != second.n_experts:
            raise invalid(
                "second",
                f"must have the features and experts of first ({first.n_features} and "
                f"{first.n_experts}); got {second.n_features} and {second.n_experts}.",
            )
        self.n_features = first.n_features
        self.n_experts = first.n_experts
        if isinstance(first, CascadePolicy) or isinstance(second, CascadePolicy):
            self._take_cascades(first, second)

    def _take_cascades(self, first: Policy, second: Policy) -> None:
        """Set both parts to cascades that compare answers alike."""
        if isinstance(first, CascadePolicy):
            self.first = first
            self.second = _as_cascade(second, beside=first)
        elif isinstance(second, CascadePolicy):
            self.first = _as_cascade(first, beside=second)
            self.second = second
        kinds = {part.answer_kind for part in self.cascades}
        if len(kinds) > 1:
            raise invalid(
                "second",
                f"must compare answers as first does; got {' and '.join(sorted(kinds))}.",
            )

    def __repr__(self) -> str:
        parts = f"first={self.first!r}, second={self.second!r}"
        return f"MixPolicy({parts}, share={self.share:g}, salt={self.salt!r})"

    @property
    def n_columns(self) -> int:
        return self.n_features + 1

    @property
    def cascades(self) -> list[CascadePolicy]:
        """Both parts, if they are cascades; otherwise none."""
        return [part for part in (self.first, self.second) if isinstance(part, CascadePolicy)]

    def draws(self, texts: Iterable[str]) -> FloatArray:
        """Draws (n,) of texts in [0, 1)."""
        return np.array([text_draw(text, self.salt) for text in texts], np.float64)

    def policy_for(self, text: str) -> Policy:
        """The policy that decides a text."""
        if text_draw(text, self.salt) < self.share:
            return self.second
        return self.first

    def with_draws(self, X: FloatArray, texts: Iterable[str]) -> FloatArray:
        """Features (n, n_features) of texts with their draws as one more column."""
        return np.column_stack([X, self.draws(texts).astype(X.dtype)])

    def is_second(self, X: Any) -> BoolArray:
        """Whether the second policy decides (n,), by the draws in the last column of X."""
        if X.shape[1] != self.n_columns:
            raise needs_text()
        draws: FloatArray = np.asarray(X[:, -1], np.float64)
        return draws < self.share

    def part_of(self, x: FloatArray) -> Policy:
        """The policy that decides one input (n_columns,)."""
        if x.shape != (self.n_columns,):
            raise needs_text()
        if float(x[-1]) < self.share:
            return self.second
        return self.first

    def by_part(self, function: Callable[..., Any], X: Any, *others: Any) -> Any:
        """``function(policy, X, *others)`` of each policy on the rows that it decides, joined.

        X is without the draws, and ``others`` are arrays of as many rows. None if the function gives None
        for one of the policies.
        """
        is_second = self.is_second(X)
        inputs = X[:, : self.n_features]
        if not is_second.any():
            return function(self.first, inputs, *others)
        if is_second.all():
            return function(self.second, inputs, *others)
        others_of_first = [rows[~is_second] for rows in others]
        others_of_second = [rows[is_second] for rows in others]
        of_first = function(self.first, inputs[~is_second], *others_of_first)
        of_second = function(self.second, inputs[is_second], *others_of_second)
        if of_first is None or of_second is None:
            return None
        return _joined(is_second, of_first, of_second)

    def predict(self, X: Any) -> IntArray:
        chosen: IntArray = self.by_part(lambda part, inputs: part.predict(inputs), X)
        return chosen

    def predict_proba(self, X: Any) -> FloatArray:
        shares: FloatArray = self.by_part(lambda part, inputs: part.predict_proba(inputs), X)
        return shares

    def decision_function(self, X: Any) -> FloatArray:
        scores: FloatArray = self.by_part(lambda part, inputs: part.decision_function(inputs), X)
        return scores

    def expected_costs(self, X: Any) -> FloatArray:
        costs: FloatArray = self.by_part(lambda part, inputs: part.expected_costs(inputs), X)
        return costs

    def expected_errors(self, X: Any) -> FloatArray:
        errors: FloatArray = self.by_part(lambda part, inputs: part.expected_errors(inputs), X)
        return errors

    def expected_prices(self, X: Any) -> FloatArray:
        prices: FloatArray = self.by_part(lambda part, inputs: part.expected_prices(inputs), X)
        return prices

    def decide_one(self, x: FloatArray) -> int:
        return self.part_of(x).decide_one(x[: self.n_features])

    def decide(self, X: Any) -> Decisions:
        """Decisions of both policies; costs only where both have learned them."""
        is_second = self.is_second(X)
        inputs = X[:, : self.n_features]
        if not is_second.any():
            decisions = self.first.decide(inputs)
        elif is_second.all():
            decisions = self.second.decide(inputs)
        else:
            of_first = self.first.decide(inputs[~is_second])
            of_second = self.second.decide(inputs[is_second])
            decisions = _joined_decisions(is_second, of_first, of_second)
        if not self._has_costs:
            return replace(decisions, costs=None)
        return decisions

    @cached_property
    def _has_costs(self) -> bool:
        """Whether both policies expect costs, so that every row has some or none has."""
        zeros = np.zeros((1, self.n_features), np.float32)
        return all(part.decide(zeros).costs is not None for part in (self.first, self.second))

    @property
    def margins(self) -> FloatArray | None:
        """Margins that both policies have; None where they differ."""
        of_first = self.first.margins
        of_second = self.second.margins
        if of_first is None or of_second is None or not np.array_equal(of_first, of_second):
            return None
        return of_first

    @property
    def ranks(self) -> IntArray | None:
        return self.first.ranks

    @property
    def has_prices(self) -> bool:
        return self.first.has_prices or self.second.has_prices

    @property
    def has_errors(self) -> bool:
        return self.first.has_errors and self.second.has_errors

    @property
    def parts(self) -> list[str]:
        return [self.kind, *self.first.parts, *self.second.parts]

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> Policy:
        """The policy under new prices, without the mix: its share was chosen for the old ones."""
        priced = self.first
        if self.second.has_prices and not self.first.has_prices:
            priced = self.second
        return priced.with_prices(betas, price_weight)

    def with_decision(self, rule: str) -> Policy:
        return self._of(self.first.with_decision(rule), self.second.with_decision(rule))

    def with_ranks(self, ranks: IntArray | None) -> Policy:
        return self._of(self.first.with_ranks(ranks), self.second.with_ranks(ranks))

    def with_experts(self, experts: IntArray) -> Policy:
        """The mix for these experts.

        If one of two cascades has nobody left to ask, the other one decides every query.
        """
        first = self.first.with_experts(experts)
        second = self.second.with_experts(experts)
        if self.cascades:
            if not isinstance(second, CascadePolicy):
                return first
            if not isinstance(first, CascadePolicy):
                return second
        return self._of(first, second)

    def _of(self, first: Policy, second: Policy) -> MixPolicy:
        """The same mix of two other policies."""
        return replace(self, first=first, second=second)

    @property
    def direct(self) -> Policy:
        """Of a mix of cascades, what decides without answers; a mix where the two differ in it."""
        first, second = self.cascades
        if first.direct is second.direct:
            return first.direct
        return self._of(first.direct, second.direct)

    def with_direct(self, direct: Policy) -> MixPolicy:
        """The mix of these cascades with another policy that decides without answers."""
        first, second = self.cascades
        return self._of(first.with_direct(direct), second.with_direct(direct))

    def with_answer_kind(self, kind: str) -> MixPolicy:
        """The mix of these cascades, which compare answers of another kind."""
        first, second = self.cascades
        return self._of(first.with_answer_kind(kind), second.with_answer_kind(kind))

    def drawn_cascade(self, x: FloatArray | None) -> CascadePolicy:
        """The cascade that runs for one input (n_columns,), in a mix of cascades."""
        if x is None:
            raise needs_text()
        first, second = self.cascades
        if self.part_of(x) is self.second:
            return second
        return first

    @property
    def answer_kind(self) -> str:
        """How the cascades compare answers."""
        return self.cascades[0].answer_kind

    @property
    def order(self) -> list[int]:
        """Experts that one of the cascades asks."""
        first, second = self.cascades
        return list(dict.fromkeys([*first.order, *second.order]))

    def first_asked(self, X: Any) -> list[list[int]]:
        """Experts that are asked first, at the same time, for each input."""
        first, second = self.cascades
        return [second.steps[0] if by_second else first.steps[0] for by_second in self.is_second(X)]

    def run(self, X: Any, answers: Answers) -> CascadeRun:
        """What the cascades do with rows whose answers (n, n_experts) are known.

        The steps are those of the first cascade, then those of the second.
        """
        is_second = self.is_second(X)
        first, second = self.cascades
        inputs = X[:, : self.n_features]
        of_first = first.run(inputs[~is_second], answers.take(np.flatnonzero(~is_second)))
        of_second = second.run(inputs[is_second], answers.take(np.flatnonzero(is_second)))
        n_first = len(first.steps)
        return CascadeRun(
            steps=[*first.steps, *second.steps],
            accepted_step=_joined(
                is_second, of_first.accepted_step, n_first + of_second.accepted_step
            ),
            expert=_joined(is_second, of_first.expert, of_second.expert),
            probability=_joined(is_second, of_first.probability, of_second.probability),
            asked=_joined(is_second, of_first.asked, of_second.asked),
            is_second=is_second,
            n_first=n_first,
        )

    def state(self) -> tuple[Settings, Tensors]:
        settings, tensors = nested([self.first, self._second_without_settings()])
        return {"share": float(self.share), "salt": self.salt, **settings}, tensors

    def _second_without_settings(self) -> Policy:
        """The second part without the heads and settings of a tuned router that the first part has, too."""
        of_first = tradeoff_of(self.first)
        of_second = tradeoff_of(self.second)
        if of_first is None or of_second is None:
            return self.second
        if not _same_state(of_first, of_second.decided_by(of_first.inner)):
            return self.second
        return _with_direct(self.second, of_second.inner)

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        first, second = unnested(settings, tensors)
        tuned = tradeoff_of(first)
        if tuned is not None and tradeoff_of(second) is None:
            # Heads and settings are kept once, in the first part.
            second = _with_direct(second, tuned.decided_by(_direct(second)))
        mix = cls(first, second, settings["share"], settings["salt"])
        # Usually two cascades have one policy that decides without answers, which is kept once.
        if mix.cascades and _same_state(mix.cascades[0].direct, mix.cascades[1].direct):
            mix.second = mix.cascades[1].with_direct(mix.cascades[0].direct)
        return mix


def mix_of(policy: Policy) -> MixPolicy | None:
    """The policy, if it is a mix."""
    if isinstance(policy, MixPolicy):
        return policy
    return None


def cascade_of(policy: Policy) -> CascadePolicy | MixPolicy | None:
    """The policy, if it reads answers: a cascade, or a mix of two."""
    if isinstance(policy, CascadePolicy):
        return policy
    if isinstance(policy, MixPolicy) and policy.cascades:
        return policy
    return None


def cascades_of(policy: Policy) -> list[CascadePolicy]:
    """The cascades that decide: one, two that divide the queries, or none."""
    if isinstance(policy, MixPolicy):
        return policy.cascades
    if isinstance(policy, CascadePolicy):
        return [policy]
    return []


def tradeoff_of(policy: Policy) -> TradeoffPolicy | None:
    """The part of a tuned router's policy that holds its heads and settings; None if it has none."""
    if isinstance(policy, MixPolicy):
        policy = policy.first
    direct = _direct(policy)
    if isinstance(direct, TradeoffPolicy):
        return direct
    return None


def _direct(policy: Policy) -> Policy:
    """What decides without answers: of a cascade the policy beside it, otherwise the policy itself."""
    if isinstance(policy, CascadePolicy):
        return policy.direct
    return policy


def _with_direct(policy: Policy, direct: Policy) -> Policy:
    """A cascade with another policy that decides without answers; otherwise that policy."""
    if isinstance(policy, CascadePolicy):
        return policy.with_direct(direct)
    return direct


def with_scaling(policy: Policy, mean: FloatArray, scale: FloatArray) -> Policy:
    """The policy for features that are not scaled yet; a cascade stays outermost."""
    if isinstance(policy, CascadePolicy):
        return policy.with_direct(StandardizedPolicy(mean, scale, policy.direct))
    return StandardizedPolicy(mean, scale, policy)


def needs_text() -> UnsupportedError:
    """The refusal to decide a query of which only the features are known."""
    return UnsupportedError(
        "this router mixes two settings by a draw from the text of a query, and features alone do not "
        "have it; use route or predict_texts, or take the features from router.features(texts).",
        parameter="X",
    )


def _check_share(share: object) -> None:
    if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 < share < 1:
        raise invalid("share", f"must be a number between 0 and 1; got {share!r}.")


def _check_salt(salt: object) -> None:
    if not isinstance(salt, str) or len(salt.encode()) > LONGEST_SALT:
        raise invalid("salt", f"must be a text of at most {LONGEST_SALT} bytes; got {salt!r}.")


def _as_cascade(policy: Policy, beside: CascadePolicy) -> CascadePolicy:
    """A single expert as a cascade of one step, for a mix with a cascade; a cascade as it is."""
    if isinstance(policy, CascadePolicy):
        return policy
    if not isinstance(policy, ConstantPolicy):
        raise invalid(
            "second",
            "and first must both be cascades, or one of them a single expert; got a cascade and a "
            f"{policy.kind} policy. Mix it with the cascade's policy without answers (direct).",
        )
    expert = policy.expert
    if expert in beside.order:
        table = beside.table.of_experts([beside.order.index(expert)])
    else:
        # Nothing is known of its answers. They are given whatever the table says.
        table = AgreementTable(np.ones((1, 1), np.intp), np.zeros(1), np.zeros((1, 1)), np.zeros(1))
    return CascadePolicy(beside.answer_kind, [[expert]], 0.0, table, beside.direct)


def _joined(is_second: BoolArray, of_first: Any, of_second: Any) -> Any:
    """Rows of both policies in the order of the inputs."""
    shape = (len(is_second), *of_first.shape[1:])
    joined = np.empty(shape, np.result_type(of_first.dtype, of_second.dtype))
    joined[~is_second] = of_first
    joined[is_second] = of_second
    return joined


def _joined_decisions(is_second: BoolArray, of_first: Decisions, of_second: Decisions) -> Decisions:
    """Decisions of both policies in the order of the inputs."""
    costs = None
    if of_first.costs is not None and of_second.costs is not None:
        costs = _joined(is_second, of_first.costs, of_second.costs)
    by = "mix"
    if of_first.by == of_second.by:
        by = of_first.by
    return Decisions(
        chosen=_joined(is_second, of_first.chosen, of_second.chosen),
        probabilities=_joined(is_second, of_first.probabilities, of_second.probabilities),
        costs=costs,
        values=_joined(is_second, of_first.values, of_second.values),
        by=by,
    )


def _same_state(policy: Policy, other: Policy) -> bool:
    """Whether two policies have the same state, and so decide alike."""
    settings, tensors = policy.state()
    other_settings, other_tensors = other.state()
    if policy.kind != other.kind or settings != other_settings:
        return False
    if set(tensors) != set(other_tensors):
        return False
    return all(np.array_equal(tensors[name], other_tensors[name]) for name in tensors)
