"""Features of texts as the ledger keeps them where it keeps no text.

They are packed while a request is served and unpacked by ``mild_gateway.learn``.
"""

from __future__ import annotations

import base64

import numpy as np

from mild_gateway.arrays import FloatArray


def pack_features(features: FloatArray, tag: str) -> str:
    """Features of a text as the ledger keeps them: half precision, with the tag of their text step.

    The tag is that of ``decide.step_tag``.

    >>> unpack_features(pack_features(np.array([0.5, -2.0]), "ab"), "ab")
    array([ 0.5, -2. ], dtype=float32)
    """
    largest = np.finfo(np.float16).max
    values = np.clip(features, -largest, largest).astype("<f2")
    return f"{tag}:{base64.b64encode(values.tobytes()).decode()}"


def unpack_features(packed: str, tag: str) -> FloatArray | None:
    """Features that were packed; None if they are those of another step.

    The draw of a mix is left out unless the tag is that of a mix with the same salt.

    >>> unpack_features(pack_features(np.array([0.5, 0.25]), "ab+c"), "ab")
    array([0.5], dtype=float32)
    """
    packed_tag, _, encoded = packed.partition(":")
    step, _, salt = packed_tag.partition("+")
    if step != tag.partition("+")[0]:
        return None
    values = np.frombuffer(base64.b64decode(encoded), "<f2").astype(np.float32)
    if salt and packed_tag != tag:
        return values[:-1]
    return values
