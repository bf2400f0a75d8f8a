"""Costs of the experiments: as they are, with noise, and skewed until one expert is nearly always best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mild.arrays import FloatArray
from mild.exceptions import InvalidInputError, check_option

__all__ = ["NOISES", "Noise", "Skew", "noisy_costs", "query_lengths", "skewed_prices"]

NOISES = ("additive", "relative")
# Keeps the noise apart from everything else that is drawn from the same small seeds.
STREAM = 0x4E4F4953


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on the costs that a router is trained on.

    The paper speaks of 20 % random Gaussian variations of the cost matrix and says no more. Read here
    as ``max(0, c + std * z)`` (``additive``: a fifth of one wrong answer), or as ``max(0, c * (1 + std *
    z))`` (``relative``: a fifth of the cost itself, which leaves costs of 0 alone), z standard normal,
    one draw per row and expert.
    """

    kind: str = "additive"
    std: float = 0.2

    def __post_init__(self) -> None:
        check_option("noise", self.kind, NOISES)
        if not (math.isfinite(self.std) and self.std >= 0):
            raise InvalidInputError(f"noise_std must be finite and not negative; got {self.std}.")


def noisy_costs(costs: FloatArray, noise: Noise, seed: int) -> FloatArray:
    """Costs (n, p) as an imperfect estimate would give them.

    Examples
    --------
    >>> noisy_costs(np.zeros((1, 2)), Noise("relative"), seed=0)
    array([[0., 0.]])
    """
    z = np.random.default_rng([STREAM, seed]).standard_normal(costs.shape)
    varied = costs + noise.std * z if noise.kind == "additive" else costs * (1 + noise.std * z)
    return np.maximum(varied, 0.0)


@dataclass(frozen=True)
class Skew:
    """Prices that make the first expert the cheapest on a share of the rows.

    The paper gives neither its skewed costs nor how they were found. Prices that are one number per
    expert cannot do it: errors are 0 or 1, so the share moves in a few large jumps. Here a price is
    per word: ``beta_k * words / mean words``, and that of every expert but the first is raised by the
    same ``added * words / mean words``, with the least ``added`` that reaches the share.
    """

    share: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidInputError(f"share must lie between 0 and 1; got {self.share}.")


def query_lengths(queries: Sequence[str]) -> FloatArray:
    """Words of each query over their mean, at least one word each.

    Examples
    --------
    >>> query_lengths(["one two three", ""])
    array([1.5, 0.5])
    """
    words = np.array([max(1, len(query.split())) for query in queries], dtype=np.float64)
    return words / words.mean()


def skewed_prices(
    errors: FloatArray, beta: Sequence[float], lengths: FloatArray, share: float
) -> tuple[FloatArray, float]:
    """Prices (n, p) per word, raised until expert 0 is cheapest on ``share`` of the rows; the raise.

    Row i turns to expert 0 (ties are its own) once the raise reaches
    ``max_k (e_i0 - e_ik) / length_i + beta_0 - beta_k``; the least raise that turns enough rows is a
    quantile of that.

    Examples
    --------
    >>> errors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    >>> prices, added = skewed_prices(errors, (0.0, 0.0), np.array([0.5, 1.5, 1.0]), 0.6)
    >>> round(added, 3), ((errors + prices).argmin(axis=1) == 0).tolist()
    (0.667, [False, True, True])
    """
    prices = np.asarray(beta, dtype=np.float64)
    needed = ((errors[:, :1] - errors[:, 1:]) / lengths[:, None] + prices[0] - prices[1:]).max(
        axis=1
    )
    place = math.ceil(share * len(needed)) - 1
    added = max(0.0, float(np.sort(needed)[place]))
    raised = np.concatenate([prices[:1], prices[1:] + added])
    # Rounding must not undo what the raise was chosen for.
    return np.where(np.arange(len(prices)) > 0, 1 + 1e-12, 1.0) * raised * lengths[:, None], added
