"""``mild predict``"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mild.cli import options as o
from mild.cli.console import emit, number, print_table

__all__ = ["predict"]


def predict(
    data: o.Numbers,
    router: o.RouterFolder,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help=".csv, .parquet or .jsonl file. Default: CSV on stdout."),
    ] = None,
    features: o.Features = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Choose an expert for every row of DATA.

    For routers that were fitted on columns of numbers; mild route asks one that reads queries.
    Gives the index and the name of the chosen expert and, for every expert, p__<expert>: the
    router's estimate of its share of the expected reward.

    \b
    Example:
      mild predict new.csv --router router > choices.csv
      mild predict new.parquet --router router --out choices.parquet
    """
    from mild.artifact import load
    from mild.data import check_output, read_matrices, write_columns, write_csv
    from mild.errors import UnsupportedError
    from mild.metrics import expert_shares

    if out is not None:
        check_output(out, overwrite)
    saved = load(router)
    if saved.text is not None:
        raise UnsupportedError(
            f"this router reads queries ({saved.text.kind} features); use mild route, which takes them as "
            f"lines."
        )
    wanted = saved.feature_names if features is None else features
    table = read_matrices(data, wanted, need_costs=False)
    chosen = saved.predict(table.X)
    shares = saved.predict_proba(table.X)
    columns = {
        "expert": chosen,
        "name": [saved.expert_names[k] for k in chosen],
        **{f"p__{name}": shares[:, k] for k, name in enumerate(saved.expert_names)},
    }
    if out is None and not as_json:
        sys.stdout.flush()
        write_csv(columns, sys.stdout.buffer)
        return
    routed = dict(
        zip(saved.expert_names, expert_shares(chosen, saved.n_experts).tolist(), strict=True)
    )
    result = {"rows": table.rows, "shares": routed}
    if out is None:
        result |= columns
    else:
        result["out"] = str(write_columns(columns, out, overwrite))

    def show() -> None:
        print_table(
            "1 row" if table.rows == 1 else f"{table.rows:,} rows",
            ["expert", "share"],
            [[name, number(share, 3)] for name, share in routed.items()],
        )
        typer.echo(f"Written to {out}.")

    emit(result, as_json, show)
