"""A saved router that reads texts."""

from __future__ import annotations

from pathlib import Path

from mild.artifact import Router, load


def saved_router() -> Router:
    return load(Path(__file__).parent / "compatibility/artifacts/text_priced/router")
