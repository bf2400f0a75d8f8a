"""Routers that read queries, in memory and on disk."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest

import mild
from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.features import HashingFeatures
from mild.routers.baselines import ConstantRouter
from mild.routers.cost_models import KNNRouter, PricedRouter, RidgeRouter
from mild.routers.linear import LinearRouter
from mild.routers.stack import BlendRouter
from mild.tuning.fitting import fit_task, make_saved_router, make_text_features
from mild.tuning.tasks import make_task
from outcome_cases import make_columns

ROUTERS = {
    "linear": LinearRouter,
    "argmax": lambda: LinearRouter(decision="argmax"),
    "ridge": RidgeRouter,
    "knn": KNNRouter,
    "priced": PricedRouter,
    "stack": BlendRouter,
    "constant": ConstantRouter,
}


@cache
def text_router():
    """A fitted router."""
    return mild.fit(pa.table(make_columns(45, prices=True)), "priced", price_weight=50.0)


def save_task(fitted, task, folder, notes=None):
    """Save what was fitted on a task."""
    return make_saved_router(fitted, task, notes).save(folder)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Name of a router to its folder, fitted when first asked for."""
    made = {}
    parent = tmp_path_factory.mktemp("routers")

    def folder(name, text="hashing"):
        if (name, text) not in made:
            columns = make_columns(120)
            columns["embedding"] = [[float(len(p)), float(p.count("o"))] for p in columns["prompt"]]
            task = make_task(read_outcomes(pa.table(columns)), CostTerms({"cook": 0.2}))
            step = make_text_features(
                task.table, HashingFeatures(n_components=16) if text == "hashing" else text
            )
            fitted = fit_task(task, ROUTERS[name](), step)
            made[name, text] = save_task(fitted, task, str(parent / f"{name}-{text}"))
        return made[name, text]

    return folder
