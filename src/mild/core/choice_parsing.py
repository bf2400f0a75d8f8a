"""The letter that a response to a multiple-choice question chooses."""

from __future__ import annotations

import re
from collections.abc import Sequence

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# What stands further behind a letter does not tell what it means.
NEAR = 200

_BOXED = re.compile(
    r"\\boxed\s*\{\s*(?:\\(?:text|mathrm|textbf|mathbf)\s*\{)?\s*\(?([A-Za-z])\)?\s*\}"
)
# "Answer: B", "the correct option is (B)"; what follows the letter is looked at apart.
_MARKER = re.compile(
    r"\b(?:answers?|options?|choices?|letter)\b(?:\s+(?:is|are|would\s+be|should\s+be|must\s+be))?\s*+[:=-]*+\s*+"
    r"(?:(?:the\s+)?(?:correct\s+|right\s+)?(?:option|choice|letter|answer)\s*+(?:is\s*+)?[:=]?+\s*+)?"
    r"[\[(\"'`]*([A-Za-z])(?![A-Za-z])",
    re.IGNORECASE,
)
_START = re.compile(r"[\[(\"'`]*([A-Za-z])(?:[\])\"'`]+[.:]?|[.:)])(?=\s|$)")
_ALONE = re.compile(r"[\[(\"'`]*([A-Za-z])[\])\"'`.:,;!]*")
_STANDING = re.compile(r"(?<![A-Za-z0-9'’])\(?([A-Z])\)?(?![A-Za-z0-9'’])")
# Behind a letter that is meant, not the article "a" of a sentence.
_ENDED = re.compile(
    r"[\])\"'`]*\s*(?:$|[.:,;!)\n—–-]|(?:because|since|as|is|and|or|was|here)\b)", re.I
)


def extract_letter(response: str, options: Sequence[str]) -> str | None:
    """The letter chosen, None if none can be told.

    In this order: the last ``\\boxed{B}``; the last letter behind "answer", "option" or "choice"; a
    response that is a lone letter, or begins with one ("B)", "(B) text", "B: text"), or ends with such a
    line; a response that is the text of an option; the only capital letter of the options that stands
    by itself. Letters beyond the options do not count, nor does an article ("A dog").

    >>> options = ["Paris", "Rome", "A dog", "Oslo"]
    >>> [extract_letter(text, options) for text in ("(B)", "Answer: **c**.", "I'd say D, not sure", "Rome")]
    ['B', 'C', 'D', 'B']
    >>> extract_letter("A or B", options) is None
    True
    """
    letters = LETTERS[: len(options)]
    text = response.replace("**", "").replace("__", "").replace("*", "").strip()

    def known(letter: str) -> str | None:
        return letter.upper() if letter.upper() in letters else None

    for letter in reversed(_BOXED.findall(text)):
        if found := known(letter):
            return found
    for match in reversed(list(_MARKER.finditer(text))):
        if (found := known(match[1])) and _meant(match, options, letters):
            return found
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for part in [text, *lines[:1], *lines[-1:]]:
        begun = _ALONE.fullmatch(part) or _START.match(part)
        if begun and (found := known(begun[1])):
            return found
    if found := _option(text, options, letters):
        return found
    standing = {
        match[1]
        for match in _STANDING.finditer(text)
        if match[1] in letters and _meant(match, options, letters)
    }
    return standing.pop() if len(standing) == 1 else None


def _meant(match: re.Match[str], options: Sequence[str], letters: str) -> bool:
    """Whether a letter names an option: nothing goes on behind it but its option or a reason."""
    letter, rest = match[1], match.string[match.end() : match.end() + NEAR]
    if _ENDED.match(rest):
        return True
    if letter not in "AIai":
        return letter.isupper()
    return _folded_option(rest).startswith(
        _folded_option(options[letters.index(letter.upper())]) or "\0"
    )


def _option(text: str, options: Sequence[str], letters: str) -> str | None:
    """Letter of the only option whose text the response is."""
    said = re.sub(r"^(?:the\s+)?(?:correct\s+)?answer(?:\s+is)?\s*:?\s*", "", text, flags=re.I)
    same = [
        letters[i]
        for i, option in enumerate(options)
        if _folded_option(option) == _folded_option(said)
    ]
    return same[0] if len(same) == 1 and _folded_option(said) else None


def _folded_option(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .,:;!\"'`()[]")
