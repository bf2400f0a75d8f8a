"""mild-gateway: everything of mild that talks to experts over a network.

The public names are loaded when they are first used; the stub beside this file lists them.
"""

from mild import __version__ as _library_version
from mild.errors import MildError
from mild_gateway._version import __version__

if _library_version != __version__:
    raise MildError(
        f"mild-gateway {__version__} needs mild-learn of the same version; got {_library_version}. "
        f"Run: pip install 'mild-learn[gateway]=={__version__}'.",
        code="version_mismatch",
    )

# After the check: a library of another version may not have this module.
from mild.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
