"""Off-policy estimates: what another router would have cost on logged traffic."""

from mild.evaluation.replay.log import read_errors, read_texts
from mild.evaluation.replay.run import replay

__all__ = ["read_errors", "read_texts", "replay"]
