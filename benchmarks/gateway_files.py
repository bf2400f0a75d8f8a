"""What a benchmark serves with: a router with hashed text features, settings, a key."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = [
    "free_port",
    "save_cascade",
    "save_router",
    "serving_memory",
    "started",
    "write_settings",
]

FIT = """
import sys
from pathlib import Path
import numpy as np
from mild.artifact import save
from mild.data import read_outcomes
from mild.datasets import outcomes_file
from mild.routers.cost_models import PricedRouter
from mild.features import HashingFeatures
folder, dimensions, terms, *names = sys.argv[1:]
texts = read_outcomes(outcomes_file()).queries
features = HashingFeatures(n_components=int(dimensions), n_features=int(terms)).fit(texts)
X = features.transform(texts)
taste = np.random.default_rng(0).standard_normal((X.shape[1], len(names)))
router = PricedRouter(price_weight=1.0, alpha=1e-4)
router.fit(X, (X @ taste > 0).astype(float), prices=[0.01 * (k + 1) for k in range(len(names))])
notes = {"cost": {"price_weight": 1.0}}
save(router, Path(folder), experts=names, text=features, notes=notes, overwrite=True)
"""

CASCADE = """
import sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from mild.artifact import load
from mild.policies.cascade import AgreementTable, CascadePolicy
router = load(Path(sys.argv[1]))
rng = np.random.default_rng(0)
codes, scores = rng.integers(0, 3, (500, 3)), (rng.random((500, 3)) < 0.8).astype(float)
table = AgreementTable.of_rows(codes, scores, np.ones(500))
# Nothing is ever accepted: the last step is always needed.
gate = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, -20.0])
policy = CascadePolicy(
    "free_text", [[0, 1], [2]], 0.9, table, router.policy, gate, router.policy, 1e9
)
replace(router, policy=policy).save(Path(sys.argv[2]))
"""


def save_cascade(router: Path, folder: Path) -> None:
    """Save a cascade over the experts of a router: two at the same time, then always the third."""
    subprocess.run([sys.executable, "-c", CASCADE, str(router), str(folder)], check=True)


def save_router(
    folder: Path, names: Sequence[str], dimensions: int = 128, terms: int = 32768
) -> None:
    """Fit a router with two heads and save it; in a process of its own, which leaves no memory behind."""
    command = [sys.executable, "-c", FIT, str(folder), str(dimensions), str(terms), *names]
    subprocess.run(command, check=True)


def write_settings(folder: Path, names: Sequence[str], url: str, lines: Sequence[str] = ()) -> Path:
    """``mild.toml`` in the folder, all experts at one address; ``lines`` in front of them."""
    text = [f'router = "{folder}/router"', *lines]
    for name in names:
        text += [f"[experts.{name}]", f'base_url = "{url}"', f'model = "{name}-model"']
        text += ["price_in = 0.1", "price_out = 0.4"]
    path = folder / "mild.toml"
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return path


def free_port() -> int:
    """A port that nobody uses at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def started(command: Sequence[str], port: int, cores: set[int]) -> Iterator[tuple[int, float]]:
    """A server pinned to cores; its process id and the seconds until its port answered."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cores)
    )
    try:
        while not _answers(port):
            if process.poll() is not None:
                raise SystemExit(f"{command} ended with {process.returncode}")
            time.sleep(0.005)
        yield process.pid, time.perf_counter() - start
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    """Whether a server answers anything: a socket may listen before its server does."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), 5) as sock,
    ):
        sock.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        return bool(sock.recv(64))
    return False


def serving_process(pid: int) -> int:
    """The process that serves: the child, where there is a supervisor."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(children[0]) if children else pid


def serving_memory(pid: int) -> float:
    """Resident megabytes of the process that serves."""
    status = Path(f"/proc/{serving_process(pid)}/status").read_text(encoding="utf-8")
    kilobytes = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(kilobytes.split()[1]) / 1024


def serving_seconds(pid: int) -> float:
    """Processor seconds, user and system, of the process that serves."""
    fields = Path(f"/proc/{serving_process(pid)}/stat").read_text(encoding="ascii")
    user, system = fields.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
