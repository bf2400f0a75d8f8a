"""Defaults that the library and the settings of the gateway share; importing them imports nothing else."""

#: Probability with which a target is met on new queries: a target is a floor.
TARGET_PROBABILITY = 0.8
