"""The error tree.

MildError                    root of everything mild raises on purpose
├── InvalidInputError        (ValueError)         an array, a number or a column breaks its rule
│   └── OptionError          (ValueError)         an option has a value we do not know
├── UnsupportedError         (TypeError)          this router cannot do what was asked, and why
├── MissingExtraError        (ImportError)        an optional package is needed
├── RouterFileError            (ValueError)         a router on disk cannot be trusted or read
├── DataFileError            (ValueError)         a data file cannot be read as asked
└── OutputExistsError        (FileExistsError)    writing would destroy what is there

MildWarning (UserWarning)
├── ConvergenceWarning       the solver stopped before its tolerance
├── DegenerateDataWarning    the data leave nothing, or not everything, to learn
└── TuningInterruptedWarning RouterCV was stopped; the best router so far is kept
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

__all__ = [
    "ConvergenceWarning",
    "DataFileError",
    "DegenerateDataWarning",
    "InvalidInputError",
    "MildError",
    "MildWarning",
    "MissingExtraError",
    "OptionError",
    "OutputExistsError",
    "RouterFileError",
    "TuningInterruptedWarning",
    "UnsupportedError",
    "check_arguments",
    "check_option",
    "count_noun",
    "install_hint",
    "listed",
]

#: Code -> cause and remedy, of codes that do not name a parameter.
CODES = {
    "error": ("Any other error of mild.", "Follow the message."),
    "invalid_input": ("An array, a number or a column breaks its rule.", "Correct the value."),
    "unknown_option": ("An option has a value that mild does not know.", "Use one of the values named."),
    "unsupported": ("This router cannot do what was asked.", "Use a router that can do it."),
    "missing_extra": ("An optional package is needed.", "Run the `pip install` command of the message."),
    "invalid_router_file": ("A saved router is damaged, or cannot be trusted.", "Save it again."),
    "nothing_to_change": ("No option says what to change about a key.", "Give an option."),
    "reserved_key_name": ("A key cannot have this name.", "Give it another name."),
    "invalid_data_file": ("A file cannot be read as asked.", "Correct the file, or name its columns."),
    "output_exists": ("Writing would replace what is there.", "Write elsewhere, or add `--overwrite`."),
    "interrupted": ("Ctrl-C.", "Run the command again; the message says if something was saved."),
    "version_changed": ("Another process changed the router that serves.", "Run the command again."),
    "broken_command": ("A command of another package cannot be loaded.", "Update or remove that package."),
    "version_mismatch": ("mild-gateway and mild-learn differ in version.", "Install the same version."),
    "one_expert": ("A table to tune on has one expert.", "Add the outcomes of another expert."),
    "no_right_answer": ("No expert was right in any row.", "Check the column of the scores."),
    "one_class": ("All labels of a classifier are the same.", "Give rows of at least two classes."),
    "unknown_class": ("A label or an answer is not a class.", "Correct it, or leave it missing."),
    "expert_without_answers": ("An expert has no answer to any row.", "Leave out its column."),
    "one_expert_only": ("A loss for one expert was given several.", "Use a loss for several experts."),
    "no_expert_probability": ("A method does not estimate whether experts are right.", "Use `ova`."),
    "body_not_saved": ("A torch module cannot be saved.", "Fit body `linear` or `mlp`."),
}  # fmt: skip
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class MildError(Exception):
    """Root of the errors that mild raises on purpose.

    Parameters
    ----------
    message : str, default=""
        What is wrong, the rule, what was got, and the remedy.
    parameter : str, default=None
        Name of the parameter with the wrong value, if there is one.
    code : str, default=None
        Stable code for programs. By default ``invalid_<parameter>``, or without a parameter that of the
        class.
    rule : str, default=None
        The part of the message after the name of the parameter. The message is then ``parameter`` and
        ``rule``, and ``message`` may be left out.

    Examples
    --------
    >>> error = InvalidInputError("margins must be positive; got -1.", parameter="margins")
    >>> error.code, error.parameter
    ('invalid_margins', 'margins')
    """

    code: str | None = "error"

    def __init__(
        self,
        message: str = "",
        *,
        parameter: str | None = None,
        code: str | None = None,
        rule: str | None = None,
    ) -> None:
        if not message and rule:
            message = f"{parameter} {rule}"
        super().__init__(message)
        self.parameter = parameter
        if code is not None:
            self.code = code
        elif parameter is not None:
            self.code = f"invalid_{parameter}"


class InvalidInputError(MildError, ValueError):
    """An array, a number or a column breaks its rule."""

    code = "invalid_input"


class OptionError(InvalidInputError):
    """An option has a value that mild does not know."""

    code = "unknown_option"


class UnsupportedError(MildError, TypeError):
    """This router cannot do what was asked."""

    code = "unsupported"


class MissingExtraError(MildError, ImportError):
    """An optional package is needed for this."""

    code = "missing_extra"


class RouterFileError(MildError, ValueError):
    """A router on disk cannot be trusted or read."""

    code = "invalid_router_file"


class DataFileError(MildError, ValueError):
    """A data file cannot be read as asked."""

    code = "invalid_data_file"


class OutputExistsError(MildError, FileExistsError):
    """Writing would destroy what is there."""

    code = "output_exists"


class MildWarning(UserWarning):
    """Root of the warnings that mild gives."""


class ConvergenceWarning(MildWarning):
    """The solver stopped before its tolerance was met."""


class DegenerateDataWarning(MildWarning):
    """The data leave nothing, or not everything, to learn."""


class TuningInterruptedWarning(MildWarning):
    """The search was stopped early; the best router so far is kept."""


def check_option(name: str, value: object, allowed: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``allowed``; otherwise raise an error that suggests a similar one.

    Parameters
    ----------
    name : str
        Name of the parameter or option, such as "loss" or "--loss".
    value : object
        Its value.
    allowed : iterable of str
        The values that it may have.

    Returns
    -------
    str
        The value.

    Raises
    ------
    OptionError
        If the value is not allowed.
    """
    allowed_values = list(allowed)
    if isinstance(value, str) and value in allowed_values:
        return value
    rule = f"must be one of {', '.join(map(repr, allowed_values))}; got {value!r}."
    close_values = difflib.get_close_matches(str(value), allowed_values, n=1)
    if close_values:
        rule += f" Did you mean {close_values[0]!r}?"
    parameter = name.lstrip("-").replace("-", "_")
    raise OptionError(f"{name} {rule}", parameter=parameter, rule=rule)


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that unknown and missing arguments raise errors of mild.

    Python would raise a TypeError. The error of mild suggests a similar argument.

    >>> @check_arguments
    ... def split(table, test_size=0.3): ...
    >>> split([], tset_size=0.5)
    Traceback (most recent call last):
    ...
    mild.errors.InvalidInputError: tset_size is not an argument of split. Did you mean 'test_size'?
    """
    signature = inspect.signature(function)
    argument_names = [name for name in signature.parameters if name not in ("self", "cls")]
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    has_keyword_arguments = inspect.Parameter.VAR_KEYWORD in kinds
    function_name = function.__name__
    if function_name == "__init__":
        # Users know a constructor by the name of its class.
        function_name = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in argument_names and not has_keyword_arguments:
                raise _unknown_argument(function_name, name, argument_names)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            rule = f"must fit {function_name}, which takes {listed(argument_names)}: {error}."
            raise InvalidInputError(parameter="arguments", rule=rule) from error
        return function(*args, **kwargs)

    return checked


def _unknown_argument(
    function_name: str, name: str, argument_names: Sequence[str]
) -> InvalidInputError:
    """Return the error for an argument that a function does not have."""
    close_names = difflib.get_close_matches(name, argument_names, n=1)
    if close_names:
        rule = f"is not an argument of {function_name}. Did you mean {close_names[0]!r}?"
    else:
        rule = f"is not an argument of {function_name}; it takes {listed(argument_names)}."
    return InvalidInputError(parameter=name, rule=rule)


def check_constructor(kind: type[T]) -> type[T]:
    """Decorate a class so that unknown and missing arguments of its constructor raise errors of mild."""
    kind.__init__ = check_arguments(kind.__init__)  # type: ignore[method-assign]
    return kind


def listed(names: Sequence[str], most: int = 12) -> str:
    """Join names for a message; of a long list, only the first ones.

    Parameters
    ----------
    names : sequence of str
        The names.
    most : int, default=12
        Number of names that are written out.

    Returns
    -------
    str
        The names, separated by commas; "none" if there are none.

    Examples
    --------
    >>> listed(["a", "b", "c", "d"], most=2)
    'a, b and 2 more'
    """
    if not names:
        return "none"
    text = ", ".join(names[:most])
    n_others = len(names) - most
    if n_others > 0:
        text += f" and {n_others} more"
    return text


def count_noun(count: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun; by default the plural ends in s.

    >>> count_noun(1, "row"), count_noun(2263, "query", "queries")
    ('1 row', '2,263 queries')
    """
    if count == 1:
        return f"1 {singular}"
    return f"{count:,} {plural or singular + 's'}"


def install_hint(extra: str, distribution_name: str = "mild-learn") -> str:
    """Return the command that installs an optional dependency.

    It installs from where mild itself was installed: a package index, a checkout of the repository, a URL
    or a wheel.

    Parameters
    ----------
    extra : str
        Name of the extra, such as "excel"; "gateway" stands for the distribution mild-gateway.
    distribution_name : str, default="mild-learn"
        The distribution that has the extra.

    Returns
    -------
    str
        A ``pip install`` command.
    """
    from pathlib import Path

    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        # mild runs from the source tree of a checkout.
        if distribution_name == "mild-gateway":
            return f"pip install '{checkout}/gateway[{extra}]'"
        if extra == "gateway":
            return f"pip install '{checkout}/gateway'"
        return f"pip install '{checkout}[{extra}]'"
    source = _install_source(distribution_name)
    url = source.get("url")
    if not url:
        return f"pip install '{distribution_name}[{extra}]'"
    if extra == "gateway" and "dir_info" in source:
        return f"pip install 'mild-gateway @ {url}/gateway'"
    if extra == "gateway" and url.endswith(".whl"):
        # Both wheels are built into one folder.
        folder, _, _ = url.rpartition("/")
        return f"pip install --find-links '{folder}' 'mild-learn[gateway] @ {url}'"
    return f"pip install '{distribution_name}[{extra}] @ {url}'"


def _install_source(distribution_name: str) -> dict[str, Any]:
    """Return the content of direct_url.json, which pip writes if it did not install from an index."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution(distribution_name).read_text("direct_url.json")
        return dict(json.loads(text or "{}"))
    except (PackageNotFoundError, ValueError):
        return {}
