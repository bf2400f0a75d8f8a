"""The error tree.

MildError                    root of everything mild raises on purpose
├── InvalidInputError        (ValueError)         an array, a number or a column breaks its rule
│   └── OptionError          (ValueError)         an option has a value we do not know
├── UnsupportedError         (TypeError)          this router cannot do what was asked, and why
├── MissingExtraError        (ImportError)        an optional package is needed
├── ArtifactError            (ValueError)         a router on disk cannot be trusted or read
├── DataFileError            (ValueError)         a data file cannot be read as asked
├── OutputExistsError        (FileExistsError)    writing would destroy what is there
└── RemovedNameError         (AttributeError)     a name of an earlier version, and what to use instead

MildWarning (UserWarning)
├── ConvergenceWarning       the solver stopped before its tolerance
├── DegenerateDataWarning    the data leave nothing, or not everything, to learn
└── TuningInterruptedWarning the search was stopped; what was found is kept
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

from mild.removed import removal_message

__all__ = [
    "ArtifactError",
    "ConvergenceWarning",
    "DataFileError",
    "DegenerateDataWarning",
    "InvalidInputError",
    "MildError",
    "MildWarning",
    "MissingExtraError",
    "OptionError",
    "OutputExistsError",
    "RemovedNameError",
    "TuningInterruptedWarning",
    "UnsupportedError",
    "check_arguments",
    "check_option",
    "counted",
    "install_hint",
    "listed",
    "missing_name",
]

#: Code -> cause and remedy, of codes that do not name a parameter.
CODES = {
    "error": ("Any other error of mild.", "Follow the message."),
    "invalid_input": ("An array, a number or a column breaks its rule.", "Correct the value."),
    "unknown_option": ("An option has a value that mild does not know.", "Use one of the values named."),
    "unsupported": ("This router cannot do what was asked.", "Use a router that can do it."),
    "missing_extra": ("An optional package is needed.", "Run the `pip install` command of the message."),
    "invalid_artifact": ("A saved router is damaged, or cannot be trusted.", "Save it again."),
    "old_router": ("A router was saved by mild 0.9 or earlier.", "Train it again, or use mild 0.9."),
    "invalid_data_file": ("A file cannot be read as asked.", "Correct the file, or name its columns."),
    "output_exists": ("Writing would replace what is there.", "Write elsewhere, or add `--overwrite`."),
    "interrupted": ("Ctrl-C.", "Run the command again; the message says what was saved."),
    "no_labels": ("The table has no scores of the new expert.", "Grade some of its answers."),
    "version_changed": ("Another process changed the router that serves.", "Run the command again."),
    "not_a_router": ("A repository holds no router.", "Name another one."),
    "repository_not_found": ("A repository does not exist, or is private.", "Check its name; log in."),
    "revision_not_found": ("A repository has no such revision.", "Name a branch, tag or commit of it."),
    "hub_refused": ("The Hub refused access.", "Log in with `hf auth login`, or give a token."),
    "hub_unreachable": ("The Hub cannot be reached.", "Check the network, or load a local copy."),
    "hub_failed": ("The Hub answered with an error.", "Try again later."),
    "broken_command": ("A command of another package cannot be loaded.", "Update or remove that package."),
    "version_mismatch": ("mild-gateway and mild-learn differ in version.", "Install the same version."),
    "removed": ("A command, parameter, name or value is gone.", "Use what the message says."),
}  # fmt: skip
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class MildError(Exception):
    """Root of the errors that mild raises on purpose.

    Parameters
    ----------
    message : what is wrong, the rule, what was got, and the remedy
    parameter : name of the parameter that is at fault, if one is
    code : stable code; by default that of the class, or ``invalid_<parameter>``
    rule : what the message says after the name of the parameter; the message may be left out then
    place : what the message says before that name, such as a file

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
        place: str = "",
    ) -> None:
        super().__init__(message or (f"{place}{parameter} {rule}" if rule else ""))
        self.parameter, self.rule, self.place = parameter, rule, place
        if code is not None:
            self.code = code
        elif parameter is not None:
            self.code = f"invalid_{parameter}"

    def message_about(self, name: str) -> str:
        """The message with another name of the parameter, such as that of its option."""
        return str(self) if self.rule is None else f"{self.place}{name} {self.rule}"


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


class ArtifactError(MildError, ValueError):
    """A router on disk cannot be trusted or read."""

    code = "invalid_artifact"


class DataFileError(MildError, ValueError):
    """A data file cannot be read as asked."""

    code = "invalid_data_file"


class OutputExistsError(MildError, FileExistsError):
    """Writing would destroy what is there."""

    code = "output_exists"


class RemovedNameError(MildError, AttributeError):
    """A name that mild once had, and what to use instead."""

    code = "removed"


class MildWarning(UserWarning):
    """Root of the warnings that mild gives."""


class ConvergenceWarning(MildWarning):
    """The solver stopped before its tolerance was met."""


class DegenerateDataWarning(MildWarning):
    """The data leave nothing, or not everything, to learn."""


class TuningInterruptedWarning(MildWarning):
    """The search was stopped early; what was found is kept."""


def check_option(name: str, value: object, allowed: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``allowed``; otherwise say what was meant, perhaps."""
    known = list(allowed)
    if isinstance(value, str) and value in known:
        return value
    parameter = name.lstrip("-").replace("-", "_")
    message = removal_message("value", str(value), parameter)
    if message is not None:
        raise OptionError(message, parameter=parameter, code="removed")
    names = ", ".join(repr(option) for option in known)
    close = difflib.get_close_matches(str(value), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    rule = f"must be one of {names}; got {value!r}.{hint}"
    raise OptionError(f"{name} {rule}", parameter=parameter, rule=rule)


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The function with errors of mild for arguments that it does not take, or that are missing.

    >>> @check_arguments
    ... def split(table, test_size=0.3): ...
    >>> split([], tset_size=0.5)
    Traceback (most recent call last):
    ...
    mild.errors.InvalidInputError: tset_size is not an argument of split. Did you mean 'test_size'?
    """
    signature = inspect.signature(function)
    known = [name for name in signature.parameters if name not in ("self", "cls")]
    # Users know a constructor by the name of its class.
    function_name = function.__name__
    qualified_name = function.__qualname__
    if function_name == "__init__":
        qualified_name = qualified_name.removesuffix(".__init__")
        function_name = qualified_name
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name in known:
                continue
            message = removal_message("parameter", name, qualified_name)
            if message is not None:
                raise InvalidInputError(message, parameter=name, code="removed")
            if not takes_any:
                close = difflib.get_close_matches(name, known, n=1)
                remedy = (
                    f". Did you mean {close[0]!r}?" if close else f"; it takes {listed(known)}."
                )
                rule = f"is not an argument of {function_name}{remedy}"
                raise InvalidInputError(parameter=name, rule=rule)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            rule = f"must fit {function_name}, which takes {listed(known)}: {error}."
            raise InvalidInputError(parameter="arguments", rule=rule) from error
        return function(*args, **kwargs)

    return checked


def check_constructor(kind: type[T]) -> type[T]:
    """The class with errors of mild for arguments that its constructor does not take."""
    kind.__init__ = check_arguments(kind.__init__)  # type: ignore[method-assign]
    return kind


def missing_name(module: str, name: str) -> AttributeError:
    """The error about a name that a module does not have; it says what to use if the name was removed.

    >>> missing_name("mild", "no_such_name")
    AttributeError("module 'mild' has no attribute 'no_such_name'")
    """
    message = removal_message("name", f"{module}.{name}")
    if message is not None:
        return RemovedNameError(message)
    return AttributeError(f"module {module!r} has no attribute {name!r}")


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, not more of them than can be read.

    Examples
    --------
    >>> listed(["a", "b", "c", "d"], most=2)
    'a, b and 2 more'
    """
    if not names:
        return "none"
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(2263, "query", "queries")
    ('1 row', '2,263 queries')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def install_hint(extra: str, distribution_name: str = "mild-learn") -> str:
    """The command that installs an extra from where mild itself was installed, such as a checkout."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path

    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        if distribution_name == "mild-gateway":
            return f"pip install '{checkout}/gateway[{extra}]'"
        if extra == "gateway":
            return f"pip install '{checkout}/gateway'"
        return f"pip install '{checkout}[{extra}]'"
    try:
        source = json.loads(distribution(distribution_name).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        source = {}
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
