"""mild-gateway: everything of mild that talks to experts over a network.

The public names are loaded when they are first used; the stub beside this file lists them.
"""

from mild import __version__ as _library
from mild.errors import MildError
from mild.lazy_names import attach_stub
from mild_gateway._version import __version__ as _own

if _library != _own:
    raise MildError(
        f"mild-gateway {_own} needs mild-learn {_own}; this is mild-learn {_library}. "
        f"Run: pip install 'mild-learn[gateway]=={_own}'.",
        code="version_mismatch",
    )

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
