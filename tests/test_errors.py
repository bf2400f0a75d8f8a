"""The error tree, and options that suggest what was meant."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import mild
from mild import errors as error_module
from mild.errors import InvalidInputError, MildError, MildWarning, OptionError, check_option

BUILTINS = {
    "InvalidInputError": ValueError,
    "OptionError": ValueError,
    "UnsupportedError": TypeError,
    "MissingExtraError": ImportError,
    "RouterFileError": ValueError,
    "DataFileError": ValueError,
    "OutputExistsError": FileExistsError,
}


def classes() -> dict[str, type]:
    return {
        name: value
        for name, value in vars(error_module).items()
        if inspect.isclass(value) and value.__module__ == "mild.errors"
    }


def test_every_error_is_a_mild_error_and_refines_a_builtin() -> None:
    errors = {
        n: c
        for n, c in classes().items()
        if issubclass(c, Exception) and c.__name__[-5:] == "Error"
    }
    assert set(errors) == {*BUILTINS, "MildError"}
    for name, builtin in BUILTINS.items():
        assert issubclass(errors[name], MildError)
        assert issubclass(errors[name], builtin)


def test_every_warning_is_a_mild_warning_and_a_user_warning() -> None:
    warnings = [c for c in classes().values() if issubclass(c, Warning)]
    assert len(warnings) == 4
    for warning in warnings:
        assert issubclass(warning, MildWarning)
        assert issubclass(warning, UserWarning)


def test_the_tree_is_drawn_at_the_top_and_lists_every_class() -> None:
    for name in classes():
        assert name in (error_module.__doc__ or "")


def test_all_lists_every_class() -> None:
    functions = {"check_arguments", "check_option", "count_noun", "install_hint", "listed"}
    assert set(error_module.__all__) == {*classes(), *functions}


def test_known_options_pass_through() -> None:
    assert check_option("rule", "argmax", ("stationary", "argmax")) == "argmax"


def test_an_unknown_option_names_the_rule_the_value_and_the_nearest_option() -> None:
    with pytest.raises(OptionError) as caught:
        check_option("rule", "stationery", ("stationary", "argmax"))
    assert str(caught.value) == (
        "rule must be one of 'stationary', 'argmax'; got 'stationery'. Did you mean 'stationary'?"
    )


def test_an_option_far_from_all_others_suggests_nothing() -> None:
    with pytest.raises(OptionError) as caught:
        check_option("rule", "xyz", ("stationary", "argmax"))
    assert str(caught.value) == "rule must be one of 'stationary', 'argmax'; got 'xyz'."


@pytest.mark.parametrize("value", [None, 3, ["argmax"]])
def test_a_value_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(OptionError, match="rule must be one of 'argmax'; got"):
        check_option("rule", value, ("argmax",))


def test_an_unknown_argument_is_named_with_those_there_are() -> None:
    with pytest.raises(InvalidInputError) as caught:
        mild.tune([], seed=3)
    assert (caught.value.parameter, caught.value.code) == ("seed", "invalid_seed")
    assert "it takes data" in str(caught.value)
    with pytest.raises(InvalidInputError, match="Did you mean 'keep_quality'"):
        mild.tune([], keep_qualty=1.0)
    # A constructor is called by the name of its class.
    with pytest.raises(InvalidInputError, match="of RouterCV"):
        mild.RouterCV(no_such_argument=1)


def test_codes_are_stable_and_name_the_parameter() -> None:
    codes = {name: cls.code for name, cls in classes().items() if issubclass(cls, MildError)}
    assert codes == {
        "MildError": "error",
        "InvalidInputError": "invalid_input",
        "OptionError": "unknown_option",
        "UnsupportedError": "unsupported",
        "MissingExtraError": "missing_extra",
        "RouterFileError": "invalid_router_file",
        "DataFileError": "invalid_data_file",
        "OutputExistsError": "output_exists",
    }
    with pytest.raises(OptionError) as caught:
        check_option("--price-kind", "x", ["a"])
    assert (caught.value.parameter, caught.value.code) == ("price_kind", "invalid_price_kind")


def test_a_message_is_made_of_parameter_and_rule():
    error = InvalidInputError(parameter="n_folds", rule="must be at least 2.")
    assert str(error) == "n_folds must be at least 2."
    assert error.code == "invalid_n_folds"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.parameter, again.code) == (str(error), "n_folds", error.code)


def test_an_install_hint_names_the_checkout_that_mild_is_in() -> None:
    checkout = Path(error_module.__file__).parents[2]
    assert error_module.install_hint("ray") == f"pip install '{checkout}[ray]'"


@pytest.mark.parametrize(
    ("recorded", "extra", "hint"),
    [
        (None, "ray", "pip install 'mild-learn[ray]'"),
        ('{"url": "file:///x.whl"}', "ray", "pip install 'mild-learn[ray] @ file:///x.whl'"),
        (None, "gateway", "pip install 'mild-learn[gateway]'"),
        (
            '{"url": "file:///mild", "dir_info": {}}',
            "gateway",
            "pip install 'mild-gateway @ file:///mild/gateway'",
        ),
        (
            '{"url": "file:///dist/x.whl"}',
            "gateway",
            "pip install --find-links 'file:///dist' 'mild-learn[gateway] @ file:///dist/x.whl'",
        ),
    ],
)
def test_an_install_hint_names_where_mild_came_from(monkeypatch, recorded, extra, hint) -> None:
    found = SimpleNamespace(read_text=lambda name: recorded)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: found)
    monkeypatch.setattr(error_module, "__file__", "/usr/lib/python3/site-packages/mild/errors.py")
    assert error_module.install_hint(extra) == hint


def texts_outside_docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and content of every text of a module that is not a docstring."""
    docstrings = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            docstrings.add(id(body[0].value))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str):
            yield node.lineno, node.value


def test_messages_of_the_library_name_no_options_of_commands():
    """Options have the names of the parameters, which a message names; Python has no options."""
    package = Path(mild.__file__).parent
    # Remedies that are commands of a shell.
    commands = (
        "ray start --head",
        "pip install --upgrade",
        "pip install --find-links",
        "mild evaluate TABLE",
        "add `--overwrite`",
    )
    found = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        if place.parts[0] == "cli":
            continue
        for line, text in texts_outside_docstrings(ast.parse(path.read_text(encoding="utf-8"))):
            named = re.search(r"(?<![\w-])--[a-z]", text)
            if named and not any(command in text for command in commands):
                found.append(f"{place}:{line}: {text}")
    assert found == []
