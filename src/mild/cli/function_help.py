"""Help and defaults of options that set parameters of Python functions.

Such an option is declared without a default: it is None where it is not given, and the default of the
function applies. It is declared without help, too, unless its form on the command line is another one, such
as ``EXPERT=COST``. The docstring and the signature of the function are the one home of both; they are read
only when help is printed, because that imports the function.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

# The first line of a parameter in a docstring, which may name several.
_ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.*)")
# What a description says of values that the command line does not have.
_PYTHON_ONLY = re.compile(r"; in Python also .*")
_NONE = re.compile(r"[;,.]? None (?:for|takes) ")
_DETECTED = re.compile(r"[;,.]? None detects it")
# Types at the start of a description.
_TYPE = re.compile(r"^(?:float|int|bool|str)(?: >= 0)?, ")
_CODE = re.compile(r"``([^`]+)``")
_QUOTED = re.compile(r'"([^"\s]+)"')
# A type such as ``str or None`` or ``ndarray of shape (n, p)``: words and brackets, no sentence.
_ONE_TYPE = r"(?:\{[^}]*\}|[\w.-]+(?: (?:of|to) (?:shape \([^)]*\)|[\w.-]+))*)"
_TYPE_LINE = re.compile(rf"{_ONE_TYPE}(?:(?:,| or|, or) {_ONE_TYPE})*(?:, default=.*)?")


def is_type(text: str, next_line: str) -> bool:
    """Whether what follows the colon of an entry is a type, which the next line then describes.

    Entries are written as ``name : type, default=...`` with an indented description, or as
    ``name : description``.

    >>> is_type("str or list of str, default=None", "    Column of the query.")
    True
    >>> is_type("column of the query", "    or several of them")
    False
    """
    description = next_line.strip()
    is_indented = next_line.startswith(" ")
    if not description or not is_indented or not _TYPE_LINE.fullmatch(text):
        return False
    if ", default=" in text:
        # It may begin with a value, such as "local".
        return not description[0].islower()
    return description[0].isupper()


def load_function(path: str) -> Callable[..., Any]:
    """The function, class or method at ``module:name``.

    >>> load_function("mild.errors:count_noun").__name__
    'count_noun'
    """
    module, _, name = path.partition(":")
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    return function


def parameter_texts(function: Callable[..., Any]) -> dict[str, str]:
    """Parameter -> the first paragraph of its description in the docstring, on one line.

    >>> def split(rows, test_size=0.3):
    ...     '''Split.
    ...
    ...     Parameters
    ...     ----------
    ...     rows, test_size : what is split,
    ...         and how
    ...     '''
    >>> parameter_texts(split)
    {'rows': 'what is split, and how', 'test_size': 'what is split, and how'}
    >>> def share(rows, test_size=0.3):
    ...     '''Share.
    ...
    ...     Parameters
    ...     ----------
    ...     test_size : float, default=0.3
    ...         Share of the rows.
    ...     '''
    >>> parameter_texts(share)
    {'test_size': 'Share of the rows.'}
    """
    _, _, section = (inspect.getdoc(function) or "").partition("\nParameters\n----------\n")
    texts: dict[str, str] = {}
    names: list[str] = []
    lines = section.splitlines()
    for line, next_line in pairwise([*lines, ""]):
        entry = _ENTRY.fullmatch(line)
        if entry is not None:
            names = entry[1].replace("*", "").split(", ")
            text = entry[2]
            if is_type(text, next_line):
                # Its description follows; types and defaults are shown from the signature.
                text = ""
            texts.update(dict.fromkeys(names, text))
        elif line.startswith(" "):
            for name in names:
                texts[name] = f"{texts[name]} {line.strip()}".lstrip()
        elif line:
            # The heading of the next section.
            break
        else:
            # Skip further paragraphs, which are for readers of the reference.
            names = []
    return texts


def find_parameter(paths: Sequence[str], name: str) -> tuple[str, Any] | None:
    """Description and default of a parameter, from the first of several functions that describes it.

    A description that only refers to another function ("as in ...") sends on to the next one. The default
    is that of the first function that has the parameter. None if no function has it.
    """
    default: Any = inspect.Parameter.empty
    is_known = False
    for path in paths:
        function = load_function(path)
        parameters = inspect.signature(function).parameters
        if name not in parameters:
            continue
        if not is_known:
            default = parameters[name].default
            is_known = True
        text = parameter_texts(function).get(name, "")
        if text and "as in ``" not in text:
            return text, default
    if is_known:
        return "", default
    return None


def option_help(text: str, options: Mapping[str, str]) -> str:
    """A description as the help of an option; ``options`` are those of the command, by their parameter.

    >>> option_help("share of the rows that ``guarantee`` keeps", {"guarantee": "--guarantee"})
    'Share of the rows that --guarantee keeps.'
    >>> option_help('"local" or "ray"; None for the first', {})
    'local or ray. Default: the first.'
    """
    text = _PYTHON_ONLY.sub("", _TYPE.sub("", text))
    # A value is written as it is given, a sentence with a capital letter.
    if not text.startswith('"'):
        text = text[:1].upper() + text[1:]
    text = _CODE.sub(lambda code: options.get(code[1], code[1]), text)
    text = _QUOTED.sub(r"\1", text)
    text = _NONE.sub(". Default: ", text)
    text = _DETECTED.sub(". Default: detected", text)
    if text and not text.endswith("."):
        text += "."
    return text


def shown_default(default: Any) -> str | None:
    """A default for a sentence; None where there is nothing to say.

    >>> shown_default((0.5, 1.0, 2.0)), shown_default(1e-6), shown_default(False)
    ('0.5,1,2', '1e-06', None)
    """
    if default is inspect.Parameter.empty or default is None or default is False:
        return None
    if default is True:
        return "yes"
    if isinstance(default, (tuple, list)):
        return ",".join(f"{value:g}" for value in default)
    if isinstance(default, float):
        return f"{default:g}"
    return str(default)
