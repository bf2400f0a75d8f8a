"""A batch job as a value that can be sent to other processes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from mild.artifact import LoadedRouter
from mild.artifact.deciding import decide_all
from mild.artifact.prices import Prices
from mild.core.decisions import DECISIONS
from mild.data.parquet_files import open_system
from mild.distributed.batch.inputs import Inputs
from mild.errors import InvalidInputError, UnsupportedError, check_option
from mild.policies import Policy, ScorePolicy, StandardizedPolicy

__all__ = ["EXPERT", "BatchOptions", "Job", "output_schema", "prepare"]

#: Column of the output that names the chosen expert.
EXPERT = "expert"
#: Decompressed bytes of the columns that are read, up to which row groups are taken together.
PARTITION_BYTES = 128 << 20


@dataclass(frozen=True)
class BatchOptions:
    """What is read, and what is written.

    Attributes
    ----------
    query, vectors, features : columns to route by; None for those that the router was fitted on
    keep : columns of the input that are copied to the output
    probabilities : whether each expert's probability, and expected cost where known, is written
    skip_bad : whether rows without a query are left out; otherwise their expert is null
    decision : "stationary" or "argmax" in place of the router's own
    prices : new prices, for a router that keeps prices apart
    partition_bytes : decompressed size of a partition
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
        """The options, JSON-ready."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Job:
    """Everything that routing a partition needs, besides the router.

    Attributes
    ----------
    folder : folder of the router
    source : the dataset
    out : folder of the output
    token : identifier of this run; unfinished files are in a folder of that name
    fingerprint : of router, input and options, written into every file
    inputs : how the router's inputs are read
    schema : Arrow schema of the output
    """

    folder: str
    source: str
    out: str
    token: str
    fingerprint: str
    options: BatchOptions
    inputs: Inputs
    schema: Any

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return list(dict.fromkeys([*self.inputs.columns, *self.options.keep]))

    @property
    def unfinished(self) -> str:
        """Folder for files that are not complete."""
        return f"{open_system(self.out)[1]}/_tmp-{self.token}"


def prepare(router: LoadedRouter, options: BatchOptions) -> LoadedRouter:
    """The router under the prices and the decision of the options."""
    router = options.prices.on(router)
    if options.decision is None:
        return router
    check_option("decision", options.decision, DECISIONS)
    return LoadedRouter(
        _with_decision(router.policy, options.decision),
        router.expert_names,
        router.feature_names,
        router.metadata,
        router.text,
        router.marks,
    )


def output_schema(router: LoadedRouter, schema: Any, options: BatchOptions) -> Any:
    """Columns of the output: those that are kept, the expert, and the probabilities and costs."""
    fields = [pa.field(EXPERT, pa.dictionary(pa.int32(), pa.string()))]
    if options.probabilities:
        names = router.expert_names
        fields += [pa.field(f"p__{name}", pa.float32()) for name in names]
        if decide_all(router.policy, np.zeros((1, router.n_features))).costs is not None:
            fields += [pa.field(f"expected_cost__{name}", pa.float32()) for name in names]
    taken = {field.name for field in fields}
    for name in options.keep:
        if name in taken:
            raise InvalidInputError(
                f"column {name!r} cannot be kept: the output has a column of that name.",
                parameter="keep",
            )
    return pa.schema([*(schema.field(name) for name in dict.fromkeys(options.keep)), *fields])


def _with_decision(policy: Policy, rule: str) -> Policy:
    if isinstance(policy, StandardizedPolicy):
        return StandardizedPolicy(policy.mean, policy.scale, _with_decision(policy.inner, rule))
    if not isinstance(policy, ScorePolicy):
        raise UnsupportedError(
            f"a {policy.kind} router takes the least expected cost, so it has no other decision; leave "
            f"--decision out.",
            parameter="decision",
        )
    settings, tensors = policy.state()
    return type(policy).from_state({**settings, "decision": rule}, tensors)
