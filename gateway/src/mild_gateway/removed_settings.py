"""Settings of ``mild.toml`` that 0.10 took away, and what to use instead.

``docs/development/migration.md`` shows the same rows; a test compares the two.
"""

from __future__ import annotations

#: (section, setting) -> what to do instead, as a sentence, sorted. The section is ``experts`` for that of
#: any expert and ``top level`` outside all sections.
REMOVED_SETTINGS: dict[tuple[str, str], str] = {
    ("experts", "concurrency"): ("Use `max_in_flight`."),
    ("experts", "connect_timeout_s"): ("Use `connect_seconds`."),
    ("experts", "timeout_s"): ("Use `total_seconds`."),
    ("routing.target", "save_dollars"): ("Use max_dollars, dollars per 1,000 requests."),
    ("routing.target", "strong_share"): (
        "Use max_dollars with prices of 0 for the weak and 1 for the strong expert in the table."
    ),
}


def removal_message(section: str, setting: str) -> str | None:
    """The sentence about a removed setting, or None if the section never had one of that name."""
    instead = REMOVED_SETTINGS.get((section, setting))
    if instead is None:
        return None
    return f"{setting} was removed in mild 0.10. {instead}"
