"""mild: learning to route among fixed experts, without collapsing onto the majority one.

The public names are loaded when they are first used: importing mild imports neither torch nor
scikit-learn. The stub beside this file, ``__init__.pyi``, lists them and the modules that define them.
"""

from mild.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
