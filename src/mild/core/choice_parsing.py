"""The letter that a response to a multiple-choice question chooses."""

from __future__ import annotations

import re
from collections.abc import Sequence

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Number of characters after a letter that are read to tell what it means.
NEAR = 200

_BOXED = re.compile(
    r"\\boxed\s*\{\s*(?:\\(?:text|mathrm|textbf|mathbf)\s*\{)?\s*\(?([A-Za-z])\)?\s*\}"
)
# "Answer: B", "the correct option is (B)"; what follows the letter is checked separately.
_MARKER = re.compile(
    r"\b(?:answers?|options?|choices?|letter)\b(?:\s+(?:is|are|would\s+be|should\s+be|must\s+be))?\s*+[:=-]*+\s*+"
    r"(?:(?:the\s+)?(?:correct\s+|right\s+)?(?:option|choice|letter|answer)\s*+(?:is\s*+)?[:=]?+\s*+)?"
    r"[\[(\"'`]*([A-Za-z])(?![A-Za-z])",
    re.IGNORECASE,
)
_START = re.compile(r"[\[(\"'`]*([A-Za-z])(?:[\])\"'`]+[.:]?|[.:)])(?=\s|$)")
_ALONE = re.compile(r"[\[(\"'`]*([A-Za-z])[\])\"'`.:,;!]*")
_STANDING = re.compile(r"(?<![A-Za-z0-9'’])\(?([A-Z])\)?(?![A-Za-z0-9'’])")
# What may follow a letter that is meant as an answer, unlike the article "a".
_ENDED = re.compile(
    r"[\])\"'`]*\s*(?:$|[.:,;!)\n—–-]|(?:because|since|as|is|and|or|was|here)\b)", re.I
)


def extract_letter(response: str, options: Sequence[str]) -> str | None:
    """Return the letter that a response to a multiple-choice question chooses, or None if it is unclear.

    These rules are tried in turn, and the first that yields a letter wins:

    1. the last ``\\boxed{B}``;
    2. the last letter after a word such as "answer", "option", "choice" or "letter";
    3. a letter that is the whole response or its last line, or begins one of them: "B)", "(B) text";
    4. the option whose text is the whole response;
    5. the only capital letter standing by itself that is the letter of an option.

    Letters beyond the last option are ignored, and so is the article in "A dog".

    Parameters
    ----------
    response : str
        Answer of an expert.
    options : sequence of str
        Texts of the options, the first of which is A.

    Returns
    -------
    letter : str or None
        A capital letter, "A" for the first option.

    Examples
    --------
    >>> options = ["Paris", "Rome", "A dog", "Oslo"]
    >>> extract_letter("(B)", options), extract_letter("Answer: **c**.", options)
    ('B', 'C')
    >>> extract_letter("I'd say D, not sure", options), extract_letter("Rome", options)
    ('D', 'B')
    >>> extract_letter("A or B", options) is None
    True
    """
    letters = LETTERS[: len(options)]
    # Without the emphasis of Markdown.
    text = response.replace("**", "").replace("__", "").replace("*", "").strip()
    return (
        _boxed_letter(text, letters)
        or _marked_letter(text, options, letters)
        or _leading_letter(text, letters)
        or _letter_of_option(text, options, letters)
        or _only_standing_letter(text, options, letters)
    )


def _option_letter(letter: str, letters: str) -> str | None:
    """Return the letter as a capital, or None if no option has it."""
    if letter.upper() in letters:
        return letter.upper()
    return None


def _boxed_letter(text: str, letters: str) -> str | None:
    """Return the last letter in a box of LaTeX."""
    for boxed in reversed(_BOXED.findall(text)):
        if letter := _option_letter(boxed, letters):
            return letter
    return None


def _marked_letter(text: str, options: Sequence[str], letters: str) -> str | None:
    """Return the last letter after a word such as "answer"."""
    for match in reversed(list(_MARKER.finditer(text))):
        letter = _option_letter(match[1], letters)
        if letter and _names_an_option(match, options, letters):
            return letter
    return None


def _leading_letter(text: str, letters: str) -> str | None:
    """Return the letter that the response, its first line or its last line consists of or begins with."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for passage in [text, *lines[:1], *lines[-1:]]:
        match = _ALONE.fullmatch(passage) or _START.match(passage)
        if match and (letter := _option_letter(match[1], letters)):
            return letter
    return None


def _letter_of_option(text: str, options: Sequence[str], letters: str) -> str | None:
    """Return the letter of the only option whose text the response repeats."""
    answer = re.sub(r"^(?:the\s+)?(?:correct\s+)?answer(?:\s+is)?\s*:?\s*", "", text, flags=re.I)
    folded = _folded_option(answer)
    if not folded:
        return None
    matching = [i for i, option in enumerate(options) if _folded_option(option) == folded]
    if len(matching) != 1:
        return None
    return letters[matching[0]]


def _only_standing_letter(text: str, options: Sequence[str], letters: str) -> str | None:
    """Return the capital letter that stands by itself, if there is only one that is an option's."""
    standing_letters = set()
    for match in _STANDING.finditer(text):
        if match[1] in letters and _names_an_option(match, options, letters):
            standing_letters.add(match[1])
    if len(standing_letters) != 1:
        return None
    return standing_letters.pop()


def _names_an_option(match: re.Match[str], options: Sequence[str], letters: str) -> bool:
    """Return whether a letter names an option: only the option's text or a reason may follow it."""
    letter = match[1]
    rest = match.string[match.end() : match.end() + NEAR]
    if _ENDED.match(rest):
        return True
    if letter not in "AIai":
        return letter.isupper()
    # "A" and "I" are words, too: they name an option if its text follows.
    option = _folded_option(options[letters.index(letter.upper())])
    return bool(option) and _folded_option(rest).startswith(option)


def _folded_option(text: str) -> str:
    """Return a text in lower case, without punctuation around it."""
    return " ".join(text.casefold().split()).strip(" .,:;!\"'`()[]")
