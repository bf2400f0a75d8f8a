"""An encoder as one ONNX file inside the artefact: served without torch and transformers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mild.core.threads import thread_count
from mild.errors import InvalidInputError, RouterFileError, count_noun
from mild.features.base import EmbeddingFeatures, Rows, Settings, Tensors
from mild.features.pretrained import Ids, Tokens, batches_by_length, import_extra, padded

ENCODER_FILE = "encoder.onnx"
TOKENIZER_FILE = "tokenizer.json"
INPUTS = ("input_ids", "attention_mask")


class _Running(NamedTuple):
    """What a process has opened to encode texts."""

    process: int
    tokens: Tokens
    session: Any


@dataclass(eq=False, repr=False)
class OnnxFeatures(EmbeddingFeatures):
    """Vectors of an encoder that ``onnx_features`` exported. Serving needs onnxruntime and tokenizers.

    A saved router contains both files, ``encoder.onnx`` and ``tokenizer.json``, with their SHA-256. They
    are opened when the first text is read. ``OMP_NUM_THREADS`` sets the number of threads; the default is
    the number of cores.

    Parameters
    ----------
    encoder : bytes
        An ONNX model with the inputs input_ids and attention_mask (n, length) and one output (n, width).
    tokenizer : bytes
        The JSON of a tokenizer of the ``tokenizers`` library.
    max_length : int, default=256
        Number of tokens that are read of a text.
    pad : int, default=0
        Number of the padding token.

    Examples
    --------
    >>> OnnxFeatures(b"ONNX model", b"tokenizer", max_length=128)
    OnnxFeatures(encoder=b'ONNX model', tokenizer=b'tokenizer', max_length=128)
    """

    kind = "onnx"
    FILES: ClassVar[Mapping[str, str]] = {
        ENCODER_FILE: "encoder_sha256",
        TOKENIZER_FILE: "tokenizer_sha256",
    }

    encoder: bytes = b""
    tokenizer: bytes = b""
    _: KW_ONLY
    max_length: int = 256
    pad: int = 0
    _running: _Running | None = field(default=None, init=False)

    def check_parameters(self) -> None:
        if not self.encoder:
            raise InvalidInputError(
                "onnx features come with an encoder: export fitted EncoderFeatures with "
                "mild.features.onnx_features."
            )

    def _forget(self) -> None:
        self._running = None

    def state(self) -> tuple[Settings, Tensors]:
        tensors = self._scale_tensors()
        settings: Settings = {"max_length": self.max_length, "pad": self.pad}
        for name, content in self.files().items():
            settings[self.FILES[name]] = hashlib.sha256(content).hexdigest()
        return settings, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        features = cls(max_length=settings["max_length"], pad=settings["pad"])
        features.take_scale(tensors["centre"], tensors["scale"])
        return features

    def files(self) -> dict[str, bytes]:
        return {ENCODER_FILE: self.encoder, TOKENIZER_FILE: self.tokenizer}

    def take_files(self, files: Mapping[str, bytes]) -> None:
        self.encoder = files[ENCODER_FILE]
        self.tokenizer = files[TOKENIZER_FILE]
        self._running = None

    def __getstate__(self) -> dict[str, Any]:
        # A session cannot be pickled; it is opened again on first use.
        return {**self.__dict__, "_running": None}

    def _embed(self, texts: Sequence[str]) -> Rows:
        running = self._open()
        if not len(texts):
            return np.empty((0, self.n_features_), np.float32)
        ids = running.tokens.ids(texts)
        batches = list(batches_by_length(ids))
        vectors = [self._run(running.session, [ids[i] for i in batch]) for batch in batches]
        rows = np.empty((len(texts), vectors[0].shape[1]), np.float32)
        for batch, batch_vectors in zip(batches, vectors, strict=True):
            rows[batch] = batch_vectors
        return rows

    def _run(self, session: Any, ids: Sequence[Ids]) -> Rows:
        """Vectors (n, width) of a batch of texts, checked."""
        inputs = dict(zip(INPUTS, padded(ids, self.pad), strict=True))
        try:
            (vectors,) = session.run(None, inputs)
        except Exception as error:  # onnxruntime raises nothing narrower
            reason = str(error).splitlines()[0]
            raise RouterFileError(
                f"{ENCODER_FILE} cannot be run on these texts ({reason})."
            ) from error
        is_one_per_text = vectors.ndim == 2 and len(vectors) == len(ids)
        width = getattr(self, "n_features_", 0)  # 0 while fitting
        if not is_one_per_text or width not in (0, vectors.shape[1]):
            raise RouterFileError(
                f"{ENCODER_FILE} must give {width or 'as many'} numbers per text; got shape "
                f"{vectors.shape} for {count_noun(len(ids), 'text')}."
            )
        if not np.isfinite(vectors).all():
            raise RouterFileError(
                f"{ENCODER_FILE} must give finite numbers; it gave NaN or infinity."
            )
        return np.asarray(vectors, np.float32)

    def _open(self) -> _Running:
        """Tokenizer and session, opened on first use and again after a fork, which ends their threads."""
        if self._running is None or self._running.process != os.getpid():
            tokens = Tokens(self.tokenizer, self.max_length, self.pad)
            self._running = _Running(os.getpid(), tokens, _open_session(self.encoder))
        return self._running


def _open_session(content: bytes) -> Any:
    """A session of onnxruntime on the CPU."""
    (runtime,) = import_extra("onnx features", "onnx", "onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = thread_count()
    options.log_severity_level = 3
    # Waiting threads must not use the cores that other requests need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises nothing narrower
        reason = str(error).splitlines()[0]
        raise RouterFileError(f"{ENCODER_FILE} cannot be opened ({reason}).") from error
    names = sorted(entry.name for entry in session.get_inputs())
    if names != sorted(INPUTS) or len(session.get_outputs()) != 1:
        raise RouterFileError(
            f"{ENCODER_FILE} must have the inputs {' and '.join(INPUTS)} and one output; got "
            f"{', '.join(names)} and {count_noun(len(session.get_outputs()), 'output')}."
        )
    return session
