"""How tables and figures call things: data sets, tables, methods, blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mild.costs import REWARDS
from mild.margins import COUNTS
from mild.reproduce.data import DATASETS
from mild.reproduce.experts import EXPERTS, SETUPS
from mild.reproduce.images.protocol import CHANGED, FULL_WIDTH, PROTOCOLS
from mild.reproduce.keys import canonical_json
from mild.reproduce.llm.titles import cost_title, models_title, training_title
from mild.reproduce.records import DECISIONS, MODELS

__all__ = [
    "COSTS",
    "MARGINS",
    "TABLES",
    "YARDSTICKS",
    "block_order",
    "block_title",
    "dataset_title",
    "method_label",
    "method_order",
    "protocol_label",
    "seed_range",
    "tell_apart",
]

#: In the order in which tables list them; names that are not here come last.
TABLES = {
    "table1": "Table 1: synthetic experts",
    "table2": "Table 2: real experts",
    "severe": "Severe imbalance",
    "llm": "Routing among language models",
    "ablation": "Margins for language models: uniform, theory, tuned",
    "noise": "Noisy costs of language models",
    "extreme": "Extreme imbalance among language models",
    "readings": "Readings of the paper",
    "people": "People as experts",
}
COSTS = {"error": "error", "cost": "error + cost"}
#: TDEF first: the others are compared with it.
METHODS = {
    "tdef": "TDEF",
    "mild": "MILD",
    "ce": "CE",
    "cwce": "CWCE",
    "ldam": "LDAM",
    "tdef-smoothed": "TDEF, smoothed targets",
    "tdef-smoothed-half": "TDEF, smoothed targets, ambiguous rows at half weight",
    "tdef-dropped": "TDEF, ambiguous rows dropped",
}
#: How margins are found, from nothing said to everything tried.
MARGINS = ("uniform", "theory", "tuned", "grid")
#: What is no method, yet stands in the table.
YARDSTICKS = {"constant": "best constant", "oracle": "oracle"}


def dataset_title(name: str) -> str:
    """Name of a data set in tables; one that is not ours goes by its own.

    Examples
    --------
    >>> dataset_title("cifar10"), dataset_title("mine")
    ('CIFAR-10', 'mine')
    """
    return DATASETS[name].title if name in DATASETS else name


def method_label(method: Mapping[str, Any], decision: str | None, full: bool = False) -> str:
    """Short readable name of a method as a record holds it.

    With ``full``, searched margins also say which margins the search began with.

    Examples
    --------
    >>> reading = {"name": "mild", "rewards": "others", "counts": "best", "margins": "theory"}
    >>> method_label({**reading, "total": "1"}, "argmax")
    'MILD others, theory (best), Σρ=1, argmax'
    >>> method_label({**reading, "margins": "uniform", "total": "mean1"}, "argmax")
    'MILD others, uniform, mean ρ=1'
    >>> method_label({"name": "tdef"}, "argmax")
    'TDEF'
    """
    name = str(method["name"])
    if name != "mild":
        return METHODS.get(name) or YARDSTICKS.get(name) or name
    margins = method.get("margins")
    parts = [f"MILD {method.get('rewards')}"]
    if method.get("strength") is not None:
        parts[0] += f" {method['strength']:g}"
    if not isinstance(margins, str):
        parts.append("ρ=" + "/".join(f"{value:g}" for value in margins or ()))
    elif method.get("counts") and (margins == "theory" or full):
        parts.append(f"{margins} ({method['counts']})")
    else:
        parts.append(margins)
    if margins in ("uniform", "theory") or (full and isinstance(margins, str)):
        parts.append(_total(method.get("total")))
    # Equal margins: both rules choose alike.
    if decision is not None and margins != "uniform":
        parts.append(decision)
    return ", ".join(part for part in parts if part)


def _total(total: object) -> str:
    if total is None:
        return ""
    text = str(total)
    return f"mean ρ={text.removeprefix('mean')}" if text.startswith("mean") else f"Σρ={text}"


def block_title(cell: Mapping[str, Any]) -> str:
    """What a block's rows have in common, from a cell without method and seed."""
    if cell["experts"] == MODELS:
        parts = [cell["dataset"], models_title(cell), cost_title(cell)]
        return " · ".join([*parts, training_title(cell["protocol"])])
    protocol = cell["protocol"]
    parts = [
        dataset_title(cell["dataset"]),
        _experts(cell),
        _cost(cell),
        f"protocol {protocol_label(protocol)}",
    ]
    if not protocol["augment"]:
        parts.append("no augmentation")
    trained = cell.get("expert_protocol")
    if trained and trained != protocol:
        parts.append(f"experts by protocol {protocol_label(trained)}")
    if cell.get("scale", "raw") != "raw":
        parts.append("rewards scaled to sum 1")
    if cell.get("ambiguous") is not None:
        parts.append(f"{100 * cell['ambiguous']:g} % ambiguous rows")
    if cell.get("validation"):
        parts.append("judged on a held-out tenth of the training rows")
    if cell["holdout"]:
        parts.append("holdout")
    return " · ".join(parts)


def protocol_label(protocol: Mapping[str, Any]) -> str:
    """Name and epochs of a protocol, and what else is not as its name says.

    Examples
    --------
    >>> protocol_label({"name": "fast, changed", "epochs": 1, "lr": 0.1, "width": 8})
    'fast, changed (1 epoch, width 8, learning rate 0.1)'
    """
    name = str(protocol["name"])
    parts = ["1 epoch" if protocol["epochs"] == 1 else f"{protocol['epochs']} epochs"]
    if protocol.get("width", FULL_WIDTH) != FULL_WIDTH:
        parts.append(f"width {protocol['width']}")
    usual = PROTOCOLS.get(name.removesuffix(CHANGED)) if name.endswith(CHANGED) else None
    if usual is not None:
        if protocol.get("batch_size", usual.batch_size) != usual.batch_size:
            parts.append(f"batch size {protocol['batch_size']}")
        if protocol.get("lr", usual.lr) != usual.lr:
            parts.append(f"learning rate {protocol['lr']:g}")
        decay = protocol.get("decay", "coupled")
        strength = protocol.get("weight_decay", usual.weight_decay)
        if (strength, decay) != (usual.weight_decay, usual.decay):
            parts.append(f"{decay} weight decay {strength:g}")
    return f"{name} ({', '.join(parts)})"


def _cost(cell: Mapping[str, Any]) -> str:
    """The cost type, and what asking a person costs where that is a setting."""
    title = COSTS.get(cell["cost"], cell["cost"])
    return title if cell.get("price") is None else f"{title} (a person costs {cell['price']:g})"


def _experts(cell: Mapping[str, Any]) -> str:
    """Who the experts are; the coverage of people is their accuracy."""
    coverage = "-".join(f"{100 * part:.3g}" for part in cell["coverage"])
    if cell["experts"] == "people":
        return f"people (accuracy {coverage} %) and a classifier"
    setup = f"{cell['setup']} ({coverage})" if cell["setup"] in SETUPS else coverage
    return f"setup {setup} · {cell['experts']} experts"


def tell_apart(titles: Sequence[str], cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Titles that occur more than once say in which of their settings the cells differ."""
    flat = [_flat(cell) for cell in cells]
    counts = Counter(titles)
    told = []
    for title, own in zip(titles, flat, strict=True):
        twins = [other for other, name in zip(flat, titles, strict=True) if name == title]
        names = [name for name in own if any(other.get(name) != own[name] for other in twins)]
        extra = ", ".join(f"{name} {own[name]}" for name in names)
        told.append(f"{title} · {extra}" if counts[title] > 1 and extra else title)
    return told


def _flat(cell: Mapping[str, Any]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name, value in cell.items():
        if isinstance(value, Mapping):
            entries.update({f"{name} {inner}": each for inner, each in value.items()})
        else:
            entries[name] = value
    return entries


def seed_range(seeds: Sequence[int]) -> str:
    """Seeds in few words.

    Examples
    --------
    >>> seed_range([0, 1, 2, 3]), seed_range([0, 2])
    ('0-3', '0, 2')
    """
    ordered = sorted(set(seeds))
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]}-{ordered[-1]}"
    return ", ".join(map(str, ordered))


def _place(value: object, order: Iterable[object]) -> tuple[int, str]:
    known = list(order)
    return (known.index(value) if value in known else len(known), str(value))


def block_order(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    """Sort key: table, dataset, setup, cost, experts, protocol, augmentation, holdout."""
    protocol = cell["protocol"]
    return (
        _place(cell["table"], TABLES),
        _place(cell["dataset"], DATASETS),
        _place(cell["setup"], SETUPS),
        _place(cell["cost"], COSTS),
        _place(cell["experts"], EXPERTS),
        _place(protocol["name"], PROTOCOLS),
        not protocol.get("augment", True),
        cell["holdout"],
        canonical_json(cell),
    )


def method_order(method: Mapping[str, Any], decision: str | None) -> tuple[Any, ...]:
    """Sort key of a row: TDEF, then MILD by margins, rewards, counts, total and decision."""
    total = str(method.get("total"))
    return (
        _place(method["name"], METHODS),
        _place(method.get("margins"), MARGINS),
        _place(method.get("rewards"), REWARDS),
        _place(method.get("counts"), COUNTS),
        (total.startswith("mean"), total),
        _place(decision, DECISIONS),
        canonical_json(method),
    )
