"""Settings and tensors of every kind of policy and of text features, and the rules they obey."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.core.answers import KINDS, SIGNALS
from mild.core.decisions import DECISIONS
from mild.errors import ArtifactError, counted
from mild.features import CombinedFeatures, OnnxFeatures
from mild.features.encoder import POOLINGS
from mild.features.hashing import VERSION
from mild.features.terms import NUMBER_NAMES
from mild.policies import POLICIES
from mild.policies.cascade import answer_groups
from mild.policies.mix import LONGEST_SALT

# Prefix of the text features' tensors among those of the router.
TEXT_PREFIX = "text."
# Prefixes of what tells how far expected costs can be trusted; not every router has such tensors.
NOVELTY_PREFIX = "novelty."
CALIBRATION_PREFIX = "calibration."
# Hashes of the training queries, by which they are recognised later.
HASHES_TENSOR = "query_hashes"
# Policies may contain policies; mild writes none that is nested deeper than this.
MAX_DEPTH = 7
# Below this a float holds every integer exactly.
LARGEST = 2**53
# Experts of a cascade, and patterns in its table of agreement: more would make a decision slow.
MAX_ASKED, MAX_PATTERNS = 64, 1 << 20
# Sums of scores may exceed counts by rounding.
ROUNDING = 1e-6
SURROGATE_FORMS = ("comp_sum", "pairwise", "hinge")

# Value and known sizes -> what the value must be, or None if it is.
Rule = Callable[[Any, dict[str, int]], str | None]


def rule(words: str, test: Callable[[Any], bool]) -> Rule:
    """A rule that does not depend on sizes."""
    return lambda value, sizes: None if test(value) else words


def integer(low: int, high: int = LARGEST - 1) -> Rule:
    interval = f"[{low}, 2**53)" if high == LARGEST - 1 else f"[{low}, {high}]"
    return rule(f"be an integer in {interval}", lambda v: type(v) is int and low <= v <= high)


def choice(allowed: Collection[str]) -> Rule:
    return rule(f"be one of {', '.join(allowed)}", lambda value: value in tuple(allowed))


def is_amount(value: object) -> bool:
    """Finite and not negative; an integer only if a float holds it exactly."""
    if type(value) is int:
        return 0 <= value < LARGEST
    return type(value) is float and value >= 0 and math.isfinite(value)


def is_path(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def are_integers(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)


def surrogate(value: Any, sizes: dict[str, int]) -> str | None:
    if not isinstance(value, list) or len(value) != 2:
        return "be a form and a tau"
    if value[0] not in SURROGATE_FORMS:
        return f"be one of {', '.join(SURROGATE_FORMS)} and a tau"
    return None if is_amount(value[1]) else "have a finite tau >= 0"


def width(value: Any, sizes: dict[str, int]) -> str | None:
    problem = integer(1)(value, sizes)
    if problem is None and sizes.setdefault("n_features", value) != value:
        problem = f"be {sizes['n_features']}"
    return problem


def named_expert(value: Any, sizes: dict[str, int]) -> str | None:
    return None if value is None else integer(0, sizes.get("n_experts", LARGEST) - 1)(value, sizes)


def steps(value: Any, sizes: dict[str, int]) -> str | None:
    count = sizes.get("n_experts", LARGEST)
    if isinstance(value, list) and value and all(are_integers(step) and step for step in value):
        asked = [expert for step in value for expert in step]
        known = min(asked) >= 0 and max(asked) < count
        if known and len(set(asked)) == len(asked) <= MAX_ASKED:
            return None
    return f"list steps of different experts in [0, {count - 1}], at most {MAX_ASKED} in all"


digest = rule(
    "be 64 hexadecimal digits",
    lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None,
)
flag = rule("be true or false", lambda value: type(value) is bool)
amount = rule("be finite and non-negative", is_amount)
amount_or_null = rule(
    "be finite and non-negative, or null", lambda value: value is None or is_amount(value)
)
probability = rule("be a number in [0, 1]", lambda value: is_amount(value) and value <= 1)
share = rule("be a number between 0 and 1", lambda value: is_amount(value) and 0 < value < 1)
salt = rule(
    f"be a string of at most {LONGEST_SALT} bytes",
    lambda value: isinstance(value, str) and len(value.encode("utf-8", "replace")) <= LONGEST_SALT,
)
text = rule("be a string", lambda value: isinstance(value, str))
text_or_null = rule("be a string or null", lambda value: value is None or isinstance(value, str))
settings_object = rule("be an object", lambda value: isinstance(value, dict))
is_part_list = rule(
    "list routers, each with kind and settings",
    lambda parts: (
        isinstance(parts, list)
        and all(isinstance(part, dict) and set(part) == {"kind", "settings"} for part in parts)
    ),
)


@dataclass(frozen=True)
class Schema:
    """Rules of the settings and the tensors of one kind.

    A tensor is described by its dimensions, names of sizes and numbers, and then by its dtype ("float32" or
    "float64" where none is given), "optional", "positive", "not negative", "may be NaN", "not empty" or
    "ranks", which are each number from 0 on once.
    """

    settings: Mapping[str, Rule] = field(default_factory=dict)
    # name -> description, or a function of the settings
    tensors: Mapping[str, str] | Callable[[dict[str, Any]], Mapping[str, str]] = field(
        default_factory=dict
    )
    parts: tuple[int, float] | None = None  # least and largest number of policies inside

    def check(
        self,
        settings: Mapping[str, Any],
        tensors: Mapping[str, NDArray[Any]],
        sizes: dict[str, int],
        prefix: str,
        **own_sizes: int,
    ) -> None:
        """Refuse other settings and tensors; sizes of experts and features are added to ``sizes``."""
        rules = {**self.settings, **({} if self.parts is None else {"parts": is_part_list})}
        setting, tensor = f"setting {prefix}%s", f"tensor '{prefix}%s'"
        check_names(setting, settings, rules, "is not known. A newer mild may know it")
        check_values(setting, settings, rules, sizes)
        described = self.tensors(dict(settings)) if callable(self.tensors) else self.tensors
        wanted = {k: v for k, v in described.items() if k in tensors or "optional" not in v}
        check_names(tensor, tensors, wanted, "does not belong to a router of this kind")
        known = {**sizes, **own_sizes}
        for name, description in wanted.items():
            problem = tensor_problem(tensors[name], description, known)
            if problem is not None:
                raise ArtifactError(f"{tensor % name} must {problem}.")
        # Other sizes are its own, such as the widths of its layers.
        sizes.update({key: known[key] for key in known if key in ("n_features", "n_experts")})
        check_values(setting, settings, rules, sizes)


def check_names(what: str, got: Mapping[str, Any], wanted: Mapping[str, Any], extra: str) -> None:
    """Refuse missing names, and names that are too many."""
    for name in sorted(set(wanted) - set(got)):
        raise ArtifactError(f"{what % name} is missing.")
    for name in sorted(set(got) - set(wanted)):
        raise ArtifactError(f"{what % name} {extra}.")


def check_values(
    what: str, values: Mapping[str, Any], rules: Mapping[str, Rule], sizes: dict[str, int]
) -> None:
    """Refuse the first value that breaks its rule."""
    for name, test in rules.items():
        problem = test(values[name], sizes)
        if problem is not None:
            raise ArtifactError(f"{what % name} must {problem}; got {values[name]!r}.")


def tensor_problem(array: NDArray[Any], description: str, sizes: dict[str, int]) -> str | None:
    """What a tensor must be, or None if it is; sizes that are not known are added."""
    shape, *words = description.split(", ")
    dtypes = [word for word in words if word in TEXT_DTYPES] or ["float32", "float64"]
    if array.dtype.name not in dtypes:
        return f"be {' or '.join(dtypes)}; got {array.dtype}"
    dimensions = shape.split()
    fits = array.ndim == len(dimensions) and all(
        length == (int(size) if size.isdigit() else sizes.setdefault(size, length))
        for size, length in zip(dimensions, array.shape, strict=True)
    )
    if not fits:
        shown = [d if d.isdigit() else f"{d} = {sizes.get(d, '?')}" for d in dimensions]
        return f"have shape ({', '.join(shown)}); got {array.shape}"
    if array.dtype.kind == "f":
        bad = np.isinf(array) if "may be NaN" in words else ~np.isfinite(array)
        if bad.any():
            place = tuple(int(index) for index in np.argwhere(bad)[0])
            return f"be finite; got {array[place]} at {place}"
    # Of text features the inverse is taken, which is infinite below this number.
    least = np.finfo(np.float32).tiny / 4 if len(dtypes) == 1 else 0.0
    if "positive" in words and not (array > least).all():
        return f"be positive; got {array.min():g}"
    if "not negative" in words and not (array >= 0).all():
        return f"be non-negative; got {array.min():g}"
    if "ranks" in words and sorted(array.tolist()) != list(range(len(array))):
        return f"have every rank from 0 on once; got {array.tolist()}"
    return "have at least one row; got none" if "not empty" in words and not len(array) else None


def split(
    tensors: Mapping[str, NDArray[Any]], prefix: str
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Tensors behind the prefix, without it, and the rest."""
    size = len(prefix)
    inner = {name[size:]: array for name, array in tensors.items() if name.startswith(prefix)}
    return inner, {name: array for name, array in tensors.items() if not name.startswith(prefix)}


def check_policy(
    kind: object,
    settings: object,
    tensors: Mapping[str, NDArray[Any]],
    sizes: dict[str, int],
    prefix: str = "",
    inside: object = None,
) -> None:
    """Refuse a state from which the policy of this kind could not be built.

    ``sizes`` holds the dimensions known so far ("n_features", "n_experts"); unknown ones are added.
    ``inside`` is the kind of the policy that this one is a part of.
    """
    if prefix.count(".") > MAX_DEPTH:
        raise ArtifactError(f"routers may be nested {MAX_DEPTH} deep; got more at {prefix!r}.")
    schema = _schema("kind", kind, POLICY_SCHEMAS)
    is_inside = kind == "mix" or (kind == "cascade" and inside not in ("mix", "tradeoff"))
    if prefix and is_inside:
        rule = f"must not be inside a router; got one at {prefix!r}"
        raise ArtifactError(f"a {kind} {rule}.")
    if not isinstance(settings, dict):
        raise ArtifactError(f"settings of a {kind} router must be an object; got {settings!r}.")
    parts = settings.get("parts") if schema.parts else None
    states = []
    if isinstance(parts, list):
        for number, part in enumerate(parts):
            inner, tensors = split(tensors, f"{number}.")
            states.append((part, inner, f"{prefix}{number}."))
    if schema.parts and not schema.parts[0] <= len(states) <= schema.parts[1]:
        least, most = schema.parts
        count = ("at least " if most == math.inf else "") + counted(least, "router")
        count += f" or {most:g}" if least < most < math.inf else ""
        raise ArtifactError(f"setting {prefix}parts must list {count}; got {parts!r}.")
    schema.check(settings, tensors, sizes, prefix, n_parts=len(states))
    width = 0
    for number, (part, inner, place) in enumerate(states):
        if kind not in ("stack", "mixed"):
            check_policy(part["kind"], part["settings"], inner, sizes, place, kind)
        elif kind == "mixed" or number < len(states) - 1:
            # The policies inside may know other experts.
            own = {name: size for name, size in sizes.items() if name == "n_features"}
            if kind == "mixed":
                own["n_experts"] = tensors["coef"].shape[1]
            check_policy(part["kind"], part["settings"], inner, own, place)
            sizes["n_features"] = own["n_features"]
            width += own["n_experts"]
        else:
            final = {**sizes, "n_features": width}
            check_policy(part["kind"], part["settings"], inner, final, place)
            sizes["n_experts"] = final["n_experts"]
    if kind == "cascade":
        _check_cascade(settings, tensors, states[1:])
    if kind == "mix":
        _check_mix(settings["parts"])


def _check_mix(parts: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a mix of a cascade and something else, or of cascades that compare answers differently."""
    answer_kinds = [part["settings"].get("answer_kind") for part in parts]
    if len(set(answer_kinds)) > 1:
        raise ArtifactError(
            "setting parts of a mix must be two cascades that compare answers alike, or two policies "
            f"without answers; got answer kinds {answer_kinds}."
        )


def _check_cascade(
    settings: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    heads: Sequence[tuple[Any, Mapping[str, NDArray[Any]], str]],
) -> None:
    """Refuse a table of agreement that no rows have, and heads that cannot be used."""
    groups, counts, sums, accuracy = (tensors[name] for name in AGREEMENT)
    if len(groups) > MAX_PATTERNS:
        rule = f"must have at most {MAX_PATTERNS:,} rows; got {len(groups):,}"
        raise ArtifactError(f"tensor 'groups' {rule}.")
    # Numbered from 1 as they appear; 0 for no answer, -1 for one whose score is unknown.
    whole = np.clip(groups, -1, MAX_ASKED).astype(np.intp)
    numbered = np.array_equal(groups, answer_groups(whole - 1))
    different = len(np.unique(whole, axis=0)) == len(whole)
    summed = (sums <= counts[:, None] * (1 + ROUNDING)).all()
    mean, started = accuracy.max(), settings["start_error"] is not None
    rules = {
        "tensor 'groups' must number the answers of each row from 1 as they appear": numbered,
        "tensor 'groups' must have different rows; got one twice": different,
        f"tensor 'sums' must be at most the counts; got {sums.max():g}": summed,
        f"tensor 'accuracy' must be at most 1; got {mean:g}": mean <= 1 + ROUNDING,
        "setting start_error must be null, because there are no heads for errors": heads
        or not started,
    }
    for words, holds in rules.items():
        if not holds:
            raise ArtifactError(f"{words}.")
    for part, inner, place in heads:
        if not POLICIES[part["kind"]].from_state(part["settings"], inner).has_errors:
            rule = f"must have a head for errors; got {part['kind']!r}"
            raise ArtifactError(f"router {place!r} {rule}.")


def check_text(
    kind: object,
    settings: dict[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    n_features: int,
    prefix: str = TEXT_PREFIX,
) -> None:
    """Refuse a state from which text features of this kind and width could not be built."""
    schema = _schema("text.kind", kind, TEXT_SCHEMAS)
    if kind == CombinedFeatures.kind:
        hashing, tensors = split(tensors, "hashing.")
        encoder, tensors = split(tensors, "encoder.")
        schema.check(settings, tensors, {}, prefix)
        width = hashing["centre"].size if "centre" in hashing else n_features
        check_text("hashing", settings["hashing"], hashing, width, f"{prefix}hashing.")
        check_text("encoder", settings["encoder"], encoder, n_features - width, f"{prefix}encoder.")
        return
    numbers = len(NUMBER_NAMES)
    if kind == "hashing" and n_features < numbers:
        raise ArtifactError(
            f"a router with hashing features must have at least {numbers} features; got {n_features}."
        )
    sizes = {"n_features": n_features}
    schema.check(settings, tensors, sizes, prefix, n_projected=n_features - numbers)
    if kind == "hashing":
        terms, bits = tensors["terms"], settings["bits"]
        inside = terms.size == 0 or (terms[0] >= 0 and terms[-1] < 1 << bits)
        if not inside or not (terms[1:] > terms[:-1]).all():
            raise ArtifactError(
                f"tensor '{prefix}terms' must hold ascending buckets in [0, 2**{bits})."
            )


def check_estimates(
    novelty: Mapping[str, NDArray[Any]],
    calibration: Mapping[str, NDArray[Any]],
    sizes: Mapping[str, int],
) -> None:
    """Refuse tensors of novelty and calibration that do not fit, where there are any."""
    for tensors, described, prefix in (
        (novelty, NOVELTY, NOVELTY_PREFIX),
        (calibration, CALIBRATION, CALIBRATION_PREFIX),
    ):
        if tensors:
            Schema({}, described).check({}, tensors, dict(sizes), prefix)


def check_query_hashes(hashes: NDArray[Any] | None) -> NDArray[np.uint64] | None:
    """Refuse hashes of training queries that are not ascending 64-bit numbers; None stays None."""
    if hashes is None:
        return None
    if hashes.dtype != np.uint64 or hashes.ndim != 1 or not (hashes[1:] > hashes[:-1]).all():
        raise ArtifactError(
            f"tensor {HASHES_TENSOR!r} must be ascending uint64 numbers; got {hashes.dtype} of shape "
            f"{hashes.shape}."
        )
    return np.ascontiguousarray(hashes)


def described_tensor(array: NDArray[Any]) -> dict[str, Any]:
    """Shape and dtype of a tensor, as the manifest lists them."""
    return {"shape": list(array.shape), "dtype": array.dtype.name}


def _schema(what: str, kind: object, schemas: Mapping[str, Schema]) -> Schema:
    if not isinstance(kind, str) or kind not in schemas:
        known = ", ".join(sorted(schemas))
        raise ArtifactError(
            f"{what} must be one of {known}; got {kind!r}. A newer mild may know it."
        )
    return schemas[kind]


def _perceptron_tensors(settings: dict[str, Any]) -> dict[str, str]:
    layers = settings["layers"]
    widths = ["n_features", *(f"width_{layer}" for layer in range(layers - 1)), "n_experts"]
    shapes = MARGINS | RANKS
    for k in range(layers):
        shapes |= {f"weight_{k}": f"{widths[k + 1]} {widths[k]}", f"bias_{k}": widths[k + 1]}
    return shapes


def _agreement_tensors(settings: dict[str, Any]) -> dict[str, str]:
    asked = sum(map(len, settings["steps"]))
    shapes = {name: shape.format(asked) for name, shape in AGREEMENT.items()}
    return shapes | {"gate": f"{len(SIGNALS) + 3}, optional"}


def _static_tensors(settings: dict[str, Any]) -> dict[str, str]:
    table = {"table": "n_tokens n_features, float16, not empty", "tokenizer": "n_bytes, uint8"}
    return {**SCALED, **(table if settings["embedded"] else {})}


NOVELTY = {
    "centres": "n_centres n_features, not empty",
    "scales": "2, positive",
    "score_quantiles": "201",
    "means": "n_means n_experts, not empty",
}
CALIBRATION = dict.fromkeys(("slopes", "offsets"), "n_experts")
AGREEMENT = {
    "groups": "n_patterns {}, not empty",
    "counts": "n_patterns, not negative",
    "sums": "n_patterns {}, not negative",
    "accuracy": "{}, not negative",
}
LINEAR = {"coef": "n_experts n_features", "intercept": "n_experts"}
RANKS = {"ranks": "n_experts, optional, ranks"}
MARGINS = {"margins": "n_experts, positive"}
DECODER: dict[str, Rule] = {"decision": choice(DECISIONS), "surrogate": surrogate}
POLICY_SCHEMAS = {
    "linear": Schema(DECODER, LINEAR | MARGINS | RANKS),
    "linear_costs": Schema({}, LINEAR | RANKS),
    "clusters": Schema(
        {},
        {
            "coef": "n_clusters n_features, not empty",
            "intercept": "n_clusters",
            "costs": "n_clusters n_experts",
        }
        | RANKS,
    ),
    # More layers than any router has would take long to list.
    "perceptron": Schema({**DECODER, "layers": integer(1, 1000)}, _perceptron_tensors),
    "nearest": Schema(
        {"n_neighbors": integer(1)},
        {
            "inputs": "n_stored n_features, not empty",
            "costs": "n_stored n_experts, may be NaN",
            "weights": "n_stored, not negative",
            "centre": "n_features, optional",  # sparse inputs are not centred
        }
        | RANKS,
    ),
    "constant": Schema(
        {"n_features": width, "named": named_expert}, {"mean_costs": "n_experts"} | RANKS
    ),
    "priced": Schema(
        dict.fromkeys(("price_weight", "error_scale"), amount)
        | {"kind_of_error": choice(("ridge", "logistic"))},
        {f"{head}_{name}": LINEAR[name] for head in ("error", "price") for name in LINEAR}
        | {"betas": "n_experts, not negative"}
        | RANKS,
    ),
    "cascade": Schema(
        {"answer_kind": choice(KINDS), "steps": steps, "threshold": probability}
        | {"start_error": amount_or_null},
        _agreement_tensors,
        parts=(1, 2),
    ),
    "standardized": Schema(
        {}, {"mean": "n_features", "scale": "n_features, positive"}, parts=(1, 1)
    ),
    "blend": Schema(
        {},
        dict.fromkeys(("weights", "levels"), "n_parts, not negative")
        | {"calibration": "2 n_experts, optional"}
        | RANKS,
        parts=(1, math.inf),
    ),
    "stack": Schema(parts=(2, math.inf)),
    "mixed": Schema(
        {}, {"coef": "n_experts n_mixed", "intercept": "n_experts"} | RANKS, parts=(1, 1)
    ),
    "tradeoff": Schema(parts=(2, math.inf)),
    "mix": Schema({"share": share, "salt": salt}, parts=(2, 2)),
}

REFERENCE = {
    "name": rule("be a name", lambda value: is_path(value) and value != ""),
    "path": rule("be a path or null", lambda value: value is None or is_path(value)),
}
SCALED = {"centre": "n_features, float32", "scale": "1, float32, positive"}
TEXT_DTYPES = ("float32", "float16", "int32", "int8", "uint8")
LENGTH = integer(1, 1 << 20)
TEXT_SCHEMAS = {
    "hashing": Schema(
        {"version": integer(VERSION, VERSION), "bits": integer(8, 24)}
        | {"first": LENGTH, "last": integer(0, 1 << 20)},
        {
            "terms": "n_terms, int32",
            "weights": "n_terms, float32",
            "projection": "n_terms n_projected, int8",
            "centre": "n_features, float32",
            "scale": "n_features, float32, positive",
            "limits": f"2 {len(NUMBER_NAMES)}, float32",
        },
    ),
    "static": Schema(
        {**REFERENCE, "table_sha256": digest, "tokenizer_sha256": digest}
        | {"normalize": flag, "embedded": flag},
        _static_tensors,
    ),
    "encoder": Schema(
        {**REFERENCE, "sha256": digest, "normalize": flag}
        | {"pooling": choice(POOLINGS), "max_length": LENGTH},
        SCALED,
    ),
    CombinedFeatures.kind: Schema(dict.fromkeys(("hashing", "encoder"), settings_object)),
    "onnx": Schema(
        dict.fromkeys(OnnxFeatures.FILES.values(), digest)
        | {"max_length": LENGTH, "pad": integer(0, 1 << 31)},
        SCALED,
    ),
    "vectors": Schema({"n_features": width, "column": text_or_null}),
}
