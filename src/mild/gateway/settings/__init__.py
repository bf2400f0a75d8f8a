"""What a gateway is told: the file, checked line by line, and its secrets."""

from mild.gateway.settings.kinds import (
    AccessSettings,
    BreakerSettings,
    ExpertSettings,
    LedgerSettings,
    LimitSettings,
    RoutingSettings,
    Settings,
)
from mild.gateway.settings.matching import (
    Finding,
    check_against,
    findings_against,
    findings_in,
)
from mild.gateway.settings.reading import read_settings
from mild.gateway.settings.secrets import Secret

__all__ = [
    "AccessSettings",
    "BreakerSettings",
    "ExpertSettings",
    "Finding",
    "LedgerSettings",
    "LimitSettings",
    "RoutingSettings",
    "Secret",
    "Settings",
    "check_against",
    "findings_against",
    "findings_in",
    "read_settings",
]
