"""Routers on disk: a folder with ``router.json`` and ``tensors.safetensors``, never a pickle.

Saving works for every fitted router. Loading gives a :class:`LoadedRouter`, which decides with
NumPy alone: neither scikit-learn nor scipy nor torch is imported.
"""

from mild.artifact.fingerprints import fingerprint
from mild.artifact.loaded import LoadedRouter
from mild.artifact.reading import load
from mild.artifact.writing import save

__all__ = ["LoadedRouter", "fingerprint", "load", "save"]
