"""What another router would have cost on traffic that was logged."""

from mild.evaluation.replay.run import replay

__all__ = ["replay"]
