"""Write what the tests in this folder hold later versions to. Run it only deliberately.

The files beside this one were first written by mild 0.1.0. What changed on purpose since then was recorded
anew, part by part: router folders have the schema of 0.10, and their decisions are still those of 0.1.0. A
test that fails says that something changed; record it anew only if it was meant to change.

    OMP_NUM_THREADS=1 PYTHONPATH=tests:testing python tests/compatibility/make_fixtures.py [PART ...]

PART is one of tables, artifacts, results, saved, commands, errors, public; without any, all are written, in
this order. The later ones use files of the earlier ones. The folders in routers_of_0_9 were written by
mild 0.9.0 and stay as they are: they are what later versions refuse.
"""

from __future__ import annotations

import inspect
import json
import shutil
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mild
from compatibility import cases
from compatibility.cases import FOLDER
from mild.features import HashingFeatures, StaticFeatures
from mild.routers.cost_models import PricedRouter
from mild.routers.stack import BlendRouter
from onnx_cases import build_features
from outcome_cases import make_columns, write_outcomes
from recordings import (
    command_names,
    help_of,
    option_names,
    options_by_command,
    parameters_of,
    run_in_turn,
    write_json,
    write_parts,
)
from text_cases import make_texts

EXPERTS = ["small", "medium", "large"]


def make_numbers(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and costs of three experts, each cheapest in its own region."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, 1 + np.clip(X[:, :3] + rng.normal(size=(n, 3)) * 0.3, -1, None)


def empty(name: str) -> Path:
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    (FOLDER / name).mkdir()
    return FOLDER / name


# --- tables ---


def tables() -> None:
    """Small tables that the commands are run on."""
    folder = empty("tables")
    log = make_columns(45, 0, prices=True)
    new = make_columns(40, 1, prices=True)
    write_outcomes(log, folder / "log.csv")
    write_outcomes(new, folder / "new.csv")
    names = [name[9:] for name in log if name.startswith("correct__")]
    few = {name: list(column)[:20] for name, column in log.items()}
    bench = {"sample_id": [f"s{i}" for i in range(20)], "prompt": few["prompt"]}
    bench |= {name: few[f"correct__{name}"] for name in names}
    bench |= {f"{name}|total_cost": few[f"cost__{name}"] for name in names}
    write_outcomes(bench, folder / "routerbench.csv")
    routellm = {"prompt": few["prompt"]}
    routellm |= {name: [bool(value) for value in few[f"correct__{name}"]] for name in names}
    write_outcomes(routellm, folder / "routellm.csv")
    rows = [
        {
            "query": few["prompt"][i],
            "model_name": name,
            "performance": float(few[f"correct__{name}"][i]),
            "cost": float(few[f"cost__{name}"][i]),
        }
        for i in range(20)
        for name in names
    ]
    (folder / "llmrouter.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = {"task": few["prompt"]} | {f"acc_{name}": few[f"correct__{name}"] for name in names}
    plain |= {f"usd_{name}": few[f"cost__{name}"] for name in names}
    plain |= {f"wait_ms_{name}": [100.0 * (i % 5 + 1) for i in range(20)] for name in names}
    write_outcomes(plain, folder / "plain.csv")
    rng = np.random.default_rng(3)
    topic = rng.integers(0, 3, 60)
    embedding = np.eye(3)[topic] @ rng.normal(size=(3, 5)) + rng.normal(size=(60, 5)) * 0.2
    vectors = {
        "prompt": [f"text {i}" for i in range(60)],
        "embedding": embedding.round(4).tolist(),
        **{f"correct__{name}": (topic == k).tolist() for k, name in enumerate(names)},
    }
    write_outcomes(vectors, folder / "vectors.jsonl")
    for name, count, seed in (("numbers.csv", 80, 0), ("numbers_new.csv", 40, 1)):
        X, costs = make_numbers(count, seed)
        columns = {f"f_{j}": X[:, j].round(6) for j in range(4)}
        columns |= {f"cost__{expert}": costs[:, k].round(6) for k, expert in enumerate(EXPERTS)}
        write_outcomes(columns, folder / name)
    (folder / "queries.txt").write_text("\n".join(new["prompt"][:8]) + "\n")


# --- artefacts ---


def artifacts() -> None:
    """A router of every kind, its inputs, and what it answers."""
    root = empty("artifacts")
    X, costs = make_numbers(120, 2)
    np.savez(root / "train.npz", X=X, costs=costs)
    inputs = make_numbers(24, 4)[0]

    def numeric(name: str, router: Any, fit: dict[str, Any] | None = None, **more: Any) -> None:
        folder = root / name
        folder.mkdir()
        mild.save(router, folder / "router", **{"expert_names": EXPERTS, **more})
        np.save(folder / "X.npy", inputs)
        if fit is not None:
            write_json(fit, folder / "fit.json")
        write_json(cases.answers(folder), folder / "expected.json")

    for name, fit in cases.REFITTED.items():
        numeric(name, getattr(mild, fit["class"])(**fit["params"]).fit(X, costs), fit)
    base = mild.LinearRouter(tol=1e-10).fit(X, costs)
    numeric(
        "linear_described", base, feature_names=["a", "b", "c", "d"], data=(X, costs),
        notes={"cost": "error"}, query_hashes=np.array([3, 5, 8], np.uint64),
    )  # fmt: skip
    quick = {"batch_size": 32, "device": "cpu"}
    neural = mild.NeuralRouter(hidden=(8,), epochs=10, lr=0.05, **quick)
    numeric("neural", neural.fit(X, costs))
    deep = mild.NeuralRouter(loss="tdef", hidden=(6, 5), epochs=5, **quick)
    numeric("neural_deep_tdef", deep.fit(X, costs))
    sparse = csr_matrix(np.where(np.abs(X) > 0.5, X, 0))
    numeric("knn_sparse", mild.KNNRouter(5).fit(sparse, costs))
    wrong = (costs > 1).astype(float)
    prices = np.array([0.001, 0.002, 0.01])
    numeric("priced", PricedRouter(price_weight=20.0).fit(X, wrong, prices=prices))
    numeric(
        "priced_ridge",
        PricedRouter("ridge", price_weight=5.0).fit(X, wrong, prices=np.abs(X[:, :3]) / 100),
    )
    members = [("linear", mild.LinearRouter()), ("knn", mild.KNNRouter(5))]
    final = mild.LinearRouter()
    numeric("stack", BlendRouter(members, final_estimator=final, cv=3).fit(X, costs))
    numeric("blend", BlendRouter(members, cv=3).fit(X, costs))
    search = mild.RouterCV(mild.LinearRouter(), alphas=(1e-2, 1e-1), cv=2).fit(X, costs)
    numeric("search", search)
    everything = mild.RouterCV(alphas=(1e-2,), margin_factors=(1.0,), families="all", cv=2)
    numeric("search_all", everything.fit(X, costs))
    numeric("pipeline", make_pipeline(StandardScaler(), mild.LinearRouter()).fit(X, costs))
    smaller = mild.load(root / "stack" / "router").without("small")
    numeric("stack_without", smaller, expert_names=EXPERTS[1:])
    for name, words in cases.FITTED_ON_NUMBERS.items():
        by_command(root / name, words)
        np.save(root / name / "X.npy", inputs)
        write_json(cases.answers(root / name), root / name / "expected.json")

    queries = [
        *make_columns(12, 5)["prompt"],
        "", "x", "naïve café – 東京 🙂", "def f(x): return x[3] + 4;", "What is 17 * 23?", "boil " * 200,
    ]  # fmt: skip

    def textual(name: str, texts: list[str] = queries) -> None:
        (root / name / "queries.json").write_text(json.dumps(texts, ensure_ascii=False, indent=0))
        write_json(cases.answers(root / name), root / name / "expected.json")

    for name, words in cases.FITTED_ON_TEXTS.items():
        by_command(root / name, words)
        textual(name)
    by_command(root / "text_vectors", cases.FITTED_ON_VECTORS)
    np.save(root / "text_vectors" / "X.npy", np.random.default_rng(7).normal(size=(24, 5)))
    write_json(cases.answers(root / "text_vectors"), root / "text_vectors" / "expected.json")

    texts = make_texts(90)
    labels = np.arange(90) % 3
    known = np.where(labels[:, None] == np.arange(3), 0.1, 0.9)
    steps = {
        "text_hashing_small": HashingFeatures(n_components=8, bits=12, first=40, last=10),
        "text_onnx": build_features(),
    }
    with tempfile.TemporaryDirectory() as place:
        steps["text_static"] = StaticFeatures(static_model(Path(place), texts), embed=True)
        for name, step in steps.items():
            step.fit(texts)
            router = mild.RidgeRouter().fit(step.transform(texts), known)
            (root / name).mkdir()
            mild.save(router, root / name / "router", expert_names=EXPERTS, text=step)
            textual(name, [*texts[:12], *queries[-6:]])
        manifest = root / "text_static" / "router" / "router.json"
        manifest.write_text(manifest.read_text().replace(place, "/models"))


def static_model(place: Path, texts: list[str]) -> Path:
    """A folder as model2vec writes it: a word-level tokenizer and random vectors."""
    import tokenizers
    from safetensors.numpy import save

    words = sorted({word for text in texts for word in text.lower().split()})
    vocabulary = {"[UNK]": 0} | {word: number for number, word in enumerate(words, 1)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    folder = place / "tiny-static"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    vectors = np.random.default_rng(0).normal(size=(len(vocabulary), 6)).astype(np.float32)
    (folder / "model.safetensors").write_bytes(save({"embeddings": vectors}))
    (folder / "config.json").write_text(json.dumps({"normalize": True}))
    return folder


def by_command(folder: Path, words: list[Any]) -> None:
    folder.mkdir()
    verb = "tune" if "--families" in words else "fit"
    run_in_turn([[verb, *words, "--out", folder / "router"]], FOLDER)


# --- results ---


def results() -> None:
    """A few records of experiments, as they stand in the project's results."""
    folder = empty("results")
    source = Path(__file__).parents[2] / "results"
    for name in ("table1.jsonl", "llm.jsonl"):
        lines = (source / name).read_text().splitlines()
        kept = [lines[i] for i in (0, len(lines) // 2, len(lines) - 1)]
        (folder / name).write_text("\n".join(kept) + "\n")
    kept = json.loads((source / "classifier.json").read_text())[:2]
    (folder / "classifier.json").write_text(json.dumps(kept, indent=1) + "\n")


# --- what commands leave for other commands ---


def saved() -> None:
    """Files of ``mild evaluate --save`` and ``mild compare --out``."""
    saved_folder = empty("saved")
    with cases.work_folder(["text_linear"]) as folder:
        run_in_turn(cases.SAVING, folder)
        router = folder / "artifacts" / "text_linear" / "router"
        shutil.copy(router / "evaluation.json", saved_folder)
        shutil.copy(folder / "comparison.json", saved_folder)


# --- commands, errors, public names ---


def commands() -> None:
    """Options of every command of the library; exit code and shape of the JSON of every case."""
    page = help_of("")
    gateway_commands = {entry.name for entry in entry_points(group="mild.commands")}
    library_commands = [name for name in command_names(page) if name not in gateway_commands]
    options = {"": option_names(page)} | options_by_command(library_commands)
    runs = {}
    for name, case in cases.COMMANDS.items():
        print(name, flush=True)
        runs[name] = cases.run_case(case)
    write_json({"options": options, "runs": runs}, FOLDER / "commands.json")


def errors() -> None:
    """Exit codes and sentences of bad input; classes of what is raised."""
    recorded = {"commands": cases.refusals(), "raised": cases.raised()}
    write_json(recorded, FOLDER / "errors.json")


def public() -> None:
    """Names on ``mild`` with their parameters, and what the functions give."""
    names: dict[str, Any] = {}
    for name in sorted(mild.__all__):
        value = getattr(mild, name)
        if callable(value):
            names[name] = parameters_of(value)
        if inspect.isclass(value):
            methods = [key for key in dir(value) if not key.startswith("_")]
            names[f"{name}."] = [key for key in methods if callable(getattr(value, key, None))]
    recorded = {"names": names, "values": cases.function_values()}
    write_json(recorded, FOLDER / "public.json")


PARTS = (tables, artifacts, results, saved, commands, errors, public)

if __name__ == "__main__":
    write_parts(PARTS, sys.argv[1:])
