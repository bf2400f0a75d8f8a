"""Parts that the comparisons with published routers share: tables, intervals, results files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.clusters import ClusterRouter
from experiments.records import surroundings
from mild.errors import DataFileError
from mild.features import make_features
from mild.routers import LinearRouter, RouterCV

Floats = NDArray[np.float64]
#: Folds inside the training rows, as ``mild tune`` has.
FOLDS = 5
RESAMPLES = 2_000


def read_parquet(file: Path, columns: Sequence[str]) -> pd.DataFrame:
    """A table that has at least these columns."""
    if not file.is_file():
        raise DataFileError(f"{file} must exist; name its folder with --data.")
    frame = pd.read_parquet(file)
    missing = [name for name in columns if name not in frame]
    if missing:
        raise DataFileError(f"{file} must have the columns {', '.join(columns)}; no {missing[0]}.")
    return frame


def tuned(
    texts: Sequence[str],
    costs: Floats,
    families: Any = "auto",
    seed: int = 0,
    encoder: str | None = None,
    clusters: bool = False,
) -> Callable[[Sequence[str]], Floats]:
    """What ``mild tune`` learns from texts and costs: a function from texts to expected costs (n, p).

    With an ``encoder``, texts become its vectors beside hashed n-grams; with ``clusters``, the blend has
    their mean costs as a further member.
    """
    step = make_features("hashing+encoder", source=encoder) if encoder else make_features()
    step.fit(texts)
    # The ranking is measured, also where the best constant would decide as well.
    search = RouterCV(
        LinearRouter(ties="first"),
        families=families,
        candidates=[ClusterRouter()] if clusters else [],
        cv=FOLDS,
        constant_if_better=False,
        random_state=seed,
    )
    policy = search.fit(step.transform(texts), costs).policy_
    return lambda new: -policy.decision_function(step.transform(new)).astype(np.float64)


def bootstrap_means(values: Floats, groups: Sequence[str], seed: int = 0) -> dict[str, Floats]:
    """Means (RESAMPLES,) of the values of each group, over rows drawn again within the group."""
    rng = np.random.default_rng(seed)
    labels = np.asarray(groups)
    means = {}
    for name in dict.fromkeys(groups):
        own = values[labels == name]
        # Counts of a multinomial draw are the same as drawing rows, and need less memory.
        counts = rng.multinomial(len(own), np.full(len(own), 1 / len(own)), size=RESAMPLES)
        means[name] = counts @ own / len(own)
    return means


def interval(samples: Floats) -> list[float]:
    """The central 95 % of bootstrap samples."""
    return np.quantile(samples, [0.025, 0.975]).tolist()


def write_results(file: Path, results: Mapping[str, Any]) -> None:
    """Write results with versions, hardware, commit and time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {**results, **surroundings(torch=False)}
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
