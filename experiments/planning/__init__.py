"""Which outcomes to buy next for a sum of dollars, and a collection that buys only these."""

from experiments.planning.labels import LabelPlan, collect_planned, make_plan

__all__ = ["LabelPlan", "collect_planned", "make_plan"]
