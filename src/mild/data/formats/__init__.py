"""The shapes in which the field writes down outcomes."""

from mild.data.formats.choosing import TITLES, choose_form, lay_out, possible_forms

__all__ = ["TITLES", "choose_form", "lay_out", "possible_forms"]
