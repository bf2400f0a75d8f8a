"""Files that people write in TOML: read, checked key by key, refused with the line."""

from mild.endpoints.toml.checker import Checker
from mild.endpoints.toml.reading import read_toml

__all__ = ["Checker", "read_toml"]
