"""What is put to an expert: templates by kind of question, and the options of a choice.

``{query}`` stands for the question, ``{options}`` for the options, one to a line, each with its letter,
and ``{letters}`` for the letters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

from pydantic.dataclasses import dataclass

from mild_gateway.experts.config_file import CONFIG, Rule

#: Names of options, in their order.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_Template = Annotated[str, Rule("must hold {query}", lambda text: "{query}" in text)]
_Choice = Annotated[_Template, Rule("must hold {options}", lambda text: "{options}" in text)]


@dataclass(config=CONFIG)
class Prompts:
    """A template per kind of question: the table ``[prompts]`` of a file."""

    choice: _Choice = "{query}\n\n{options}\n\nAnswer with one letter ({letters}) and nothing else."
    """For questions with options. `{options}` stands for the options, one per line with its
    letter, and `{letters}` for the letters.
    """
    exact: _Template = "{query}\n\nAnswer with the answer alone, as short as possible."
    """For questions whose answer must be equal to the right one."""
    contains: _Template = "{query}"
    """For questions whose answer must contain the right one."""
    numeric: _Template = "{query}\n\nEnd with the answer as a number."
    """For questions whose answer is a number."""
    command: _Template = "{query}"
    """For questions that a command grades."""


PROMPTS: Mapping[str, str] = asdict(Prompts())

_PLACEHOLDER = re.compile(r"\{(query|options|letters)\}")


def fill_prompt(template: str, query: str, options: Sequence[str] = ()) -> str:
    """The template with its placeholders filled, once: braces in a query stay as they are.

    >>> print(fill_prompt("{query}\\n{options}\\n({letters})", "Which {letters}?", ["one", "two"]))
    Which {letters}?
    A. one
    B. two
    (A, B)
    """
    values = {
        "query": query,
        "options": lettered_options(options),
        "letters": ", ".join(LETTERS[: len(options)]),
    }
    return _PLACEHOLDER.sub(lambda placeholder: values[placeholder[1]], template)


def lettered_options(options: Sequence[str]) -> str:
    """One option to a line, each behind its letter."""
    lines = []
    for letter, option in zip(LETTERS, options, strict=False):
        lines.append(f"{letter}. {option}")
    return "\n".join(lines)
