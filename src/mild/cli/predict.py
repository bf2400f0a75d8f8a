"""``mild predict``"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import FIRST_STEP_NOTE, emit, fixed, note, print_table, say


def predict(
    data: Annotated[
        Path, Argument(help="Table of features: .npz (array X), .parquet, .csv.", metavar="DATA")
    ],
    router: o.RouterFolder,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help=".csv, .parquet or .jsonl file. Default: CSV on stdout."),
    ] = None,
    features: o.Features = None,
    where: o.WhereOption = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Choose an expert for every row of DATA.

    This is for routers that were fitted on columns of numbers; for routers that read queries use mild
    route. The result has the index and the name of the chosen expert and, for every expert,
    p__<expert>: the router's estimate of its share of the expected reward. For a cascade, first_step lists
    the experts that are asked first, and expert is one of them.

    \b
    Example:
      mild predict new.csv --router router > choices.csv
      mild predict new.parquet --router router --out choices.parquet
    """
    from mild.artifact import load
    from mild.data import check_output, read_matrices, write_columns, write_csv
    from mild.errors import UnsupportedError, counted

    if out is not None:
        check_output(out, overwrite)
    saved = load(router)
    names = saved.expert_names
    if saved.text is not None:
        raise UnsupportedError(
            f"this router reads queries ({saved.text.kind} features); use mild route, which takes them as "
            f"lines."
        )
    table = read_matrices(
        data,
        saved.feature_names if features is None else features,
        need_costs=False,
        where=where,
    )
    chosen, probabilities = saved.predict(table.X), saved.predict_proba(table.X)
    first = saved.first_steps(table.X)
    columns: dict[str, Any] = {"expert": chosen, "name": [names[k] for k in chosen]}
    if first is not None:
        columns["first_step"] = first
        note(FIRST_STEP_NOTE)
    columns |= {f"p__{name}": probabilities[:, k] for k, name in enumerate(names)}
    if out is None and not as_json:
        sys.stdout.flush()
        write_csv(columns, sys.stdout.buffer)
        return
    shares = [float((chosen == k).mean()) for k in range(saved.n_experts)]
    result: dict[str, Any] = {"rows": table.rows, "shares": dict(zip(names, shares, strict=True))}
    if out is None:
        result |= columns
    else:
        result["out"] = str(write_columns(columns, out, overwrite))

    def show() -> None:
        shown = {"expert": names, "share": [fixed(share, 3) for share in shares]}
        print_table(counted(table.rows, "row"), shown)
        say(f"Written to {out}.")

    emit(result, as_json, show)
