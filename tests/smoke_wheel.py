"""Use the installed wheel as a user would; run by `make wheel` in a clean environment."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import mild


def main() -> None:
    assert "site-packages" in mild.__file__, mild.__file__
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    costs = np.column_stack([X[:, 0] < 0, X[:, 0] > 0, np.full(300, 0.4)]).astype(float)
    router = mild.LinearRouter().fit(X, costs)
    loss = mild.deferral_loss(costs, router.predict(X))
    assert loss < 0.2 < costs.mean(axis=0).min(), loss
    command = Path(sys.executable).with_name("mild")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        np.savez(data, X=X, costs=costs)
        target = Path(folder) / "router"
        fit = [command, "fit", data, "--out", target, "--json"]
        subprocess.run(fit, check=True, capture_output=True)
        assert (mild.load(target).predict(X) == 0).any()
        judge = [command, "evaluate", data, "--router", target, "--json"]
        done = subprocess.run(judge, check=True, capture_output=True, text=True)
        assert json.loads(done.stdout)
        page = Path(folder) / "report.html"
        report = [command, "report", target, "--table", data, "--out", page]
        subprocess.run(report, check=True, capture_output=True)
        # Style and script are files of the package: they must have come along.
        text = page.read_text(encoding="utf-8")
        assert "<style>" in text
        assert "<script>" in text
        assert len(text) > 20_000, len(text)
    version = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
    assert mild.__version__ in version.stdout
    print(f"wheel of mild {mild.__version__} works: deferral loss {loss:.3f}")


if __name__ == "__main__":
    main()
