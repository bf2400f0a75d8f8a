"""Whether an answer does nothing but refuse, in thirteen languages or as JSON.

``refusals.toml`` has the phrases. What is not found there is taken for an answer.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from functools import cache
from importlib.resources import files

# A longer text has more to say than no.
_LONGEST = 300
_FIELDS = ("refusal", "error", "message", "answer", "response", "content", "reason", "result")
_REFUSED = frozenset(("refused", "refusal", "declined", "denied", "rejected", "blocked"))


def is_refusal(text: str) -> bool:
    """Whether a text does nothing but refuse to answer.

    >>> is_refusal("I'm sorry, but I can't assist with that."), is_refusal("Lo siento, no puedo ayudar.")
    (True, True)
    >>> is_refusal('{"error": "refused"}'), is_refusal("Sorry, I was wrong before: it is 4.")
    (True, False)
    """
    if text.lstrip().startswith("{"):
        return _is_json_refusal(text)
    if len(text) > _LONGEST:
        return False
    words = " ".join(folded(text).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").split())
    return _begins_with_refusal(words.lstrip("*¡¿ "))


def folded(text: str) -> str:
    """Return a text in lower case, with equivalent characters made equal."""
    # The folded text may have characters that can be normalised again.
    lower = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFKC", lower)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What may stand before a refusal, and refusals, in all languages, for folded texts."""
    phrases = files("mild.core").joinpath("refusals.toml").read_text(encoding="utf-8")
    languages = tomllib.loads(unicodedata.normalize("NFKC", phrases)).values()
    before = "|".join(phrase for words in languages for phrase in words["before"])
    refusals = [
        rf"(?:{'|'.join(words['cannot'])})[^.;:!?。।۔؟\n]{{0,{words['within']}}}?(?:{'|'.join(words['verbs'])})"
        for words in languages
    ]
    refusals += [phrase for words in languages for phrase in words["alone"]]
    return re.compile(rf"(?:{before})[\s,،、。.:;!—–-]*"), re.compile("|".join(refusals))


def _begins_with_refusal(words: str) -> bool:
    """Whether a refusal follows at most four phrases that may stand before it.

    Every place is looked at once: one expression for all would try every way to divide the words.
    """
    before, refusal = _patterns()

    @cache
    def refuses(start: int) -> bool:
        return refusal.match(words, start) is not None

    @cache
    def opens(start: int) -> bool:
        return before.match(words, start) is not None

    reached, starts = {0}, {0}
    for _ in range(4):
        if any(map(refuses, starts)):
            return True
        starts = {
            end
            for start in filter(opens, starts)
            for end in range(start + 1, len(words))
            if end not in reached
            and (refuses(end) or opens(end))
            and before.fullmatch(words, start, end)
        }
        reached |= starts
    return any(map(refuses, starts))


def _is_json_refusal(text: str) -> bool:
    """Whether a JSON object says that its author refuses, and nothing else."""
    if len(text) > 10 * _LONGEST:
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    said = {
        key: entry
        for key, entry in value.items()
        if entry not in (None, "", [], {}, False) and key not in ("role", "type", "status", "code")
    }
    has_refused = said.pop("refused", False) is True
    if not (said or has_refused) or any(key not in _FIELDS for key in said):
        return False
    return (
        has_refused
        or isinstance(said.get("refusal"), str)
        or all(
            isinstance(entry, str)
            and (entry.strip(" .!").casefold() in _REFUSED or is_refusal(entry))
            for entry in said.values()
        )
    )
