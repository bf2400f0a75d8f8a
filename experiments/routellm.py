"""RouteLLM's table with mild's default router: Mixtral-8x7B against GPT-4, by RouteLLM's own metrics.

``python -m experiments.routellm --data FOLDER`` reads routing/routellm_{mmlu,gsm8k}_test.parquet and
published/{mmlu,gsm8k}_contaminated_prompts.jsonl there, leaves out the contaminated prompts, draws rows to
label at random, trains what ``mild tune`` returns by default on them, and judges all other rows.

Metrics are RouteLLM's: thresholds at ten quantiles of the score for the strong model, accuracy against the
share of strong calls; APGR is the area (trapezoid) between weak and strong accuracy, CPT(x) the percent of
strong calls that recovers x of the gap, interpolated.

Result: APGR 0.636, CPT(50 %) 31.2, CPT(80 %) 65.4 on MMLU with 1,500 labels (ten draws), 0.657, 28.4 and
61.7 with 5,000; RouteLLM, as reported with augmented training data, at best 0.603, 35.4, 70.3.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from experiments.console import main, progress_bar
from experiments.published import Floats, read_parquet, tuned, write_results
from experiments.records import commit
from mild.errors import DataFileError, check_option

app = typer.Typer(add_completion=False)

WEAK, STRONG = "correct__mixtral-8x7b-instruct-v0.1", "correct__gpt-4-1106-preview"
ARTEFACT = "high_school_mathematics"
METRICS = ("APGR", "CPT50", "CPT80")
#: Rows to label, and of which benchmark.
SETTINGS = {"mmlu_1500": (1_500, "mmlu"), "mmlu_5000": (5_000, "mmlu"), "gsm8k_650": (650, "gsm8k")}
#: APGR, CPT(50 %), CPT(80 %) with augmented training data, as reported in RouteLLM (ICLR 2025).
REPORTED = {
    "mmlu": {
        "random": (0.500, 50.07, 79.93),
        "BERT": (0.572, 41.30, 72.20),
        "causal LLM": (0.600, 35.49, 70.31),
        "matrix factorisation": (0.597, 35.46, 71.40),
        "similarity-weighted": (0.603, 35.40, 71.55),
    },
    "gsm8k": {
        "random": (0.497, 50.00, 80.08),
        "BERT": (0.531, 44.76, 79.09),
        "causal LLM": (0.622, 33.64, 63.26),
        "matrix factorisation": (0.565, 38.82, 72.62),
        "similarity-weighted": (0.568, 41.21, 72.20),
    },
}


def gap_metrics(score: Floats, weak: Floats, strong: Floats, thresholds: int = 10) -> list[float]:
    """APGR, CPT(50 %) and CPT(80 %) of scores (n,) for the strong model, as RouteLLM computes them.

    >>> weak, strong = np.array([0.0, 0, 1, 1] * 5), np.ones(20)
    >>> best = gap_metrics(1 - weak + np.arange(20) / 100, weak, strong)
    >>> best[0] > 0.7, best[1:] == [25.0, 40.0]
    (True, True)
    """
    # Thresholds of tied scores coincide.
    cuts = pd.qcut(pd.Series(score), thresholds, retbins=True, duplicates="drop")[1]
    points = []
    for number, cut in enumerate(cuts):
        called = score >= cut if number < len(cuts) - 1 else score > cut
        points.append((100 * called.mean(), 100 * np.where(called, strong, weak).mean()))
    share, accuracy = np.array(sorted(points)).T
    low, high = 100 * weak.mean(), 100 * strong.mean()
    x = share / 100
    area = float(np.trapezoid(accuracy - low, x) / np.trapezoid(np.full(len(x), high - low), x))
    calls = [float(np.interp(low + part * (high - low), accuracy, share)) for part in (0.5, 0.8)]
    return [area, *calls]


def read_rows(data: Path, name: str) -> pd.DataFrame:
    """Rows of a benchmark, without the prompts that RouteLLM calls contaminated."""
    frame = read_parquet(data / f"routing/routellm_{name}_test.parquet", ("prompt", WEAK, STRONG))
    listed = data / f"published/{name}_contaminated_prompts.jsonl"
    if not listed.is_file():
        raise DataFileError(f"{listed} must exist; name its folder with --data.")
    prompts = {json.loads(line)["eval_prompt"] for line in listed.read_text().splitlines() if line}
    return frame[~frame["prompt"].isin(prompts)].reset_index(drop=True)


def judge(expected: Any, rows: pd.DataFrame) -> list[float]:
    """Metrics of a router on rows; it ranks them by what the strong model is expected to save."""
    costs = expected(rows["prompt"].tolist())
    return gap_metrics(costs[:, 0] - costs[:, 1], *rows[[WEAK, STRONG]].to_numpy(float).T)


def run_draw(
    rows: pd.DataFrame,
    count: int,
    seed: int,
    families: Any,
    clusters: bool,
    other: pd.DataFrame | None,
) -> dict[str, list[float]]:
    """Train on rows drawn at random and judge the rest, and another benchmark that was not trained on."""
    order = np.random.default_rng(seed).permutation(len(rows))
    train, rest = rows.iloc[np.sort(order[:count])], rows.iloc[np.sort(order[count:])]
    costs = 1 - train[[WEAK, STRONG]].to_numpy(float)
    expected = tuned(train["prompt"].tolist(), costs, families, clusters=clusters)
    found = {"all": judge(expected, rest)}
    if "subject" in rows and ARTEFACT in set(train["subject"]):
        found[f"without {ARTEFACT}"] = judge(expected, rest[rest["subject"] != ARTEFACT])
    if other is not None:
        found["gsm8k, not trained on"] = judge(expected, other)
    return found


def summary(draws: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Mean and standard deviation over draws of every metric."""
    result = {}
    for key in draws[0]:
        values = np.array([draw[key] for draw in draws])
        spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(len(METRICS))
        figures = zip(METRICS, values.mean(axis=0).tolist(), spread.tolist(), strict=True)
        result[key] = {name: [mean, deviation] for name, mean, deviation in figures}
    return result


def table(results: dict[str, Any]) -> pd.DataFrame:
    """One line per setting, mean ± standard deviation over draws, and the published ones."""
    lines = {}
    for setting, found in results["settings"].items():
        for key, figures in found["summary"].items():
            lines[f"{setting}, {key}"] = {
                name: f"{mean:.3f} ± {spread:.3f}" for name, (mean, spread) in figures.items()
            }
    for benchmark, rows in results["as reported"].items():
        for name, figures in rows.items():
            shown = dict(zip(METRICS, map(str, figures), strict=True))
            lines[f"{name}, {benchmark}, as reported"] = shown
    return pd.DataFrame(lines).T


@app.command(help=__doc__)
def experiment(
    data: Annotated[Path, typer.Option(help="Folder with routing/ and published/.")],
    setting: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(SETTINGS)}; repeatable. Default: all.")
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Draws of the labelled rows.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the first draw.")] = 100,
    families: Annotated[str, typer.Option(help="As of mild tune; auto is its default.")] = "auto",
    clusters: Annotated[
        bool, typer.Option(help="Whether the blend has mean costs of clusters as well.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Results file; settings in it are kept.")] = Path(
        "results/published/routellm.json"
    ),
) -> None:
    """Run and write the results after every draw."""
    known = {name: read_rows(data, name) for name in ("mmlu", "gsm8k")}
    results = json.loads(out.read_text()) if out.is_file() else {"settings": {}}
    results["as reported"] = REPORTED
    results["rows"] = {name: len(rows) for name, rows in known.items()}
    for name in setting or SETTINGS:
        check_option("setting", name, SETTINGS)
        count, benchmark = SETTINGS[name]
        searched = families if families in ("auto", "all") else families.split(",")
        other = known["gsm8k"] if benchmark == "mmlu" else None
        kept_as = f"{name}, with clusters" if clusters else name
        found: list[dict[str, list[float]]] = []
        with progress_bar(name) as report:
            for number in range(draws):
                rows = known[benchmark]
                found.append(run_draw(rows, count, seed + number, searched, clusters, other))
                report(number + 1, draws, f"APGR {found[-1]['all'][0]:.3f}")
                results["settings"][kept_as] = {
                    "labelled": count,
                    "families": searched,
                    "commit": commit(),
                    "seeds": [seed + each for each in range(len(found))],
                    "summary": summary(found),
                    "draws": found,
                }
                write_results(out, results)
    typer.echo(table(results).to_string())


if __name__ == "__main__":
    main(app)
