"""What is known about a router besides its numbers: how it was made, from which data, for which target.

On disk it is a part of ``router.json``; most of it is the object "notes" there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Self

from mild.money import plain_number


@dataclass(frozen=True)
class InfoPart:
    """A JSON object with known keys. Keys that this version does not know are kept in ``other``."""

    other: Mapping[str, Any] = field(default_factory=dict, kw_only=True, repr=False)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """From a JSON object; a key that is missing is None."""
        other = dict(content)
        values = {}
        for field_of_part in fields(cls):
            if field_of_part.name != "other":
                values[field_of_part.name] = other.pop(_key(field_of_part), None)
        return cls(**values, other=other)

    def as_dict(self) -> dict[str, Any]:
        """A JSON object; a field with a default is left out where it is None."""
        content = {}
        for field_of_part in fields(self):
            value = getattr(self, field_of_part.name)
            is_left_out = value is None and field_of_part.default is None
            if field_of_part.name != "other" and not is_left_out:
                content[_key(field_of_part)] = value
        return {**content, **self.other}


def _key(field_of_part: Field[Any]) -> str:
    """The key of a field in JSON."""
    return str(field_of_part.metadata.get("key", field_of_part.name))


@dataclass(frozen=True)
class CostInfo(InfoPart):
    """The cost that the router was fitted with."""

    formula: str = field(metadata={"key": "words"})  # for people
    beta: Mapping[str, float] | None  # expert -> what asking it costs, in wrong answers
    price_weight: float | None  # wrong answers that one dollar is worth
    latency_weight: float | None  # wrong answers that one second is worth

    @classmethod
    def of_errors(cls) -> CostInfo:
        """An error, and nothing else."""
        return cls(cost_formula({}), None, None, None)

    @classmethod
    def of_betas(cls, beta: Mapping[str, float]) -> CostInfo:
        """An error, plus what asking each expert costs."""
        return cls(cost_formula(beta), beta, None, None)

    @classmethod
    def of_dollars(cls, price_weight: float) -> CostInfo:
        """An error, plus dollars at this weight."""
        return cls(cost_formula({}, price_weight), None, price_weight, None)

    @property
    def has_other_prices(self) -> bool:
        """Whether asking costs something besides dollars."""
        return bool(self.latency_weight or any((self.beta or {}).values()))


def cost_formula(
    beta: Mapping[str, float],
    price_weight: float | None = None,
    latency_weight: float | None = None,
) -> str:
    """A cost as a formula; ``beta`` has what asking each expert costs, and may be empty.

    >>> cost_formula({"small": 0.0, "large": 0.5}, price_weight=100)
    'error + what asking costs (small 0, large 0.5) + 100 × dollars'
    """
    terms = ["error"]
    if any(beta.values()):
        shown = [f"{name} {plain_number(value)}" for name, value in beta.items()]
        terms.append(f"what asking costs ({', '.join(shown)})")
    if price_weight:
        terms.append(f"{plain_number(price_weight)} × dollars")
    if latency_weight:
        terms.append(f"{plain_number(latency_weight)} × seconds")
    return " + ".join(terms)


@dataclass(frozen=True)
class TableInfo(InfoPart):
    """The table of outcomes that the router was fitted on."""

    fingerprint: str
    rows: int
    form: str  # its format
    explanation: str  # how it was read
    graded: bool | None = None  # whether some scores are neither 0 nor 1; None if not, or not known


@dataclass(frozen=True)
class DataInfo(InfoPart):
    """The features and costs that the router was fitted on."""

    fingerprint: str
    rows: int


@dataclass(frozen=True)
class EstimatorInfo(InfoPart):
    """The estimator that was fitted: its class, its parameters, and what a search found."""

    class_name: str = field(metadata={"key": "class"})
    params: Mapping[str, Any]
    best_family: str | None = None
    best_params: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class TargetInfo(InfoPart):
    """The target that the router meets, and the setting that does it."""

    target: Mapping[str, float]  # such as {"keep_quality": 0.95}
    guarantee: float | None
    t: float | None  # the trade-off; None for a single expert
    expert: str | None  # the single expert
    met: bool
    certified: bool | None  # None where there is no guarantee
    best_expert: str
    sentence: str
    probability: float | None = None  # of meeting it on new rows, an estimate
    likely: bool | None = None  # whether the setting has the margins for that
    margins: Mapping[str, float] | None = None  # target -> margin in its unit
    setting: str | None = None  # the setting, in words
    quality: float | None = None  # expected on new queries
    dollars_per_1000: float | None = None  # expected on new queries


@dataclass(frozen=True)
class SharesInfo(InfoPart):
    """Shares of the experts in the decisions for training rows."""

    rows: int
    experts: Mapping[str, float]


_PARTS: dict[str, type[InfoPart]] = {
    "cost": CostInfo,
    "table": TableInfo,
    "shares": SharesInfo,
    "target": TargetInfo,
}
# The key of ``router.json`` that holds the notes, and the fields of RouterInfo that are notes.
_NOTES_KEY = "notes"
_NOTES = (
    "query", "constant", "mean_scores", *_PARTS,
    "frontier", "price_head", "verdict", "standard_errors", "hashes_complete", "dropped_mix",
    "dropped_frontier",
)  # fmt: skip


@dataclass(frozen=True)
class RouterInfo:
    """What is recorded about a router; None where nothing is.

    >>> info = RouterInfo.from_notes({"constant": "small", "price_head": "dollars"})
    >>> info.constant, info.cost
    ('small', None)
    """

    cost: CostInfo | None = None
    constant: str | None = None  # the expert of least mean cost in training
    mean_scores: Mapping[str, float] | None = None  # expert -> mean score in training, for ties
    query: Mapping[str, Any] | None = None  # columns that make a query (Recipe.from_dict)
    table: TableInfo | None = None
    hashes_complete: bool | None = None  # whether every training query has its hash
    shares: SharesInfo | None = None
    target: TargetInfo | None = None
    # What its settings are expected to do on new queries (Frontier.from_dict)
    frontier: Mapping[str, Any] | None = None
    # Expert -> standard error of its mean cost, by which a gateway explores; of a learned router.
    standard_errors: Mapping[str, float] | None = None
    price_head: str | None = None  # unit of a separate price head: "dollars"
    verdict: Mapping[str, Any] | None = None  # whether routing pays
    dropped_mix: str | None = None  # the mix that new prices replaced, in words
    # Conditions under which the dropped frontier was recorded, such as "for other prices"
    dropped_frontier: str | None = None
    other: Mapping[str, Any] = field(default_factory=dict)  # notes that this version does not know
    data: DataInfo | None = None
    estimator: EstimatorInfo | None = None
    kind: str | None = None
    mild_version: str | None = None
    created: str | None = None
    schema_version: int | None = None
    tensors: Mapping[str, Any] = field(default_factory=dict)  # shape and dtype, by name
    fingerprint: str | None = None  # of the content of router.json

    @classmethod
    def from_notes(cls, notes: Mapping[str, Any] | None) -> RouterInfo:
        """From the notes of an artefact; a note of an unexpected form is kept as it is."""
        known: dict[str, Any] = {}
        other = {key: note for key, note in (notes or {}).items() if note is not None}
        for name in _NOTES:
            part_class = _PARTS.get(name)
            if part_class is None:
                known[name] = other.pop(name, None)
            elif isinstance(other.get(name), Mapping):
                known[name] = part_class.from_dict(other.pop(name))
        return cls(**known, other=other)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> RouterInfo:
        """From the content of ``router.json``."""
        data = None
        if manifest["data"] is not None:
            data = DataInfo.from_dict(manifest["data"])
        content = json.dumps(dict(manifest), sort_keys=True, default=str)
        return replace(
            cls.from_notes(manifest[_NOTES_KEY]),
            data=data,
            estimator=EstimatorInfo.from_dict(manifest["estimator"]),
            fingerprint=hashlib.sha256(content.encode()).hexdigest()[:16],
            kind=manifest["kind"],
            mild_version=manifest["mild_version"],
            created=manifest["created"],
            schema_version=manifest["schema_version"],
            tensors=manifest["tensors"],
        )

    @property
    def notes(self) -> dict[str, Any] | None:
        """The notes of an artefact, JSON-ready; None if there are none."""
        notes = dict(self.other)
        for name in _NOTES:
            value = getattr(self, name)
            if isinstance(value, InfoPart):
                notes[name] = value.as_dict()
            elif value is not None:
                notes[name] = value
        return notes or None

    def with_notes(self, notes: Mapping[str, Any]) -> RouterInfo:
        """The same with more notes, or with others of the same keys."""
        merged = RouterInfo.from_notes({**(self.notes or {}), **notes})
        names = [*_NOTES, "other"]
        return replace(self, **{name: getattr(merged, name) for name in names})

    def without_frontier(self, recorded: str) -> RouterInfo:
        """The info without its frontier; ``recorded`` says under which conditions that was recorded.

        An info without a frontier is returned as it is.
        """
        if self.frontier is None:
            return self
        return replace(self, frontier=None, dropped_frontier=recorded)

    @property
    def price_weight(self) -> float | None:
        """Wrong answers that a dollar is worth to the router: by its target, otherwise by its cost."""
        if self.target is not None:
            return self.target.t
        if self.cost is not None:
            return self.cost.price_weight
        return None
