"""Rules that values in a router's files obey, each with the words of what it asks for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from mild.errors import RouterFileError
from mild.policies.mix import LONGEST_SALT

# Below this a float holds every integer exactly.
LARGEST = 2**53
# Experts of a cascade: more would make a decision slow.
MAX_ASKED = 64
SURROGATE_FORMS = ("comp_sum", "pairwise", "hinge")

# Value and known sizes -> what the value must do or be, or None if it does.
Rule = Callable[[Any, dict[str, int]], str | None]


def check_names(
    template: str, names: Collection[str], known_names: Collection[str], extra: str
) -> None:
    """Refuse missing names, and names that are too many.

    ``template`` says what has the name, such as ``setting %s``, and ``extra`` what is wrong with a name
    that is too many.
    """
    for name in sorted(set(known_names) - set(names)):
        raise RouterFileError(f"{template % name} is missing.")
    for name in sorted(set(names) - set(known_names)):
        raise RouterFileError(f"{template % name} {extra}.")


def check_values(
    template: str, values: Mapping[str, Any], rules: Mapping[str, Rule], sizes: dict[str, int]
) -> None:
    """Refuse the first value that breaks its rule; ``template`` says what has the name."""
    for name, test in rules.items():
        problem = test(values[name], sizes)
        if problem is not None:
            raise RouterFileError(f"{template % name} must {problem}; got {values[name]!r}.")


def rule(words: str, test: Callable[[Any], bool]) -> Rule:
    """A rule that does not depend on sizes."""

    def problem(value: Any, sizes: dict[str, int]) -> str | None:
        if test(value):
            return None
        return words

    return problem


def integer(low: int, high: int = LARGEST - 1) -> Rule:
    """A rule for an integer, by default up to the largest one that a float holds exactly."""
    interval = f"[{low}, {high}]"
    if high == LARGEST - 1:
        interval = f"[{low}, 2**53)"
    return rule(f"be an integer in {interval}", lambda v: type(v) is int and low <= v <= high)


def choice(allowed: Collection[str]) -> Rule:
    """A rule for one of several words."""
    return rule(f"be one of {', '.join(allowed)}", lambda value: value in tuple(allowed))


def is_amount(value: object) -> bool:
    """Finite and not negative; an integer only if a float holds it exactly."""
    if type(value) is int:
        return 0 <= value < LARGEST
    return type(value) is float and value >= 0 and math.isfinite(value)


def is_path(value: object) -> bool:
    """A text that can be a path."""
    return isinstance(value, str) and "\0" not in value


def are_integers(values: object) -> bool:
    """A list of integers."""
    return isinstance(values, list) and all(type(value) is int for value in values)


def is_part_list(parts: object) -> bool:
    """A list of policies, each with its kind and its settings."""
    if not isinstance(parts, list):
        return False
    return all(isinstance(part, dict) and set(part) == {"kind", "settings"} for part in parts)


# Rules of their own words.


def surrogate(value: Any, sizes: dict[str, int]) -> str | None:
    """A form of surrogate and its tau."""
    if not isinstance(value, list) or len(value) != 2:
        return "be a form and a tau"
    form, tau = value
    if form not in SURROGATE_FORMS:
        return f"be one of {', '.join(SURROGATE_FORMS)} and a tau"
    if not is_amount(tau):
        return "have a finite tau >= 0"
    return None


def width(value: Any, sizes: dict[str, int]) -> str | None:
    """A number of features: that of the router, if it is known, which otherwise is known from here on."""
    problem = integer(1)(value, sizes)
    if problem is not None:
        return problem
    n_features = sizes.setdefault("n_features", value)
    if n_features != value:
        return f"be {n_features}"
    return None


def named_expert(value: Any, sizes: dict[str, int]) -> str | None:
    """The index of an expert, or null."""
    if value is None:
        return None
    return integer(0, sizes.get("n_experts", LARGEST) - 1)(value, sizes)


def steps(value: Any, sizes: dict[str, int]) -> str | None:
    """The steps of a cascade: lists of experts, each expert at most once."""
    n_experts = sizes.get("n_experts", LARGEST)
    if _are_steps(value, n_experts):
        return None
    return f"list steps of different experts in [0, {n_experts - 1}], at most {MAX_ASKED} in all"


def _are_steps(value: Any, n_experts: int) -> bool:
    if not isinstance(value, list) or not value:
        return False
    asked = []
    for step in value:
        if not are_integers(step) or not step:
            return False
        asked.extend(step)
    are_known = min(asked) >= 0 and max(asked) < n_experts
    are_different = len(set(asked)) == len(asked)
    return are_known and are_different and len(asked) <= MAX_ASKED


def class_labels(value: Any, sizes: dict[str, int]) -> str | None:
    """At least two different labels of one type that JSON knows."""
    if isinstance(value, list) and len(value) >= 2:
        label_types = {type(label) for label in value}
        is_one_type = len(label_types) == 1 and label_types <= {bool, int, float, str}
        if is_one_type and len(set(value)) == len(value):
            return None
    return "list at least two different labels of one type"


def different_options(value: Any, sizes: dict[str, int]) -> str | None:
    """The model or an expert, by its number, for each of the experts of a router."""
    n_experts = sizes.get("n_experts", 0)
    are_indices = (
        are_integers(value) and len(set(value)) == len(value) and min(value, default=-1) >= 0
    )
    if are_indices and n_experts in (0, len(value)):
        return None
    return f"list {n_experts} different integers from 0 on"


digest = rule(
    "be 64 hexadecimal digits",
    lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None,
)
finite = rule(
    "be a finite number", lambda value: type(value) in (int, float) and math.isfinite(value)
)
flag = rule("be true or false", lambda value: type(value) is bool)
amount = rule("be finite and non-negative", is_amount)
probability = rule("be a number in [0, 1]", lambda value: is_amount(value) and value <= 1)
share = rule("be a number between 0 and 1", lambda value: is_amount(value) and 0 < value < 1)
salt = rule(
    f"be a string of at most {LONGEST_SALT} bytes",
    lambda value: isinstance(value, str) and len(value.encode("utf-8", "replace")) <= LONGEST_SALT,
)
text = rule("be a string", lambda value: isinstance(value, str))
text_or_null = rule("be a string or null", lambda value: value is None or isinstance(value, str))
json_object = rule("be an object", lambda value: isinstance(value, dict))
part_list = rule("list routers, each with kind and settings", is_part_list)
