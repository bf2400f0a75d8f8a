"""``mild.mlflow``: routers in a local store of MLflow."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import mild
from cascade_cases import EASY, HARD, cascade_router
from mild.artifact import RouterInfo
from mild.artifact.content import PICKLE_SUFFIXES
from mild.errors import MildError
from mild.gateway.demo import demo_router
from mild.policies import LinearCostPolicy

mlflow = pytest.importorskip("mlflow")
pd = pytest.importorskip("pandas")
TEXTS = [EASY, HARD, "Who wrote Faust?"]


@pytest.fixture(scope="module")
def flavor(tmp_path_factory):
    """``mild.mlflow`` with a store in SQLite, without telemetry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        folder = tmp_path_factory.mktemp("store")
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        patch.chdir(folder)
        import mild.mlflow

        yield mild.mlflow


@pytest.fixture
def predict(flavor, tmp_path):
    """Save a router, load it as a python_function, and predict."""

    def of(router, *inputs, **options):
        flavor.save_model(router, tmp_path / "model", **options)
        return mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(*inputs)

    return of


# Making the tables of a new store takes seconds. SQLAlchemy and pydantic warn about what MLflow does.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_logged_router_is_loaded_from_the_registry(flavor):
    router = demo_router()
    info = flavor.log_model(router, "router", registered_model_name="demo", tags={"kind": "test"})
    found = flavor.load_model("models:/demo/1")
    assert found.route_table(TEXTS) == router.route_table(TEXTS)
    function = mlflow.pyfunc.load_model(info.model_uri)
    frame = function.predict(pd.DataFrame({"query": TEXTS}, index=[5, 6, 7]))
    assert list(frame.index) == [5, 6, 7]
    assert frame["expert"].tolist() == router.route(TEXTS)
    costs = [f"expected_cost__{name}" for name in router.expert_names]
    assert np.allclose(frame[costs], router.expected_costs(router.features(TEXTS)))


def test_a_model_holds_no_pickle_and_the_card(flavor, tmp_path):
    flavor.save_model(demo_router(), tmp_path / "model", metadata={"team": "search"})
    names = [file.name for file in (tmp_path / "model").rglob("*") if file.is_file()]
    assert {"MLmodel", "README.md", "router.json", "tensors.safetensors"} <= set(names)
    assert not [name for name in names if name.endswith(PICKLE_SUFFIXES)]
    needed = (tmp_path / "model" / "requirements.txt").read_text()
    assert f"mild-learn[mlflow]=={mild.__version__}" in needed
    assert repr(flavor.load_model(str(tmp_path / "model"))) == repr(demo_router())


def test_a_cascade_gives_its_first_step(predict):
    frame = predict(cascade_router(), pd.DataFrame({"query": [EASY]}))
    assert list(frame["first_step"][0]) == ["small", "medium"]


def test_queries_of_several_columns_are_made_as_in_training(predict):
    query = {"columns": ["question"], "choices": ["A", "B"], "vectors": None}
    router = demo_router()
    router.info = RouterInfo.from_notes({"query": query})
    frame = predict(router, pd.DataFrame({"B": ["5"], "A": ["4"], "question": ["2 + 2"], "x": [1]}))
    whole = router.route_table(["2 + 2\nA. 4\nB. 5"])
    assert frame["p__rules"].tolist() == whole["p__rules"]


def test_a_router_of_numbers_takes_its_columns_by_name(predict):
    policy = LinearCostPolicy(np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2))
    router = mild.Router(policy, ["a", "b"], ["x", "y"])
    frame = predict(router, pd.DataFrame({"y": [1.0, 2.0], "x": [3, 0], "z": [0, 0]}))
    assert frame["expert"].tolist() == ["b", "a"]
    assert frame["expected_cost__a"].tolist() == [3.0, 0.0]


def test_a_fitted_estimator_can_be_saved_and_other_things_cannot(predict, flavor, tmp_path):
    router = mild.LinearRouter().fit([[0.0], [1.0], [2.0]], [[0, 1], [0, 1], [1, 0]])
    assert predict(router, [[0.0]])["expert"].tolist() == ["expert_0"]
    with pytest.raises(MildError) as caught:
        flavor.save_model("router", tmp_path / "none")
    assert caught.value.code == "invalid_router"
    model = mlflow.models.Model()
    (tmp_path / "other").mkdir()
    model.save(str(tmp_path / "other" / "MLmodel"))
    with pytest.raises(MildError) as caught:
        flavor.load_model(str(tmp_path / "other"))
    assert caught.value.code == "not_a_router"


def test_a_frame_without_the_queries_is_refused(predict):
    router = demo_router()
    frame = pd.DataFrame({"a": ["x"], "b": ["y"]})
    with pytest.raises(Exception, match="query"):
        predict(router, frame)


def test_without_mlflow_the_extra_is_named():
    code = (
        "import sys; sys.modules['mlflow'] = None; import mild.mlflow; mild.mlflow.load_model('x')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingExtraError" in done.stderr
    assert "[mlflow]" in done.stderr
