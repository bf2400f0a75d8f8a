"""The paper's image experiments: ``python -m experiments.images``."""
