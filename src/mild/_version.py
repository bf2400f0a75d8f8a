"""The version of mild, apart from the root package, which imports every other one."""

__version__ = "0.10.0"
