"""What each kind of feature step must consist of: settings, tensors, and the shapes that fit together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mild.artifact.rules import check_choice, check_integer, check_keys
from mild.errors import ArtifactError
from mild.features import FEATURES
from mild.features.encoder_model import POOLINGS
from mild.features.hashing.features import LIMITS, VERSION
from mild.features.hashing.terms import NUMBER_NAMES
from mild.features.onnx import OnnxFeatures

__all__ = ["TEXT_DTYPES", "TEXT_PREFIX", "check_text_state"]

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

# Where the tensors of the feature step lie among those of the router.
TEXT_PREFIX = "text."
TEXT_DTYPES: dict[str, np.dtype[Any]] = {
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}

_SHA256 = re.compile(r"[0-9a-f]{64}")


def check_text_state(kind: object, settings: dict[str, Any], tensors: Arrays, width: int) -> None:
    """Refuse a state from which the feature step of this kind could not be built, with one sentence.

    Parameters
    ----------
    kind : name in ``mild.features.FEATURES``
    settings, tensors : as ``TextFeatures.state`` gives them
    width : number of features that the router takes
    """
    if not isinstance(kind, str) or kind not in CHECKS:
        raise ArtifactError(
            f"text.kind must be one of {', '.join(sorted(FEATURES))}; got {kind!r}. "
            f"A newer mild may know it."
        )
    CHECKS[kind](settings, tensors, width)


def _hashing(settings: dict[str, Any], tensors: Arrays, width: int) -> None:
    check_keys(settings, ("version", "bits", "first", "last"), TEXT_PREFIX)
    check_integer(settings, "version", VERSION, VERSION, TEXT_PREFIX)
    bits = check_integer(settings, "bits", 8, 24, TEXT_PREFIX)
    check_integer(settings, "first", 1, 1 << 20, TEXT_PREFIX)
    check_integer(settings, "last", 0, 1 << 20, TEXT_PREFIX)
    terms = tensors["terms"].size if "terms" in tensors else 0
    directions = width - len(NUMBER_NAMES)
    if directions < 0:
        raise ArtifactError(
            f"a router with hashing features must have at least {len(NUMBER_NAMES)} features; got "
            f"{width}."
        )
    rules: dict[str, tuple[str, tuple[int, ...]]] = {
        "terms": ("int32", (terms,)),
        "weights": ("float32", (terms,)),
        "projection": ("int8", (terms, directions)),
        "centre": ("float32", (width,)),
        "scale": ("float32", (width,)),
    }
    if LIMITS in tensors:
        # Artefacts of before have none.
        rules[LIMITS] = ("float32", (2, len(NUMBER_NAMES)))
    _check_tensors(tensors, rules)
    buckets = tensors["terms"]
    inside = terms == 0 or (buckets[0] >= 0 and buckets[-1] < 1 << bits)
    if not inside or not (buckets[1:] > buckets[:-1]).all():
        raise ArtifactError(
            f"tensor '{TEXT_PREFIX}terms' must hold ascending buckets in [0, 2**{bits})."
        )
    _check_scale(tensors)


def _static(settings: dict[str, Any], tensors: Arrays, width: int) -> None:
    keys = ("name", "path", "normalize", "table_sha256", "tokenizer_sha256", "embedded")
    check_keys(settings, keys, TEXT_PREFIX)
    _check_reference(settings, ("table_sha256", "tokenizer_sha256"), ("normalize", "embedded"))
    rules: dict[str, tuple[str, tuple[int, ...]]] = {
        "centre": ("float32", (width,)),
        "scale": ("float32", (1,)),
    }
    if settings["embedded"]:
        tokens = len(tensors["table"]) if tensors.get("table", np.zeros(())).ndim else 0
        size = tensors["tokenizer"].size if "tokenizer" in tensors else 0
        rules |= {"table": ("float16", (tokens, width)), "tokenizer": ("uint8", (size,))}
        if "table" in tensors and tokens == 0:
            raise ArtifactError(
                f"tensor '{TEXT_PREFIX}table' must have at least one row; got none."
            )
    _check_tensors(tensors, rules)
    _check_scale(tensors)


def _encoder(settings: dict[str, Any], tensors: Arrays, width: int) -> None:
    keys = ("name", "path", "sha256", "pooling", "normalize", "max_length")
    check_keys(settings, keys, TEXT_PREFIX)
    _check_reference(settings, ("sha256",), ("normalize",))
    check_choice(settings["pooling"], POOLINGS, f"{TEXT_PREFIX}pooling")
    check_integer(settings, "max_length", 1, 1 << 20, TEXT_PREFIX)
    _check_tensors(tensors, {"centre": ("float32", (width,)), "scale": ("float32", (1,))})
    _check_scale(tensors)


def _onnx(settings: dict[str, Any], tensors: Arrays, width: int) -> None:
    digests = tuple(OnnxFeatures.FILES.values())
    check_keys(settings, ("max_length", "pad", *digests), TEXT_PREFIX)
    _check_digests(settings, digests)
    check_integer(settings, "max_length", 1, 1 << 20, TEXT_PREFIX)
    check_integer(settings, "pad", 0, 1 << 31, TEXT_PREFIX)
    _check_tensors(tensors, {"centre": ("float32", (width,)), "scale": ("float32", (1,))})
    _check_scale(tensors)


def _vectors(settings: dict[str, Any], tensors: Arrays, width: int) -> None:
    check_keys(settings, ("n_features", "column"), TEXT_PREFIX)
    check_integer(settings, "n_features", width, width, TEXT_PREFIX)
    if settings["column"] is not None and not isinstance(settings["column"], str):
        raise ArtifactError(
            f"setting {TEXT_PREFIX}column must be a string or null; got {settings['column']!r}."
        )
    _check_tensors(tensors, {})


def _check_reference(
    settings: dict[str, Any], digests: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    name, path = settings["name"], settings["path"]
    if not isinstance(name, str) or not name or "\0" in name:
        raise ArtifactError(f"setting {TEXT_PREFIX}name must be a name; got {name!r}.")
    if path is not None and (not isinstance(path, str) or "\0" in path):
        raise ArtifactError(f"setting {TEXT_PREFIX}path must be a path or null; got {path!r}.")
    _check_digests(settings, digests)
    for key in flags:
        if type(settings[key]) is not bool:
            raise ArtifactError(
                f"setting {TEXT_PREFIX}{key} must be true or false; got {settings[key]!r}."
            )


def _check_digests(settings: dict[str, Any], digests: tuple[str, ...]) -> None:
    for key in digests:
        if not isinstance(settings[key], str) or not _SHA256.fullmatch(settings[key]):
            raise ArtifactError(
                f"setting {TEXT_PREFIX}{key} must be 64 hexadecimal digits; got {settings[key]!r}."
            )


def _check_tensors(tensors: Arrays, rules: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
    """Exactly the named tensors, of these types and shapes, finite."""
    for name in sorted(set(rules) - set(tensors)):
        raise ArtifactError(f"tensor '{TEXT_PREFIX}{name}' is missing.")
    for name in sorted(set(tensors) - set(rules)):
        raise ArtifactError(
            f"tensor '{TEXT_PREFIX}{name}' does not belong to features of this kind."
        )
    for name, (dtype, shape) in rules.items():
        array = tensors[name]
        if array.dtype.name != dtype or array.shape != shape:
            raise ArtifactError(
                f"tensor '{TEXT_PREFIX}{name}' must be {dtype} of shape {shape}; got {array.dtype} of "
                f"shape {array.shape}."
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ArtifactError(f"tensor '{TEXT_PREFIX}{name}' must be finite.")


def _check_scale(tensors: Arrays) -> None:
    """Positive, and not so small that its inverse is infinite."""
    least = np.finfo(np.float32).tiny
    if not (tensors["scale"] >= least).all():
        raise ArtifactError(
            f"tensor '{TEXT_PREFIX}scale' must be positive; got {tensors['scale'].min():g}."
        )


CHECKS: dict[str, Callable[[dict[str, Any], Arrays, int], None]] = {
    "hashing": _hashing,
    "static": _static,
    "encoder": _encoder,
    "vectors": _vectors,
    "onnx": _onnx,
}
