"""What the paper's margins are, and what they do to an ideal router.

``python -m experiments.theory.margins`` prints two tables, in about 20 s of processor time:

- how unequal the theory's margins are in each table of the paper, computed from the population;
- what they change for a router without any error of learning, on answers like the paper's language models'.

The page docs/science/errors-of-the-paper.md says what follows.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from experiments.theory import bounds
from mild import core, datasets
from mild.core.arrays import FloatArray, IntArray

#: Labels of SVHN's training digits 0 to 9.
SVHN_DIGITS = (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659)
#: Shares of the classes of each data set, in the order in which experts know them.
CLASS_SHARES = {
    "CIFAR-10": np.full(10, 1 / 10),
    "CIFAR-100": np.full(100, 1 / 100),
    "SVHN": np.array(SVHN_DIGITS) / sum(SVHN_DIGITS),
    "Tiny ImageNet": np.full(200, 1 / 200),
}
#: Prices of the 7B, the 1.5B and the 0.5B model.
PRICES = (1.0, 0.6, 0.1)
#: What the paper's shares leave open: the 1.5B model alone is right, and all three are.
MIDDLE_ALONE, ALL_RIGHT = 0.06, 0.13
#: The two readings of the paper's counts, as in ``mild.core.expert_mass``.
COUNTS = ("reward", "best")
SIGNALS = (1.0, 1.5, 2.0)
N_INPUTS, SEEDS = 1000, (0, 1, 2)


class Population(NamedTuple):
    """Rows of costs (n_rows, n_experts) and how often each occurs (n_rows,)."""

    costs: FloatArray
    weights: FloatArray


def synthetic_experts(setup: str, dataset: str, with_shares: bool) -> Population:
    """The paper's synthetic experts: right on their classes, uniform guesses over all classes elsewhere.

    ``with_shares`` adds to each expert's errors the share of the classes that it knows.
    """
    coverage = np.array(datasets.SETUPS[setup]) / sum(datasets.SETUPS[setup])
    class_shares = CLASS_SHARES[dataset]
    last_classes = np.rint(coverage.cumsum() * len(class_shares)).astype(int)
    owner_shares = np.diff(class_shares.cumsum()[last_classes - 1], prepend=0.0)
    guess = 1 / len(class_shares)
    costs, weights = [], []
    for owner, right in itertools.product(
        range(len(coverage)), itertools.product((0, 1), repeat=len(coverage))
    ):
        if right[owner]:
            n_lucky = sum(right) - 1
            n_unlucky = len(coverage) - 1 - n_lucky
            costs.append(1 - np.array(right) + coverage * with_shares)
            weights.append(owner_shares[owner] * guess**n_lucky * (1 - guess) ** n_unlucky)
    return Population(np.array(costs, dtype=float), np.array(weights))


def language_models(prices: tuple[float, ...] = PRICES) -> tuple[FloatArray, Population]:
    """Who is right (8, 3), and the population, from the rows "Optimal" and TDEF (a) of the paper's Table 3.

    In (b) 31.2 % are the 7B's (it alone is right) and 12.0 % the 1.5B's (it is right, the 0.5B is not). In
    (a) 12.8 % are the 1.5B's (the 7B is wrong) and 5.0 % the 0.5B's (both others are wrong); the 7B
    errs on 43.8 %, so on 26.0 % nobody is right.
    """
    none = 0.438 - 0.128 - 0.05
    two_small = 0.128 - MIDDLE_ALONE
    share = {
        (1, 0, 0): 0.312,
        (1, 1, 0): 0.12 - MIDDLE_ALONE,
        (0, 1, 0): MIDDLE_ALONE,
        (0, 1, 1): two_small,
        (0, 0, 1): 0.05,
        (1, 1, 1): ALL_RIGHT,
        (1, 0, 1): 1 - 0.312 - 0.12 - none - 0.05 - two_small - ALL_RIGHT,
        (0, 0, 0): none,
    }
    right = np.array(list(share), dtype=float)
    return right, Population(1 - right + np.array(prices), np.array(list(share.values())))


def theory_margins(population: Population, counts: str) -> FloatArray:
    """The paper's margins (n_experts,) of sum 1, all feature norms equal, with ``others`` rewards.

    ``counts`` is "reward" or "best", as for ``mild.core.expert_mass``.
    """
    costs, weights = population
    if counts == "reward":
        members = core.reward_distribution(core.rewards(costs, "others"))
    else:
        members = np.eye(costs.shape[1])[core.cheapest(costs)]
    return core.theory_margins(weights @ members, total=1.0)


def ratio(population: Population, counts: str) -> float:
    """The largest of the theory's margins over the smallest."""
    margins = theory_margins(population, counts)
    return float(margins.max() / margins.min())


class Routed(NamedTuple):
    """Mean cost of a rule on every input (n_inputs,), and whom it asks."""

    costs: FloatArray
    chosen: IntArray


def ideal_routers(signal: float, seed: int, n_inputs: int = N_INPUTS) -> dict[str, Routed]:
    """Routers that minimise the surrogate exactly at every input, by their margins and their rule.

    An input is a noisy view of who is right: ``signal * right + N(0, I)``. The router knows the law of the
    answers given the input, so nothing is learned and nothing is estimated.
    """
    right, population = language_models()
    costs, weights = population
    rng = np.random.default_rng(seed)
    drawn = rng.choice(len(weights), n_inputs, p=weights)
    X = signal * right[drawn] + rng.normal(size=(n_inputs, right.shape[1]))
    distance = ((X[:, None, :] - signal * right) ** 2).sum(axis=2)
    posterior = weights * np.exp((distance.min(axis=1, keepdims=True) - distance) / 2)
    posterior /= posterior.sum(axis=1, keepdims=True)
    expected, gain = posterior @ costs, posterior @ core.rewards(costs, "others")

    def routed(chosen: IntArray) -> Routed:
        return Routed(expected[np.arange(n_inputs), chosen], chosen)

    found = {"always 0.5B": routed(np.full(n_inputs, 2))}
    margins = {"equal": np.full(3, 1 / 3)}
    margins |= {f"theory, {key} counts": theory_margins(population, key) for key in COUNTS}
    for name, rho in margins.items():
        scores = bounds.exact_minimiser(gain, rho)
        for rule in ("argmax", "stationary"):
            found[f"{name}, {rule}"] = routed(core.decide(scores, rho, decision=rule))
    return found


def _ratio_table() -> Table:
    table = Table("", *CLASS_SHARES, box=box.SIMPLE_HEAD, title="largest over smallest margin")
    for counts in COUNTS:
        for with_shares, part in ((False, "(a)"), (True, "(b)")):
            for setup in ("I", "II", "III") if with_shares else ("I", "II", "III", "severe"):
                cells = (
                    f"{ratio(synthetic_experts(setup, name, with_shares), counts):.3f}"
                    for name in CLASS_SHARES
                )
                table.add_row(f"{counts} counts, {part} {setup}", *cells)
        for prices, part in (((0.0, 0.0, 0.0), "(a)"), (PRICES, "(b)")):
            table.add_row(
                f"{counts} counts, language models {part}",
                f"{ratio(language_models(prices)[1], counts):.3f}",
            )
    return table


def _ideal_table() -> Table:
    columns = ("signal", "margins and rule", "mean cost", "minus equal margins", "asked, %")
    table = Table(
        *columns, box=box.SIMPLE_HEAD, title="ideal routers among the 7B, the 1.5B and the 0.5B"
    )
    for signal in SIGNALS:
        draws = [ideal_routers(signal, seed) for seed in SEEDS]
        equal = np.concatenate([draw["equal, argmax"].costs for draw in draws])
        for name in draws[0]:
            costs = np.concatenate([draw[name].costs for draw in draws])
            chosen = np.concatenate([draw[name].chosen for draw in draws])
            more = costs - equal
            error = more.std(ddof=1) / np.sqrt(len(more))
            shares = 100 * np.bincount(chosen, minlength=3) / len(chosen)
            table.add_row(
                f"{signal:g}",
                name,
                f"{costs.mean():.4f}",
                f"{more.mean():+.4f} ± {error:.4f}",
                " / ".join(f"{share:.1f}" for share in shares),
            )
    return table


def main() -> None:
    """Print both tables."""
    console = Console(width=100)
    console.print(_ratio_table())
    console.print(_ideal_table())


if __name__ == "__main__":
    main()
