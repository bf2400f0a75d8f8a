"""Files that people write in TOML: read, checked key by key, refused with the line."""

from mild.toml.checker import Checker
from mild.toml.reading import read_toml

__all__ = ["Checker", "read_toml"]
