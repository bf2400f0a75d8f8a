"""Records of trainings that never took place, for the tests of what is made of records."""

from __future__ import annotations

from typing import Any

from mild.reproduce.results import cell_key

COVERAGE = {
    "I": [0.7, 0.2, 0.1],
    "II": [0.5, 0.2, 0.2, 0.1],
    "III": [0.4, 0.2, 0.2, 0.1, 0.1],
    "severe": [0.9, 0.1],
}
PROTOCOLS = {
    "paper": {
        "name": "paper",
        "epochs": 200,
        "batch_size": 1024,
        "lr": 1e-3,
        "weight_decay": 1e-3,
        "schedule": "constant",
        "augment": True,
        "width": 64,
    },
    "fast": {
        "name": "fast",
        "epochs": 16,
        "batch_size": 1024,
        "lr": 5e-3,
        "weight_decay": 1e-3,
        "schedule": "one-cycle",
        "augment": True,
        "width": 64,
    },
}
OPTIONLESS = {"rewards": None, "counts": None, "margins": None, "total": None}
TDEF = {"name": "tdef", **OPTIONLESS}
LDAM = {"name": "ldam", **OPTIONLESS}
UNIFORM = {
    "name": "mild",
    "rewards": "others",
    "counts": None,
    "margins": "uniform",
    "total": "mean1",
}
THEORY = {
    "name": "mild",
    "rewards": "others",
    "counts": "best",
    "margins": "theory",
    "total": "1",
}
TUNED = {"name": "mild", "rewards": "any", "counts": None, "margins": "tuned", "total": "mean1"}


def make_record(
    method: dict[str, Any] = TDEF,
    seed: int = 0,
    losses: dict[str, float] | float = 0.05,
    *,
    protocol: str | dict[str, Any] = "fast",
    reference: dict[str, Any] | None = None,
    finished: str = "2026-02-03T04:05:06+00:00",
    note: str = "",
    commit: str | None = "0123456789abcdef",
    hardware: str = "one GPU",
    versions: dict[str, str] | None = None,
    seconds: float = 12.5,
    shares: list[float] | None = None,
    margins: list[float] | None = None,
    **cell: Any,
) -> dict[str, Any]:
    """One record; ``losses`` by decision, or one for argmax; the rest of ``cell`` as asked."""
    setup = cell.get("setup", "I")
    coverage = COVERAGE.get(setup, [0.6, 0.3, 0.1])
    full = {
        "table": "table1",
        "dataset": "cifar10",
        "data": "00112233aabbccdd",
        "setup": setup,
        "coverage": coverage,
        "experts": "synthetic",
        "cost": "error",
        "holdout": False,
        "expert_seed": None,
        "protocol": dict(PROTOCOLS[protocol]) if isinstance(protocol, str) else protocol,
        "method": dict(method),
        "seed": seed,
        **cell,
    }
    p = len(full["coverage"])
    by_decision = losses if isinstance(losses, dict) else {"argmax": losses}
    constant = 0.9 * (1 - full["coverage"][0])
    return {
        "schema": 1,
        "key": cell_key(full),
        "cell": full,
        "margins": margins,
        "outcomes": {
            decision: {
                "loss": loss,
                "shares": list(full["coverage"]) if shares is None else shares,
                "recall": [0.9] * (p - 1) + [None],
            }
            for decision, loss in by_decision.items()
        },
        "reference": reference
        or {
            "oracle": 0.01,
            "oracle_shares": list(full["coverage"]),
            "constant": constant,
            "constant_expert": 0,
        },
        "chosen": None,
        "training": {"seconds": seconds, "images_per_second": 1e5, "final_loss": 0.1},
        "versions": {"mild": "0.1.0", "torch": "2.11.0"} if versions is None else versions,
        "hardware": hardware,
        "commit": commit,
        "finished": finished,
        "note": note,
    }


def three_seeds() -> list[dict[str, Any]]:
    """TDEF and a reading of MILD on one cell with three seeds, and one training on digits."""
    made = []
    for seed, (tdef, argmax, stationary) in enumerate(
        [(0.05, 0.5, 0.04), (0.06, 0.6, 0.05), (0.04, 0.4, 0.031)]
    ):
        made.append(make_record(TDEF, seed, tdef, shares=[0.725, 0.175, 0.1]))
        losses = {"argmax": argmax, "stationary": stationary}
        made.append(make_record(THEORY, seed, losses, margins=[0.5, 0.3, 0.2]))
    return [*made, make_record(dataset="digits", note="1,797 digits")]
