"""Surrogates: the functions of score gaps that losses use.

The comp-sum family: with ``u_k = sum over k' != k of exp((f_k' - f_k) / rho_k)``,

    Phi_tau(u) = ((1 + u)^(1 - tau) - 1) / (1 - tau),    log(1 + u) at tau = 1.

It is computed from the logistic loss ``ell_k = log(1 + u_k)`` as ``expm1((1 - tau) * ell_k) / (1 - tau)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from mild.core.arrays import invalid
from mild.errors import OptionError, check_option

SURROGATES = ("logistic", "exponential", "hinge", "pairwise_logistic", "pairwise_exponential")


@dataclass(frozen=True)
class Surrogate:
    """A parsed surrogate: its form, and tau for the comp-sum forms.

    ``form`` is "comp_sum" (one function of the sum over rivals), "pairwise" (a sum over rivals of that
    function, the appendix's other loss) or "hinge" (the strongest rival only).
    """

    form: str
    tau: float = 1.0

    @property
    def smooth(self) -> bool:
        """Whether the loss has a gradient everywhere."""
        return self.form != "hinge"

    @property
    def decodable(self) -> bool:
        """Whether the scores of a minimiser determine the distribution it is the minimiser for.

        The hinge has many such distributions; from tau = 2 on, the stationary point is no minimum.
        """
        return self.smooth and self.tau < 2

    @property
    def convex(self) -> bool:
        """Whether the loss is convex in the scores."""
        return self.form == "hinge" or self.tau <= 1

    @property
    def unit(self) -> float:
        """Value at a score gap of 0 against one rival: divide by it to bound the margin loss."""
        if self.form == "hinge":
            return 1.0
        one_minus_tau = 1 - self.tau
        if one_minus_tau == 0:
            return math.log(2)
        return math.expm1(one_minus_tau * math.log(2)) / one_minus_tau


def parse_surrogate(value: object) -> Surrogate:
    """Read "logistic", "exponential", "hinge", "pairwise_...", or a number tau >= 0 (comp-sum).

    Examples
    --------
    >>> parse_surrogate("exponential")
    Surrogate(form='comp_sum', tau=0.0)
    """
    if isinstance(value, Surrogate):
        return value
    if isinstance(value, Real) and not isinstance(value, bool):
        tau = float(value)
        if not (math.isfinite(tau) and tau >= 0):
            raise invalid("surrogate", f"tau must be finite and >= 0; got {value}.")
        return Surrogate("comp_sum", tau)
    try:
        name = check_option("surrogate", value, SURROGATES)
    except OptionError as error:
        raise OptionError(
            f"{error} It may be a name or a number tau >= 0.", parameter="surrogate"
        ) from None
    if name == "hinge":
        return Surrogate("hinge")
    tau = 0.0
    if name.endswith("logistic"):
        tau = 1.0
    if name.startswith("pairwise"):
        return Surrogate("pairwise", tau)
    return Surrogate("comp_sum", tau)
