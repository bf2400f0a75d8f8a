"""Claim: a MILD fit reaches its optimum sooner than scikit-learn's logistic regression reaches its own.

100,000 x 384 float32, 8 experts with 8 distinct margins, alpha 1e-4, two threads each. Every contender is
timed until it is within 1e-5 (relative) of its own optimum: mild and scikit-learn as the whole fit at the
loosest tolerance that gets there, torch as the time of the first evaluation that is there.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.linear_model import LogisticRegression

from benchmarks.data import planted
from benchmarks.measure import (
    Report,
    environment,
    interleave,
    median_ratio,
    ratio_spread,
    seconds,
)
from mild import nn
from mild.core.costs import cheapest
from mild.core.costs import rewards as make_rewards
from mild.core.losses import mild_loss
from mild.metrics import best_constant, deferral_loss, oracle_loss
from mild.routers import LinearRouter

ALPHA = 1e-4
CLOSE = 1e-5
OPTIONS = {"rewards": "others", "counts": "best", "alpha": ALPHA}


def mild_value(router: LinearRouter, X: np.ndarray, rewards: np.ndarray) -> float:
    """The objective in double precision."""
    total = 0.0
    for start in range(0, len(X), 10_000):
        rows = slice(start, start + 10_000)
        scores = X[rows].astype(np.float64) @ router.coef_.T.astype(np.float64) + router.intercept_
        total += mild_loss(scores, rewards[rows], router.margins_).sum()
    return total + ALPHA * float(np.square(router.coef_, dtype=np.float64).sum())


def logistic_value(model: LogisticRegression, X: np.ndarray, y: np.ndarray) -> float:
    """The objective of multinomial logistic regression on the same scale."""
    total = 0.0
    for start in range(0, len(X), 10_000):
        rows = slice(start, start + 10_000)
        scores = X[rows].astype(np.float64) @ model.coef_.T.astype(np.float64) + model.intercept_
        top = scores.max(axis=1)
        log_sum = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top
        total += float((log_sum - scores[np.arange(len(scores)), y[rows]]).sum())
    return total / len(X) + ALPHA * float(np.square(model.coef_, dtype=np.float64).sum())


def logistic(n: int, tol: float) -> LogisticRegression:
    return LogisticRegression(C=1 / (2 * n * ALPHA), tol=tol, max_iter=2000)


def loosest(values: dict[float, float], optimum: float) -> float:
    """Largest tolerance whose value is close to the optimum."""
    return max(tol for tol, value in values.items() if value <= optimum * (1 + CLOSE))


def torch_seconds(X: np.ndarray, rewards: np.ndarray, margins: np.ndarray, target: float) -> float:
    """torch L-BFGS with autograd on the same objective, until its value first reaches ``target``."""
    inputs, weights = torch.from_numpy(X), torch.from_numpy(rewards.astype(np.float32))
    rho = torch.from_numpy(margins.astype(np.float32))
    W = torch.zeros(len(margins), X.shape[1], requires_grad=True)
    b = torch.zeros(len(margins), requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [W, b],
        max_iter=400,
        history_size=10,
        line_search_fn="strong_wolfe",
        tolerance_grad=0.0,
        tolerance_change=0.0,
    )
    start = time.perf_counter()

    class ReachedError(Exception):
        pass

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.mild_loss(inputs @ W.T + b, weights, rho).sum() + ALPHA * W.square().sum()
        loss.backward()
        if loss.item() <= target:
            raise ReachedError
        return loss

    try:
        optimizer.step(closure)
    except ReachedError:
        return time.perf_counter() - start
    return float("inf")


def vowpal(X: np.ndarray, costs: np.ndarray, X_test: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Vowpal Wabbit's cost-sensitive one-against-all: seconds to write, to learn; choices."""
    from vowpalwabbit import Workspace

    def line(x: np.ndarray, c: np.ndarray | None) -> str:
        label = (
            " ".join(f"{k + 1}:{v:.6g}" for k, v in enumerate(c))
            if c is not None
            else " ".join(str(k + 1) for k in range(costs.shape[1]))
        )
        return label + " | " + " ".join(f"{j}:{v:.5g}" for j, v in enumerate(x))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.vw"

        def write() -> None:
            with path.open("w") as file:
                for x, c in zip(X, costs, strict=True):
                    file.write(line(x, c) + "\n")

        writing = seconds(write)
        start = time.perf_counter()
        model = Workspace(f"--csoaa {costs.shape[1]} -d {path} --passes 3 -c -k -b 18 --quiet")
        learning = time.perf_counter() - start
        chosen = np.array([model.predict(line(x, None)) - 1 for x in X_test])
        model.finish()
    return writing, learning, chosen


def run(repeats: int = 5, with_vowpal: bool = True) -> Report:
    """Measure and return the table."""
    torch.set_num_threads(2)
    every, all_costs = planted(120_000)
    X, costs = every[:100_000].copy(), all_costs[:100_000]
    X_test, costs_test = every[100_000:], all_costs[100_000:]
    n = len(X)
    y = cheapest(costs)
    best = LinearRouter(tol=1e-10, **OPTIONS).fit(X, costs)
    rewards = make_rewards(costs.astype(np.float64), "others")
    rewards /= rewards.sum()
    optimum = mild_value(best, X, rewards)
    ladder = {}
    for tol in (1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
        ladder[tol] = mild_value(LinearRouter(tol=tol, **OPTIONS).fit(X, costs), X, rewards)
    tol_mild = loosest(ladder, min(optimum, *ladder.values()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        theirs = {}
        for tol in (1e-4, 6e-5, 3e-5, 1e-5, 1e-6):
            theirs[tol] = logistic_value(logistic(n, tol).fit(X, y), X, y)
        tol_sklearn = loosest(theirs, min(theirs.values()))
    optimum = min(optimum, *ladder.values())
    target = optimum * (1 + CLOSE)
    times = interleave(
        {
            "mild": lambda: seconds(lambda: LinearRouter(tol=tol_mild, **OPTIONS).fit(X, costs)),
            "sklearn": lambda: seconds(lambda: logistic(n, tol_sklearn).fit(X, y)),
            "sklearn default": lambda: seconds(lambda: logistic(n, 1e-4).fit(X, y)),
            "torch": lambda: torch_seconds(X, rewards, best.margins_, target),
        },
        repeats,
    )
    tracemalloc.start()
    LinearRouter(**OPTIONS).fit(X, costs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    report = Report("Fitting a linear router")
    report.notes = [
        __doc__.split("\n\n")[1].replace("\n", " ") if __doc__ else "",
        f"Data: `benchmarks/data.py: planted(120_000)`, seed 0, 100,000 rows to train on, 20,000 to judge. "
        f"Margins {np.array2string(best.margins_, precision=2)}. Median of {repeats} interleaved rounds "
        f"(range). {environment(('numpy', 'scipy', 'scikit-learn', 'torch'))}.",
    ]
    report.add(f"mild `LinearRouter(tol={tol_mild:g})`", str(times["mild"]))
    report.add(f"scikit-learn `LogisticRegression(tol={tol_sklearn:g})`", str(times["sklearn"]))
    report.add("scikit-learn, its default tol 1e-4", str(times["sklearn default"]))
    report.add("torch L-BFGS with autograd, same objective", str(times["torch"]))
    first = median_ratio(times["mild"], times["sklearn"])
    report.add(
        "mild / scikit-learn", ratio_spread(times["mild"], times["sklearn"]), "≤ 0.7", first <= 0.7
    )
    second = median_ratio(times["mild"], times["torch"])
    report.add("mild / torch", ratio_spread(times["mild"], times["torch"]), "≤ 0.6", second <= 0.6)
    report.contenders = {
        "mild": list(times["mild"].seconds),
        "torch L-BFGS": list(times["torch"].seconds),
        "scikit-learn": list(times["sklearn"].seconds),
    }
    share = peak / X.nbytes
    report.add("peak extra memory in fit / size of X", f"{share:.3f}", "≤ 0.25", share <= 0.25)
    mine = best.predict(X_test)
    baseline = logistic(n, 1e-4).fit(X, y).predict(X_test)
    constant = best_constant(costs)
    report.add("deferral loss: mild", f"{deferral_loss(costs_test, mine):.4f}")
    report.add(
        "deferral loss: scikit-learn on labels", f"{deferral_loss(costs_test, baseline):.4f}"
    )
    fixed = costs_test[:, constant.expert].mean()
    report.add(
        "deferral loss: best constant, oracle", f"{fixed:.4f}, {oracle_loss(costs_test):.4f}"
    )
    if with_vowpal:
        writing, learning, chosen = vowpal(X, costs, X_test)
        loss = deferral_loss(costs_test, chosen)
        report.contenders["Vowpal Wabbit, 3 passes"] = [learning]
        report.add(
            "Vowpal Wabbit csoaa, 3 passes: learn (and write its text format)",
            f"{learning:.3g} s ({writing:.3g} s); deferral loss {loss:.4f}",
        )
    return report


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 5).markdown())
