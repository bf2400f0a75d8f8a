"""mild-gateway: everything of mild that talks to experts over a network.

The public names are loaded when they are first used; the stub beside this file lists them.
"""

from importlib import import_module
from typing import Any

from mild import __version__ as _library_version
from mild.errors import MildError
from mild_gateway._version import __version__

if _library_version != __version__:
    raise MildError(
        f"mild-gateway {__version__} needs mild-learn of the same version; got {_library_version}. "
        f"Run: pip install 'mild-learn[gateway]=={__version__}'.",
        code="version_mismatch",
    )

_HOMES = {
    "collect_outcomes": "mild_gateway.collect",
    "import_feedback": "mild_gateway.learning.importing",
    "learn": "mild_gateway.learning.learn",
    "replay": "mild_gateway.learning.replaying",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
