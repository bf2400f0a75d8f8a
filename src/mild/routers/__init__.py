"""Routers: scikit-learn estimators with ``fit(X, costs)``. Each is loaded when it is first used.

The stub beside this file, ``__init__.pyi``, lists them and the modules that define them.
"""

from mild.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
