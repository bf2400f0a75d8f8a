"""Run an experiment with language models; each finished cell is added to the results file at once."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mild.arrays import FloatArray
from mild.decisions import decide
from mild.exceptions import InvalidInputError
from mild.metrics import shuffled_control
from mild.reproduce.diverged import DivergedError
from mild.reproduce.llm.cells import Cell, Setting, Settings, plan
from mild.reproduce.llm.inputs import Inputs, make_inputs
from mild.reproduce.llm.linear import FOLDS, Fitted, fit_linear, linear_protocol
from mild.reproduce.llm.requests import LLMRequest
from mild.reproduce.llm.transformer import fit_transformer, transformer_protocol
from mild.reproduce.outcomes import judged, reference
from mild.reproduce.records import SCHEMA
from mild.reproduce.results import cell_key
from mild.reproduce.surroundings import commit, hardware, versions
from mild.reproduce.turns import Ledger, Progress, Tell, check_place, run_cells
from mild.splits import folds

__all__ = ["reproduce_llm"]


def reproduce_llm(request: LLMRequest, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Records of all cells of a request, in their order.

    A cell that the results file holds already is not run again, nor is one that differs from another
    in nothing but the table it stands in. An interrupt or a kill leaves what is finished in the file.

    Parameters
    ----------
    request : what to run
    progress : called as ``progress(done, total, message)``
    """
    check_place(request.results)
    runner = _Runner(request)
    return run_cells(plan(request), runner.record, request.results, progress)


class _Runner:
    """Runs cells of one request; features of a split are made once for all its cells."""

    def __init__(self, request: LLMRequest) -> None:
        self.request = request
        self.ledger = Ledger(request.results)
        self.settings = Settings(request)
        self.inputs: Inputs | None = None
        if request.features == "transformer":
            self.protocol = transformer_protocol(request.model, request.transformer)
        else:
            vectors = request.table.vectors if request.vectors is None else request.vectors
            queries = request.table.queries
            self.inputs = make_inputs(request.features, queries, vectors, request.model)
            self.protocol = linear_protocol(self.inputs.identity, request.alphas)
        self._features: tuple[int, FloatArray, FloatArray] | None = None

    def record(self, cell: Cell, tell: Tell, wait: bool) -> dict[str, Any] | None:
        """The record of a cell; None if another process is at it and we need not wait."""
        entry = self.settings.entry(cell, self.protocol)
        key = cell_key(entry)
        known = self.ledger.known(key)
        if known is not None:
            return known
        with self.ledger.claim(key, wait, tell) as ours:
            if not ours:
                return None
            return self.ledger.finished.get(key) or self._run(cell, entry, key, tell)

    def _run(self, cell: Cell, entry: dict[str, Any], key: str, tell: Tell) -> dict[str, Any]:
        training = cell_key({name: value for name, value in entry.items() if name != "table"})
        twin = self.ledger.twin(training)
        if twin is not None:
            return self.ledger.add({**twin, "key": key, "cell": entry})
        setting = self.settings.setting(cell)
        start = time.monotonic()
        tell("under way")
        fitted = self._fit(cell, setting, tell)
        seconds = time.monotonic() - start
        margins = fitted[-1].margins
        record = {
            "schema": SCHEMA,
            "key": key,
            "twin": training,
            "cell": entry,
            "margins": None if margins is None else list(margins),
            "outcomes": {each.decision: _outcome(each, setting.test) for each in fitted},
            "reference": reference(setting.test),
            "rows": {"train": len(setting.split.train), "test": len(setting.split.test)},
            "chosen": None,
            "training": {"seconds": round(seconds, 3)},
            "versions": versions(torch=self.inputs is None),
            "hardware": hardware(self._device()),
            "commit": commit(),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "note": self.settings.note,
        }
        return self.ledger.add(record)

    def _fit(self, cell: Cell, setting: Setting, tell: Tell) -> list[Fitted]:
        request, split = self.request, setting.split
        if self.inputs is None:
            queries = request.table.queries
            train, test = ([queries[i] for i in rows] for rows in (split.train, split.test))
            try:
                return fit_transformer(
                    cell.method,
                    train,
                    setting.train,
                    test,
                    setting.largest,
                    cell.seed,
                    request.model,
                    request.transformer,
                    tell,
                )
            except InvalidInputError as error:
                if "diverged" not in str(error):
                    raise
                raise DivergedError(str(error)) from error
        known, new = self._split_features(cell.seed, setting)
        inner = folds(self.settings.groups[split.train], FOLDS, cell.seed)
        return fit_linear(
            cell.method,
            known,
            setting.train,
            new,
            inner,
            setting.largest,
            cell.seed,
            request.alphas,
            request.jobs,
        )

    def _split_features(self, seed: int, setting: Setting) -> tuple[FloatArray, FloatArray]:
        if self.inputs is None:
            raise InvalidInputError("a transformer sees texts, not features.")
        if self._features is None or self._features[0] != seed:
            split = setting.split
            self._features = (seed, *self.inputs.features(split.train, split.test))
        return self._features[1:]

    def _device(self) -> str:
        if self.inputs is not None:
            return "cpu"
        from mild.reproduce.images.training import best_device

        asked = str(self.request.transformer.get("device", "auto"))
        return best_device() if asked == "auto" else asked


def _outcome(fitted: Fitted, costs: FloatArray) -> dict[str, Any]:
    """Loss, shares and recall of a decision rule, what its shares alone are worth, and what was found."""
    if not np.isfinite(fitted.scores).all():
        raise DivergedError("scores must be finite; the training diverged.")
    chosen = decide(fitted.scores, fitted.margins, rule=fitted.decision)
    margins = None if fitted.margins is None else list(fitted.margins)
    return {
        **judged(costs, chosen),
        "control": shuffled_control(costs, chosen),
        "margins": margins,
        "found": fitted.found,
    }
