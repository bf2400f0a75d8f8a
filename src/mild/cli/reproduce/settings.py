"""How and where networks are trained: options of every verb that trains."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from mild.cli.reproduce import options as o
from mild.exceptions import DataFileError, InvalidInputError, OptionError, check_option

if TYPE_CHECKING:
    from mild.reproduce.images.protocol import Protocol

__all__ = ["Settings", "as_options", "takes_settings"]


@dataclass(frozen=True)
class Settings:
    """Values of these options, as they were given."""

    epochs: Annotated[
        int | None,
        typer.Option(help="Another number than the protocol's; results are labelled as changed."),
    ] = None
    batch_size: Annotated[int | None, typer.Option(help="Images per step, likewise.")] = None
    lr: Annotated[float | None, typer.Option(help="Learning rate or its peak, likewise.")] = None
    width: Annotated[
        int | None, typer.Option(help="Channels of the first stage, 64 in ResNet-18; likewise.")
    ] = None
    augment: Annotated[
        bool | None,
        typer.Option(
            "--augment/--no-augment", help="Random crops and mirror images. Default: augment."
        ),
    ] = None
    weight_decay: Annotated[
        float | None, typer.Option(help="Strength of the weight decay, in torch's units; likewise.")
    ] = None
    decay: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="coupled (added to the gradient, torch's Adam) or decoupled (AdamW); likewise.",
        ),
    ] = None
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda.")] = "auto"
    data_dir: o.DataDir = Path("data")
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for unfinished trainings. Default: beside the results."
        ),
    ] = None

    def changed(self, protocol: str, option: str = "--protocol") -> Protocol:
        """The protocol of this name with what the options change; ``option`` named it."""
        from mild.reproduce.images.protocol import PROTOCOLS

        names = ("epochs", "batch_size", "lr", "width", "augment", "weight_decay", "decay")
        asked = {name: getattr(self, name) for name in names}
        found = PROTOCOLS[check_option(option, protocol, PROTOCOLS)]
        with as_options(*names):
            return found.changed(**asked)

    def checkpoints(self, results: Path) -> Path:
        """Folder for the unfinished trainings of a results file."""
        return self.checkpoint_dir or results.parent / f"{results.stem}-checkpoints"


@contextmanager
def as_options(*fields: str) -> Iterator[None]:
    """Let an error that begins with one of these fields name the option: its user typed that."""
    try:
        yield
    except (InvalidInputError, DataFileError) as error:
        field, _, rest = str(error).partition(" ")
        if field not in fields:
            raise
        raise OptionError(f"--{field.replace('_', '-')} {rest}") from error


def takes_settings(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with one option per field of its parameter ``settings``, a dataclass, where that stands."""
    own = inspect.signature(verb, eval_str=True).parameters
    kind = own["settings"].annotation
    hints = get_type_hints(kind, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty
            if field.default is dataclasses.MISSING
            else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(kind)
    ]
    options = [
        option
        for entry in own.values()
        for option in (shared if entry.name == "settings" else [entry])
    ]

    @functools.wraps(verb)
    def spread(**values: Any) -> None:
        settings = kind(**{option.name: values.pop(option.name) for option in shared})
        verb(settings=settings, **values)

    # typer reads both.
    vars(spread)["__signature__"] = inspect.Signature(options)
    spread.__annotations__ = {option.name: option.annotation for option in options}
    return spread
