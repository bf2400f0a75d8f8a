"""Two processes train the network of one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo", allow_module_level=True)

from mild.routers.neural import NeuralRouter  # noqa: E402
from mild.routers.neural.group import Group  # noqa: E402

pytestmark = pytest.mark.slow

DATA = """
import json, os, sys
import numpy as np
import torch
import torch.distributed as dist
from mild.errors import MildError
from mild.routers.neural import NeuralRouter

def data(n=501, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, np.clip(X[:, :3] * [1, 2, 1] + rng.normal(size=(n, 3)) * 0.3, 0, None) + 0.1
"""


def data(n=501, seed=0):
    names = {}
    exec(DATA, names)
    return names["data"](n, seed)


def together(tmp_path, code, processes=2, timeout=300):
    """What each of several gloo processes prints as JSON; ``rank`` and ``folder`` are known to them."""
    file = tmp_path / "code.py"
    begin = 'dist.init_process_group("gloo")\nrank = dist.get_rank()\n'
    end = "dist.destroy_process_group()\n"
    head = f"{DATA}\nfolder = {str(tmp_path)!r}\n{begin}"
    file.write_text(f"{head}\n{code}\n{end}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    base = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, str(file)],
            env={**base, "RANK": str(rank), "WORLD_SIZE": str(processes), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    try:
        said = [process.communicate(timeout=timeout) for process in started]
    finally:
        for process in started:
            process.kill()
    assert all(process.returncode == 0 for process in started), said
    return [json.loads(out.splitlines()[-1]) for out, _ in said]


CASES = {
    # 451 training rows in 5 batches of 90 or 91: shares of a batch are uneven.
    "early": {"batch_size": 100, "epochs": 12, "patience": 3, "lr": 0.02},
    "cycle": {"batch_size": 64, "epochs": 6, "schedule": "onecycle", "optimizer": "sgd", "lr": 0.1},
    "labels": {
        "batch_size": 200,
        "epochs": 6,
        "loss": "cwce",
        "sampling": "over",
        "hidden": [16, 8],
    },
    # Batches of one row: one of the processes has nothing to do.
    "single": {"batch_size": 1, "epochs": 1, "validation_fraction": 0.9, "patience": 1},
}
REFUSED = {
    "rows": ("X = X + rank", "all processes must be given the same rows"),
    "lr": ("options['lr'] = 0.01 * (rank + 1)", "all processes must be given the same lr"),
    "seed": ("options['random_state'] = None", "random_state must be an integer where several"),
    "norm": (
        "options['module'] = lambda d, p: torch.nn.Sequential("
        "torch.nn.BatchNorm1d(d), torch.nn.Linear(d, p))",
        "must not normalise over the batch",
    ),
    "file": ("options['checkpoint'] = '/dev/null/run'", "cannot write checkpoint"),
}
CODE = """
told = {}
for name, options in CASES.items():
    router = NeuralRouter(**options).fit(*data())
    scores = router.decision_function(data(40, 1)[0])
    told[name] = [scores.tolist(), router.history_, router.best_epoch_]

torch.manual_seed(rank)
module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
router = NeuralRouter(module, epochs=2).fit(*data())
told["module"] = [float(value.detach().sum()) for value in router.policy_.module.parameters()]

X, costs = data()
path = os.path.join(folder, f"run-{rank}" if rank else "run")
seen = []
options = dict(batch_size=100, checkpoint=path, lr=0.02, patience=50)
NeuralRouter(epochs=3, **options).fit(X, costs)
router = NeuralRouter(epochs=6, progress=lambda *a: seen.append(a[0]), **options).fit(X, costs)
told["checkpoint"] = [router.decision_function(X[:9]).tolist(), seen, sorted(os.listdir(folder))]

for name, (change, _) in REFUSED.items():
    X, costs = data(60)
    options = {"epochs": 2}
    exec(change)
    try:
        NeuralRouter(**options).fit(X, costs)
        told[name] = "fitted"
    except MildError as error:
        told[name] = str(error)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What two processes found; they are started once, for starting them takes longest."""
    code = f"CASES = {CASES!r}\nREFUSED = {REFUSED!r}\n{CODE}"
    return together(tmp_path_factory.mktemp("together"), code)


@pytest.mark.parametrize("name", list(CASES))
def test_the_network_is_that_of_one_process(told, name):
    first, second = told[0][name], told[1][name]
    assert first == second
    alone = NeuralRouter(**CASES[name]).fit(*data())
    scores = alone.decision_function(data(40, 1)[0])
    np.testing.assert_allclose(first[0], scores, rtol=1e-4, atol=1e-4)
    assert first[2] == alone.best_epoch_
    assert len(first[1]) == len(alone.history_)
    for ours, theirs in zip(first[1], alone.history_, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)


def test_weights_of_a_module_are_those_of_the_first_process(told):
    assert told[0]["module"] == told[1]["module"]


def test_only_the_first_process_writes_and_a_run_is_continued_by_all(told):
    first, second = told[0]["checkpoint"], told[1]["checkpoint"]
    assert first[0] == second[0]
    assert (first[1], second[1]) == ([4, 5, 6], [])
    assert first[2] == ["code.py", "run"]
    alone = NeuralRouter(batch_size=100, epochs=6, lr=0.02, patience=50).fit(*data())
    scores = alone.decision_function(data()[0][:9])
    np.testing.assert_allclose(first[0], scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_cannot_be_trained_together_is_refused_by_all(told, name):
    for said in told:
        assert REFUSED[name][1] in said[name]


def test_alone_every_row_is_mine():
    group = Group()
    assert (group.size, group.rank, group.is_first) == (1, 0, True)
    assert group.share(np.arange(5)).tolist() == [0, 1, 2, 3, 4]
    assert group.first(lambda: 7) == 7
