"""Formats of outcome tables: each has one file, ``detection`` has the registry."""

from mild.data.formats.detection import (
    FORMATS,
    FORMS,
    choose_form,
    lay_out,
    possible_forms,
    read_format,
)

__all__ = ["FORMATS", "FORMS", "choose_form", "lay_out", "possible_forms", "read_format"]
