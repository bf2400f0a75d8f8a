"""Word problems of one to three steps."""

from __future__ import annotations

from random import Random

from mild.data.datasets.questions.rows import Row, make_row

__all__ = ["words"]

NAMES = (
    "Ada",
    "Ben",
    "Clara",
    "Dan",
    "Eva",
    "Felix",
    "Greta",
    "Hugo",
    "Ida",
    "Jonas",
    "Lena",
    "Max",
)
THINGS = (
    "apples",
    "pencils",
    "books",
    "marbles",
    "stickers",
    "coins",
    "cookies",
    "cards",
    "shells",
)
PLACES = ("basket", "box", "drawer", "bag", "shelf")


def words(rng: Random) -> Row:
    """One problem; its grade is the number of steps."""
    grade = rng.randint(1, 3)
    task, query, value = rng.choice(_STEPS[grade - 1])(rng)
    return make_row(f"words/{task}", grade, query, value, "numeric")


def _gain(rng: Random) -> tuple[str, str, int]:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    a, b = rng.randint(2, 20), rng.randint(2, 20)
    return "gain", f"{name} has {a} {thing} and gets {b} more. How many {thing} now?", a + b


def _loss(rng: Random) -> tuple[str, str, int]:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    a = rng.randint(5, 30)
    b = rng.randint(1, a - 1)
    return "loss", f"{name} has {a} {thing} and gives away {b}. How many {thing} are left?", a - b


def _groups(rng: Random) -> tuple[str, str, int]:
    thing, place = rng.choice(THINGS), rng.choice(PLACES)
    a, b = rng.randint(2, 12), rng.randint(2, 12)
    text = f"There are {b} {thing} in every {place}. How many {thing} are in {a} of them?"
    return "groups", text, a * b


def _share(rng: Random) -> tuple[str, str, int]:
    thing = rng.choice(THINGS)
    a, b = rng.randint(2, 10), rng.randint(2, 12)
    text = f"{a} children share {a * b} {thing} equally. How many {thing} does each child get?"
    return "share", text, b


def _change(rng: Random) -> tuple[str, str, int]:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    price, count = rng.randint(2, 9), rng.randint(2, 5)
    paid = rng.choice((50, 60, 100))
    text = f"{name} buys {count} {thing} for {price} dollars each and pays with {paid} dollars."
    return "change", f"{text} How many dollars come back?", paid - price * count


def _two_people(rng: Random) -> tuple[str, str, int]:
    first, second = rng.sample(NAMES, 2)
    thing, a, b = rng.choice(THINGS), rng.randint(3, 20), rng.randint(2, 9)
    text = f"{first} has {a} {thing}. {second} has {b} more than {first}."
    return "two_people", f"{text} How many {thing} do they have together?", 2 * a + b


def _pace(rng: Random) -> tuple[str, str, int]:
    name, hours, speed = rng.choice(NAMES), rng.randint(2, 6), rng.randint(3, 20)
    rest = rng.randint(1, 30)
    text = f"{name} travels {hours} hours at {speed} km per hour and then {rest} km more."
    return "pace", f"{text} How many km is that in all?", hours * speed + rest


def _market(rng: Random) -> tuple[str, str, int]:
    name, thing, place = rng.choice(NAMES), rng.choice(THINGS), rng.choice(PLACES)
    boxes, each = rng.randint(3, 9), rng.randint(4, 12)
    sold, found = rng.randint(2, boxes * each - 1), rng.randint(2, 15)
    text = (
        f"{name} fills {boxes} times a {place} with {each} {thing}, sells {sold} of the {thing} and then "
        f"finds {found} more."
    )
    return "market", f"{text} How many {thing} does {name} have?", boxes * each - sold + found


def _twice(rng: Random) -> tuple[str, str, int]:
    first, second, third = rng.sample(NAMES, 3)
    thing, a, b = rng.choice(THINGS), rng.randint(2, 15), rng.randint(1, 9)
    text = (
        f"{first} has {a} {thing}. {second} has twice as many as {first}. {third} has {b} more than "
        f"{second}."
    )
    return "twice", f"{text} How many {thing} do the three have together?", 5 * a + b


_STEPS = ((_gain, _loss, _groups, _share), (_change, _two_people, _pace), (_market, _twice))
