"""Compare routers, judge one, estimate from logs, and write the report.

The stub beside this file, ``__init__.pyi``, lists what other distributions may import.
"""

from mild.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
