"""What journeys need to know of settings, commands, headers and columns of the gateway.

Names that change, change here, and the journeys do not. A command is a list of its words.
"""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from prometheus_client.parser import text_string_to_metric_families

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
class Change:
    """The mean score of an expert's latest answers minus that of its first ones, with its interval."""

    mean: float
    low: float
    high: float


@dataclass
class Drift:
    """What ``show_ledger`` tells of change."""

    versions: dict[
        str, list[str]
    ]  # by expert the models that it reported, if several; oldest first
    changes: dict[str, Change]  # by expert, where enough answers were scored
    novel: (
        tuple[int, float, float] | None
    )  # requests looked at, and the interval of the novel share


def read_drift(figures: Mapping[str, Any]) -> Drift:
    drift = figures["drift"]
    versions = {name: [one["version"] for one in seen] for name, seen in drift["versions"].items()}
    changes = {}
    for entry in drift["scores"]:
        changes[entry["expert"]] = Change(entry["change"], entry["low"], entry["high"])
    novel = drift["novel"]
    if novel is not None:
        novel = (novel["count"], novel["low"], novel["high"])
    return Drift(versions, changes, novel)


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


# Protocols, failures, cascades, metrics and the page.

MESSAGES = "/v1/messages"
MODELS = "/v1/models"
LIVE, READY = "/health/live", "/health/ready"
METRICS = "/metrics"
PAGE = "/"
#: Model name that makes the router choose one expert, where it is a cascade.
DIRECT_MODEL = "mild-direct"
# Headers of requests, and of the answers of cascades.
SESSION = "x-mild-session-id"
DEADLINE = "x-mild-deadline"
STEPS = "x-mild-path"
#: What a row says was chosen where a cascade answers.
CASCADE = "cascade"
#: Code in the last event of a stream that its expert has broken off.
STREAM_CUT = "stream_broken"


def priced_expert(
    url: str, model: str, price_in: float, price_out: float, *, api: str = "openai"
) -> dict[str, Any]:
    """Settings of an expert with two prices, in dollars per million tokens."""
    settings = {"base_url": url, "model": model, "price_in": price_in, "price_out": price_out}
    # The API of Anthropic has no embeddings.
    return {**settings, "api": api, "embeddings": api == "openai"}


def time_limits(seconds: float) -> dict[str, Any]:
    """Settings of an expert that may take so long to begin a stream, and to give a whole answer."""
    return {"first_byte_seconds": seconds, "total_seconds": seconds}


def require_keys(folder: Path) -> None:
    """Let a gateway whose settings are written refuse requests without a key."""
    _add_settings(folder, after="[access]\nrequire_key = true\n")


def set_workers(folder: Path, workers: int) -> None:
    """Let a gateway whose settings are written have so many processes."""
    _add_settings(folder, before=f"workers = {workers}\n")


def _add_settings(folder: Path, before: str = "", after: str = "") -> None:
    path = folder / CONFIG
    path.write_text(before + path.read_text(encoding="utf-8") + after, encoding="utf-8")


def named_model(expert: str, model: str) -> str:
    """What an answer says is its model, where this expert has reported that model."""
    return expert


def error_code(document: Mapping[str, Any]) -> str:
    """The code of a request that was refused."""
    return document["error"]["code"]


def steps(header: str) -> list[set[str]]:
    """The experts of each step that a cascade asked, by the header ``STEPS``."""
    return [set(step.split(",")) for step in header.split(">")]


@dataclass
class Call:
    """A call of an expert in a row of a cascade."""

    expert: str
    step: int
    is_answered: bool
    dollars: float


@dataclass
class Served:
    """A request as the ledger has it: ``chosen`` is null where the client named the expert."""

    request_id: str
    time: float
    asked: str
    expert: str | None
    chosen: str | None
    dollars: float
    tokens: tuple[int | None, int | None]  # in and out
    status: int
    outcome: str
    attempts: int
    streamed: bool
    calls: list[Call]


def read_ledger(folder: Path) -> list[Served]:
    """The rows that a gateway in this folder has written so far, oldest first."""
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        ledger.row_factory = sqlite3.Row
        return [_served(row) for row in ledger.execute("SELECT * FROM decisions ORDER BY id")]


def _served(row: sqlite3.Row) -> Served:
    calls = []
    for call in json.loads(row["calls"] or "[]"):
        is_answered = call["outcome"] == "ok"
        calls.append(Call(call["expert"], call["step"], is_answered, call["dollars"] or 0.0))
    return Served(
        request_id=row["request_id"],
        time=row["time"],
        asked=row["asked"],
        expert=row["expert"],
        chosen=row["chosen"],
        dollars=row["price"] or 0.0,
        tokens=(row["tokens_in"], row["tokens_out"]),
        status=row["status"],
        outcome=row["outcome"],
        attempts=row["attempts"],
        streamed=bool(row["streamed"]),
        calls=calls,
    )


@dataclass
class Counted:
    """Counters of the metrics that are above 0; the expert is "none" where nobody answered."""

    requests: dict[tuple[str, str], float]  # by expert and outcome
    attempts: dict[str, float]  # requests that each expert was sent
    answered: dict[str, float]  # of these, those that it answered, or began to
    refused: float
    tokens: dict[tuple[str, str], float]  # by expert and "in" or "out"
    dollars: dict[str, float]
    cascades: dict[int, float]  # by the step whose answer was given
    durations: dict[str, float]  # requests of each expert that have a duration
    in_flight: float


def read_metrics(page: str) -> Counted:
    samples = [
        sample for family in text_string_to_metric_families(page) for sample in family.samples
    ]

    def sums(name: str, *labels: str, **fixed: str) -> dict[Any, float]:
        """Sums of a metric by its labels, for the samples that have fixed values of others."""
        found: dict[Any, float] = {}
        for sample in samples:
            if sample.name == name and fixed.items() <= sample.labels.items() and sample.value:
                values = tuple(sample.labels[label] for label in labels)
                key = values[0] if len(values) == 1 else values
                found[key] = found.get(key, 0.0) + sample.value
        return found

    accepted = sums("mild_cascades_total", "step")
    return Counted(
        requests=sums("mild_requests_total", "expert", "outcome"),
        attempts=sums("mild_attempts_total", "expert"),
        answered=sums("mild_attempts_total", "expert", result="ok"),
        refused=sum(sums("mild_refused_total", "status").values()),
        tokens=sums("mild_tokens_total", "expert", "direction"),
        dollars=sums("mild_dollars_total", "expert"),
        cascades={int(step): count for step, count in accepted.items()},
        durations=sums("mild_request_seconds_count", "expert"),
        in_flight=sum(sums("mild_in_flight").values()),
    )


def n_workers(status: Mapping[str, Any]) -> int:
    """How many processes serve, by the document at ``STATUS``."""
    return len(status["workers"])


@dataclass
class OnPage:
    """Figures of the page: those of the last hour, and the newest requests."""

    requests: int
    dollars: float
    outcomes: dict[str, int]
    answered: dict[str, int]  # requests by expert
    spent: dict[str, float]  # dollars by expert
    newest: dict[str, str | None]  # the expert of each request by its id


def read_page(status: Mapping[str, Any]) -> OnPage:
    """The figures of the page, by the document at ``STATUS``."""
    traffic = status["traffic"]
    return OnPage(
        requests=traffic["requests"],
        dollars=traffic["dollars"],
        outcomes=traffic["outcomes"],
        answered={line["name"]: line["requests"] for line in status["experts"]},
        spent={line["name"]: line["dollars"] for line in status["experts"]},
        newest={line["request_id"]: line["expert"] for line in status["last"]},
    )


# Keys, budgets and operations.


def settings(
    experts: Mapping[str, Mapping[str, Any]], database: str | None = None, **tables: Any
) -> dict[str, Any]:
    """Settings by table, such as ``access={"budget_day": 5}``, for ``write_settings``."""
    given: dict[str, Any] = {"router": ROUTER, **tables}
    if database is not None:
        given["store"] = database
    given["limits"] = dict(tables.get("limits", {}))
    given["experts"] = {name: dict(expert) for name, expert in experts.items()}
    return given


def write_settings(folder: Path, given: Mapping[str, Any]) -> None:
    """``mild.toml`` of these settings."""
    path = folder / CONFIG
    path.write_text("\n".join(_toml(given)) + "\n", encoding="utf-8")
    path.chmod(0o600)


def _toml(table: Mapping[str, Any], name: str = "") -> list[str]:
    """Lines of a table and the tables in it."""
    lines = [f"[{name}]"] if name else []
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    # A value of JSON is one of TOML.
    lines += [f"{key} = {json.dumps(value)}" for key, value in table.items() if key not in inner]
    for key, value in inner.items():
        lines += _toml(value, f"{name}.{key}".lstrip("."))
    return lines


def limited_expert(
    url: str, model: str, prices: tuple[float, float], max_output: int
) -> dict[str, Any]:
    """Settings of an expert with prices of a million tokens in and out, and its longest answer."""
    return {
        "base_url": url,
        "model": model,
        "price_in": prices[0],
        "price_out": prices[1],
        "max_tokens": max_output,
    }


def first_event(seconds: float) -> dict[str, Any]:
    """Settings of an expert that may take so long until the first event of a stream."""
    return {"first_byte_seconds": seconds}


def allowed_fields(*names: str) -> dict[str, Any]:
    """Settings of an expert that takes these fields also under a budget."""
    return {"allow_fields": list(names)}


def key_from_variable(variable: str) -> dict[str, str]:
    """Settings of an expert whose key is in a variable of the environment."""
    return {"api_key_env": variable}


def serve_workers(workers: int) -> list[str]:
    return [*serve(), "--workers", str(workers)]


def add_key(name: str, *, admin: bool = False, **limits: float) -> list[str]:
    """Make a key; the limits are ``budget_day`` and ``requests_per_minute``."""
    words = ["keys", "add", name, *_limits(limits), "--json"]
    return [*words, "--admin"] if admin else words


def change_key(name: str, **limits: float | str) -> list[str]:
    """Change limits of a key; "none" takes one away."""
    return ["keys", "change", name, *_limits(limits), "--json"]


def _limits(limits: Mapping[str, float | str]) -> list[str]:
    words = []
    for limit, value in limits.items():
        words += [f"--{limit.replace('_', '-')}", str(value)]
    return words


def revoke_key(name: str) -> list[str]:
    return ["keys", "revoke", name, "--json"]


def list_keys() -> list[str]:
    return ["keys", "list", "--json"]


@dataclass
class Key:
    """What ``list_keys`` tells of a key: dollars of the day, its budget, and whether it was revoked."""

    spent: float
    budget: float | None
    revoked: bool


def read_keys(figures: Mapping[str, Any]) -> dict[str, Key]:
    return {
        key["name"]: Key(key["spent_day"], key["budget_day"], key["revoked"])
        for key in figures["keys"]
    }


#: Key of the dollars of all keys together among those of ``spent_dollars``.
ALL_KEYS = "all"


def spent_dollars(metrics: str) -> dict[str, float]:
    """Dollars that were spent today by each key, and by all of them, as the metrics say."""
    found = re.findall(
        r'^mild_spent_dollars{key="(.*)",period="day"} (\S+)$', metrics, re.MULTILINE
    )
    return {key: float(dollars) for key, dollars in found}


def has_trouble(status: Mapping[str, Any]) -> bool:
    """Whether something needs care, such as a router that was refused."""
    return bool(status["troubles"])


def damage_router(folder: Path) -> None:
    """Cut the numbers of a saved router short."""
    for file in folder.rglob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])


#: Seconds before a ``kill -9`` whose rows may be missing from the ledger.
ROWS_LOST_BY_A_KILL = 0.0


@dataclass
class Charge:
    """What a row of an export says of the money."""

    request_id: str
    key: str
    expert: str | None
    outcome: str
    dollars: float
    tokens: tuple[int | None, int | None]  # in and out


def read_charges(path: Path) -> list[Charge]:
    """The rows of an export as JSON lines."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Charge(
            request_id=row["request_id"],
            key=row["key"],
            expert=row["expert"],
            outcome=row["outcome"],
            dollars=row["price"] or 0.0,
            tokens=(row["tokens_in"], row["tokens_out"]),
        )
        for row in rows
    ]


# Collecting outcomes.

_EXPERTS = "experts.toml"


def write_collected_experts(folder: Path, experts: Mapping[str, Mapping[str, Any]]) -> None:
    """The file in which ``collect`` finds the experts."""
    lines = _toml({"experts": experts})
    (folder / _EXPERTS).write_text("\n".join(lines) + "\n", encoding="utf-8")


def collect(
    questions: str, out: str, *, max_spend: float | None = None, dry_run: bool = False
) -> list[str]:
    words = ["collect", questions, _EXPERTS, "--out", out, "--json"]
    if max_spend is not None:
        words += ["--max-spend", str(max_spend)]
    return [*words, "--dry-run"] if dry_run else words


def read_to_ask(figures: Mapping[str, Any]) -> dict[str, int]:
    """By a dry run, the questions that each expert would be asked."""
    return {name: plan["to_ask"] for name, plan in figures["experts"].items()}


@dataclass
class Collected:
    """What ``collect`` tells of an expert: answers of this run, all answers, dollars, mean score."""

    asked: int
    answered: int
    dollars: float
    score: float | None


def read_collected(figures: Mapping[str, Any]) -> dict[str, Collected]:
    return {
        name: Collected(run["asked"], run["answered"], run["spent"], run["accuracy"])
        for name, run in figures["experts"].items()
    }


def read_collected_table(path: Path) -> dict[str, dict[str, tuple[Any, Any, Any]]]:
    """By question and expert: the score, the price and the text of the answer; None where it has none."""
    table: dict[str, dict[str, tuple[Any, Any, Any]]] = {}
    for row in pq.read_table(path).to_pylist():
        names = [column.removeprefix("cost__") for column in row if column.startswith("cost__")]
        table[row[QUERY]] = {
            name: (row[f"correct__{name}"], row[f"cost__{name}"], row[f"answer__{name}"])
            for name in names
        }
    return table


# What commands say of a ledger without rows.


def read_replayed_rows(figures: Mapping[str, Any]) -> int:
    """How many requests ``replay`` has found."""
    return figures["rows"]


def read_imported(figures: Mapping[str, Any]) -> tuple[int, int]:
    """How many scores ``import_scores`` has written, and how many are of requests that it does not know."""
    return figures["written"], figures["unknown"]


# What is charged.

COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
#: Codes of fields that are refused: without a known price, and a known one in another case.
NOT_ALLOWED = "field_not_allowed"
MISSPELLED = "invalid_field"
#: How an answer ends, by path, that a limit of tokens has cut.
CUT = {CHAT: "length", COMPLETIONS: "length", RESPONSES: "max_output_tokens"}


def sent_limit(body: Mapping[str, Any]) -> int:
    """Tokens that a request to an expert allows its answer to have."""
    return body["max_tokens"]


def finish(path: str, document: Mapping[str, Any]) -> str:
    """How an answer says that it has ended."""
    if path == RESPONSES:
        return document["incomplete_details"]["reason"]
    return document["choices"][0]["finish_reason"]
