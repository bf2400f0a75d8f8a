"""Experts behind an API: their schema, prices and client."""
