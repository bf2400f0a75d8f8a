"""What journeys need to know of settings, commands, headers and columns of the gateway.

Names that change, change here, and the journeys do not. A command is a list of its words.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

CONFIG = "mild.toml"
ROUTER = "router"
#: Model name that makes the router choose.
ROUTER_MODEL = "mild"
#: Headers of an answer.
EXPERT = "x-mild-expert"
REQUEST_ID = "x-mild-request-id"
#: Exit codes of ``learn`` beside 0, for a router that is not promoted.
NOT_PROMOTED = (3, 4)


def write_config(
    folder: Path,
    experts: Mapping[str, Mapping[str, Any]],
    database: str | None = None,
    explore: float = 0.0,
) -> None:
    """``mild.toml`` of a gateway that keeps texts; without ``database``, SQLite in the folder.

    ``expert`` makes the settings of an expert.
    """
    lines = [f'router = "{ROUTER}"']
    if database is not None:
        lines.append(f"store = {json.dumps(database)}")
    lines += ["[routing]", f"explore = {explore}", "[ledger]", "keep_text = true"]
    # Nobody watches the health of these gateways.
    lines += ["[limits]", "accept_after_sigterm_seconds = 0"]
    for name, settings in experts.items():
        lines.append(f"[experts.{name}]")
        # A value of JSON is one of TOML.
        lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    path = folder / CONFIG
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    # The address of a database holds a password.
    path.chmod(0o600)


def expert(url: str, model: str, price: float) -> dict[str, Any]:
    """Settings of an expert; the price is in dollars per million tokens."""
    return {"base_url": url, "model": model, "price_in": price, "price_out": price}


# Tables of outcomes, and scores for ``import_scores``.

QUERY = "query"


def outcome_columns(
    name: str, scores: Sequence[float], dollars: Sequence[float], answers: Sequence[str]
) -> dict[str, Sequence[Any]]:
    """Columns of an expert: the score, the price and the text of each of its answers."""
    return {f"score__{name}": scores, f"cost__{name}": dollars, f"answer__{name}": answers}


def scores_file(scores: Iterable[tuple[str, float]]) -> str:
    """A CSV file of the scores of answers, by the ids of their requests."""
    lines = [f"{request_id},{score}" for request_id, score in scores]
    return "\n".join(["request_id,score", *lines])


# Commands. Those with figures print them as JSON.


def describe(table: str) -> list[str]:
    return ["describe", table, "--json"]


def convert(table: str, out: str) -> list[str]:
    """Write a table in the format in which files can be joined."""
    return ["convert", table, out]


def tune(
    table: str,
    out: str,
    *,
    price_weight: float | None = None,
    keep_quality: float | None = None,
    cascade: bool = False,
) -> list[str]:
    words = ["tune", table, "--out", out, "--overwrite", "--json"]
    if price_weight is not None:
        words += ["--price-weight", str(price_weight)]
    if keep_quality is not None:
        words += ["--keep-quality", str(keep_quality)]
    return [*words, "--cascade"] if cascade else words


def fit(table: str, out: str, router: str, price_weight: float) -> list[str]:
    words = ["fit", table, "--out", out, "--overwrite", "--json"]
    return [*words, "--router", router, "--price-weight", str(price_weight)]


def route(router: str, questions: str) -> list[str]:
    """A line of JSON for each line of a file."""
    return ["route", router, questions]


def check() -> list[str]:
    return ["check", CONFIG]


def serve() -> list[str]:
    return ["serve", "--config", CONFIG, "--port", "0"]


def served_port(output: str) -> int | None:
    """The port in what ``serve`` has printed so far; None before it serves."""
    found = re.search(r"http://127\.0\.0\.1:(\d+) ", output)
    return int(found[1]) if found else None


def show_ledger() -> list[str]:
    return ["ledger", "show", CONFIG, "--json"]


def export_ledger(out: str) -> list[str]:
    """Rows with the scores of their answers."""
    return ["ledger", "export", CONFIG, "--out", out, "--feedback", "ledger", "--json"]


def replay(router: str) -> list[str]:
    """An estimate of another router by the feedback of clients."""
    words = ["replay", CONFIG, "--router", router, "--feedback", "ledger", "--trust-feedback"]
    return [*words, "--json"]


def import_scores(file: str) -> list[str]:
    """Scores of all answers to some requests."""
    return ["feedback", "import", file, "--ledger", CONFIG, "--rate", "1", "--json"]


def learn(table: str, *, dry_run: bool = False) -> list[str]:
    """Learn from the scores of clients, too, and be judged by them."""
    words = ["learn", ROUTER, "--ledger", CONFIG, "--table", table, "--trust-feedback", "--json"]
    return [*words, "--dry-run"] if dry_run else words


def versions() -> list[str]:
    return ["versions", ROUTER, "--json"]


# What the gateway takes and gives.


def chat(text: str, model: str = ROUTER_MODEL) -> dict[str, Any]:
    """The body of a chat request."""
    return {"model": model, "messages": [{"role": "user", "content": text}]}


CHAT = "/v1/chat/completions"
FEEDBACK = "/v1/feedback"
STATUS = "/status.json"


def said(document: Mapping[str, Any]) -> str:
    """The text of an answer to a chat request."""
    return document["choices"][0]["message"]["content"]


def feedback(request_id: str, score: float) -> dict[str, Any]:
    """The body of feedback on an answer."""
    return {"request_id": request_id, "score": score}


def serving_routers(status: Mapping[str, Any]) -> set[str]:
    """Fingerprints of the routers that serve, by the document at ``STATUS``."""
    return {worker["router"] for worker in status["workers"]}


# What commands print as JSON.


@dataclass
class Described:
    """What ``describe`` tells of a table: rows, and of each expert answers, mean score and mean price."""

    rows: int
    experts: dict[str, tuple[int, float, float]]


def read_described(figures: Mapping[str, Any]) -> Described:
    experts = {}
    for entry in figures["experts"]:
        experts[entry["name"]] = (entry["asked"], entry["accuracy"], entry["mean_price"])
    return Described(figures["rows"], experts)


@dataclass
class Shown:
    """What ``show_ledger`` tells."""

    requests: int
    dollars: float
    outcomes: dict[str, int]
    answered: dict[str, int]  # requests by expert


def read_shown(figures: Mapping[str, Any]) -> Shown:
    answered = {name: entry["requests"] for name, entry in figures["experts"].items()}
    return Shown(figures["requests"], figures["dollars"], figures["outcomes"], answered)


@dataclass
class Replayed:
    """What ``replay`` estimates for the requests of a ledger."""

    rows: int
    dollars: dict[str, tuple[float, float]]  # mean and standard error of "logged", "serving", "new"
    shares: dict[str, float]  # of each expert, by the new router


def read_replayed(figures: Mapping[str, Any]) -> Replayed:
    names = {"logged": "logged", "serving": "serving", "self_normalised": "new"}
    dollars = {}
    for method, name in names.items():
        estimate = figures["estimates"]["dollars"][method]
        dollars[name] = (estimate["mean"], estimate["standard_error"])
    shares = {name: share["new"] for name, share in figures["shares"].items()}
    return Replayed(figures["rows"], dollars, shares)


@dataclass
class Learned:
    """What ``learn`` did."""

    promoted: bool
    version: int | None  # written, to serve or to be tried out
    n_table: int  # rows and scored answers that it has learned from
    n_answers: int
    n_judged: int  # answers that judged it
    gain: float  # cost of a request by the new router minus that by the old one: estimate and upper end
    gain_at_most: float


def read_learned(figures: Mapping[str, Any]) -> Learned:
    counts = dict(figures["trained_on"])
    judgement = figures["judgement"]
    gain = judgement["differences"]["cost"]["doubly_robust"]
    return Learned(
        promoted=figures["promoted"],
        version=figures["version"],
        n_table=counts.pop("table"),
        n_answers=sum(counts.values()),
        n_judged=judgement["rows"],
        gain=gain["estimate"],
        gain_at_most=gain["high"],
    )


def read_serving_version(figures: Mapping[str, Any]) -> tuple[int, str]:
    """Number and fingerprint of the version that serves, by ``versions``."""
    number = figures["serving"]
    (found,) = [one for one in figures["versions"] if one["version"] == number]
    return number, found["fingerprint"]


def read_routes(output: str) -> list[str]:
    """The expert of each line, by ``route``."""
    return [json.loads(line)["expert"] for line in output.splitlines()]


# Rows of the ledger.


@dataclass
class Row:
    """A row of an export."""

    request_id: str
    expert: str
    chosen: str
    preferred: str
    propensity: float
    draws: dict[str, float]  # probability of each expert in the draw
    price: float
    text: str
    score: float | None
    router: str


def read_rows(path: Path) -> list[Row]:
    """Rows of an export as Parquet, CSV or JSON lines."""
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    else:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [
                {name: value or None for name, value in row.items()} for row in csv.DictReader(file)
            ]
    return [_row(row) for row in rows]


def _row(row: Mapping[str, Any]) -> Row:
    return Row(
        request_id=row["request_id"],
        expert=row["expert"],
        chosen=row["chosen"],
        preferred=row["preferred"],
        propensity=float(row["propensity"]),
        draws=dict(zip(_list(row["experts"]), map(float, _list(row["draws"])), strict=True)),
        price=float(row["price"]),
        text=row["text"],
        score=None if row["score"] is None else float(row["score"]),
        router=row["router"],
    )


def _list(value: Any) -> Sequence[Any]:
    """A list, which is a text of JSON in a CSV file."""
    return json.loads(value) if isinstance(value, str) else value
