"""Routers on disk: a folder with ``router.json`` and ``tensors.safetensors``, never a pickle.

Saving works for every fitted router. Loading gives a :class:`Router`, which decides with
NumPy only: neither scikit-learn nor scipy nor torch is imported.
"""

from mild.artifact.expert_names import match_expert
from mild.artifact.explanation import Explanation
from mild.artifact.facts import mix_words
from mild.artifact.fingerprints import features_tag, fingerprint
from mild.artifact.info import EstimatorInfo, RouterInfo, SharesInfo
from mild.artifact.reading import load
from mild.artifact.router import NextStep, Router
from mild.artifact.targets import Target
from mild.artifact.writing import save

__all__ = [
    "EstimatorInfo",
    "Explanation",
    "NextStep",
    "Router",
    "RouterInfo",
    "SharesInfo",
    "Target",
    "features_tag",
    "fingerprint",
    "load",
    "match_expert",
    "mix_words",
    "save",
]
