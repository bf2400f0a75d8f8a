"""Settings and tensors of each kind of text features, and the shapes that must agree."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.artifact.state import State
from mild.errors import ArtifactError
from mild.features import FEATURES, OnnxFeatures
from mild.features.encoder import POOLINGS
from mild.features.hashing import LIMITS, VERSION
from mild.features.terms import NUMBER_NAMES

__all__ = ["TEXT_DTYPES", "TEXT_PREFIX", "check_text_state"]

# Prefix of the features' tensors among those of the router.
TEXT_PREFIX = "text."
TEXT_DTYPES: dict[str, np.dtype[Any]] = {
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}
TENSOR_DTYPES = {
    "terms": "int32",
    "weights": "float32",
    "projection": "int8",
    "centre": "float32",
    "scale": "float32",
    LIMITS: "float32",
    "table": "float16",
    "tokenizer": "uint8",
}
SCALED: dict[str, tuple[str | int, ...]] = {"centre": ("n_features",), "scale": (1,)}

_SHA256 = re.compile(r"[0-9a-f]{64}")


def check_text_state(
    kind: object, settings: dict[str, Any], tensors: Mapping[str, NDArray[Any]], width: int
) -> None:
    """Refuse a state from which the features of this kind could not be built, with one sentence.

    Parameters
    ----------
    kind : name in ``mild.features.FEATURES``
    settings, tensors : as ``TextFeatures.state`` gives them
    width : number of features of the router
    """
    if not isinstance(kind, str) or kind not in CHECKS:
        raise ArtifactError(
            f"text.kind must be one of {', '.join(sorted(FEATURES))}; got {kind!r}. "
            f"A newer mild may know it."
        )
    CHECKS[kind](State(settings, tensors, {"n_features": width}, TEXT_PREFIX))


def _hashing(state: State) -> None:
    state.check_keys("version", "bits", "first", "last")
    state.check_integer("version", VERSION, VERSION)
    bits = state.check_integer("bits", 8, 24)
    state.check_integer("first", 1, 1 << 20)
    state.check_integer("last", 0, 1 << 20)
    width = state.sizes["n_features"]
    if width < len(NUMBER_NAMES):
        raise ArtifactError(
            f"a router with hashing features must have at least {len(NUMBER_NAMES)} features; got "
            f"{width}."
        )
    shapes: dict[str, tuple[str | int, ...]] = {
        "terms": ("n_terms",),
        "weights": ("n_terms",),
        "projection": ("n_terms", width - len(NUMBER_NAMES)),
        "centre": ("n_features",),
        "scale": ("n_features",),
    }
    if LIMITS in state.tensors:  # older artefacts have none
        shapes[LIMITS] = (2, len(NUMBER_NAMES))
    _check_tensors(state, shapes)
    terms = state.tensors["terms"]
    inside = terms.size == 0 or (terms[0] >= 0 and terms[-1] < 1 << bits)
    if not inside or not (terms[1:] > terms[:-1]).all():
        raise ArtifactError(
            f"tensor '{TEXT_PREFIX}terms' must hold ascending buckets in [0, 2**{bits})."
        )


def _static(state: State) -> None:
    digests = ("table_sha256", "tokenizer_sha256")
    state.check_keys("name", "path", "normalize", "embedded", *digests)
    _check_reference(state)
    _check_digests(state, *digests)
    _check_flag(state, "normalize")
    _check_flag(state, "embedded")
    shapes = dict(SCALED)
    if state.settings["embedded"]:
        shapes |= {"table": ("n_tokens", "n_features"), "tokenizer": ("n_bytes",)}
    _check_tensors(state, shapes)
    if state.sizes.get("n_tokens") == 0:
        raise ArtifactError(f"tensor '{TEXT_PREFIX}table' must have at least one row; got none.")


def _encoder(state: State) -> None:
    state.check_keys("name", "path", "sha256", "pooling", "normalize", "max_length")
    _check_reference(state)
    _check_digests(state, "sha256")
    _check_flag(state, "normalize")
    state.check_choice("pooling", POOLINGS)
    state.check_integer("max_length", 1, 1 << 20)
    _check_tensors(state, SCALED)


def _onnx(state: State) -> None:
    digests = tuple(OnnxFeatures.FILES.values())
    state.check_keys("max_length", "pad", *digests)
    _check_digests(state, *digests)
    state.check_integer("max_length", 1, 1 << 20)
    state.check_integer("pad", 0, 1 << 31)
    _check_tensors(state, SCALED)


def _vectors(state: State) -> None:
    state.check_keys("n_features", "column")
    width, column = state.sizes["n_features"], state.settings["column"]
    state.check_integer("n_features", width, width)
    state.check("column", column is None or isinstance(column, str), "be a string or null")
    state.check_tensors({})


def _check_reference(state: State) -> None:
    name, path = state.settings["name"], state.settings["path"]
    state.check("name", isinstance(name, str) and name != "" and "\0" not in name, "be a name")
    right = path is None or (isinstance(path, str) and "\0" not in path)
    state.check("path", right, "be a path or null")


def _check_digests(state: State, *names: str) -> None:
    for name in names:
        value = state.settings[name]
        right = isinstance(value, str) and _SHA256.fullmatch(value) is not None
        state.check(name, right, "be 64 hexadecimal digits")


def _check_flag(state: State, name: str) -> None:
    state.check(name, type(state.settings[name]) is bool, "be true or false")


def _check_tensors(state: State, shapes: Mapping[str, tuple[str | int, ...]]) -> None:
    state.check_tensors(shapes, TENSOR_DTYPES)
    # The inverse of anything smaller is infinite.
    state.check_positive("scale", float(np.finfo(np.float32).tiny) / 4)


CHECKS: dict[str, Callable[[State], None]] = {
    "hashing": _hashing,
    "static": _static,
    "encoder": _encoder,
    "vectors": _vectors,
    "onnx": _onnx,
}
