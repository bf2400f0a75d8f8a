"""The routers that the common tests run over, each with the properties it lacks by design.

To put a new router through ``routers/test_common.py`` and ``routers/test_estimator_checks.py``, add a
``Case`` to ``CASES``.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.score_cascade import ScoreCascadeRouter
from mild.routers.base import BaseRouter
from mild.routers.baselines import ConstantRouter
from mild.routers.cost_models import KNNRouter, PricedRouter, RidgeRouter
from mild.routers.linear import LinearRouter
from mild.routers.neural import NeuralRouter
from mild.routers.search import RouterCV
from mild.routers.stack import BlendRouter


@dataclass(frozen=True)
class Case:
    """A router, and which of the common properties it does not have, by design."""

    name: str
    router: BaseRouter
    grid: tuple[str, tuple[object, ...]]
    # Whether the prediction does not depend on X, so that only shares or means matter.
    constant: bool = False
    # Whether a sample weight of 2 is the same as the row twice.
    weights_are_copies: bool = True
    # Whether the objective has kinks, at which a solver stops near the optimum and not in it.
    kinked: bool = False
    # Whether the largest entry of predict_proba is the choice.
    decides_by_proba: bool = False


def linear(name, kinked=False, by_proba=True, **options):
    return Case(
        f"linear-{name}",
        LinearRouter(alpha=1e-2, tol=1e-10, max_iter=2000, **options),
        ("alpha", (1e-3, 1e-1)),
        kinked=kinked,
        decides_by_proba=by_proba,
    )


CASES = [
    linear("mild"),
    linear("tdef", loss="tdef"),
    Case("constant", ConstantRouter(), ("expert", (None, 0)), constant=True),
    Case("ridge", RidgeRouter(), ("alpha", (0.1, 10.0))),
    Case("knn", KNNRouter(n_neighbors=7), ("n_neighbors", (3, 9))),
    Case("score-cascade", ScoreCascadeRouter(), ("n_thresholds", (5, 9))),
    Case("priced", PricedRouter(), ("alpha", (1e-3, 1e-1))),
    Case("priced-ridge", PricedRouter("ridge"), ("alpha", (1e-3, 1e-1))),
    Case(
        "blend",
        BlendRouter([("linear", LinearRouter(tol=1e-10)), ("knn", KNNRouter(5))], cv=3),
        ("knn__n_neighbors", (3, 7)),
        weights_are_copies=False,
    ),
    Case(
        "neural",
        NeuralRouter(hidden=(16,), epochs=20, batch_size=32, lr=0.05, device="cpu"),
        ("hidden", ((8,), (16,))),
        weights_are_copies=False,
        decides_by_proba=True,
    ),
    Case(
        "search",
        RouterCV(LinearRouter(tol=1e-10), alphas=(1e-2,), cv=2, search_tol=1e-8),
        ("one_standard_error", (True, False)),
        weights_are_copies=False,
        decides_by_proba=True,
    ),
]

# Every loss, surrogate and decision of the linear router.
LINEAR_CASES = [
    linear("mild-argmax", decision="argmax", by_proba=False),
    linear("tdef-argmax", loss="tdef", decision="argmax"),
    linear("complement", rewards="complement"),
    linear("contrast", rewards="contrast"),
    linear("best-counts", counts="best", norms="rms"),
    linear("uniform", margins="uniform"),
    linear("ce", loss="ce"),
    linear("cwce", loss="cwce"),
    linear("ldam", loss="ldam"),
    linear("logit-adjusted", loss="logit_adjusted"),
    linear("temperature", loss="temperature"),
    linear("exponential", surrogate="exponential"),
    linear("exponential-argmax", surrogate="exponential", decision="argmax", by_proba=False),
    linear("tau", surrogate=0.5),
    linear("tau-argmax", surrogate=0.5, decision="argmax", by_proba=False),
    linear("pairwise-logistic", surrogate="pairwise_logistic"),
    linear("pairwise-exponential", surrogate="pairwise_exponential"),
    linear("hinge", surrogate="hinge", rewards="contrast", decision="argmax", kinked=True),
    linear("no-intercept", fit_intercept=False),
]

ALL = [*CASES, *LINEAR_CASES]
