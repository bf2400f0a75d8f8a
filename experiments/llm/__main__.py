"""``python -m experiments.llm``: the paper's experiments with language models.

\b
python -m experiments.llm llm outcomes.parquet                        errors, and errors plus costs
python -m experiments.llm ablation outcomes.parquet --features encoder --model FOLDER
python -m experiments.llm noise outcomes.parquet --noise relative
python -m experiments.llm extreme outcomes.parquet --skew 0.95
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from typer import Argument, Option

from experiments.console import main, progress_bar
from experiments.images.methods import Method
from experiments.llm.run import (
    ALPHAS,
    EXPERIMENTS,
    FEATURES,
    Noise,
    Request,
    ordered_trio,
    parse_beta,
    read_vectors,
    run,
)
from experiments.paper import BETA
from experiments.show import print_tables
from mild.artifact.expert_names import match_experts
from mild.cli.options import takes_options
from mild.data import read_outcomes
from mild.errors import OptionError, check_option

app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class TransformerOptions:
    """Parameters of a transformer router."""

    panel: ClassVar[str] = "With --features transformer"

    epochs: Annotated[int | None, Option(help="Default: 5.")] = None
    lr: Annotated[float | None, Option(help="Default: 5e-5.")] = None
    batch_size: Annotated[int | None, Option(help="Default: 16.")] = None
    max_length: Annotated[int | None, Option(help="Default: 256.")] = None
    weight_decay: Annotated[float | None, Option()] = None
    dropout: Annotated[float | None, Option()] = None
    precision: Annotated[str | None, Option(help="float32 or bfloat16.")] = None
    device: Annotated[str | None, Option(help="auto, cpu or cuda.")] = None


@app.command(help=__doc__)
@takes_options()
def experiment(
    *,
    name: Annotated[str, Argument(help=f"One of {', '.join(EXPERIMENTS)}.")],
    table: Annotated[Path, Argument(help="Outcomes: .parquet, .csv or .jsonl.")],
    experts: Annotated[
        str | None, Option(help="Three from strong to tiny: 7B,1.5B,0.5B. Default: by their sizes.")
    ] = None,
    beta: Annotated[
        str | None, Option(help="Asking costs: 1,0.6,0.1, or EXPERT=COST pairs.")
    ] = None,
    cost: Annotated[list[str] | None, Option(help="error or cost; repeatable.")] = None,
    features: Annotated[str, Option(help=f"One of {', '.join(FEATURES)}.")] = "hashing",
    model: Annotated[str | None, Option(help="Folder or name of embeddings or encoder.")] = None,
    vectors: Annotated[str | None, Option(help="Column of vectors, or a .npy file.")] = None,
    method: Annotated[list[str] | None, Option(help="As for images; repeatable.")] = None,
    seeds: Annotated[int, Option(help="Number of splits.")] = 5,
    test_share: Annotated[float, Option(help="Share of the rows to test on.")] = 1 / 3,
    noise: Annotated[str, Option(help="additive or relative.")] = "additive",
    noise_std: Annotated[float, Option(help="Standard deviation of the noise.")] = 0.2,
    skew: Annotated[float, Option(help="Share of the first expert, for extreme.")] = 0.95,
    alpha: Annotated[float | None, Option(help="One strength for all methods.")] = None,
    jobs: Annotated[int | None, Option(help="Parallel workers; -1 for all cores.")] = None,
    validation: Annotated[
        bool, Option("--validation", help="Judge on a held-out fifth of the training rows.")
    ] = False,
    label: Annotated[str | None, Option(help="What results call the table.")] = None,
    results: Annotated[Path, Option(help="Results file.")] = Path("results/llm.jsonl"),
    transformer: TransformerOptions,
) -> None:
    """Run an experiment and print its tables."""
    trained = {key: value for key, value in vars(transformer).items() if value is not None}
    if trained and features != "transformer":
        raise OptionError(
            f"--{next(iter(trained)).replace('_', '-')} is for --features transformer."
        )
    check_option("experiment", name, EXPERIMENTS)
    file = Path(vectors) if vectors and vectors.endswith(".npy") else None
    column = None if file else vectors
    outcomes = read_outcomes(table, experts=experts, vectors=column)
    if experts is None:
        trio = ordered_trio(outcomes.experts)
        outcomes = read_outcomes(table, experts=trio, vectors=column)
    else:
        trio = match_experts(experts, outcomes.experts)
    request = Request(
        name,
        outcomes,
        label or table.stem,
        results,
        BETA if beta is None else parse_beta(beta, trio),
        tuple(cost or ()),
        tuple(map(Method.parse, method or ())),
        seeds,
        features,
        model or (file.stem if file else None),
        read_vectors(file, len(outcomes)) if file else None,
        test_share,
        Noise(noise, noise_std),
        skew,
        (alpha,) if alpha else ALPHAS,
        trained,
        jobs,
        validation,
        tuple(trio),
    )
    with progress_bar(name) as progress:
        records = run(request, progress)
    print_tables([results], only={record["key"] for record in records})


if __name__ == "__main__":
    main(app)
