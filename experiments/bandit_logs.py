"""``python -m experiments.bandit_logs``: logs for Vowpal Wabbit and the Open Bandit Pipeline (obp).

\b
python -m experiments.bandit_logs export ledger.sqlite --out log.vw --format vw
python -m experiments.bandit_logs replay log.vw --router new --format vw

Vowpal Wabbit's ``--cb_adf``: the query, then a line per expert, then an empty line. The line of the expert
that was drawn has the label ``0:cost:propensity``; the tag of the first line is the request id.

\b
    shared 'r1|query What is 2 + 2?
    0:0.0015:0.9 |expert small
    |expert large

``%``, ``|`` and ``:`` are escaped as in URLs, and so is whitespace other than one space between words, as a
word of its own: the text can be read back as it was. Files for ``--cb`` are read as well.

obp: a CSV file with the columns of the Open Bandit Dataset (timestamp, item_id, position, click,
propensity_score), where ``click`` is the reward, minus the cost; request_id, expert and query stand beside
them.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pandas as pd
import typer
from typer import Argument, Option

from experiments.console import main
from mild.artifact import Router, load
from mild.artifact.files import replacing
from mild.data.queries import QUERY_NAMES
from mild.data.tables import naming, numbers, read_table
from mild.errors import DataFileError, OutputExistsError, check_option, count_noun, listed
from mild_gateway.learning.draws import read_draws, read_judged
from mild_gateway.learning.estimating import (
    LoggedRow,
    check_price_weight,
    collect_rows,
    replay_rows,
)
from mild_gateway.ledger import ledger_reader
from mild_gateway.ledger.reading import ledger_location, read_experts
from mild_gateway.ledger.records import CERTAIN

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

FORMATS = ("vw", "obp")
OBP_COLUMNS = ("", "timestamp", "item_id", "position", "click", "propensity_score")
OWN_COLUMNS = ("request_id", "expert", "query")
# Columns of a feedback dictionary of obp that may stand for those of the dataset.
SYNONYMS = {"item_id": "action", "click": "reward", "propensity_score": "pscore"}
# Rows that are decided at a time.
BLOCK = 10_000
ESCAPED = re.compile(r"[%|:\s]")


def is_preferred(propensity: float, n_experts: int) -> bool:
    """Whether the expert that was drawn is the one that the router would choose without exploration.

    The formats do not say it. Of m experts, another than the preferred one is drawn with explore / m, less
    than 1 / m.

    >>> is_preferred(0.8, 3), is_preferred(0.1, 3), is_preferred(1.0, 1)
    (True, False, True)
    """
    return propensity >= CERTAIN or propensity > 1 / n_experts + 1e-9


class Draw(NamedTuple):
    """A decision to write, and what it cost."""

    request_id: str
    time: float  # seconds since 1970
    query: str
    experts: Sequence[str]  # that could be drawn
    chosen: str  # the one that was
    propensity: float
    cost: float


class LoggedDraw(NamedTuple):
    """A decision that was read."""

    query: str | None
    chosen: str
    propensity: float
    cost: float
    n_experts: int  # that could be drawn


def write_draws(
    file: IO[bytes], form: str, draws: Iterable[Draw], expert_names: Sequence[str]
) -> int:
    """Write draws in the format ``form``, "vw" or "obp"; their number.

    ``expert_names`` are all experts of the log: their order numbers the items of obp.
    """
    check_option("format", form, FORMATS)
    places = {name: place for place, name in enumerate(expert_names)}
    if form == "obp":
        file.write(_csv_line([*OBP_COLUMNS, *OWN_COLUMNS]))
    count = 0
    for count, draw in enumerate(draws, start=1):
        if form == "vw":
            file.write(_vw_block(draw).encode())
        else:
            moment = datetime.fromtimestamp(draw.time, UTC).isoformat(" ", "microseconds")
            item = places[draw.chosen]
            fields = (count - 1, moment, item, 1, -draw.cost, draw.propensity)
            file.write(_csv_line([*fields, draw.request_id, draw.chosen, draw.query]))
    return count


def _csv_line(fields: Sequence[Any]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(fields)
    return line.getvalue().encode()


def _vw_block(draw: Draw) -> str:
    lines = [f"shared '{_escape(draw.request_id)}|query {to_words(draw.query)}"]
    for name in draw.experts:
        label = f"0:{draw.cost!r}:{draw.propensity!r} " if name == draw.chosen else ""
        lines.append(f"{label}|expert {_escape(name)}")
    return "\n".join(lines) + "\n\n"


def _escape(word: str) -> str:
    return ESCAPED.sub(lambda found: quote(found[0], safe=""), word)


def to_words(text: str) -> str:
    r"""A text as features of Vowpal Wabbit.

    >>> to_words("Is 1:2\nodd?")
    'Is 1%3A2 %0A odd?'
    """
    parts = re.findall(r"\S+|\s", text)
    around = zip(["\n", *parts], parts, [*parts[1:], "\n"], strict=False)
    # One space between two words is what separates features anyway.
    return " ".join(
        _escape(part)
        for before, part, after in around
        if part != " " or before.isspace() or after.isspace()
    )


def from_words(words: str) -> str:
    r"""The text that ``to_words`` was given.

    >>> from_words("Is 1%3A2 %0A odd?")
    'Is 1:2\nodd?'
    """
    text, joined = "", True
    for word in map(unquote, words.split(" ")):
        blank = word.isspace() or not word
        text += word if joined or blank else f" {word}"
        joined = blank
    return text


def read_log(
    path: Path, form: str, expert_names: Sequence[str], text_column: str | None = None
) -> Iterator[LoggedDraw]:
    """Decisions of a log in the format ``form``.

    Experts without a name in the file are numbered in the order of ``expert_names``. ``text_column`` is the
    column of the query in an obp file.
    """
    check_option("format", form, FORMATS)
    names = list(expert_names)
    return _read_vw(path, names) if form == "vw" else _read_obp(path, names, text_column)


def _read_vw(path: Path, names: list[str]) -> Iterator[LoggedDraw]:
    """Decisions of a file for ``--cb_adf``, which begins with "shared", or for ``--cb``."""
    block: list[tuple[int, str]] = []
    shared = None  # not known before the first line that is not empty
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                line = line.rstrip("\r\n")
                if line.strip():
                    shared = line.startswith("shared") if shared is None else shared
                    block.append((number, line))
                if block and not (shared and line.strip()):
                    yield _vw_decision(path, block, names)
                    block = []
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataFileError(f"cannot read {path}: {reason}.") from error
    if shared is None:
        raise DataFileError(f"{path}: the file is empty.")
    if block:
        yield _vw_decision(path, block, names)


def _vw_decision(path: Path, lines: list[tuple[int, str]], names: list[str]) -> LoggedDraw:
    """One decision: the line "shared" and those of the experts, or the only line of ``--cb``."""
    experts = lines[1:] or lines
    labelled = []
    for place, (number, line) in enumerate(experts):
        words, parts = _vw_line(line)
        labels = (word for word in words if ":" in word)
        labelled += [(place, number, label, parts.get("expert")) for label in labels]
    if len(labelled) != 1:
        raise DataFileError(
            f"{path}: a decision must have one label action:cost:probability; got {len(labelled)} in the "
            f"{count_noun(len(lines), 'line')} from line {lines[0][0]} on. Decisions of --cb_adf begin "
            f"with 'shared' and end with an empty line."
        )
    place, number, label, name = labelled[0]
    try:
        action, cost, propensity = label.split(":")
        chosen = place if experts is not lines else int(action) - 1
        values = float(cost), float(propensity)
    except ValueError:
        values = math.nan, math.nan
        chosen = 0
    if not (math.isfinite(values[0]) and 0 < values[1] <= 1):
        raise DataFileError(
            f"{path}: a label must be action:cost:probability, with a finite cost and a probability in "
            f"(0, 1]; got {label!r} in line {number}."
        )
    _, parts = _vw_line(lines[0][1])
    query = parts.get("query", " ".join(words for words in parts.values() if words))
    return LoggedDraw(
        query=from_words(query),
        chosen=unquote(name) if name else _numbered(path, chosen, names, f"line {number}"),
        propensity=values[1],
        cost=values[0],
        n_experts=len(names) if experts is lines else len(experts),
    )


def _vw_line(line: str) -> tuple[list[str], dict[str, str]]:
    """Words before the features without the tag, and the features of each namespace without weights."""
    head, *namespaces = line.split("|")
    words = head.split()
    # A tag touches the first bar or begins with a quotation mark.
    touches = bool(namespaces) and not head.endswith(" ")
    if words and words[-1] != "shared" and (touches or words[-1].startswith("'")):
        words.pop()
    parts: dict[str, str] = {}
    for namespace in namespaces:
        name, _, features = namespace.rstrip(" ").partition(" ")
        plain = " ".join(word.partition(":")[0] for word in features.split(" ") if word)
        key = name.partition(":")[0]
        parts[key] = f"{parts[key]} {plain}" if key in parts else plain
    return words, parts


def _read_obp(path: Path, names: list[str], text_column: str | None) -> Iterator[LoggedDraw]:
    with naming(path):
        table = read_table(path, (*OWN_COLUMNS, *QUERY_NAMES))
    known = [name for name in table.column_names if name]

    def column(name: str) -> Any:
        found = next((one for one in (name, SYNONYMS[name]) if one in known), None)
        if found is None:
            rule = (
                "a log of obp must have the columns expert, item_id or action; click or reward; and "
                "propensity_score or pscore"
            )
            raise DataFileError(f"{path}: {rule}; {name} is missing among {listed(known)}.")
        with naming(path):
            return numbers(found, table[found])

    query = text_column or next((name for name in QUERY_NAMES if name in known), None)
    if query not in known:
        raise DataFileError(
            f"{path}: text_column must name the column of the query; got {text_column!r}, found "
            f"{listed(known)}.",
            code="invalid_text_column",
        )
    texts = table[query].to_pylist()
    if "expert" in known:
        chosen = table["expert"].to_pylist()
        for row, name in enumerate(chosen, start=1):
            if not name:
                raise DataFileError(f"{path}: expert must be a name; got none in row {row}.")
    else:
        items = enumerate(column("item_id"), start=1)
        chosen = [_numbered(path, item, names, f"row {row}") for row, item in items]
    rewards, propensities = column("click"), column("propensity_score")
    allowed = (propensities > 0) & (propensities <= 1)
    for name, values, good, rule in (
        ("click", rewards, np.isfinite(rewards), "be a number"),
        ("propensity_score", propensities, allowed, "lie in (0, 1]"),
    ):
        if not good.all():
            row = int(np.argmin(good))
            raise DataFileError(f"{path}: {name} must {rule}; got {values[row]} in row {row + 1}.")
    experts = len(set(chosen))
    for row, text in enumerate(texts):
        shown = None if text is None else str(text)
        yield LoggedDraw(
            shown, chosen[row], float(propensities[row]), -float(rewards[row]), experts
        )


def _numbered(path: Path, number: float, names: list[str], where: str) -> str:
    if not (0 <= number < len(names) and number == int(number)):
        raise DataFileError(
            f"{path}: experts without a name must be numbered as the router's {len(names)}, "
            f"{listed(names, 6)}; got another number in {where}."
        )
    return names[int(number)]


def replay_log(draws: Iterable[LoggedDraw], router: Router, **options: Any) -> dict[str, Any]:
    """What the router would have cost on the draws of a log, as ``mild replay`` does.

    Costs may have any unit. Unless the log has two propensities, as that of a router that explores has, the
    serving policy is what was logged. ``options`` are explore, confidence and seed.
    """
    left_out: Counter[str] = Counter()

    def logged() -> Iterator[LoggedRow]:
        episode = 0
        for draw in draws:
            if draw.query is None:
                left_out["without a query"] += 1
            elif draw.propensity >= CERTAIN:
                left_out["drawn without exploration"] += 1
            else:
                first = is_preferred(draw.propensity, draw.n_experts)
                fields = draw.query, draw.chosen, draw.propensity, episode, True, draw.cost
                yield LoggedRow(*fields, failed=False, error=math.nan, preferred=first)
                episode += 1

    every = logged()
    blocks = iter(lambda: list(islice(every, BLOCK)), [])
    rows = collect_rows(blocks, router, options.get("seed", 0))
    parts = rows.propensity[rows.preferred], rows.propensity[~rows.preferred]
    explores = all(part.size == 0 or np.ptp(part) <= 1e-6 for part in parts)
    serving = rows.serving_weights(options.get("explore", 0.0)) if explores else None
    quantities = {"cost": rows.dollars}
    return replay_rows(
        rows, quantities, router, cost="cost", serving=serving, left_out=left_out, **options
    )


def ledger_draws(
    ledger: str,
    left_out: Counter[str],
    errors: Mapping[str, float] | None = None,
    price_weight: float | None = None,
) -> Iterator[Draw]:
    """The decisions of a ledger that ``mild replay`` uses.

    A draw costs its dollars, or with ``errors`` (request -> error in [0, 1]) ``error + price_weight *
    dollars``. ``left_out`` counts the other rows by reason.
    """
    weight = 1.0 if errors is None else check_price_weight(price_weight)
    place = ledger_location(ledger)
    names = read_experts(place)
    extra = ("request_id", "time", "router")
    for block in read_draws(ledger_reader(place), left_out, None, errors, extra=extra):
        for row in block:
            request_id, time, router = row.extra
            experts = names.get(router, ())
            if not row.decides:
                left_out["later requests of a pinned session"] += 1
            elif row.chosen not in experts:
                left_out["decided by a router whose experts are not in the ledger"] += 1
            elif errors is not None and math.isnan(row.error):
                left_out["not judged"] += 1
            else:
                cost = weight * row.dollars + (0.0 if errors is None else row.error)
                yield Draw(request_id, time, row.text, experts, row.chosen, row.propensity, cost)


Form = Annotated[str, Option("--format", help="vw or obp.")]


@app.command()
def export(
    ledger: Annotated[str, Argument(help="SQLite file, URL, or the mild.toml that names it.")],
    out: Annotated[Path, Option("--out", "-o", help="File to write.")],
    form: Form,
    feedback: Annotated[
        Path | None, Option(help="Table of request_id and error, score or correct, in [0, 1].")
    ] = None,
    price_weight: Annotated[
        float | None, Option(help="Cost of one dollar, in errors, with --feedback.")
    ] = None,
) -> None:
    """Write the decisions of a ledger that mild replay uses; the cost is the price in dollars.

    With --feedback it is error + W * dollars of the judged requests. Failures, latencies, tokens, keys and
    later requests of pinned sessions are not in the file.
    """
    if out.exists():
        raise OutputExistsError(f"{out} is there already; choose another --out.")
    left_out: Counter[str] = Counter()
    names = read_experts(ledger_location(ledger)).values()
    every = list(dict.fromkeys(name for experts in names for name in experts))
    errors = None
    if feedback is not None:
        errors = {name: 1 - score for name, _, score in read_judged(feedback, "request_id")}
    with replacing(out) as file:
        count = write_draws(file, form, ledger_draws(ledger, left_out, errors, price_weight), every)
    typer.echo(f"{count:,} rows to {out}.", err=True)
    _print_left_out(left_out)


@app.command()
def replay(
    log: Annotated[Path, Argument(help="File of Vowpal Wabbit or obp.")],
    router: Annotated[Path, Option("--router", "-r", help="Folder of the new router.")],
    form: Form,
    text_column: Annotated[str | None, Option(help="Column of the query, for obp.")] = None,
    explore: Annotated[float, Option(min=0, max=1, help="Exploration rate of both routers.")] = 0.0,
    confidence: Annotated[float, Option(help="Of the intervals.")] = 0.95,
    seed: Annotated[int, Option(help="Of the cost model.")] = 0,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Estimate what another router would have cost on the traffic of a log."""
    loaded = load(router)
    draws = read_log(log, form, loaded.experts, text_column)
    found = replay_log(draws, loaded, explore=explore, confidence=confidence, seed=seed)
    if as_json:
        found["verdict"] = found["verdict"].as_dict()
        typer.echo(json.dumps(found, ensure_ascii=False, allow_nan=False))
        return
    for entries in found["estimates"].values():
        typer.echo(pd.DataFrame(entries).T[["mean", "low", "high"]].to_string())
    _print_left_out(found["left_out"])
    typer.echo(found["verdict"].sentence)


def _print_left_out(counts: Mapping[str, int]) -> None:
    for reason, count in counts.items():
        typer.echo(f"{count_noun(count, 'row')} left out: {reason}.", err=True)


if __name__ == "__main__":
    main(app)
