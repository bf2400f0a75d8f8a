"""Routers on disk: a folder with ``router.json`` and ``tensors.safetensors``, never a pickle.

Saving works for every fitted router. Loading gives a :class:`Router`, which decides with
NumPy alone: neither scikit-learn nor scipy nor torch is imported.
"""

from mild.artifact.fingerprints import fingerprint
from mild.artifact.reading import load
from mild.artifact.router import Router
from mild.artifact.writing import save

__all__ = ["Router", "fingerprint", "load", "save"]
