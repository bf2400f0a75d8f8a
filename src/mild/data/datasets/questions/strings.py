"""Tasks on the letters of a word, and on lists of words and numbers."""

from __future__ import annotations

from random import Random

from mild.data.datasets.questions.rows import Row, make_row

__all__ = ["strings"]

_WORDS = """
apple bread chair cloud dance eagle flame grape honey island jungle kettle lemon mirror needle ocean
paper queen river silver table umbrella violin winter yellow zebra bottle candle desert engine forest
garden hammer insect jacket ladder magnet number orange pencil rabbit school tiger unicorn valley window
breakfast butterfly chocolate mountain newspaper telephone cat dog sun moon tree fish bird star milk rain
snow wind door book hand foot
"""
WORDS = tuple(_WORDS.split())
ORDINALS = ("first", "second", "third", "fourth")


def strings(rng: Random) -> Row:
    """One task on letters or lists."""
    task, grade, query, answer, kind = rng.choice(_TASKS)(rng)
    return make_row(f"strings/{task}", grade, query, answer, kind)


Task = tuple[str, int, str, object, str]


def _reverse(rng: Random) -> Task:
    word = rng.choice(WORDS)
    grade = 2 if len(word) <= 4 else 4
    return "reverse", grade, f'Write the word "{word}" backwards.', word[::-1], "exact"


def _length(rng: Random) -> Task:
    word = rng.choice(WORDS)
    return "length", 2, f'How many letters has the word "{word}"?', len(word), "numeric"


def _letter(rng: Random) -> Task:
    word, place = rng.choice(WORDS), rng.randint(0, 3)
    place = min(place, len(word) - 1)
    query = f'What is the {ORDINALS[place]} letter of the word "{word}"?'
    return "letter", 1 + (place > 0), query, word[place], "exact"


def _last_letter(rng: Random) -> Task:
    word = rng.choice(WORDS)
    return "last_letter", 2, f'What is the last letter of the word "{word}"?', word[-1], "exact"


def _count(rng: Random) -> Task:
    word = rng.choice(WORDS)
    letter = rng.choice(word)
    query = f'How often does the letter "{letter}" occur in "{word}"?'
    return "count", 3, query, word.count(letter), "numeric"


def _spell(rng: Random) -> Task:
    word = rng.choice(WORDS)
    # Marks around the answer and its case do not count: ask for what cannot be copied.
    query = f'Write the word "{word}" with a dash between all its letters.'
    return "spell", 3, query, "-".join(word), "exact"


def _last_word(rng: Random) -> Task:
    chosen = rng.sample(WORDS, rng.randint(3, 5))
    return (
        "last_word",
        1,
        f"What is the last word of this list: {', '.join(chosen)}?",
        chosen[-1],
        "exact",
    )


def _alphabet(rng: Random) -> Task:
    chosen = rng.sample(WORDS, 3)
    query = f"Which of these words comes first in the alphabet: {', '.join(chosen)}?"
    return "alphabet", 3, query, min(chosen), "exact"


def _largest(rng: Random) -> Task:
    numbers = rng.sample(range(1, 100), rng.randint(3, 5))
    listed = ", ".join(map(str, numbers))
    end = rng.choice(("largest", "smallest"))
    value = max(numbers) if end == "largest" else min(numbers)
    return end, 2, f"Which of these numbers is the {end}: {listed}?", value, "numeric"


_TASKS = (
    _reverse,
    _length,
    _letter,
    _last_letter,
    _count,
    _spell,
    _last_word,
    _alphabet,
    _largest,
)
