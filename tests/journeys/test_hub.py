"""A router is pushed to a Hub on loopback, and loaded by somebody else.

Both are processes that know the Hub by its address alone, as ``huggingface_hub`` reads it.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import mild
from fake_hub import OWNER, TOKEN, running_hub
from journeys import adapter
from journeys.world import PRICE_WEIGHT, log

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
NAME = f"{OWNER}/router"
PUSH = """
import sys
import mild

folder, name = sys.argv[1:]
mild.load(folder).push_to_hub(name)
"""
# It prints whom the router of each repository asks, or the name of the error.
LOAD = """
import json, sys
from journeys import adapter
from mild.errors import RouterFileError

found = []
for name in sys.argv[1:]:
    try:
        router = adapter.load_from_hub(name)
    except RouterFileError as error:
        found.append(type(error).__name__)
    else:
        found.append([router.experts, router.route(json.loads(sys.stdin.read()))])
print(json.dumps(found))
"""


@pytest.fixture
def in_process(tmp_path):
    """Run a script against a hub, in a home of its own; gives the exit code and what it printed."""
    path = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]

    def run(hub, home, code, *words, token=None, given=""):
        environment = {name: v for name, v in os.environ.items() if not name.startswith("HF_")}
        environment |= {
            "HOME": str(tmp_path / home),
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / home),
            "HF_HUB_DISABLE_XET": "1",
            "NO_PROXY": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(path),
        }
        if token is not None:
            environment["HF_TOKEN"] = token
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, words)],
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert TOKEN not in done.stdout + done.stderr
        return done.returncode, done.stdout

    return run


def test_a_router_is_shared_on_a_hub(in_process, tmp_path):
    router = mild.fit(pd.DataFrame(log(65, 200)), price_weight=PRICE_WEIGHT)
    router.save(tmp_path / "router")
    texts = log(66, 40)["query"]
    with running_hub() as hub:
        # Nobody pushes without a token.
        code, _ = in_process(hub, "nobody", PUSH, tmp_path / "router", NAME)
        assert code != 0
        assert NAME not in hub.repositories
        code, _ = in_process(hub, "owner", PUSH, tmp_path / "router", NAME, token=TOKEN)
        assert code == 0
        files = hub.files(NAME)
        saved = {file.name: file.read_bytes() for file in (tmp_path / "router").iterdir()}
        assert set(saved) <= set(files)
        assert files[adapter.TENSORS] == saved[adapter.TENSORS]

        # Somebody else loads it, and not the pickle that lies beside it.
        hub.commit(NAME, "main", {**files, "model.pkl": pickle.dumps(1)})
        reader = "reader", LOAD, NAME, f"{OWNER}/nothing"
        code, printed = in_process(hub, *reader, given=json.dumps(texts))
        assert code == 0
        (experts, chosen), missing = json.loads(printed)
        assert experts == router.experts
        assert chosen == router.route(texts)
        assert missing == "RouterFileError"
        fetched = {path.rpartition("/")[2] for _, path in hub.requests if "/resolve/" in path}
        assert {adapter.TENSORS, adapter.MANIFEST} <= fetched
        assert "model.pkl" not in fetched

        # A new router takes the place of the old one.
        router.without("small").save(tmp_path / "smaller")
        code, _ = in_process(hub, "owner", PUSH, tmp_path / "smaller", NAME, token=TOKEN)
        assert code == 0
        code, printed = in_process(hub, "reader", LOAD, NAME, given=json.dumps(texts))
        ((experts, chosen),) = json.loads(printed)
        assert experts == router.without("small").experts
        assert chosen == router.without("small").route(texts)
