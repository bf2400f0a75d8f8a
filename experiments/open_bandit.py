"""Relative error of mild's off-policy estimators on the small Open Bandit logs, beside obp's own table.

``python -m experiments.open_bandit --data FOLDER`` reads the CSV files inside the distribution of obp
(``pip download obp --no-deps``, unpacked: obp/dataset/obd and obp/policy/conf). obp itself is not imported.

The log of the uniform policy says what the Thompson sampling policy would earn; the log of the latter says
what it did earn. Both have 10,000 impressions of 80 items in three positions, with a click in about one of
250. The relative error is ``|estimate - truth| / truth``, the mean over bootstrap samples of the log, as in
obp's examples/obd (30 runs, logistic regression, the campaign "all").

Result: IPW 0.337, SNIPW 0.354, DR 0.350; obp, as reported, 0.311, 0.312, 0.292. All are within one standard
deviation over the samples of each other, and switch-DR and DR-OS do not help here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
import yaml

from experiments.console import main
from experiments.published import Floats, write_results
from mild.core.arrays import FloatArray, IntArray
from mild.errors import DataFileError
from mild.evaluation import (
    LoggedAnswers,
    doubly_robust,
    inverse_propensity,
    self_normalised,
)
from mild_gateway.learning.cost_model import expected_costs

app = typer.Typer(add_completion=False)

#: Mean relative error, as reported in obp's examples/obd for the same logs; not run here.
REPORTED = {
    "DM": 0.157,
    "IPW": 0.311,
    "SNIPW": 0.312,
    "DR": 0.292,
    "SNDR": 0.302,
    "switch-DR": 0.258,
    "DR-OS": 0.160,
}
POSITIONS = 3
#: Largest weight that switch-DR corrects by, and the strength of optimistic shrinkage.
SWITCH, SHRINKAGE = 10.0, 10.0


def read_log(data: Path, policy: str, campaign: str) -> pd.DataFrame:
    """One log, with positions counted from 0."""
    file = data / f"dataset/obd/{policy}/{campaign}/{campaign}.csv"
    if not file.is_file():
        raise DataFileError(f"{file} must exist; name the folder of the unpacked obp with --data.")
    frame = pd.read_csv(file, index_col=0)
    frame["position"] = frame["position"].rank(method="dense").astype(int) - 1
    return frame


def thompson_shares(data: Path, campaign: str, draws: int = 200_000, seed: int = 0) -> Floats:
    """Probability (items, positions) with which the production's Thompson sampling shows each item."""
    priors = yaml.safe_load((data / "policy/conf/prior_bts.yaml").read_text())[campaign]
    alpha, beta = np.asarray(priors["alpha"]), np.asarray(priors["beta"])
    rng = np.random.default_rng(seed)
    counts = np.zeros((len(alpha), POSITIONS))
    block = 10_000
    for _ in range(draws // block):
        order = np.argsort(-rng.beta(alpha, beta, size=(block, len(alpha))), axis=1)
        for position in range(POSITIONS):
            counts[:, position] += np.bincount(order[:, position], minlength=len(alpha))
    return counts / counts.sum(axis=0)


def features(log: pd.DataFrame) -> Floats:
    """Position and user features (n, d), as indicators."""
    names = [name for name in log if name.startswith("user_feature")]
    columns = log[[*names, "position"]].astype(str)
    return pd.get_dummies(columns).to_numpy(np.float64)


def estimates(
    answers: LoggedAnswers, costs: FloatArray, target: FloatArray, expected: FloatArray
) -> dict[str, float]:
    """Mean cost of the new policy by every estimator."""
    weights = answers.ratios(target)
    model = (target * expected).sum(axis=1)
    error = costs - expected[np.arange(len(weights)), answers.expert]

    def corrected(used: FloatArray) -> float:
        return float((model + used * error).mean())

    optimistic = SHRINKAGE * weights / (weights**2 + SHRINKAGE)
    return {
        "DM": float(model.mean()),
        "IPW": inverse_propensity(answers, costs, target).interval.estimate,
        "SNIPW": self_normalised(answers, costs, target).interval.estimate,
        "DR": doubly_robust(answers, costs, target, expected).interval.estimate,
        "switch-DR": corrected(np.where(weights <= SWITCH, weights, 0.0)),
        "DR-OS": corrected(optimistic),
    }


def pooled_clicks(chosen: IntArray, clicks: Floats, n_items: int) -> Floats:
    """Click rate (n_items,) of each item, drawn towards the rate of all by as many rows as it has."""
    counts = np.bincount(chosen, minlength=n_items)
    sums = np.bincount(chosen, clicks, minlength=n_items)
    strength = len(clicks) / n_items
    rates: Floats = (sums + strength * clicks.mean()) / (counts + strength)
    return rates


def run(data: Path, campaign: str, runs: int, seed: int = 0) -> dict[str, Any]:
    """Relative errors of every estimator over bootstrap samples of the uniform policy's log."""
    log, truth = read_log(data, "random", campaign), read_log(data, "bts", campaign)["click"].mean()
    shares = thompson_shares(data, campaign, seed=seed)
    X, rng = features(log), np.random.default_rng(seed)
    items, positions = log["item_id"].to_numpy(), log["position"].to_numpy()
    clicks = log["click"].to_numpy(float)
    errors: dict[str, list[float]] = {}
    for number in range(runs):
        rows = rng.integers(len(log), size=len(log))
        # A row that is drawn twice is one episode of the model, so that no fold predicts its own row.
        expected = expected_costs(X[rows], items[rows], clicks[rows], rows, len(shares), number)
        propensity = log["propensity_score"].to_numpy()[rows]
        answers = LoggedAnswers.one_per_request(items[rows], propensity)
        target = shares[:, positions[rows]].T
        found = estimates(answers, clicks[rows], target, expected.astype(np.float64))
        rates = pooled_clicks(items[rows], clicks[rows], len(shares))
        found["DM, item means"] = float((target @ rates).mean())
        for name, value in found.items():
            errors.setdefault(name, []).append(abs(value - truth) / truth)
    return {
        "relative error": {
            name: {"mean": float(np.mean(each)), "deviation": float(np.std(each))}
            for name, each in errors.items()
        },
        "as reported": REPORTED,
        "truth": float(truth),
        "logged": float(clicks.mean()),
        "campaign": campaign,
        "runs": runs,
        "seed": seed,
    }


def table(results: dict[str, Any]) -> pd.DataFrame:
    """Mild's errors beside obp's."""
    lines = {
        name: {
            "mild": f"{each['mean']:.3f} ± {each['deviation']:.3f}",
            "obp, as reported": results["as reported"].get(name, ""),
        }
        for name, each in results["relative error"].items()
    }
    return pd.DataFrame(lines).T


@app.command(help=__doc__)
def experiment(
    data: Annotated[Path, typer.Option(help="Folder obp of the unpacked distribution.")],
    campaign: Annotated[str, typer.Option(help="all, men or women.")] = "all",
    runs: Annotated[int, typer.Option(min=1, help="Bootstrap samples.")] = 30,
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
    out: Annotated[Path, typer.Option(help="Results file.")] = Path(
        "results/published/open_bandit.json"
    ),
) -> None:
    """Run and write the results."""
    results = run(data, campaign, runs, seed)
    write_results(out, results)
    typer.echo(table(results).to_string())


if __name__ == "__main__":
    main(app)
