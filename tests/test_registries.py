"""The services of docs/guides/registries.md, with stand-ins for the packages that serve them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from mild.gateway.demo import demo_router

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "registries.md"
QUERIES = ["What is 17 * 23?", "Who wrote Faust?"]


def code_with(word):
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    return compile(found, word, "exec")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a block of the guide where the router is, with a stand-in for a package."""
    monkeypatch.chdir(tmp_path)
    demo_router().save("router")

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
    assert service.RouterService().route(QUERIES) == demo_router().route(QUERIES)


async def test_the_model_of_kserve_routes(run):
    model = run("kserve", Model=object, ModelServer=None).RouterModel()
    assert model.load()
    found = await model.predict({"instances": QUERIES})
    assert found == {"predictions": demo_router().route(QUERIES)}
