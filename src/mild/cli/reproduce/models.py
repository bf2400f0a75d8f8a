"""Options of the experiments with language models, and their run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mild.cli.console import emit, note, progress_bar
from mild.cli.data import options as d
from mild.cli.reproduce import options as o
from mild.cli.reproduce.experiment import chosen_methods, merged
from mild.cli.reproduce.log import cell_lines
from mild.cli.reproduce.settings import as_options
from mild.exceptions import OptionError

if TYPE_CHECKING:
    from mild.tables import OutcomeTable

__all__ = ["ModelSettings", "run_models"]


@dataclass(frozen=True)
class ModelSettings:
    """Values of these options, as they were given."""

    table: d.Table
    experts: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Three experts from strong to tiny: 7B,1.5B,0.5B. Default: the Qwen2.5-Instruct models "
            "of these sizes, or a table's three by the sizes in their names.",
        ),
    ] = None
    beta: Annotated[
        str | None,
        typer.Option(
            metavar="COSTS",
            help="What asking costs, in wrong answers: three numbers in the order of the experts, or "
            "EXPERT=COST pairs. Default: 1,0.6,0.1.",
        ),
    ] = None
    features: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How queries are seen: hashing, static, encoder (a frozen sentence encoder), vectors, or "
            "transformer (fine-tuned; wants a GPU).",
        ),
    ] = "hashing"
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Folder or name of the static embeddings, encoder or transformer."
        ),
    ] = None
    vectors: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of vectors in the table, or a .npy file with one row each.",
        ),
    ] = None
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="tdef, mild, uniform, tuned, grid, ce, cwce, ldam, or a reading such as "
            "mild:rewards=contrast,counts=best; may be repeated. Default: all that the experiment has.",
        ),
    ] = None
    seeds: Annotated[int, typer.Option(help="Number of splits; each is also a seed.")] = 5
    test_share: Annotated[
        float | None,
        typer.Option(help="Share of the rows to test on. Default: a third, as in the paper."),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What results call the table. Default: the file's name."),
    ] = None
    alpha: Annotated[
        float | None,
        typer.Option(
            help="One strength of the penalty for all methods, in place of a search by each; not for a "
            "transformer."
        ),
    ] = None
    epochs: Annotated[int | None, typer.Option(help="Of a transformer. Default: 5.")] = None
    lr: Annotated[
        float | None, typer.Option(help="Learning rate of a transformer. Default: 5e-5.")
    ] = None
    batch_size: Annotated[
        int | None, typer.Option(help="Texts per step of a transformer. Default: 16.")
    ] = None
    max_length: Annotated[
        int | None, typer.Option(help="Tokens a transformer reads of a text. Default: 256.")
    ] = None
    precision: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a transformer: float32 or bfloat16.")
    ] = None
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a transformer: auto, cpu or cuda.")
    ] = None
    jobs: Annotated[
        int | None, typer.Option("--jobs", "--n-jobs", help="Parallel workers; -1 for all cores.")
    ] = None
    form: d.Form = None
    query: d.Query = None
    choices: d.Choices = True
    scores: d.Scores = None
    results: o.Results = Path("results/llm.jsonl")

    def read(self) -> OutcomeTable:
        """The table with its three experts in order, and a note on how it was read."""
        from mild.reproduce.llm.trio import ordered_trio
        from mild.tables import read_outcomes

        reading: dict[str, Any] = {
            "form": self.form,
            "query": self.query,
            "choices": self.choices,
            "scores": self.scores,
            "vectors": None if self._vectors_file else self.vectors,
        }
        table = read_outcomes(self.table, experts=self.experts, **reading)
        if self.experts is None:
            trio = ordered_trio(table.expert_names)
            table = read_outcomes(self.table, experts=trio, **reading)
        note(table.explanation)
        return table

    @property
    def _vectors_file(self) -> Path | None:
        return Path(self.vectors) if self.vectors and self.vectors.endswith(".npy") else None

    def fields(self, table: OutcomeTable) -> dict[str, Any]:
        """Fields of a request, those that were given."""
        from mild.reproduce.llm.inputs import read_vectors
        from mild.reproduce.llm.trio import parse_beta

        asked = {
            name: getattr(self, name)
            for name in ("epochs", "lr", "batch_size", "max_length", "precision", "device")
        }
        trained = {name: value for name, value in asked.items() if value is not None}
        if trained and self.features != "transformer":
            option = next(iter(trained)).replace("_", "-")
            raise OptionError(
                f"--{option} is for --features transformer; got --features {self.features}."
            )
        if self.alpha is not None and self.features == "transformer":
            raise OptionError("--alpha is for linear routers; got --features transformer.")
        file = self._vectors_file
        given: dict[str, Any] = {
            "name": self.name or Path(self.table).stem,
            "beta": None if self.beta is None else parse_beta(self.beta, table.expert_names),
            "methods": chosen_methods(self.method),
            "model": self.model or (file.stem if file else None),
            "vectors": None if file is None else read_vectors(file, table.rows),
            "test_share": self.test_share,
            "alphas": None if self.alpha is None else (self.alpha,),
            "transformer": trained,
            "jobs": self.jobs,
        }
        return {name: value for name, value in given.items() if value is not None}


def run_models(experiment: str, settings: ModelSettings, as_json: bool, **more: Any) -> None:
    """Run what a verb asks for and print its tables; fields that are None stay the experiment's own."""
    from mild.cli.reproduce.report import document, print_blocks
    from mild.reproduce.llm.requests import LLMRequest
    from mild.reproduce.llm.run import reproduce_llm

    names = (
        "beta", "seeds", "features", "model", "name", "results", "test_share", "cost", "alpha", "method"
    )  # fmt: skip
    results = settings.results
    table = settings.read()
    with as_options(*names):
        fields = settings.fields(table) | {k: v for k, v in more.items() if v is not None}
        request = LLMRequest(
            experiment,
            table,
            results=results,
            seeds=settings.seeds,
            features=settings.features,
            **fields,
        )
    with as_options("device", "results", "model"), progress_bar(experiment) as progress:
        records = reproduce_llm(request, progress or cell_lines())
    blocks = merged(results, {record["key"] for record in records})

    def show() -> None:
        print_blocks(blocks)
        count = "1 training" if len(records) == 1 else f"{len(records)} trainings"
        typer.echo(f"\n{count} in {results}; to see them again: mild reproduce show {results}")

    emit({"results": str(results), **document(blocks)}, as_json, show)
