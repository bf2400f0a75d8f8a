"""Defaults that the library and the settings of the gateway share; importing them imports nothing else."""

#: Probability with which a target is to be met. By default it is expected to be met: in about half of the
#: cases a little more is reached than was asked for, in the others a little less.
TARGET_PROBABILITY = 0.5
