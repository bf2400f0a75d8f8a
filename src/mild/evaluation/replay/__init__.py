"""Off-policy estimates: what another router would have cost on logged traffic."""

from mild.evaluation.replay.log import read_judged, read_texts
from mild.evaluation.replay.run import ReplayVerdict, replay

__all__ = ["ReplayVerdict", "read_judged", "read_texts", "replay"]
