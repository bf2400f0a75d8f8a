"""How and where networks are trained: options of every verb that trains."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from mild.cli.reproduce import options as o
from mild.exceptions import InvalidInputError, OptionError

if TYPE_CHECKING:
    from mild.reproduce.images.protocol import Protocol

__all__ = ["Settings", "takes_settings"]


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
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda.")] = "auto"
    data_dir: o.DataDir = Path("data")
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for unfinished trainings. Default: beside the results."
        ),
    ] = None

    def changed(self, protocol: str) -> Protocol:
        """The protocol of this name with what the options change."""
        from mild.reproduce.images.protocol import get_protocol

        names = ("epochs", "batch_size", "lr", "width", "augment")
        asked = {name: getattr(self, name) for name in names}
        found = get_protocol(protocol)
        try:
            return found.changed(**asked)
        except InvalidInputError as error:
            # Whoever typed an option knows it by its own name.
            field, _, rest = str(error).partition(" ")
            if field not in asked:
                raise
            raise OptionError(f"--{field.replace('_', '-')} {rest}") from error

    def checkpoints(self, results: Path) -> Path:
        """Folder for the unfinished trainings of a results file."""
        return self.checkpoint_dir or results.parent / f"{results.stem}-checkpoints"


def takes_settings(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with one option per setting where its parameter ``settings`` stands."""
    hints = get_type_hints(Settings, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(Settings)
    ]
    own = inspect.signature(verb, eval_str=True).parameters.values()
    options = [
        option for entry in own for option in (shared if entry.name == "settings" else [entry])
    ]

    @functools.wraps(verb)
    def spread(**values: Any) -> None:
        settings = Settings(**{option.name: values.pop(option.name) for option in shared})
        verb(settings=settings, **values)

    # typer reads both.
    vars(spread)["__signature__"] = inspect.Signature(options)
    spread.__annotations__ = {option.name: option.annotation for option in options}
    return spread
