"""The version of the gateway: that of the library it was made with."""

__version__ = "0.10.0"
