"""What a router did on rows whose outcomes are known, in one order of experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import BoolArray, FloatArray, IntArray, check_labels
from mild.data import OutcomeTable
from mild.errors import InvalidInputError
from mild.metrics import common_rows, constant_losses, expert_shares, state_choices, summary
from mild.metrics.rows import evaluated_costs

__all__ = ["Evidence", "judge", "mean_known", "same_experts"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Rows that a router was judged on, with its choices.

    Attributes
    ----------
    expert_names : names of the experts, in the router's order
    costs : (n_samples, n_experts), NaN where an expert was never asked
    chosen : (n_samples,) the router's choices
    probabilities : (n_samples, n_experts) its estimate of each expert's share of the reward, or None
    queries : texts, or None
    scores, prices, latencies : (n_samples, n_experts) as in an OutcomeTable, or None
    """

    expert_names: list[str]
    costs: FloatArray
    chosen: IntArray
    probabilities: FloatArray | None = None
    queries: list[str] | None = None
    scores: FloatArray | None = None
    prices: FloatArray | None = None
    latencies: FloatArray | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.costs)

    @property
    def asking(self) -> FloatArray | None:
        """What asking costs, (n_samples, n_experts): the cost without the error; None if nothing."""
        if self.scores is None:
            return None
        # Rounded, or 1.6 - 1 and 0.6 would differ.
        asking: FloatArray = np.round(self.costs - (1 - self.scores), 12)
        return asking if np.nan_to_num(asking).any() else None

    def take(self, rows: BoolArray) -> Evidence:
        """The rows of a mask."""
        picked: dict[str, Any] = {
            name: None if value is None else value[rows]
            for name, value in vars(self).items()
            if name not in ("expert_names", "queries")
        }
        texts = self.queries
        if texts is not None:
            texts = [text for text, kept in zip(texts, rows, strict=True) if kept]
        return replace(self, **picked, queries=texts)

    def means(self, chosen: IntArray) -> dict[str, Any]:
        """Mean cost, quality, dollars per 1,000 rows, seconds and asking cost of these choices."""
        paid = _mean_at(self.prices, chosen)
        return {
            "cost": _mean_at(self.costs, chosen),
            "quality": _mean_at(self.scores, chosen),
            "dollars": None if paid is None else 1000 * paid,
            "seconds": _mean_at(self.latencies, chosen),
            "asking": _mean_at(self.asking, chosen),
            "shares": expert_shares(chosen, len(self.expert_names)).tolist(),
        }

    @classmethod
    def gather(
        cls,
        expert_names: Sequence[str],
        costs: ArrayLike,
        chosen: ArrayLike,
        probabilities: ArrayLike | None,
        table: OutcomeTable | None,
    ) -> Evidence:
        """Check that all of it is about the same rows and experts."""
        known = evaluated_costs(costs).astype(np.float64, copy=False)
        names = list(expert_names)
        if known.shape[1] != len(names):
            raise InvalidInputError(
                f"costs must have one column per expert, {len(names)}; got {known.shape[1]}."
            )
        guess = None if probabilities is None else np.asarray(probabilities, dtype=np.float64)
        if guess is not None and guess.shape != known.shape:
            raise InvalidInputError(
                f"probabilities must have shape (n_samples, n_experts) = {known.shape}; "
                f"got {guess.shape}."
            )
        found = cls(names, known, check_labels(chosen, known.shape, "chosen"), guess)
        if table is None:
            return found
        if table.rows != found.rows:
            raise InvalidInputError(
                f"table and costs must have as many rows; got {table.rows} and {found.rows}."
            )
        texts = table.queries if any(table.queries) else None
        return replace(
            found,
            queries=texts,
            scores=table.scores,
            prices=table.prices,
            latencies=table.latencies,
        )


def same_experts(
    router: Sequence[str], table: OutcomeTable, costs: FloatArray
) -> tuple[OutcomeTable, FloatArray]:
    """The table and its costs in the router's order of experts; other experts are refused.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import outcome_costs, read_outcomes
    >>> table = read_outcomes(pa.table({
    ...     "prompt": ["a", "b"], "correct__small": [1, 0], "correct__large": [1, 1],
    ... }))
    >>> same_experts(["large", "small"], table, outcome_costs(table))[0].expert_names
    ['large', 'small']
    """
    names = table.expert_names
    lacking = [name for name in router if name not in names]
    strange = [name for name in names if name not in router]
    if lacking or strange:
        parts = []
        if lacking:
            parts.append(f"the table has no {_some(lacking)}")
        if strange:
            parts.append(f"the router does not know {_some(strange)}")
        remedy = "" if lacking else " Keep the router's own: --experts, experts=..."
        raise InvalidInputError(
            f"the router was trained on other experts than the table has: {' and '.join(parts)}."
            f"{remedy}"
        )
    order = [names.index(name) for name in router]
    if order == list(range(len(names))):
        return table, costs

    def ordered(values: FloatArray | None) -> FloatArray | None:
        return None if values is None else values[:, order]

    same = replace(
        table,
        expert_names=list(router),
        scores=table.scores[:, order],
        prices=ordered(table.prices),
        latencies=ordered(table.latencies),
    )
    return same, costs[:, order]


def judge(
    evidence: Evidence,
    confidence: float,
    seed: int,
    bundle: IntArray | None = None,
    unit: str = "query",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Verdict on the router against the expert that is best on these very rows, and its figures.

    Both are on the rows in which all that is compared is known.

    Parameters
    ----------
    bundle : (n_samples,) rows with the same number are drawn together; None if each is alone
    unit : what a bundle is: "query" or "group"

    Returns
    -------
    verdict : fields of ``mild.metrics.Statement`` (None where unknown), constant, confidence
    figures : summary of the routing, cost of each constant, means of router, constant and oracle
    """
    found = summary(evidence.costs, evidence.chosen, missing="skip")
    rows = common_rows(evidence.costs, evidence.chosen).rows
    best, judged = found.constant_expert, evidence.take(rows)
    costs, chosen = judged.costs, judged.chosen
    name = judged.expert_names[best]
    statement = state_choices(
        costs,
        chosen,
        best,
        judged.expert_names,
        bundle=None if bundle is None else bundle[rows],
        unit="row" if bundle is None else unit,
        confidence=confidence,
        seed=seed,
        dollars=_price_difference(judged, best),
    )
    verdict = {
        key: None if isinstance(value, float) and np.isnan(value) else value
        for key, value in statement.as_dict().items()
    }
    verdict |= {"constant": name, "confidence": confidence}
    figures = found.as_dict() | {
        "constant_losses": [
            None if np.isnan(loss) else float(loss) for loss in constant_losses(costs)
        ],
        "means": {
            "router": judged.means(chosen),
            "constant": judged.means(np.full(judged.rows, best)),
            "oracle": judged.means(np.nanargmin(costs, axis=1)),
        },
    }
    return verdict, figures


def _price_difference(evidence: Evidence, constant: int) -> float | None:
    """Mean price of the router's choices minus the constant's, on rows that know both."""
    if evidence.prices is None:
        return None
    paid = evidence.prices[np.arange(evidence.rows), evidence.chosen]
    return mean_known(paid - evidence.prices[:, constant])


def mean_known(values: FloatArray) -> float | None:
    """Mean over what is known; None where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _mean_at(values: FloatArray | None, chosen: IntArray) -> float | None:
    return None if values is None else mean_known(values[np.arange(len(values)), chosen])


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
