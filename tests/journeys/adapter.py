"""What journeys need to know of commands, figures, files and names that the library still changes.

They change here, and the journeys do not. A command is a list of its words; a figure has the same name
here wherever mild writes it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import mild
import mild.batch
from mild import errors
from mild.deferral import DeferralClassifier
from mild.features import EncoderFeatures

#: Estimate, lower and upper end.
Interval = tuple[float, float, float]


# Commands.


def describe(table: str, *more: str) -> list[str]:
    return ["describe", table, *more]


def convert(table: str, out: str, *more: str) -> list[str]:
    return ["convert", table, out, *more]


def tune(table: str, out: str, *more: str) -> list[str]:
    return ["tune", table, "--out", out, *more]


def fit(table: str, out: str, router: str, *more: str) -> list[str]:
    return ["fit", table, "--out", out, "--router", router, *more]


def evaluate(router: str, table: str, *more: str) -> list[str]:
    return ["evaluate", router, table, *more]


def report(router: str, table: str, out: str, *more: str) -> list[str]:
    """Evaluate a router, and write the page."""
    return ["evaluate", router, table, "--report", out, *more]


def compare(table: str, methods: Sequence[str], *more: str) -> list[str]:
    words = ["compare", table]
    for method in methods:
        words += ["--methods", method]
    return [*words, *more]


def route(router: str, queries: str = "-") -> list[str]:
    """A line of JSON for each query, of which there is one in a line."""
    return ["route", router, queries]


def route_files(router: str, source: str, out: str, columns: Sequence[str]) -> list[str]:
    """What ``route_dataset`` does."""
    words = ["route", router, source, "--out", out]
    for column in columns:
        words += ["--keep", column]
    return words


def explain(router: str, *more: str) -> list[str]:
    return ["explain", router, *more]


def demo(out: str) -> list[str]:
    return ["demo", "--out", out, "--json"]


def beta(costs: Mapping[str, float]) -> list[str]:
    return ["--beta", ",".join(f"{name}={cost}" for name, cost in costs.items())]


GROUPS = "--groups"
QUERY = "--query"
N_SPLITS = "--n-splits"
RANDOM_STATE = "--random-state"
MAX_EVIDENCE = "--max-evidence"
#: Names that commands and options once had are not known.
MISUSED = {
    "data describe": ["data", "describe", "log.csv"],
    "data convert": ["data", "convert", "log.csv", "new.csv"],
    "evaluate --router": ["evaluate", "test.csv", "--router", "router"],
    "--group": tune("log.csv", "new", "--group", "kind"),
    "--seed": tune("log.csv", "new", "--seed", "1"),
    "--jobs": tune("log.csv", "new", "--jobs", "1"),
    "--splits": compare("log.csv", [], "--splits", "2"),
    "--method": compare("log.csv", [], "--method", "ridge"),
    "--most": explain("router", "Why?", "--most", "3"),
}


# What commands print as JSON: the names at the top.

KEYS = {
    "describe": {
        *("file", "fingerprint", "cost", "rows", "form", "layout", "experts", "compared"),
        *("oracle", "best_constant", "headroom", "all_right", "all_wrong", "some_right"),
        *("imbalance", "answers", "soft_scores", "findings", "prices_unused"),
    },
    "convert": {
        *("file", "out", "rows", "experts", "form", "layout", "findings", "fingerprint"),
    },
    "tune": {
        *("router", "text", "cost", "best_family", "best_params", "met", "goal"),
        *("skipped_families", "dropped_margins", "choice", "routes_as_constant", "candidates"),
        *("verdict", "target", "certainty", "shares", "baselines", "coin", "level"),
        *("prices_unused", "cascade", "answers_unused", "notes", "holdout"),
    },
    "fit": {
        *("router", "kind", "estimator", "n_features", "margins", "notes", "text", "cost"),
        "training",
    },
    "evaluate": {
        *("router", "data", "cost", "rows", "experts", "best_first", "summary"),
        *("constant_losses", "baselines", "quality_name", "minority_recall", "dollars_per_1000"),
        *("left_out", "verdict", "same_data_as_fit", "seen_in_fit", "notes"),
    },
    "compare": {
        *("data", "cost", "text", "group", "time", "statement", "chosen", "experts", "best_first"),
        *("oracle", "oracle_shares", "baselines", "headroom", "rows", "rows_to_train_on"),
        *("rows_to_test_on", "splits", "confidence", "left_out", "dropped", "not_compared"),
        *("interrupted", "notes", "methods"),
    },
    "route": {"expert", "expected_cost"},
    "explain a query": {
        *("query", "expert", "runner_up", "probabilities", "expected_costs", "values", "by"),
        *("margins", "lead", "evidence", "others", "method", "unit", "right", "novelty", "novel"),
        *("graded", "first_step", "path", "next_step", "possible", "threshold"),
        *("unread", "mix", "sentence"),
    },
    "explain a router": {
        *("folder", "kind", "parts", "experts", "best_first", "steps", "mix", "margins"),
        *("settings", "estimator", "n_features", "text", "notes", "feature_names", "data"),
        *("tensors", "mild_version", "created", "schema_version", "bytes"),
    },
    "demo": {"folder", "report", "seconds", "steps"},
    "error": {"error", "code"},
}


# How bad inputs are refused: class and code of the error.

REFUSALS: dict[str, tuple[type[Exception], str]] = {
    "no such file": (errors.DataFileError, "invalid_data_file"),
    "an empty file": (errors.DataFileError, "invalid_data_file"),
    "a header alone": (errors.DataFileError, "invalid_data_file"),
    "a row that is too long": (errors.DataFileError, "invalid_data_file"),
    "a column twice": (errors.DataFileError, "invalid_data_file"),
    "no scores": (errors.DataFileError, "invalid_form"),
    "a score of 2": (errors.DataFileError, "invalid_scores"),
    "a score in words": (errors.DataFileError, "invalid_data_file"),
    "a negative price": (errors.DataFileError, "invalid_prices"),
    "a price of an expert without scores": (errors.DataFileError, "invalid_scores"),
    "JSON that is cut off": (errors.DataFileError, "invalid_data_file"),
    "no Parquet": (errors.DataFileError, "invalid_data_file"),
    "a pickle": (errors.DataFileError, "invalid_data_file"),
    "no such column of queries": (errors.DataFileError, "invalid_query"),
    "a negative quality": (errors.InvalidInputError, "invalid_keep_quality"),
    "a target without prices": (errors.InvalidInputError, "invalid_keep_quality"),
    "a target and a weight": (errors.InvalidInputError, "invalid_price_weight"),
    "a guarantee of nothing": (errors.InvalidInputError, "invalid_guarantee"),
    "a negative weight": (errors.InvalidInputError, "invalid_price_weight"),
    "a weight of unknown prices": (errors.InvalidInputError, "invalid_price_weight"),
    "a cost of an unknown expert": (errors.InvalidInputError, "invalid_beta"),
    "no such column of groups": (errors.DataFileError, "invalid_groups"),
    "an unknown kind of router": (errors.InvalidInputError, "invalid_router"),
    "an unknown method": (errors.InvalidInputError, "invalid_methods"),
    "no such router": (errors.RouterFileError, "invalid_router_file"),
    "a damaged router": (errors.RouterFileError, "invalid_router_file"),
    "a router that is cut off": (errors.RouterFileError, "invalid_router_file"),
    "a table without an expert of the router": (errors.InvalidInputError, "invalid_data"),
    "a confidence of 2": (errors.InvalidInputError, "invalid_confidence"),
    "a router in place of another": (errors.OutputExistsError, "output_exists"),
    "a report in place of a file": (errors.OutputExistsError, "output_exists"),
    "a router below a file": (errors.RouterFileError, "invalid_router_file"),
}


# Tables and goals of which no router comes.
UNTUNABLE: dict[str, tuple[type[Exception], str]] = {
    "one expert": (errors.InvalidInputError, "one_expert"),
    "no right answer": (errors.InvalidInputError, "no_right_answer"),
    "a share in percent": (errors.InvalidInputError, "invalid_keep_quality"),
}


# Settings of the library.


def fast() -> dict[str, Any]:
    """Settings of ``mild.tune`` for a search of a second."""
    return {"search": mild.RouterCV(families="ridge", cv=3)}


# What the library gives.


def texts(table: mild.Outcomes) -> list[str]:
    """The queries of a table."""
    return list(table.queries)


def answers(table: mild.Outcomes, expert: str) -> list[Any]:
    """What an expert answered to each query; None where it did not."""
    return table.column(f"answer__{expert}")


def column(table: mild.Outcomes, name: str) -> list[Any]:
    """Another column of a table."""
    return table.column(name)


def decide(router: mild.Router, queries: Sequence[str]) -> Any:
    """Decisions about queries: ``chosen``, ``probabilities`` and ``costs``."""
    return router.decide(router.features(queries))


@dataclass
class Described:
    """What a description of a table says."""

    rows: int
    quality: dict[str, float]  # mean score of each expert
    dollars: dict[str, float | None]  # per query
    asked: dict[str, int]
    best_quality: float  # of the best single expert, and of perfect choice
    oracle_quality: float


def read_described(figures: Mapping[str, Any]) -> Described:
    experts = {entry["name"]: entry for entry in figures["experts"]}
    return Described(
        rows=figures["rows"],
        quality={name: entry["accuracy"] for name, entry in experts.items()},
        dollars={name: entry["mean_price"] for name, entry in experts.items()},
        asked={name: entry["asked"] for name, entry in experts.items()},
        best_quality=figures["best_constant"]["accuracy"],
        oracle_quality=figures["oracle"]["accuracy"],
    )


@dataclass
class Target:
    """How a router does what it was tuned to, in comparison with the best single expert.

    Shares of its quality that are kept and of its dollars that are saved, the quality that is lost, and
    dollars per 1,000 queries.
    """

    met: bool
    certified: bool | None
    reference: str
    kept: Interval
    lost: Interval
    saved: Interval
    dollars: Interval


def read_target(figures: Mapping[str, Any]) -> Target:
    """The target in what ``tune`` or ``evaluate`` says."""
    target = figures["verdict"]["target"]
    intervals = {}
    for name, key in (
        ("kept", "quality_kept"),
        ("lost", "quality_loss"),
        ("saved", "dollars_saved"),
        ("dollars", "dollars_per_1000"),
    ):
        intervals[name] = (target[key]["estimate"], target[key]["low"], target[key]["high"])
    return Target(target["met"], target["certified"], target["reference"], **intervals)


def read_seen(figures: Mapping[str, Any]) -> int:
    """How many rows the router was trained on, by ``evaluate``."""
    return figures["seen_in_fit"]["queries"]


def read_sentence(figures: Mapping[str, Any]) -> str:
    """The verdict of ``tune`` or ``evaluate`` in words."""
    return figures["verdict"]["sentence"]


def read_holdout(figures: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What ``tune`` says of the rows that it kept back, as ``evaluate`` would; None if there are none."""
    return figures["holdout"]


@dataclass
class Judged:
    """What ``evaluate`` says. ``None`` is the router, and "perfect" is perfect choice."""

    rows: int
    cost: dict[str | None, float]  # mean of the loss
    quality: dict[str | None, float]
    dollars: dict[str | None, float]  # per 1,000 queries
    shares: dict[str, float]  # of the queries: whose answer is given
    difference: Interval  # of the cost to that of the reference
    reference: str
    asked: dict[str, float] | None = None  # by a cascade: shares, and calls per query
    calls: float | None = None


def read_reference_quality(figures: Mapping[str, Any]) -> float:
    """Quality of the expert that a target is measured against, by ``tune``."""
    return figures["verdict"]["target"]["reference_quality"]


@dataclass
class Alternative:
    """Quality and dollars of one way to decide, as a share of the named expert's and per 1,000 queries."""

    kept: float
    dollars: float


def read_alternatives(figures: Mapping[str, Any]) -> dict[str, Alternative]:
    """The router, the named expert, the cheapest single one that holds the target, and the coin."""
    return {
        row["choice"]: Alternative(row["quality_kept"], row["dollars_per_1000"])
        for row in figures["baselines"]
    }


def read_singles(figures: Mapping[str, Any], experts: Sequence[str]) -> Any:
    """Quality and dollars per 1,000 queries of each expert alone, (n_experts, 2)."""
    found = {row["setting"]: row for row in figures["candidates"]}
    rows = [found[f"always {name}"] for name in experts]
    return np.array([[row["quality"], row["dollars_per_1000"]] for row in rows])


def read_beyond_coin(figures: Mapping[str, Any]) -> Interval | None:
    """Share of the named expert's dollars that a router saves beyond the coin; None if it is one.

    None, too, if no coin has its quality.
    """
    coin = figures["coin"]
    return None if coin["saved"] is None else (coin["saved"], coin["low"], coin["high"])


def read_shares(figures: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """For each expert the share of the queries about which it is asked, and its dollars per 1,000."""
    return {row["expert"]: (row["queries"], row["dollars_per_1000"]) for row in figures["shares"]}


def read_difference(figures: Mapping[str, Any]) -> Interval:
    """How much more a router costs than the best single expert, by ``tune`` or ``evaluate``."""
    verdict = figures["verdict"]
    return (verdict["estimate"], verdict["low"], verdict["high"])


def read_judged(figures: Mapping[str, Any]) -> Judged:
    names = figures["experts"]
    lines = {line["key"]: line for line in figures["baselines"]}
    keys = {None: "router", "perfect": "perfect"}
    cost = {name: lines[key]["loss"] for name, key in keys.items()}
    dollars = {name: lines[key]["dollars_per_1000"] for name, key in keys.items()}
    judged = Judged(
        rows=figures["summary"]["n_known"],
        cost=cost | dict(zip(names, figures["constant_losses"], strict=True)),
        quality={name: lines[key]["accuracy"] for name, key in keys.items()},
        dollars=dollars,
        shares=dict(zip(names, figures["summary"]["shares"], strict=True)),
        difference=read_difference(figures),
        reference=figures["verdict"]["constant"],
    )
    if figures["dollars_per_1000"] is not None:
        dollars |= dict(zip(names, figures["dollars_per_1000"]["experts"], strict=True))
    if figures.get("cascade") is not None:
        judged.asked = dict(zip(names, figures["cascade"]["asked"], strict=True))
        judged.calls = figures["cascade"]["calls"]
    return judged


def read_page(rows: Sequence[Sequence[str]], items: Sequence[str]) -> dict[str, float]:
    """Figures of a report, of the cells of its tables and of the items of its lists.

    Quality, cost and dollars of the router, of each expert and of perfect choice; of the router also the
    shares that are kept and saved, in percent.
    """
    figures = {}
    for name, *cells in rows:
        who = name.partition("best single expert")[0].replace("always ", "").strip()
        who = {"router": "router", "perfect choiceoracle": "perfect"}.get(who, who)
        # Later tables have other columns.
        if len(cells) == 4 and "%" in cells[0] and f"quality of {who}" not in figures:
            for what, cell in zip(("quality", "cost", "dollars"), cells, strict=False):
                figures[f"{what} of {who}"] = _number(cell)
    for item in items:
        # The name of a figure, and the figure.
        found = re.match(
            r"(quality|quality kept|dollars saved|dollars per 1,000 queries)\$?(?=\d)", item
        )
        if found:
            figures[found[1]] = _number(item[found.end() :])
    return figures


def shown_figures(judged: Judged, target: Target) -> dict[str, tuple[float, float]]:
    """The same figures by ``evaluate``, and the unit to which the page rounds them."""
    figures = {
        "quality kept": (100 * target.kept[0], 0.1),
        "dollars saved": (100 * target.saved[0], 0.1),
        "quality": (100 * judged.quality[None], 0.1),
        "dollars per 1,000 queries": (judged.dollars[None], 0.01),
    }
    for name, dollars in judged.dollars.items():
        who = name or "router"
        # The cost is the error.
        figures[f"quality of {who}"] = (100 * (1 - judged.cost[name]), 0.1)
        figures[f"cost of {who}"] = (judged.cost[name], 0.0001)
        figures[f"dollars of {who}"] = (dollars, 0.01)
    return figures


def _number(text: str) -> float:
    """The first number in a text."""
    return float(re.search(r"[\d.]+", text)[0])


@dataclass
class Method:
    """What ``compare`` says of a method."""

    cost: float
    quality: float
    difference: Interval | None  # of the cost to that of the best single expert
    shares: dict[str, float]


def read_methods(figures: Mapping[str, Any]) -> dict[str, Method]:
    """The methods that were compared; "constant" is the best single expert."""
    methods = {}
    for row in figures["methods"]:
        difference = row["minus_constant"] and tuple(row["minus_constant"])
        shares = dict(zip(figures["experts"], row["shares"], strict=True))
        methods[row["method"]] = Method(row["mean_cost"], row["accuracy"], difference, shares)
    return methods


def read_certainty(found: Any) -> list[tuple[float, float, float]]:
    """What more certainty costs: probability, quality kept and dollars per 1,000 queries."""
    rows = []
    for row in found.as_dict()["certainty"]:
        probability = float(row["certainty"].split()[0]) / 100
        rows.append((probability, row["quality_kept"], row["dollars_per_1000"]))
    return rows


def read_routes(output: str) -> list[str]:
    """The expert of each line, by ``route``."""
    return [json.loads(line)["expert"] for line in output.splitlines()]


def read_route(line: str) -> str | None:
    """The expert in a line; None where the line could not be read."""
    return json.loads(line).get("expert")


@dataclass
class Explained:
    """Why an expert is asked."""

    expert: str
    runner_up: str
    costs: dict[str, float]
    probabilities: dict[str, float]
    evidence: dict[str, float]  # effects of parts of the query
    novel: bool


def read_explained(figures: Mapping[str, Any]) -> Explained:
    return Explained(
        expert=figures["expert"],
        runner_up=figures["runner_up"],
        costs=figures["expected_costs"],
        probabilities=figures["probabilities"],
        evidence={entry["part"]: entry["effect"] for entry in figures["evidence"]},
        novel=figures["novel"],
    )


def read_next(figures: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
    """After some answers, who is asked, or whose answer is accepted, by ``explain``."""
    accepted = [step["leading"] for step in figures["path"] if step["accepted"]]
    return tuple(figures["next_step"]), next(iter(accepted), None)


# Estimators.

#: Checks of scikit-learn that a router fails: it predicts an expert for each row, and not one column.
FAILED_CHECKS = {
    "check_estimator_sparse_array": "one expert for each row",
    "check_estimator_sparse_matrix": "one expert for each row",
}


def neural_router(body: Any, **settings: Any) -> mild.NeuralRouter:
    """A neural router with hidden layers of these widths, or with a network of one's own."""
    if callable(body):
        return mild.NeuralRouter(body, **settings)
    return mild.NeuralRouter(hidden=body, **settings)


def gain(verdict: Any) -> float:
    """By how much a router costs less than the best expert alone."""
    return -verdict.estimate


def encoder(folder: Path) -> EncoderFeatures:
    """Features of the sentence encoder in a folder, which keep no vectors on disk."""
    return EncoderFeatures(folder, cache=False)


# A classifier and its experts.

#: Methods that train a router between a finished classifier and the experts.
TWO_STAGES = ["two_stage_tdef", "two_stage_mild"]


def deferral_classifier(loss: str, **settings: Any) -> DeferralClassifier:
    """A classifier of a method, which may be one of ``TWO_STAGES``."""
    return DeferralClassifier(loss, **settings)


# Saved routers and classifiers.

#: The numbers of a folder, and what describes them.
TENSORS = "tensors.safetensors"
MANIFEST = "router.json"
#: What a folder cannot be read with: entries of the description.
UNREADABLE = {
    "schema_version": 99,
    "format": "another",
    "kind": "unknown",
    "n_features": 1,
    "sha256": 64 * "0",
}


def without_moment(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The files of a folder, by name, without the moment at which they were written."""
    description = json.loads(files[MANIFEST])
    del description["created"]
    return {**files, MANIFEST: description}


def forge_checksum(folder: Path) -> None:
    """Make the description of a folder fit its numbers."""
    description = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    description["sha256"] = hashlib.sha256((folder / TENSORS).read_bytes()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(description), encoding="utf-8")


def save(estimator: Any, experts: Sequence[str], folder: Path) -> Path:
    """Write a fitted estimator, or a Pipeline that ends in one."""
    return mild.save(estimator, folder, experts=experts)


# Routing of files.


def route_dataset(
    router: mild.Router, source: Path, out: Path, columns: Sequence[str], **settings: Any
) -> Any:
    """Route the rows of Parquet files to a folder of them, with these columns and ``expert``."""
    return mild.batch.route_dataset(router, str(source), str(out), keep=columns, **settings)


# The Hub.


def load_from_hub(name: str) -> mild.Router:
    """The router of a repository such as ``owner/name``."""
    return mild.load(f"hf://{name}")
