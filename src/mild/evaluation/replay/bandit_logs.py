"""Logs of decisions as Vowpal Wabbit and the Open Bandit Pipeline (obp) have them, written and read.

Vowpal Wabbit's ``--cb_adf``: the query, then a line per expert, then an empty line. The line of the expert
that was drawn has the label ``0:cost:propensity``; the tag of the first line is the request id.

    shared 'r1|query What is 2 + 2?
    0:0.0015:0.9 |expert small
    |expert large

``%``, ``|`` and ``:`` are escaped as in URLs, and so is whitespace other than one space between words, as a
word of its own: the text can be read back as it was.

obp: a CSV file with the columns of the Open Bandit Dataset (timestamp, item_id, position, click,
propensity_score), where ``click`` is the reward, minus the cost; request_id, expert and query stand beside
them.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np

from mild.core.arrays import invalid
from mild.data.queries import QUERY_NAMES
from mild.data.tables import is_numeric, naming, numbers, read_table, short
from mild.errors import DataFileError, check_option, counted, listed
from mild.evaluation.replay.log import ROUTED_NAME, LogReader

#: Formats by name.
FORMATS = ("vw", "obp")
#: What is left out of such a file, in a sentence.
LOSSES = (
    "failures, latencies, tokens, keys and later requests of pinned sessions are not in the file"
)
OBP_COLUMNS = ("", "timestamp", "item_id", "position", "click", "propensity_score")
OWN_COLUMNS = ("request_id", "expert", "query")
# Columns of a feedback dictionary of obp that may stand for those of the dataset.
SYNONYMS = {"item_id": "action", "click": "reward", "propensity_score": "pscore"}
# Seconds since 1970 that are too many: milliseconds, perhaps.
LATEST = 1e11
# Rows that are handed on at a time.
BLOCK = 10_000
ESCAPED = re.compile(r"[%|:\s]")


class Draw(NamedTuple):
    """A decision, and what it cost."""

    request_id: str
    time: float  # seconds since 1970
    query: str
    experts: Sequence[str]  # that could be drawn
    chosen: str  # the one that was
    propensity: float
    cost: float


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


def log_reader(
    path: str | Path,
    form: str,
    expert_names: Sequence[str],
    text_column: str | None = None,
    needs_query: bool = False,
) -> LogReader:
    """Read a log in the format ``form`` as ``replay`` reads a ledger.

    Experts without a name in the file are numbered in the order of ``expert_names``. ``text_column`` is the
    column of the query in an obp file; with ``needs_query``, a file without one is refused.
    """
    check_option("format", form, FORMATS)
    place, names = Path(path), list(expert_names)

    def read(
        columns: Sequence[str], since: float | None, until: float | None
    ) -> Iterator[list[tuple[Any, ...]]]:
        options = (text_column, needs_query)
        rows = _read_vw(place, names) if form == "vw" else _read_obp(place, names, *options)
        block = []
        for time, row in rows:
            for name, bound in (("since", since), ("until", until)):
                if bound is not None and math.isnan(time):
                    raise invalid(name, f"must not be given: a row of {place} has no time.")
            if (since is not None and time < since) or (until is not None and time >= until):
                continue
            row |= {"asked": ROUTED_NAME, "outcome": "ok"}
            block.append(tuple(row.get(name) for name in columns))
            if len(block) == BLOCK:
                yield block
                block = []
        if block:
            yield block

    return read


def _read_vw(path: Path, names: list[str]) -> Iterator[tuple[float, dict[str, Any]]]:
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
                    yield math.nan, _vw_decision(path, block, names)
                    block = []
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataFileError(f"cannot read {path}: {reason}.") from error
    if shared is None:
        raise DataFileError(f"{path}: the file is empty.")
    if block:
        yield math.nan, _vw_decision(path, block, names)


def _vw_decision(path: Path, lines: list[tuple[int, str]], names: list[str]) -> dict[str, Any]:
    """One decision: the line "shared" and those of the experts, or the only line of ``--cb``."""
    first = lines[0][0]
    experts = lines[1:] or lines
    labelled = []
    for place, (number, line) in enumerate(experts):
        words, _, parts = _vw_line(line)
        labels = (word for word in words if ":" in word)
        labelled += [(place, number, label, parts.get("expert")) for label in labels]
    if len(labelled) != 1:
        raise DataFileError(
            f"{path}: a decision must have one label action:cost:probability; got {len(labelled)} in the "
            f"{counted(len(lines), 'line')} from line {first} on. Decisions of --cb_adf begin with "
            f"'shared' and end with an empty line."
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
    _, tag, parts = _vw_line(lines[0][1])
    query = parts.get("query", " ".join(words for words in parts.values() if words))
    return {
        "request_id": tag or f"line {first}",
        "chosen": unquote(name) if name else _numbered(path, chosen, names, f"line {number}"),
        "propensity": values[1],
        "price": values[0],
        "text": from_words(query),
        "probabilities": len(names) if experts is lines else len(experts),
    }


def _vw_line(line: str) -> tuple[list[str], str, dict[str, str]]:
    """Words before the features, the tag, and the features of each namespace without their weights."""
    head, *namespaces = line.split("|")
    words, tag = head.split(), ""
    # A tag touches the first bar or begins with a quotation mark.
    touches = bool(namespaces) and not head.endswith(" ")
    if words and words[-1] != "shared" and (touches or words[-1].startswith("'")):
        tag = unquote(words.pop().removeprefix("'"))
    parts: dict[str, str] = {}
    for namespace in namespaces:
        name, _, features = namespace.rstrip(" ").partition(" ")
        plain = " ".join(word.partition(":")[0] for word in features.split(" ") if word)
        key = name.partition(":")[0]
        parts[key] = f"{parts[key]} {plain}" if key in parts else plain
    return words, tag, parts


def _read_obp(
    path: Path, names: list[str], text_column: str | None, needs_query: bool
) -> Iterator[tuple[float, dict[str, Any]]]:
    with naming(path):
        table = read_table(path, (*OWN_COLUMNS, *QUERY_NAMES), any_name=True)
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

    if text_column is not None and text_column not in known:
        raise DataFileError(
            f"{path} must have the column {text_column!r}; got {listed(known)}.",
            parameter="text_column",
        )
    usual = next((name for name in QUERY_NAMES if name in known), None)
    query = text_column or usual
    if needs_query and query is None:
        raise DataFileError(
            parameter="text_column",
            rule=f"must name the column of the query, because there is none of {listed(QUERY_NAMES)}; "
            f"found {listed(known)}.",
            place=f"{path}: ",
        )
    count = table.num_rows
    texts = [None] * count if query is None else table[query].to_pylist()
    ids = table["request_id"].to_pylist() if "request_id" in known else range(count)
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
    times = _times(path, table, count)
    experts = len(set(chosen))
    for row in range(count):
        yield (
            times[row],
            {
                "request_id": str(ids[row]),
                "chosen": chosen[row],
                "propensity": float(propensities[row]),
                "price": -float(rewards[row]),
                "text": None if texts[row] is None else str(texts[row]),
                "probabilities": experts,
            },
        )


def _times(path: Path, table: Any, count: int) -> Sequence[float]:
    """Seconds since 1970; NaN where no time is known."""
    import pyarrow as pa

    if "timestamp" not in table.column_names:
        return [math.nan] * count
    column, moment = table["timestamp"], pa.timestamp("us", "UTC")
    rule = f"{path}: timestamp must be a time such as 2026-01-31 12:00:00Z, or seconds since 1970"
    if is_numeric(column.type):
        seconds = numbers("timestamp", column)
        late = np.flatnonzero(seconds > LATEST)
        if late.size:
            raise DataFileError(f"{rule}; got {seconds[late[0]]:.0f} in row {late[0] + 1}.")
        return list(map(float, seconds))
    try:
        times = column.cast(moment).cast(pa.int64()).to_pylist()
    except pa.ArrowException as error:
        row = next(row for row, value in enumerate(column) if not _can_be(value, moment))
        got = f"{short(column[row].as_py())} in row {row + 1}"
        raise DataFileError(f"{rule}; got {got}.") from error
    return [math.nan if time is None else time / 1e6 for time in times]


def _can_be(value: Any, kind: Any) -> bool:
    """Whether an Arrow value can be cast."""
    import pyarrow as pa

    try:
        value.cast(kind)
    except pa.ArrowException:
        return False
    return True


def _numbered(path: Path, number: float, names: list[str], where: str) -> str:
    if not (0 <= number < len(names) and number == int(number)):
        raise DataFileError(
            f"{path}: experts without a name must be numbered as the router's {len(names)}, "
            f"{listed(names, 6)}; got another number in {where}."
        )
    return names[int(number)]
