"""Defaults that the library and the settings of the gateway share; importing them imports nothing else."""

#: Probability with which a target is met on new queries. By default the target is met on average: in about
#: half of all cases the router does a little better than was asked for, and in the others a little worse.
TARGET_PROBABILITY = 0.5
