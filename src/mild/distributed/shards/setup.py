"""What those who hold the parts are told, and what they tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mild.data import OutcomeTable
from mild.distributed.shards.sums import Moments
from mild.features import FEATURES, TextFeatures
from mild.features.encoder import EncoderFeatures
from mild.routers.targets import LossOptions, Whole

__all__ = ["Read", "Setup", "StepState"]


@dataclass(frozen=True)
class StepState:
    """A fitted feature step as it is saved, to be built again elsewhere."""

    kind: str
    settings: Mapping[str, Any]
    tensors: Mapping[str, Any]
    files: Mapping[str, bytes]
    cache: Any = None

    @classmethod
    def of(cls, step: TextFeatures) -> StepState:
        """State of a fitted step."""
        return cls(step.kind, *step.state(), step.files(), getattr(step, "cache", None))

    def build(self) -> TextFeatures:
        """The step."""
        step = FEATURES[self.kind].from_state(self.settings, self.tensors)
        if self.files:
            step.take_files(self.files)
        if isinstance(step, EncoderFeatures):
            # A loaded encoder keeps nothing; one that is fitted on keeps what it encoded.
            step.cache = self.cache
        return step


@dataclass(frozen=True)
class Setup:
    """What is known of the whole so far.

    Attributes
    ----------
    step : how features are made
    rows : number of the part -> its rows, as the survey found them
    scaler : how they are scaled; None as long as that is not known, or if they are not
    options : what the loss is
    whole : what the targets of a row take from all rows
    """

    step: StepState
    rows: Mapping[int, int]
    scaler: Any = None
    options: LossOptions | None = None
    whole: Whole | None = None


@dataclass(frozen=True)
class Read:
    """What one part has told while it was read: moments are None unless they were asked for."""

    number: int
    moments: Moments | None
    fingerprint: str
    sample: OutcomeTable | None
