"""What a router consists of: it is read from a folder and written to one as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mild.artifact.info import RouterInfo
from mild.artifact.novelty import Novelty
from mild.features import TextFeatures
from mild.policies import Policy


@dataclass(eq=False, repr=False)
class RouterParts:
    """The parts of a ``Router``, which describes each of them."""

    policy: Policy
    experts: list[str]
    feature_names: list[str] | None = None
    info: RouterInfo = field(default_factory=RouterInfo)
    text: TextFeatures | None = None
    query_hashes: NDArray[np.uint64] | None = None
    novelty: Novelty | None = None
