"""Decisions from scores: the paper's argmax, and stationary decoding.

At the minimiser of a smooth surrogate the gradient vanishes, so the reward distribution p solves
``sum_k p_k * grad loss_k(f) = 0``. For the logistic loss that makes p the stationary distribution
of the Markov chain that leaves k for j at rate ``softmax_j(f / rho_k) / rho_k``. Stationary
decoding solves for p and takes the largest entry. For unequal margins argmax of the scores is a
different, inconsistent rule (docs/theory.md).

Three facts keep it cheap and exact:

- experts that share a margin lump: with G distinct margins the chain is G x G, and
  ``p_j = rho_j * sum_g (P_g / rho_g) * softmax_j(f / rho_g)`` gives the single experts back;
- Grassmann-Taksar-Heyman elimination subtracts nothing, so every entry keeps its relative accuracy;
  rows whose rates would underflow are done with logarithms of rates;
- a comp-sum surrogate with tau != 1 only scales the rates out of k, by
  ``softmax_k(f / rho_k)^(tau - 1)``, so ``p_k`` is the logistic one times
  ``softmax_k(f / rho_k)^(1 - tau)``.

To find the largest entry alone, with many margins, a chain between a few of them, the anchors, is
enough (``chain.anchored_distribution``).
"""

from mild.core.decisions.calibration import fit_temperature, relative_costs
from mild.core.decisions.chain import stationary_experts_first
from mild.core.decisions.rules import (
    DECISIONS,
    argmax_last,
    argmax_last_experts_first,
    decide,
    deciding_anchors,
    rows_at_once,
    stationary_choice,
    stationary_distribution,
)

__all__ = [
    "DECISIONS",
    "argmax_last",
    "argmax_last_experts_first",
    "decide",
    "deciding_anchors",
    "fit_temperature",
    "relative_costs",
    "rows_at_once",
    "stationary_choice",
    "stationary_distribution",
    "stationary_experts_first",
]
