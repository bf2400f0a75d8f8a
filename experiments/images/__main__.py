"""``python -m experiments.images``: run the paper's image experiments.

Every finished training is one line of a results file; a killed run continues when the same command is given
again. ``python -m experiments.show FILE`` prints the tables.

\b
python -m experiments.images fetch cifar10
python -m experiments.images table1 --cost error --data-dir data
python -m experiments.images severe --experts synthetic --method tdef --method mild:total=mean1
python -m experiments.images table1 --dataset digits --epochs 2 --width 8 --seeds 2
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from typer import Argument, Option

from experiments.console import main, progress_bar
from experiments.images.data import DATASETS, fetch_images, load_images
from experiments.images.experts import OTHERS, Setup
from experiments.images.methods import READINGS, ROBUSTNESS, Method
from experiments.images.run import TABLES, Request, run, run_classifier
from experiments.images.training import DEFAULT, PROTOCOLS, Protocol
from experiments.show import print_tables
from mild.artifact.files import replacing
from mild.cli.options import takes_options
from mild.errors import DataFileError, check_option

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

Datasets = Annotated[list[str], Option("--dataset", help=f"{', '.join(DATASETS)}; repeatable.")]
DataDir = Annotated[Path, Option(help="Folder of the data sets.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]

HELP = {
    "table1": "Table 1: synthetic experts.",
    "table2": "Table 2: experts that are trained.",
    "severe": "Severe imbalance: one expert knows 9 classes of 10.",
    "readings": "Readings of what the paper leaves open.",
    "people": "People as experts: CIFAR-10N and CIFAR-100N annotations (--people).",
}


@dataclass(frozen=True)
class ProtocolOptions:
    """Changes of a protocol; results are labelled as changed."""

    panel: ClassVar[str] = "Changes of the protocol"

    epochs: Annotated[int | None, Option(help="Another number.")] = None
    batch_size: Annotated[int | None, Option(help="Images per step.")] = None
    lr: Annotated[float | None, Option(help="Learning rate or its peak.")] = None
    width: Annotated[int | None, Option(help="Channels of the first stage.")] = None
    weight_decay: Annotated[float | None, Option(help="Strength, in torch's units.")] = None
    decay: Annotated[str | None, Option(help="coupled (Adam) or decoupled (AdamW).")] = None
    augment: Annotated[bool | None, Option(help="Crops and flips.")] = None
    stride: Annotated[int | None, Option(help="Of the first convolution.")] = None

    def applied_to(self, name: str) -> Protocol:
        """The protocol of this name with the changes."""
        return PROTOCOLS[check_option("protocol", name, PROTOCOLS)].changed(**vars(self))


@dataclass(frozen=True)
class RunOptions:
    """Fields of ``Request``."""

    seeds: Annotated[int, Option(help="Runs per method and cell.")] = 5
    data_dir: DataDir = Path("data")
    device: Device = "auto"
    holdout: Annotated[
        bool, Option("--holdout", help="Train real experts and the router on disjoint halves.")
    ] = False
    expert_seed: Annotated[int, Option(help="Seed of trained experts.")] = 0
    scale: Annotated[str, Option(help="Rewards: raw, or unit for mean row sum 1.")] = "raw"
    price: Annotated[float, Option(help="What asking a person costs.")] = 0.1
    ambiguous: Annotated[
        float | None, Option(help="Share of the images on which a guess is right, too.")
    ] = None
    validation: Annotated[
        bool, Option("--validation", help="Judge on a held-out tenth of the training images.")
    ] = False
    others: Annotated[
        float, Option(help="Share of the other classes that real experts learn from.")
    ] = OTHERS


def _table_command(name: str) -> None:
    """Add the command that runs one table, or a part of it, and prints it."""

    @app.command(name, help=HELP[name])
    @takes_options()
    def command(
        *,
        dataset: Datasets = ["cifar10"],  # noqa: B006
        setup: Annotated[
            list[str] | None, Option(help="I, II, III, severe, or a coverage 0.6,0.3,0.1.")
        ] = None,
        experts: Annotated[list[str] | None, Option(help="synthetic or real; repeatable.")] = None,
        cost: Annotated[list[str] | None, Option(help="error or cost; repeatable.")] = None,
        method: Annotated[
            list[str] | None,
            Option(
                help="tdef, mild, plugin, uniform, tuned, grid, ce, cwce, ldam, or a reading such as "
                "mild:rewards=contrast,counts=best,total=mean3. Default: tdef, mild:total=mean1."
            ),
        ] = None,
        protocol: Annotated[
            str, Option(help="adamw (50 epochs), fast (16), paper (200).")
        ] = DEFAULT,
        expert_protocol: Annotated[
            str | None, Option(help="For the experts. Default: as the router.")
        ] = None,
        people: Annotated[Path | None, Option(help="Annotations, for the table people.")] = None,
        robustness: Annotated[
            bool, Option(help="Margins around the theory, for readings.")
        ] = False,
        cache_dir: Annotated[Path, Option(help="Trained experts.")] = Path("~/.cache/mild"),
        results: Annotated[
            Path | None, Option(help="Results file. Default: results/TABLE.jsonl.")
        ] = None,
        options: RunOptions,
        changes: ProtocolOptions,
    ) -> None:
        setups, kinds, costs = TABLES[name]
        methods = tuple(Method.parse(text) for text in method or ("tdef", "mild:total=mean1"))
        if name == "readings" and not method:
            methods = READINGS + (ROBUSTNESS if robustness else ())
        request = Request(
            name,
            tuple(dataset),
            tuple(map(Setup.parse, setup)) if setup else setups,
            tuple(experts) if experts else kinds,
            tuple(cost) if cost else costs,
            methods,
            changes.applied_to(protocol),
            results or Path("results") / f"{name}.jsonl",
            cache_dir=cache_dir.expanduser(),
            people_file=people,
            expert_protocol=changes.applied_to(expert_protocol) if expert_protocol else None,
            **vars(options),
        )
        with progress_bar(name) as progress:
            records = run(request, progress)
        print_tables([request.results], only={record["key"] for record in records})


for _name in TABLES:
    _table_command(_name)


@app.command()
@takes_options()
def classifier(
    *,
    dataset: Datasets = ["cifar10"],  # noqa: B006
    protocol: Annotated[list[str], Option(help="Protocols; repeatable.")] = [DEFAULT],  # noqa: B006
    seeds: Annotated[int, Option(help="Runs per protocol.")] = 1,
    data_dir: DataDir = Path("data"),
    device: Device = "auto",
    results: Annotated[Path, Option(help="JSON file.")] = Path("results/classifier.json"),
    changes: ProtocolOptions,
) -> None:
    """Test accuracy of a plain classifier trained by each protocol."""
    try:
        records = json.loads(results.read_text()) if results.exists() else []
        known = {record["key"]: record for record in records}
    except (ValueError, TypeError, KeyError) as error:
        raise DataFileError(f"{results} must be a list of records ({error}).") from error
    for name in dataset:
        data = load_images(name, data_dir)
        for text in protocol:
            changed = changes.applied_to(text)
            with progress_bar(f"{name}, {changed.name}") as progress:
                made = run_classifier(data, changed, seeds, device, progress, known)
            known |= {record["key"]: record for record in made}
            results.parent.mkdir(parents=True, exist_ok=True)
            with replacing(results) as file:
                file.write(json.dumps(list(known.values()), indent=1).encode() + b"\n")
            for record in made:
                title = f"{name}, {changed.name}, seed {record['cell']['seed']}"
                typer.echo(f"{title}: accuracy {record['accuracy']:.4f}")


@app.command()
def fetch(
    dataset: Annotated[list[str], Argument(help=f"Among {', '.join(DATASETS)}.")],
    data_dir: DataDir = Path("data"),
) -> None:
    """Fetch data sets from their official sources, with their md5 sums checked."""
    for name in dataset:
        with progress_bar(name) as progress:
            fetch_images(name, data_dir, progress)
        typer.echo(f"{DATASETS[name].title} is in {data_dir}")


if __name__ == "__main__":
    main(app)
