"""What is run, both when the files here are recorded and when the tests compare: one list for both."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet

import mild
from recordings import CommandCase, case_record, figures_of, refusal_record, run_mild, shape_of

FOLDER = Path(__file__).parent


def _linear(**params: Any) -> dict[str, Any]:
    settings = {"alpha": 1e-2, "tol": 1e-10, "max_iter": 2000, **params}
    return {"class": "LinearRouter", "params": settings}


# Routers that are fitted again by the tests: the same data must give the same router.
REFITTED: dict[str, dict[str, Any]] = {
    "linear": _linear(),
    "linear_argmax": _linear(decision="argmax"),
    "linear_tdef": _linear(loss="tdef"),
    "linear_tdef_argmax": _linear(loss="tdef", decision="argmax"),
    "linear_ce": _linear(loss="ce", ties="first"),
    "linear_cwce": _linear(loss="cwce", ties="first"),
    "linear_ldam": _linear(loss="ldam", ties="first"),
    "linear_logit_adjusted": _linear(loss="logit_adjusted", ties="first"),
    "linear_temperature": _linear(loss="temperature", ties="first"),
    "linear_complement": _linear(rewards="complement"),
    "linear_contrast": _linear(rewards="contrast"),
    "linear_baseline": _linear(rewards="baseline", strength=0.25),
    "linear_best_counts": _linear(counts="best", norms="rms"),
    "linear_uniform": _linear(margins="uniform"),
    "linear_margins": _linear(margins=[1.0, 2.0, 0.5]),
    "linear_exponential": _linear(surrogate="exponential"),
    "linear_tau": _linear(surrogate=0.5),
    "linear_pairwise_logistic": _linear(surrogate="pairwise_logistic"),
    "linear_pairwise_exponential": _linear(surrogate="pairwise_exponential"),
    "linear_hinge": _linear(surrogate="hinge", rewards="contrast", decision="argmax"),
    "linear_no_intercept": _linear(fit_intercept=False),
    "regression": {"class": "RidgeRouter", "params": {}},
    "knn": {"class": "KNNRouter", "params": {"n_neighbors": 7}},
    "constant": {"class": "ConstantRouter", "params": {}},
    "constant_named": {"class": "ConstantRouter", "params": {"expert": 2}},
}
# The hinge has kinks, at which a solver stops near the optimum.
KINKED = ("linear_hinge",)

FITTED_ON_NUMBERS: dict[str, list[Any]] = {
    "fit_numbers": ["tables/numbers.csv"],
    "fit_numbers_knn": ["tables/numbers.csv", "--router", "knn"],
    "tune_numbers": ["tables/numbers.csv", "--families", "linear"],
}
_LOG = ["tables/log.csv", "--experts", "adder,poet,cook"]
FITTED_ON_TEXTS: dict[str, list[Any]] = {
    "text_linear": [*_LOG, "--price-weight", 50],
    "text_tdef_argmax": [*_LOG, "--loss", "tdef", "--decision", "argmax"],
    "text_regression": [*_LOG, "--router", "regression", "--beta", "cook=0.2"],
    "text_knn": [*_LOG, "--router", "knn"],
    "text_priced": [*_LOG, "--router", "priced", "--price-weight", 50],
    "text_priced_beta": [*_LOG, "--router", "priced", "--beta", "cook=0.2,poet=0.1"],
    "text_constant": [*_LOG, "--router", "constant"],
    "text_neural": [*_LOG, "--router", "neural"],
    "text_tuned": [
        *_LOG, "--price-weight", 50, "--families", "linear,regression,knn,stack", "--jobs", 1,
    ],
}  # fmt: skip
FITTED_ON_VECTORS: list[Any] = ["tables/vectors.jsonl", "--text", "vectors"]

# What a router needs, besides numpy, to be loaded.
NEEDED = {
    "text_onnx": ("onnxruntime", "tokenizers"),
    "text_static": ("tokenizers",),
}


@contextlib.contextmanager
def work_folder(routers: Iterable[str] = ()) -> Iterator[Path]:
    """A copy of the tables, of what commands saved and of some recorded routers, to run commands in."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.path.realpath(temporary))
        for name in ("tables", "saved"):
            shutil.copytree(FOLDER / name, folder / name)
        for name in routers:
            shutil.copytree(FOLDER / "artifacts" / name, folder / "artifacts" / name)
        yield folder


def numbers(array: Any) -> Any:
    """JSON-ready, to 7 digits."""
    return figures_of(np.asarray(array, dtype=float).tolist())


# --- artefacts ---


def inputs_of(folder: Path) -> Any:
    """Vectors, or texts, that lie beside a router."""
    if (folder / "X.npy").exists():
        return np.load(folder / "X.npy")
    return json.loads((folder / "queries.json").read_text())


def answers(folder: Path) -> dict[str, Any]:
    """All that the router in a folder says of the inputs beside it, by Python and by command."""
    router = mild.load(folder / "router")
    inputs = inputs_of(folder)
    textual = isinstance(inputs, list)
    X = router.features(inputs) if textual else inputs
    found: dict[str, Any] = {
        "repr": repr(router),
        "experts": router.expert_names,
        "features": router.feature_names,
        "n_features": router.n_features,
        "metadata": shape_of(json.loads((folder / "router" / "router.json").read_text())),
        "kind": router.info.kind,
        "settings": router.settings,
        "predict": router.predict(X).tolist(),
        "decide_one": [int(router.decide_one(np.asarray(x))) for x in X],
    }
    if textual:
        found["feature_sums"] = numbers(np.asarray(X, dtype=float).sum(axis=1))
        found["route"] = router.predict_texts(inputs).tolist()
        found["decide_text"] = [int(router.decide_text(text)) for text in inputs]
    # Costs as the router decides by them; what it shows is limited to the possible range.
    asked = {"predict_proba": router, "decision_function": router, "expected_costs": router.policy}
    for method, one in asked.items():
        found[method] = _or_refusal(lambda method=method, one=one: numbers(getattr(one, method)(X)))
    found["without"] = _or_refusal(
        lambda: router.without(router.expert_names[0]).predict(X).tolist()
    )
    count = router.n_experts
    found["with_prices"] = _or_refusal(
        lambda: router.with_prices([0.5 / (k + 1) for k in range(count)]).predict(X).tolist()
    )
    found["with_price_weight"] = _or_refusal(
        lambda: router.with_prices(price_weight=1000.0).predict(X).tolist()
    )
    return {"python": found, "commands": _command_answers(folder, inputs, router.text is not None)}


def _or_refusal(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:
        return {"refused": type(error).__name__}


def _command_answers(folder: Path, inputs: Any, reads_text: bool) -> dict[str, Any]:
    router = folder / "router"
    shown = run_mild(["explain", router, "--json"])
    found: dict[str, Any] = {
        "explain_router": {"exit": shown.code, "shape": shape_of(shown.json())}
    }
    if not reads_text:
        with tempfile.TemporaryDirectory() as place:
            np.savez(Path(place) / "new.npz", X=inputs)
            words = ["route", router, Path(place) / "new.npz"]
            done = run_mild([*words, "--probabilities"])
            found["route"] = {
                "exit": done.code,
                "shape": shape_of(done.json_lines()[0]),
                "experts": [answer["expert"] for answer in done.json_lines()],
            }
            summary = run_mild([*words, "--out", Path(place) / "o.parquet", "--json"])
            table = parquet.read_table(Path(place) / "o.parquet")
            found["route_out"] = {
                "exit": summary.code,
                "shape": shape_of(summary.json()),
                "columns": {field.name: str(field.type) for field in table.schema},
            }
        return found
    queries = [text if isinstance(text, str) else text.tolist() for text in inputs]
    lines = "".join(json.dumps({"id": i, "query": q}) + "\n" for i, q in enumerate(queries))
    words = ["route", router, "--query", "query", "--probabilities"]
    done = run_mild(words, stdin=lines)
    routed = done.json_lines()
    found["route"] = {
        "exit": done.code,
        "shape": shape_of(routed[0]),
        "ids": [answer.get("id") for answer in routed],
        "experts": [answer.get("expert") for answer in routed],
    }
    first = queries[0] if isinstance(queries[0], str) else json.dumps(queries[0])
    done = run_mild(["explain", router, first, "--json"])
    found["explain"] = {
        "exit": done.code,
        "shape": shape_of(done.json()),
        "expert": done.json().get("expert"),
    }
    return found


# --- commands ---

_TEXT = "artifacts/text_linear/router"
_PRICED = "artifacts/text_priced/router"
_NUMBERS = "artifacts/fit_numbers/router"
_QUICK = ["--splits", 1, "--jobs", 1, "--method", "ce", "--method", "mild"]

# Commands that leave the files in saved/.
SAVING: list[list[Any]] = [
    ["evaluate", "tables/new.csv", "--router", _TEXT, "--group", "subject", "--save"],
    ["compare", "tables/log.csv", *_QUICK, "--out", "comparison.json"],
]

COMMANDS: dict[str, CommandCase] = {
    "fit": CommandCase(words=["fit", "tables/log.csv", "--out", "r", "--price-weight", 50]),
    "fit_embedded": CommandCase(words=["fit", "--out", "r", "--experts", "7B,0.5B"], slow=True),
    "fit_numbers": CommandCase(
        words=["fit", "tables/numbers.csv", "--out", "r", "--margins", "1,2,0.5"],
    ),
    "fit_vectors": CommandCase(words=["fit", *FITTED_ON_VECTORS, "--out", "r"]),
    "tune": CommandCase(
        words=[
            "tune", "tables/log.csv", "--out", "r", "--jobs", 1, "--families", "linear,regression",
        ]
    ),
    "tune_numbers": CommandCase(
        words=["tune", "tables/numbers.csv", "--out", "r", "--families", "linear", "--jobs", 1],
    ),
    "evaluate": CommandCase(
        words=["evaluate", "tables/new.csv", "--router", _TEXT, "--group", "subject"],
        with_figures=True,
    ),
    "evaluate_priced": CommandCase(
        words=["evaluate", "tables/new.csv", "--router", _PRICED, "--price-weight", 200],
        with_figures=True,
    ),
    "evaluate_numbers": CommandCase(
        words=["evaluate", "tables/numbers_new.csv", "--router", _NUMBERS],
        with_figures=True,
    ),
    "compare": CommandCase(words=["compare", "tables/log.csv", *_QUICK]),
    "compare_time": CommandCase(
        words=["compare", "tables/log.csv", *_QUICK[2:], "--time", "day"],
        slow=True,
    ),
    "report": CommandCase(
        words=["report", _TEXT, "--table", "tables/new.csv", "--out", "o.html"],
        with_figures=True,
    ),
    "report_saved": CommandCase(
        words=["report", _TEXT, "--out", "o.html"],
        setup=[["evaluate", "tables/new.csv", "--router", _TEXT, "--save"]],
    ),
    "report_of_old_evaluation": CommandCase(
        words=["report", "saved/evaluation.json", "--out", "o.html"],
        with_figures=True,
    ),
    "report_of_old_comparison": CommandCase(
        words=["report", "saved/comparison.json", "--out", "o.html"],
        with_figures=True,
    ),
    "route_numbers": CommandCase(
        words=["route", _NUMBERS, "tables/numbers_new.csv", "--out", "o.jsonl"],
        with_figures=True,
    ),
    "explain": CommandCase(
        words=["explain", _TEXT, "boil salt butter flour please tell"],
        with_figures=True,
    ),
    "explain_priced": CommandCase(
        words=["explain", _PRICED, "-", "--beta", "cook=9,adder=0,poet=0", "--most", 3],
        stdin="boil salt butter",
        with_figures=True,
    ),
    "explain_router": CommandCase(words=["explain", _TEXT], with_figures=True),
    "explain_tuned_router": CommandCase(
        words=["explain", "artifacts/text_tuned/router"],
        with_figures=True,
    ),
    "route": CommandCase(
        words=["route", _TEXT, "tables/queries.txt", "--echo", "--probabilities"],
        prints_lines=True,
        with_figures=True,
    ),
    "route_json_lines": CommandCase(
        words=["route", "artifacts/text_regression/router", "--query", "q", "--probabilities"],
        stdin='{"id": 7, "q": "boil salt"}\n{"id": 8, "q": 5}\n',
        prints_lines=True,
        with_figures=True,
    ),
    "route_out": CommandCase(
        words=[
            "route", _TEXT, "new.parquet", "--out", "o", "--keep", "day", "--probabilities",
        ],
        setup=[["data", "convert", "tables/new.csv", "new.parquet"]],
    ),
    "data_describe": CommandCase(
        words=[
            "data", "describe", "tables/log.csv", "--beta", "cook=0.2", "--price-weight", 50
        ],
        with_figures=True,
    ),
    "data_describe_routerbench": CommandCase(
        words=["data", "describe", "tables/routerbench.csv"],
        with_figures=True,
    ),
    "data_describe_routellm": CommandCase(
        words=["data", "describe", "tables/routellm.csv"],
        with_figures=True,
    ),
    "data_describe_llmrouter": CommandCase(
        words=["data", "describe", "tables/llmrouter.jsonl"],
        with_figures=True,
    ),
    "data_describe_plain": CommandCase(
        words=[
            "data", "describe", "plain.parquet", "--latency-weight", 0.1,
        ],
        setup=[[
            "data", "convert", "tables/plain.csv", "plain.parquet", "--query", "task",
            "--scores", "acc_*", "--prices", "usd_*", "--latencies", "wait_ms_*",
        ]],
        with_figures=True,
    ),
    "data_convert": CommandCase(
        words=["data", "convert", "tables/llmrouter.jsonl", "o.csv"],
        with_figures=True,
    ),
}  # fmt: skip


def run_case(case: CommandCase) -> dict[str, Any]:
    """Run a command in a work folder that has the routers it names."""
    routers = set()
    for word in case.words:
        path = Path(str(word))
        if path.parts[:1] == ("artifacts",):
            routers.add(path.parts[1])
    with work_folder(routers) as folder:
        return case_record(case, folder)


# --- errors ---

_TUNE = ["tune", "tables/log.csv", "--out", "r"]
REFUSED: dict[str, tuple[list[Any], list[str]]] = {
    "no_table": (["fit", "nowhere.csv", "--out", "r"], ["no such file", "nowhere.csv"]),
    "unknown_ending": (["data", "describe", "no_ending"], ["no_ending", ".parquet"]),
    "unknown_loss": (
        ["fit", "tables/log.csv", "--out", "r", "--loss", "mlid"],
        ["--loss must be one of", "'mlid'", "Did you mean 'mild'?"],
    ),
    "unknown_router": (
        ["fit", "tables/log.csv", "--out", "r", "--router", "lineer"],
        ["--router must be one of", "'lineer'", "Did you mean 'linear'?"],
    ),
    "unknown_expert": (
        ["fit", "tables/log.csv", "--out", "r", "--beta", "chef=1"],
        ["chef", "adder, cook, poet"],
    ),
    "negative_price_weight": (
        ["fit", "tables/log.csv", "--out", "r", "--price-weight", -1],
        ["--price-weight must be", "-1"],
    ),
    "margins_of_two": (
        ["fit", "tables/log.csv", "--out", "r", "--margins", "1,2"],
        ["--margins", "3", "2"],
    ),
    "output_exists": (
        ["fit", "tables/log.csv", "--out", _TEXT],
        ["exists", "--overwrite"],
    ),
    "unknown_family": ([*_TUNE, "--families", "liner"], ["--families", "'liner'", "linear"]),
    "one_call": ([*_TUNE, "--cascade", 1], ["--cascade must be", "got '1'"]),
    "unknown_group": (
        ["compare", "tables/log.csv", "--group", "topic", *_QUICK],
        ["topic", "subject"],
    ),
    "no_router": (["explain", "nowhere"], ["cannot load a router from", "nowhere"]),
    "damaged_router": (["explain", "damaged"], ["does not match the checksum"]),
    "newer_router": (["explain", "newer"], ["newer"]),
    "unknown_kind": (["explain", "unknown"], ["kind must be one of", "'oracular'", "newer mild"]),
    "columns_are_named_for_convert": (
        ["fit", "tables/plain.csv", "--out", "r", "--query", "task"],
        ["mild data convert", "--scores"],
    ),
    "numbers_are_not_explained": (["explain", _NUMBERS, "x"], ["columns of numbers"]),
    "prices_are_refused": (["explain", _TEXT, "x", "--beta", "cook=9"], ["priced"]),
    "unknown_format": (
        ["route", _TEXT, "tables/queries.txt", "--format", "xml"],
        ["--format must be one of", "'xml'"],
    ),
    "ray_address_alone": (
        ["fit", "tables/log.csv", "--out", "r", "--address", "localhost:1"],
        ["--engine ray"],
    ),
}
# Those that the parser refuses: exit code 2, and no JSON.
MISUSED: dict[str, tuple[list[Any], list[str]]] = {
    "no_such_option": (["fit", "tables/log.csv", "--ot", "r"], ["--ot"]),
    "no_such_verb": (["fti"], ["fti"]),
    "no_output": (["fit", "tables/log.csv"], ["--out"]),
    "seed_below_zero": (["fit", "tables/log.csv", "--out", "r", "--seed", -1], ["--seed"]),
}


def refusals() -> dict[str, Any]:
    """What each of them is answered."""
    records = {}
    with work_folder(["text_linear", "fit_numbers"]) as folder:
        (folder / "no_ending").write_text("x\n")
        _spoil_routers(folder)
        for name, (words, _) in {**REFUSED, **MISUSED}.items():
            records[name] = refusal_record(words, folder)
    return records


def _spoil_routers(folder: Path) -> None:
    """Routers that cannot be loaded, each for another reason."""
    source = folder / "artifacts" / "text_linear" / "router"
    for name in ("damaged", "newer", "unknown"):
        shutil.copytree(source, folder / name)
    (folder / "damaged" / "tensors.safetensors").write_bytes(b"")
    for name, key, value in (("newer", "schema_version", 999), ("unknown", "kind", "oracular")):
        file = folder / name / "router.json"
        manifest = json.loads(file.read_text())
        assert key in manifest
        manifest[key] = value
        file.write_text(json.dumps(manifest))


def raised() -> dict[str, list[str]]:
    """Classes of what public functions raise or warn of, most special first."""
    X, costs = np.zeros((6, 2)), np.eye(6, 3)
    X[:, 0] = range(6)
    with tempfile.TemporaryDirectory() as place:
        saved = mild.save(mild.ConstantRouter().fit(X, costs), Path(place) / "r")
        router = mild.load(saved)
        asked: dict[str, Callable[[], Any]] = {
            "cost_matrix_of_unequal_lengths": lambda: mild.cost_matrix([[0, 1]], [0, 1]),
            "rewards_of_unknown_kind": lambda: mild.rewards(costs, kind="other"),
            "decide_by_unknown_rule": lambda: mild.decide([[0.0, 1.0]], [1.0, 1.0], rule="best"),
            "decide_with_margins_of_another_length": lambda: mild.decide([[0.0, 1.0]], [1.0]),
            "costs_not_finite": lambda: mild.LinearRouter().fit(X, costs + np.inf),
            "unknown_loss": lambda: mild.LinearRouter(loss="mlid").fit(X, costs),
            "predict_of_another_width": lambda: router.predict(np.zeros((1, 5))),
            "predict_of_one_dimension": lambda: router.predict(np.zeros(2)),
            "route_without_texts": lambda: router.predict_texts(["x"]),
            "unknown_expert": lambda: router.without("nobody"),
            "prices_of_a_constant": lambda: router.with_prices(price_weight=2.0),
            "save_of_something_else": lambda: mild.save(object(), Path(place) / "s"),
            "save_before_fit": lambda: mild.save(mild.LinearRouter(), Path(place) / "s"),
            "save_over_another": lambda: mild.save(router, saved),
            "load_of_nothing": lambda: mild.load(Path(place) / "nowhere"),
            "few_iterations": lambda: mild.LinearRouter(max_iter=1, tol=1e-14).fit(X, costs),
            "nothing_to_learn": lambda: mild.LinearRouter().fit(X, np.zeros((6, 3))),
        }
        found = {}
        for name, ask in asked.items():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    ask()
                except Exception as error:
                    found[name] = _classes(type(error))
                else:
                    raise AssertionError(f"{name} raises nothing")
    code = (
        "import sys, mild\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, *more):\n"
        "        if name == 'torch': raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "try:\n    mild.NeuralRouter().fit([[0.0], [1.0]], [[0, 1], [1, 0]])\n"
        "except Exception as error:\n    print(*[c.__name__ for c in type(error).__mro__])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found["torch_is_missing"] = done.stdout.split()[:-1]
    return found


def _classes(raised: type) -> list[str]:
    return [kind.__name__ for kind in raised.__mro__][:-1]


# --- public functions ---


def function_values() -> dict[str, Any]:
    """What the public functions give for a small matrix of costs."""
    rng = np.random.default_rng(0)
    costs = rng.random((5, 3)).round(3)
    scores = rng.normal(size=(5, 3)).round(3)
    margins = [1.0, 2.0, 0.5]
    surrogates = (
        "logistic", "exponential", "hinge", "pairwise_logistic", "pairwise_exponential", 0.5,
    )  # fmt: skip
    found: dict[str, Any] = {
        "cost_matrix": mild.cost_matrix([[0, 1, 1], [2, 2, 0]], [0, 2], [0.1, 0.2, 0.3]),
        "deferral_loss": mild.deferral_loss(costs, [0, 1, 2, 0, 1]),
        "theory_margins": mild.theory_margins([5.0, 2.0, 1.0]),
        "theory_margins_total": mild.theory_margins([5.0, 2.0, 1.0], [1.0, 2.0, 3.0], 6.0),
    }
    for kind in ("others", "complement", "contrast", "baseline"):
        rewards = mild.rewards(costs, kind)
        found[f"rewards {kind}"] = rewards
        found[f"reward_distribution {kind}"] = mild.reward_distribution(np.abs(rewards))
        for counts in ("reward", "best"):
            found[f"expert_mass {kind} {counts}"] = mild.expert_mass(costs, kind, counts)
    rewards = mild.rewards(costs)
    for surrogate in surrogates:
        loss, gradient = mild.mild_loss(scores, rewards, margins, surrogate, True)
        found[f"mild_loss {surrogate}"] = loss
        found[f"mild_loss gradient {surrogate}"] = gradient
        if surrogate != "hinge":
            shares = mild.stationary_distribution(scores, margins, surrogate)
            found[f"stationary_distribution {surrogate}"] = shares
            chosen = mild.decide(scores, margins, surrogate=surrogate)
            found[f"decide {surrogate}"] = chosen
    found["decide argmax"] = mild.decide(scores, margins, rule="argmax")
    return {name: numbers(value) for name, value in found.items()}
