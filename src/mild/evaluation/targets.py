"""Former place of ``mild.tuning.targets``, for this version."""

import warnings
from typing import Any

from mild.tuning import targets


def __getattr__(name: str) -> Any:
    found = getattr(targets, name)
    warnings.warn(
        "mild.evaluation.targets is now mild.tuning.targets.", FutureWarning, stacklevel=2
    )
    return found
