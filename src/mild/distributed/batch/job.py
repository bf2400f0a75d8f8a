"""What a batch job is: a value that other processes can be given."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mild.artifact import LoadedRouter
from mild.artifact.prices import Prices
from mild.distributed.batch.deciding import knows_costs, with_decision
from mild.distributed.batch.partitions import PARTITION_BYTES
from mild.distributed.batch.reading import Reading
from mild.errors import InvalidInputError

__all__ = ["EXPERT", "BatchOptions", "Job"]

#: Column of the output that names the chosen expert.
EXPERT = "expert"


@dataclass(frozen=True)
class BatchOptions:
    """What is read, and what is written.

    Attributes
    ----------
    query, vectors, features : columns to route by; None for those that the router learned from
    keep : columns of the input that come back in the output
    probabilities : whether each expert's probability, and expected cost where known, is written
    skip_bad : whether rows without a query are left out; else their expert is null
    decision : "stationary" or "argmax" in place of the router's own
    prices : new prices to decide under, where the router keeps prices apart
    partition_bytes : size of a partition, decompressed
    """

    query: str | None = None
    vectors: str | None = None
    features: str | None = None
    keep: tuple[str, ...] = ()
    probabilities: bool = False
    skip_bad: bool = False
    decision: str | None = None
    prices: Prices = field(default_factory=Prices)
    partition_bytes: int = PARTITION_BYTES

    def described(self) -> dict[str, Any]:
        """JSON-ready."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Job:
    """Everything that it takes to route a partition, besides the router.

    Attributes
    ----------
    folder : of the router
    source : of the dataset, which tells its file system
    out : folder of the output
    token : of this run: what it has begun is under a name of its own
    mark : fingerprint of router, input and options, written into every file
    options : as above
    reading : how the router is asked
    schema : Arrow schema of the output
    """

    folder: str
    source: str
    out: str
    token: str
    mark: str
    options: BatchOptions
    reading: Reading
    schema: Any

    @property
    def columns(self) -> list[str]:
        """To be read."""
        return list(dict.fromkeys([*self.reading.columns, *self.options.keep]))

    @property
    def has_costs(self) -> bool:
        """Whether expected costs are written."""
        return any(name.startswith("expected_cost__") for name in self.schema.names)

    def prepared(self, router: LoadedRouter) -> LoadedRouter:
        """The router as this job asks it."""
        return prepared(router, self.options)


def prepared(router: LoadedRouter, options: BatchOptions) -> LoadedRouter:
    """A router under new prices and another decision."""
    router = options.prices.on(router)
    policy = with_decision(router.policy, options.decision)
    if policy is router.policy:
        return router
    return LoadedRouter(
        policy,
        router.expert_names,
        router.feature_names,
        router.metadata,
        router.text,
        router.marks,
    )


def output_schema(router: LoadedRouter, kept: Any, options: BatchOptions) -> Any:
    """Columns of the output: those that are kept, the expert, and what was asked for besides."""
    fields = [kept.field(name) for name in options.keep]
    fields.append(pa.field(EXPERT, pa.dictionary(pa.int32(), pa.string())))
    if options.probabilities:
        names = router.expert_names
        fields += [pa.field(f"p__{name}", pa.float32()) for name in names]
        if knows_costs(router.policy):
            fields += [pa.field(f"expected_cost__{name}", pa.float32()) for name in names]
    taken = [field.name for field in fields]
    for name in options.keep:
        if taken.count(name) > 1:
            raise InvalidInputError(
                f"column {name!r} cannot be kept: the output has a column of that name."
            )
    return pa.schema(fields)
