"""What stands under a table: data, seeds, epochs, hardware, commits, versions, time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mild.reproduce.images.protocol import FULL_WIDTH
from mild.reproduce.labels import dataset_title, seed_range
from mild.reproduce.llm.titles import training_title
from mild.reproduce.records import MODELS

__all__ = ["meta_lines"]


def meta_lines(records: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Sentences on how the numbers of some records were made; none for no records.

    Examples
    --------
    >>> meta_lines([])
    ()
    """
    found = list(records)
    if not found:
        return ()
    trained = _trained(found)
    return (
        *_notes(found),
        f"Seeds: {seed_range([record['cell']['seed'] for record in found])}.",
        f"Training: {_protocols(found)}.",
        f"Hardware: {_counted([record['hardware'] for record in trained])}.",
        f"Commits: {_counted([_commit(record) for record in trained])}.",
        f"Versions: {_versions(found)}.",
        f"Training time on that hardware: {_time(trained)}.",
    )


def _trained(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One record per training: a twin repeats what another record says, the moment included."""
    kept: dict[tuple[str, str], Mapping[str, Any]] = {}
    for record in records:
        kept.setdefault((record.get("twin") or record["key"], record["finished"]), record)
    return list(kept.values())


def _notes(records: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = {
        record["note"]: dataset_title(record["cell"]["dataset"])
        for record in records
        if record["note"]
    }
    return [f"Data: {dataset}: {note.rstrip('.')}." for note, dataset in notes.items()]


def _protocols(records: Sequence[Mapping[str, Any]]) -> str:
    said = []
    for record in records:
        protocol = record["cell"]["protocol"]
        if record["cell"]["experts"] == MODELS:
            said.append(_router(protocol))
            continue
        epochs = "1 epoch" if protocol["epochs"] == 1 else f"{protocol['epochs']} epochs"
        parts = [f"{protocol['name']}: {epochs}"]
        if "batch_size" in protocol:
            parts.append(f"batch {protocol['batch_size']:,}")
        if "lr" in protocol and "schedule" in protocol:
            parts.append(f"learning rate {protocol['lr']:g} ({protocol['schedule']})")
        if "weight_decay" in protocol:
            kind = protocol.get("decay", "coupled")
            parts.append(f"{kind} weight decay {protocol['weight_decay']:g}")
        if protocol.get("width", FULL_WIDTH) != FULL_WIDTH:
            parts.append(f"width {protocol['width']}")
        parts.append("augmentation" if protocol["augment"] else "no augmentation")
        said.append(", ".join(parts))
    return "; ".join(dict.fromkeys(said))


def _router(protocol: Mapping[str, Any]) -> str:
    """How a router among language models was trained."""
    title = training_title(protocol)
    if protocol["name"] != "linear":
        return f"{title}, batch {protocol['batch_size']}, weight decay {protocol['weight_decay']:g}"
    if len(protocol["alphas"]) == 1:
        return title
    strengths = ", ".join(f"{value:g}" for value in protocol["alphas"])
    return f"{title}, strength among {strengths} by {protocol['folds']} folds of the training rows"


def _commit(record: Mapping[str, Any]) -> str:
    commit = record["commit"]
    return "not recorded" if commit is None else str(commit)[:12]


def _counted(values: Sequence[str]) -> str:
    """Each value once; how many records share it where there are several."""
    counts = Counter(values)
    if len(counts) == 1:
        return values[0]
    return ", ".join(f"{value} ({_trainings(count)})" for value, count in counts.most_common())


def _versions(records: Sequence[Mapping[str, Any]]) -> str:
    versions: dict[str, dict[str, None]] = {}
    for record in records:
        for package, version in record["versions"].items():
            versions.setdefault(package, {})[str(version)] = None
    return ", ".join(f"{package} {'/'.join(each)}" for package, each in versions.items())


def _time(records: Sequence[Mapping[str, Any]]) -> str:
    seconds = sum(record["training"]["seconds"] for record in records)
    return f"{seconds:,.0f} s ({seconds / 3600:.2f} h) in {_trainings(len(records))}"


def _trainings(count: int) -> str:
    return "1 training" if count == 1 else f"{count} trainings"
