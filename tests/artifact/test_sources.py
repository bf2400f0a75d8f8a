"""Every fitted router, pipelines and searches can be saved; what cannot is told why."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mild.artifact import load, save
from mild.core.surrogates import parse_surrogate
from mild.errors import InvalidInputError, UnsupportedError
from mild.features import HashingFeatures
from mild.policies import ConstantPolicy
from mild.routers.baselines import ConstantRouter
from mild.routers.classifier import CostSensitiveClassifier
from mild.routers.cost_models import KNNRouter, PricedRouter, RidgeRouter
from mild.routers.linear import LinearRouter
from mild.routers.search import RouterCV
from mild.routers.stack import BlendRouter

ROUTERS = [
    LinearRouter(),
    LinearRouter("tdef", decision="argmax"),
    LinearRouter(surrogate="hinge"),
    LinearRouter(surrogate=0.5, margins=[1.0, 2.0, 0.5]),
    RidgeRouter(),
    KNNRouter(n_neighbors=5),
    ConstantRouter(),
    ConstantRouter(expert=2),
    PricedRouter(),
    BlendRouter(cv=3),
    RouterCV(alphas=[0.01], margin_factors=[1.0], cv=3),
    RouterCV(alphas=[0.01], margin_factors=[1.0], cv=3, safe=True),
]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(3, 2, size=(120, 4))
    costs = np.abs(X @ rng.normal(size=(4, 3)) + rng.normal(size=(120, 3)))
    return X, costs


@pytest.mark.filterwarnings("ignore::mild.errors.ConvergenceWarning")  # the hinge has kinks
@pytest.mark.parametrize("router", ROUTERS, ids=lambda router: repr(router)[:60])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fitted_router_decides_the_same_from_disk(router, dtype, data, tmp_path):
    X, costs = data[0].astype(dtype), data[1].astype(dtype)
    router = router.fit(X, costs)
    back = load(save(router, tmp_path / "router", data=(X, costs)))
    np.testing.assert_array_equal(back.predict(X), router.predict(X))
    np.testing.assert_array_equal(back.predict_proba(X), router.predict_proba(X))
    assert back.info.estimator.class_name == type(router).__name__
    assert back.info.data.rows == 120
    assert back.experts == ["expert_0", "expert_1", "expert_2"]


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("std", [True, False])
def test_a_pipeline_of_scalers_decides_the_same_from_disk(mean, std, data, tmp_path):
    X, costs = data
    pipeline = make_pipeline(
        StandardScaler(with_mean=mean, with_std=std),
        "passthrough",
        StandardScaler(),
        LinearRouter(),
    ).fit(X, costs)
    back = load(save(pipeline, tmp_path / "router"))
    np.testing.assert_array_equal(back.predict(X), pipeline.predict(X))
    np.testing.assert_allclose(
        back.decision_function(X), pipeline.decision_function(X), rtol=1e-9, atol=1e-12
    )
    assert back.info.kind == "standardized"
    assert back.info.estimator.class_name == "LinearRouter"


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(1)
    queries = [
        " ".join(rng.choice(["boil", "salt", "add", "seven", "verse"], 4)) for _ in range(80)
    ]
    return queries, np.array([["boil" not in q, "seven" in q, 0.6] for q in queries], float)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_pipeline_from_texts_decides_the_same_from_disk(scaled, texts, tmp_path):
    queries, costs = texts
    features = HashingFeatures(n_components=8).fit(queries)
    X = features.transform(queries)
    scalers = [StandardScaler().fit(X)] if scaled else []
    X = scalers[0].transform(X) if scaled else X
    router = LinearRouter().fit(X, costs)
    pipeline = make_pipeline(features, "passthrough", *scalers, router)
    back = load(save(pipeline, tmp_path / "router", experts=["cook", "adder", "poet"]))
    np.testing.assert_array_equal(back.predict_texts(queries), router.predict(X))
    assert back.route(queries[:1]) == [back.experts[router.predict(X[:1])[0]]]
    assert back.feature_names is None
    pipeline.steps.insert(0, ("scaler", StandardScaler().fit(X)))
    with pytest.raises(UnsupportedError, match="first step") as caught:
        save(pipeline, tmp_path / "other")
    assert caught.value.parameter == "router"


def test_a_network_decides_the_same_from_disk_without_torch(data, tmp_path):
    pytest.importorskip("torch")
    from mild.routers.neural import NeuralRouter

    X, costs = data[0].astype(np.float32), data[1].astype(np.float32)
    router = NeuralRouter(hidden=(8,), epochs=2, random_state=0).fit(X, costs)
    back = load(save(router, tmp_path / "router"))
    assert back.info.kind == "perceptron"
    np.testing.assert_array_equal(back.predict(X), router.predict(X))


def test_a_custom_module_is_refused_with_the_reason(data, tmp_path):
    torch = pytest.importorskip("torch")
    from mild.routers.neural import NeuralRouter

    X, costs = data[0].astype(np.float32), data[1].astype(np.float32)
    router = NeuralRouter(module=torch.nn.Linear(4, 3), epochs=1, random_state=0).fit(X, costs)
    with pytest.raises(UnsupportedError, match="weights need its code"):
        save(router, tmp_path / "router")


class OwnPolicy(ConstantPolicy):
    """A policy that mild does not know."""

    kind = "own"


def test_a_policy_that_mild_does_not_know_is_refused(data, tmp_path):
    router = ConstantRouter().fit(*data)
    router.policy_ = OwnPolicy(np.ones(3), 4)
    with pytest.raises(UnsupportedError, match="ConstantRouter decides by OwnPolicy, which cannot"):
        save(router, tmp_path / "router")


def test_a_search_over_a_pipeline_saves_its_best(data, tmp_path):
    X, costs = data
    pipeline = make_pipeline(StandardScaler(), LinearRouter())
    search = GridSearchCV(pipeline, {"linearrouter__alpha": [1e-3, 10.0]}, cv=2).fit(X, costs)
    back = load(save(search, tmp_path / "router"))
    np.testing.assert_array_equal(back.predict(X), search.predict(X))
    alpha = search.best_params_["linearrouter__alpha"]
    assert back.info.estimator.params["alpha"] == alpha


def test_a_tuned_router_says_what_won(data, tmp_path):
    X, costs = data
    search = RouterCV(alphas=[0.01, 0.1], margin_factors=[1.0], cv=2, progress=print_nothing)
    back = load(save(search.fit(X, costs), tmp_path / "router"))
    estimator = back.info.estimator
    assert estimator.best_family == "linear"
    assert estimator.best_params["alpha"] == search.best_params_["alpha"]
    assert estimator.params["progress"] == "print_nothing"


def test_rows_of_folds_are_counted_and_not_written(data, tmp_path):
    X, costs = data
    folds = [(np.arange(20, 120), np.arange(20)), (np.arange(100), np.arange(100, 120))]
    search = RouterCV(alphas=[0.01], margin_factors=np.ones(len(X)), cv=folds)
    params = load(save(search.fit(X, costs), tmp_path / "r")).info.estimator.params
    assert params["margin_factors"] == f"{len(X)} values"
    assert params["cv"][0] == ["100 values", list(range(20))]


def print_nothing(done, total, message):
    """Progress that nobody sees."""


def test_column_names_travel_with_the_router(data, tmp_path):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(data[0], columns=["a", "b", "c", "d"])
    costs = pandas.DataFrame(data[1], columns=["small", "medium", "large"])
    for number, router in enumerate(
        [LinearRouter(), make_pipeline(StandardScaler(), LinearRouter())]
    ):
        back = load(save(router.fit(X, costs), tmp_path / str(number)))
        assert back.experts == ["small", "medium", "large"]
        assert back.feature_names == ["a", "b", "c", "d"]


def test_parameters_are_plain_json(data, tmp_path):
    X, costs = data
    router = LinearRouter(
        surrogate=parse_surrogate("logistic"),
        margins=np.array([1.0, 2.0, 3.0]),
        alpha=np.float32(1),
    )
    folder = save(router.fit(X, costs), tmp_path / "router")
    params = json.loads((folder / "router.json").read_text())["estimator"]["params"]
    assert params["surrogate"] == {"form": "comp_sum", "tau": 1.0}
    assert params["margins"] == [1.0, 2.0, 3.0]
    assert params["alpha"] == 1.0


REFUSED = [
    (make_pipeline(PCA(2), LinearRouter()), r"step 'pca' \(PCA\)\. Save the router only"),
]


@pytest.mark.parametrize(("router", "sentence"), REFUSED, ids=lambda value: str(value)[:30])
def test_routers_that_cannot_be_served_are_refused_by_name(router, sentence, data, tmp_path):
    with pytest.raises(UnsupportedError, match=sentence):
        save(router.fit(*data), tmp_path / "router")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "router", [LinearRouter(), make_pipeline(StandardScaler(), LinearRouter()), RouterCV()]
)
def test_an_unfitted_router_is_refused(router, tmp_path):
    with pytest.raises(
        InvalidInputError, match=r"must be fitted before it is saved.*fit\(X, costs\)"
    ):
        save(router, tmp_path / "router")


@pytest.mark.parametrize("thing", [3, "router", LogisticRegression(), CostSensitiveClassifier()])
def test_an_object_that_is_not_a_router_is_refused(thing, tmp_path):
    with pytest.raises(UnsupportedError, match="router must be a fitted router of mild"):
        save(thing, tmp_path / "router")
