"""The services of docs/guides/registries.md: stand-ins for BentoML and KServe, and MLflow itself."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from mild.artifact.content import PICKLE_SUFFIXES
from text_router_cases import text_router

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "registries.md"
QUERIES = ["What is 17 * 23?", "Who wrote Faust?"]


def text_with(word):
    """The block of the guide that holds a word."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    return found


def code_with(word):
    return compile(text_with(word), word, "exec")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a block of the guide where the router is, with a stand-in for a package."""
    monkeypatch.chdir(tmp_path)
    text_router().save("router")

    def of(package, **names):
        stand_in = ModuleType(package)
        vars(stand_in).update(names)
        monkeypatch.setitem(sys.modules, package, stand_in)
        found = {"__name__": "service"}
        exec(code_with(f"import {package}" if package == "bentoml" else "from kserve"), found)
        return SimpleNamespace(**found)

    return of


def test_the_service_of_bentoml_routes(run):
    service = run("bentoml", service=lambda one: one, api=lambda one: one)
    assert service.RouterService().route(QUERIES) == text_router().route(QUERIES)


async def test_the_model_of_kserve_routes(run):
    model = run("kserve", Model=object, ModelServer=None).RouterModel()
    assert model.load()
    found = await model.predict({"instances": QUERIES})
    assert found == {"predictions": text_router().route(QUERIES)}


# MLflow makes the tables of a new store, which takes seconds. SQLAlchemy and pydantic warn about it.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_router_is_logged_and_loaded_by_mlflow(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    router = text_router()
    router.save("router")
    Path("router_model.py").write_text(text_with("class RouterModel(mlflow"), encoding="utf-8")
    found = {}
    exec(code_with("mlflow.pyfunc.log_model"), found)
    expected = router.route_table(QUERIES)
    assert list(found["frame"].columns) == list(expected)
    assert found["frame"]["expert"].tolist() == router.route(QUERIES)
    assert found["router"].route_table(QUERIES) == expected
    names = [file.name for file in Path(found["folder"]).rglob("*") if file.is_file()]
    assert not [name for name in names if name.endswith(PICKLE_SUFFIXES)]
