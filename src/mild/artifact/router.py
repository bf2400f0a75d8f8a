"""A loaded router: decides with NumPy alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mild.artifact.info import RouterInfo
from mild.artifact.novelty import Novelty
from mild.core.arrays import BoolArray, FloatArray, IntArray, invalid
from mild.errors import UnsupportedError, counted
from mild.features import TextFeatures
from mild.features.base import is_table
from mild.policies import Decisions, Policy
from mild.policies.base import blocks

if TYPE_CHECKING:
    from mild.artifact.explanation import Explanation

# Texts whose features are held at a time.
TEXT_BLOCK = 4096


@dataclass(eq=False, repr=False)
class Router:
    """A policy with the names of its experts and what else is known about it.

    Examples
    --------
    >>> from mild.policies import ConstantPolicy
    >>> router = Router(ConstantPolicy(np.array([0.5, 0.2]), 1), ["small", "large"])
    >>> router.predict([[1.0], [2.0]])
    array([1, 1])
    >>> router.expert_names[router.decide_one(np.array([1.0]))]
    'large'
    """

    policy: Policy
    expert_names: list[str]  # in the order of the indices that ``predict`` gives
    feature_names: list[str] | None = None  # None if they had none
    info: RouterInfo = field(default_factory=RouterInfo)
    text: TextFeatures | None = None  # None if the router was fitted on numbers
    # (n,) ascending hashes of the training queries, if saved
    query_hashes: NDArray[np.uint64] | None = None
    novelty: Novelty | None = None  # None where distances to the training inputs are not recorded
    # slopes and offsets (n_experts,) of calibrated costs, where they would not decide as well
    calibration: tuple[FloatArray, FloatArray] | None = None

    def __post_init__(self) -> None:
        self.expert_names = list(self.expert_names)
        self.feature_names = None if self.feature_names is None else list(self.feature_names)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.policy.n_features

    @property
    def n_experts(self) -> int:
        """Number of experts."""
        return self.policy.n_experts

    @property
    def margins(self) -> list[float] | None:
        """Margins of the policy that decides; None if it has none."""
        margins = self.policy.margins
        return None if margins is None else [float(margin) for margin in margins]

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the policy."""
        return self.policy.state()[0]

    def predict(self, X: Any) -> IntArray:
        """Index of the chosen expert for each row of X (n_samples, n_features)."""
        return self.policy.predict_checked(self._check_inputs(X), self._check_finite)

    def predict_proba(self, X: Any) -> FloatArray:
        """Estimate (n_samples, n_experts) of each expert's share of the expected reward."""
        return self._collect("predict_proba", X)

    def decision_function(self, X: Any) -> FloatArray:
        """Scores (n_samples, n_experts), larger is better."""
        return self._collect("decision_function", X)

    def expected_costs(self, X: Any) -> FloatArray:
        """Expected cost (n_samples, n_experts) of each expert, where the router has learned it."""
        return self._collect("expected_costs", X)

    def decide(self, X: Any) -> Decisions:
        """Choice, probabilities and expected costs of each row of X, in one pass."""
        inputs = self._check_inputs(X)
        self._check_finite(inputs, 0)
        return self.policy.decide(inputs)

    def decide_one(self, x: FloatArray) -> int:
        """Expert for one float vector (n_features,). Nothing is checked: this is the fast path."""
        return self.policy.decide_one(x)

    def features(self, texts: Iterable[str]) -> FloatArray:
        """Features (n_texts, n_features) of texts, for the methods that take X."""
        return self._text_step().vectorize(texts if is_table(texts) else _plain(texts))

    def predict_texts(self, texts: Iterable[str]) -> IntArray:
        """Index of the chosen expert for each text.

        Texts are read block by block, so a generator of any length takes constant memory.
        """
        step = self._text_step()
        if isinstance(texts, (str, bytes)) or is_table(texts):
            return self.predict(step.vectorize(texts))  # refuses it, unless it is for vectors
        rest, chosen = iter(_plain(texts)), [np.empty(0, np.intp)]
        while block := list(islice(rest, TEXT_BLOCK)):
            chosen.append(self.predict(step.vectorize(block)))
        return np.concatenate(chosen)

    def route(self, texts: Iterable[str]) -> list[str]:
        """Name of the chosen expert for each text."""
        return [self.expert_names[k] for k in self.predict_texts(texts).tolist()]

    def route_table(self, texts: Any) -> Any:
        """Expert, probabilities and, where known, expected costs for each text, as a table.

        It is a frame of the library that ``texts`` are a column of (pandas, polars or pyarrow; a pandas
        index is kept), else a dict of columns: ``expert``, ``p__<name>`` and ``expected_cost__<name>``.
        """
        from mild.artifact.frames import as_frame

        step = self._text_step()
        found = self.decide(step.vectorize(texts if is_table(texts) else _plain(texts)))
        names = self.expert_names
        columns = {"expert": [names[k] for k in found.chosen.tolist()]}
        for prefix, values in {"p__": found.probabilities, "expected_cost__": found.costs}.items():
            if values is not None:
                columns |= {
                    f"{prefix}{name}": values[:, k].tolist() for k, name in enumerate(names)
                }
        frame = as_frame(columns, like=texts)
        if hasattr(frame, "iloc") and hasattr(texts, "index"):
            frame.index = texts.index
        return frame

    def explain(self, text: Any, most: int = 12) -> Explanation:
        """The decision on a text, or a vector, and at most ``most`` pieces of evidence for it."""
        from mild.artifact.explanation import explain  # which needs this class

        return explain(self, text, most)

    def is_novel(self, texts: Sequence[Any], X: FloatArray | None = None) -> BoolArray:
        """Whether each text is farther from the training texts than 99 % of held-out ones were.

        ``X`` are the features of the texts, if they are known.
        """
        if self.novelty is None:
            raise UnsupportedError(
                "this router does not record how far inputs are from its training inputs; fit it again "
                "from a table of outcomes (mild fit, mild tune).",
                parameter="on_novel",
            )
        step = self._text_step()
        inputs = step.vectorize(texts) if X is None else X
        return self.novelty.is_novel(self.novelty.scores(inputs, step.unseen_shares(texts)))

    def decide_text(self, text: str) -> int:
        """Expert for one text: the fast path."""
        return self.policy.decide_one(self._text_step().transform_one(text))

    def without(self, expert: int | str) -> Router:
        """The router without one expert, given by index or name."""
        if isinstance(expert, str) and expert not in self.expert_names:
            raise invalid(
                "expert", f"must be one of {', '.join(self.expert_names)}; got {expert!r}."
            )
        index = self.expert_names.index(expert) if isinstance(expert, str) else int(expert)
        policy = self.policy.without(index)
        names = [name for k, name in enumerate(self.expert_names) if k != index]
        novelty = None if self.novelty is None else self.novelty.without(index)
        pair = self.calibration
        left = None if pair is None else (np.delete(pair[0], index), np.delete(pair[1], index))
        return replace(self, policy=policy, expert_names=names, novelty=novelty, calibration=left)

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> Router:
        """The router under new prices, where it has separate heads for errors and prices."""
        policy = self.policy.with_prices(betas, price_weight)
        # The calibration is that of the policy that decided before, if now another one does.
        kept = self.calibration if policy.parts == self.policy.parts else None
        return replace(self, policy=policy, calibration=kept)

    def with_target(self, **wanted: float) -> Router:
        """The router at the trade-off that meets targets on its held-out rows, as ``max_dollars=2``.

        Targets are ``keep_quality``, ``max_quality_loss``, ``max_dollars``, ``strong_share`` and
        ``save_dollars``.
        """
        from mild.artifact.targets import Target, with_target  # which needs this class

        return with_target(self, Target(**wanted))

    def __repr__(self) -> str:
        source = "" if self.text is None else f"{self.text.kind} "
        return (
            f"Router({self.policy.kind}, {self.n_features} {source}features, "
            f"experts {', '.join(self.expert_names)})"
        )

    def _text_step(self) -> TextFeatures:
        if self.text is None:
            raise UnsupportedError(
                "this router was fitted on numbers and has no step from texts to features; use "
                "predict(X), or save it with mild.save(router, folder, text=features)."
            )
        return self.text

    def _collect(self, method: str, X: Any) -> Any:
        """Check and decide block by block, so that a block stays in cache."""
        inputs = self._check_inputs(X)
        decide = getattr(self.policy, method)
        parts = []
        for rows in blocks(inputs) or [slice(0, 0)]:
            part = inputs[rows]
            self._check_finite(part, rows.start)
            parts.append(decide(part))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _check_inputs(self, X: Any) -> Any:
        """X as a float array or CSR matrix of the right width; float32 stays float32."""
        columns = getattr(X, "columns", None)
        if columns is not None and self.feature_names is not None:
            names = zip(self.feature_names, map(str, columns), strict=False)
            for i, (name, got) in enumerate(names):
                if name != got:
                    rule = "must have the columns that the router was fitted with, in that order"
                    raise invalid("X", f"{rule}; column {i} must be {name!r}, got {got!r}.")
        inputs = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X)
        if inputs.dtype.kind not in "fiubO":
            example = "" if inputs.size == 0 else f" such as {np.ravel(inputs)[0]!r}"
            remedy = "" if self.text is None else " For texts use route or predict_texts."
            raise invalid("X", f"must hold numbers; got {inputs.dtype}{example}.{remedy}")
        if inputs.ndim != 2:
            got = f"{counted(inputs.ndim, 'dimension')}, shape {inputs.shape}"
            rule = f"must have shape (n_samples, n_features) = (n_samples, {self.n_features})"
            raise invalid("X", f"{rule}; got {got}. For one input use X.reshape(1, -1).")
        if inputs.shape[1] != self.n_features:
            rule = f"must have {counted(self.n_features, 'feature')}, as many as the router was fitted with"
            raise invalid("X", f"{rule}; got {inputs.shape[1]}.")
        if inputs.dtype not in (np.float32, np.float64):
            try:
                inputs = inputs.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise invalid("X", f"must hold numbers; got {error}.") from error
        return inputs

    def _check_finite(self, part: Any, first_row: int) -> None:
        values = part.data if hasattr(part, "tocsr") else part
        # Faster than isfinite: a sum of squares is finite only if every number is.
        with np.errstate(over="ignore", invalid="ignore"):
            flat = values.ravel(order="K")
            if np.isfinite(np.dot(flat, flat)):
                return
        if np.isfinite(values).all():
            return
        dense = part.toarray() if hasattr(part, "tocsr") else part
        row, column = np.argwhere(~np.isfinite(dense))[0]
        name = "" if self.feature_names is None else f" ({self.feature_names[column]!r})"
        place = f"row {first_row + row}, column {column}{name}"
        raise invalid("X", f"must be finite; got {dense[row, column]} in {place}.")


def _plain(texts: Any) -> Any:
    """A column of pyarrow as a list; other texts as they are."""
    return texts.to_pylist() if hasattr(texts, "to_pylist") else texts
