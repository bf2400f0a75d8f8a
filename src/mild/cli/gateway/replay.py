"""``mild replay``"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, fixed, print_facts, print_table, say
from mild.cli.gateway.ledger import Feedback, IdColumn, Since, Until, note_left_out
from mild.errors import DataFileError, check_option

METHODS = {
    "logged": "as logged, with exploration",
    "serving": "serving router, without exploration",
    "doubly_robust": "new router, doubly robust",
    "self_normalised": "new router, self-normalised",
    "inverse_propensity": "new router, inverse propensity",
    "difference": "difference to the log, doubly robust",
    "difference_to_serving": "difference to the serving router, doubly robust",
}


# First bytes of an SQLite file.
SQLITE = b"SQLite format 3\0"
# Endings of files that are logs of another system.
ENDINGS = {".vw": "vw", ".csv": "obp"}


def replay(
    ledger: Annotated[
        str,
        Argument(
            help="SQLite file, postgresql:// URL, or the mild.toml that names it; or a log of Vowpal "
            "Wabbit (.vw) or obp (.csv).",
            metavar="LEDGER",
        ),
    ],
    router: o.RouterFolder,
    form: Annotated[
        str | None,
        Option("--format", help="ledger, vw or obp. Default: by the ending of the file's name."),
    ] = None,
    queries: Annotated[
        Path | None,
        Option(metavar="FILE", help="Table of request_id and query, if the ledger has no texts."),
    ] = None,
    text_column: Annotated[
        str | None,
        Option(metavar="COLUMN", help="Column of the query in --queries, or in a log of obp."),
    ] = None,
    feedback: Feedback = None,
    id_column: IdColumn = "request_id",
    price_weight: Annotated[
        float | None,
        Option(
            metavar="W",
            help="Cost of one dollar, in errors, for the decisions of a priced router and, with "
            "--feedback, for the estimates. Default: the router's, or the trade-off of its target.",
        ),
    ] = None,
    explore: Annotated[
        float, Option(metavar="SHARE", help="Exploration rate of both routers.")
    ] = 0.0,
    since: Since = None,
    until: Until = None,
    confidence: o.Confidence = 0.95,
    seed: o.Seed = 0,
    as_json: o.AsJson = False,
) -> None:
    """Estimate what another router would have cost on the traffic in a ledger.

    The ledger must have been written with exploration (explore = 0.05 under [routing]): rows on which
    the new router agrees are weighted by the probability of their expert. The cost of a request is its
    price in dollars; with --feedback, error + W * dollars over the judged requests. Requests of a
    pinned session count as one draw. The new router is compared with the serving one, both without
    exploration (or both with --explore). The router needs the texts: keep_text = true under [ledger], or
    --queries. Of a log of Vowpal Wabbit (--cb_adf or --cb) or obp, the cost is that of the log, or minus
    its reward.

    \b
    Example:
      mild replay ledger.sqlite --router new --feedback ratings.csv --price-weight 50
      mild replay log.vw --router new
    """
    from mild.artifact import load
    from mild.cli.gateway.times import moment
    from mild.evaluation.replay import log_reader, read_errors, read_texts
    from mild.evaluation.replay import replay as estimate
    from mild.evaluation.replay.bandit_logs import FORMATS
    from mild.gateway.ledger import ledger_reader
    from mild.gateway.ledger.reading import ledger_location

    found_form = ENDINGS.get(Path(ledger).suffix.lower(), "ledger") if form is None else form
    check_option("format", found_form, ("ledger", *FORMATS))
    loaded = load(router)
    target, cost = loaded.info.target, loaded.info.cost
    # At a trade-off that meets a target, that is what a dollar is worth to the router.
    usual = None if cost is None else cost.price_weight
    if target is not None and target.t is not None:
        usual = target.t
    if loaded.has_prices:
        loaded = loaded.with_prices(price_weight=price_weight, in_dollars=True)
    now = time.time()
    is_ledger = found_form == "ledger"
    if is_ledger:
        location = ledger_location(ledger)
        if form is None:
            _check_sqlite(location)
        reader = ledger_reader(location)
    else:
        names = loaded.expert_names
        column = None if queries else text_column
        reader = log_reader(ledger, found_form, names, column, needs_query=queries is None)
    found = estimate(
        reader,
        loaded,
        texts=None if queries is None else read_texts(queries, text_column, id_column),
        errors=None if feedback is None else read_errors(feedback, id_column),
        price_weight=usual if price_weight is None else price_weight,
        explore=explore,
        since=moment("since", since, now),
        until=moment("until", until, now),
        confidence=confidence,
        seed=seed,
        is_ledger=is_ledger,
    )
    found["target"] = loaded.info.target and loaded.info.target.sentence
    emit(found, as_json, lambda: _print(found))


def _check_sqlite(location: Any) -> None:
    """Refuse a file that is no database: it may be a log whose name does not show it."""
    file = Path(location) if isinstance(location, str | Path) else None
    if file is None or not file.is_file():
        return
    with file.open("rb") as content:
        start = content.read(len(SQLITE))
    if start and start != SQLITE:
        raise DataFileError(
            f"{file} is not an SQLite file; name another one. A log for replay ends in .vw or .csv; "
            f"name the format of others: --format vw or, for a table such as .csv.gz, --format obp."
        )


def _print(found: Mapping[str, Any]) -> None:
    for name, entries in found["estimates"].items():
        unit = f" ({found['cost']})" if name == "cost" != found["cost"] else ""
        title = f"{name} per request{unit}"
        small = name == "dollars" or (name == "cost" and found["cost"] in ("dollars", "cost"))
        digits = 6 if small else 4
        rows = [
            {key: fixed(entries[method][key], digits) for key in ("mean", "low", "high")}
            for method in METHODS
        ]
        columns = {
            "estimate": list(METHODS.values()),
            "mean": [row["mean"] for row in rows],
            f"{found['confidence'] * 100:g} % interval": [
                f"{row['low']} to {row['high']}" for row in rows
            ],
        }
        print_table(title, columns)
    if found["draws"]:
        shares, overlap = found["shares"], found["overlap"]
        columns = {
            "expert": list(shares),
            "as logged": [f"{entry['logged']:.1%}" for entry in shares.values()],
            "new router": [f"{entry['new']:.1%}" for entry in shares.values()],
        }
        print_table("shares of the requests", columns)
        weight = f"{overlap['mean_weight']:.3f} ± {overlap['weight_error']:.3f}"
        facts = {
            "requests used": f"{found['rows']:,}",
            "draws": f"{overlap['draws']:,}",
            "draws possible under the new router": f"{overlap['agreement']:.1%}",
            "effective number of draws": f"{overlap['effective']:,.0f}",
            "largest weight, share of the sum": f"{overlap['largest_share']:.2%}",
            "mean weight (1 is expected)": weight,
        }
        print_facts("overlap with the log", "quantity", facts)
    note_left_out(found["left_out"])
    if found["target"] is not None:
        say(f"The new router as it was tuned. {found['target']}")
    say(found["verdict"]["sentence"])
