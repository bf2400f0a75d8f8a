"""The public names: which there are, and what importing them costs."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import mild
import mild.cli
from mild import core, metrics

PUBLIC = [
    "BlendRouter",
    "CascadeRouter",
    "ConstantRouter",
    "KNNRouter",
    "LinearRouter",
    "NeuralRouter",
    "Outcomes",
    "PricedRouter",
    "RidgeRouter",
    "Router",
    "RouterCV",
    "__version__",
    "compare",
    "evaluate",
    "fit",
    "load",
    "read_outcomes",
    "save",
    "tune",
]


#: Packages whose stub lists their names.
WITH_A_STUB = [
    "mild",
    "mild.batch",
    "mild.cli",
    "mild.core",
    "mild.evaluation",
    "mild.routers",
    "mild.tuning",
]
#: Modules that other distributions may import.
PUBLIC_MODULES = [
    *WITH_A_STUB, "mild.artifact", "mild.data", "mild.errors", "mild.features", "mild.metrics",
    "mild.policies",
]  # fmt: skip


def _parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_the_public_names_are_pinned() -> None:
    assert sorted(mild.__all__) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(mild, name) is not None
        assert name in dir(mild)


@pytest.mark.parametrize("package_name", WITH_A_STUB)
def test_every_line_of_a_stub_is_a_name_that_is_loaded(package_name) -> None:
    package = importlib.import_module(package_name)
    stub = Path(package.__file__).with_suffix(".pyi")
    imports = [line for line in stub.read_text().splitlines() if line.startswith("from ")]
    names = []
    for line in imports:
        _, module, _, name, _, alias = line.split()
        assert name == alias
        names.append(name)
        assert getattr(package, name) is getattr(importlib.import_module(module), name)
    if package is mild.cli:
        # Defined in the package itself.
        names.append("main")
    assert sorted(names) == sorted(package.__all__)


@pytest.mark.parametrize("module_name", PUBLIC_MODULES)
def test_every_public_function_and_class_has_a_docstring(module_name) -> None:
    module = importlib.import_module(module_name)
    undocumented = []
    for name in module.__all__:
        value = getattr(module, name)
        is_documented = value.__doc__ and not value.__doc__.startswith(f"{name}(")
        # That of a dataclass without one is its signature.
        if (inspect.isfunction(value) or inspect.isclass(value)) and not is_documented:
            undocumented.append(name)
    assert undocumented == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        mild.no_such_name  # noqa: B018


def test_the_signatures_are_those_promised() -> None:
    assert _parameters(core.cost_matrix) == ["predictions", "labels", "betas"]
    assert _parameters(core.rewards) == ["costs", "kind", "cost_scale", "strength"]
    assert _parameters(core.reward_distribution) == ["rewards"]
    expected = ["scores", "rewards", "margins", "surrogate", "return_gradient"]
    assert _parameters(core.mild_loss)[:5] == expected
    assert _parameters(core.expert_mass) == ["costs", "rewards", "counts", "strength"]
    assert _parameters(core.theory_margins)[:3] == ["mass", "norms", "total"]
    assert _parameters(core.stationary_distribution) == ["scores", "margins", "surrogate"]
    assert _parameters(core.decide) == ["scores", "margins", "decision", "surrogate"]
    assert _parameters(metrics.deferral_loss)[:2] == ["costs", "chosen"]


def _modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {line.split(".")[0] for line in done.stdout.split()}


def test_importing_mild_imports_nothing_heavy() -> None:
    loaded = _modules_after("import mild")
    assert not loaded & {"numpy", "torch", "sklearn", "scipy", "pyarrow", "rich", "typer"}


def test_the_numpy_functions_need_neither_scikit_learn_nor_scipy() -> None:
    loaded = _modules_after("from mild import core; core.decide([[0.0, 1.0]], [1.0, 2.0])")
    assert not loaded & {"torch", "sklearn", "scipy"}


def test_loading_an_artefact_and_deciding_needs_neither_scikit_learn_nor_scipy(tmp_path) -> None:
    router = mild.LinearRouter(margins=(1.0, 2.0, 0.5)).fit(
        [[0.0], [1.0], [2.0], [3.0]], [[0, 1, 2], [1, 0, 1], [1, 1, 0], [0, 2, 1]]
    )
    mild.save(router, tmp_path / "router")
    loaded = _modules_after(
        f"import mild; mild.load({str(tmp_path / 'router')!r}).predict([[1.0], [2.0]])"
    )
    assert not loaded & {"torch", "sklearn", "scipy", "pyarrow"}
