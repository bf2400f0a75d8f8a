"""The rows that count as arrays: what was drawn, what the new router would do, what was paid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mild.artifact import LoadedRouter
from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.evaluation.replay.estimates import Episodes
from mild.evaluation.replay.log import Block

__all__ = ["Rows", "collect_rows"]

# Features beyond this many are projected to fewer: the cost model needs few.
WIDE = 256
NARROW = 128


@dataclass(frozen=True, eq=False)
class Rows:
    """n rows in E episodes.

    Attributes
    ----------
    episode : (n,) index of the draw that the row belongs to
    chosen, propensity : (E,) the draws; chosen is -1 for experts that the new router does not know
    wanted : (E,) what the new router would choose
    drawn : how often each expert was drawn, by name
    features : (n, d) float32 for the cost model
    dollars, failed, error : (n,); error is NaN where nobody has judged
    """

    episode: IntArray
    chosen: IntArray
    propensity: FloatArray
    wanted: IntArray
    drawn: dict[str, int]
    features: FloatArray
    dollars: FloatArray
    failed: FloatArray
    error: FloatArray

    def kept(self, rows: BoolArray) -> Rows:
        """Some of the rows, and the draws that they belong to."""
        used, episode = np.unique(self.episode[rows], return_inverse=True)
        return Rows(
            episode,
            self.chosen[used],
            self.propensity[used],
            self.wanted[used],
            self.drawn,
            self.features[rows],
            self.dollars[rows],
            self.failed[rows],
            self.error[rows],
        )

    def episodes(self, costs: FloatArray, target: FloatArray) -> Episodes:
        """The draws with these costs (n,) and the new policy's probabilities (E, n_experts)."""
        count = self.chosen.size
        requests = np.bincount(self.episode, minlength=count).astype(float)
        total = np.bincount(self.episode, costs, minlength=count).astype(float)
        return Episodes(self.chosen, self.propensity, target, requests, total)

    def per_episode(self, values: FloatArray) -> FloatArray:
        """Sums (E, m) over the rows of each episode of values (n, m)."""
        count = self.chosen.size
        return np.column_stack(
            [np.bincount(self.episode, column, minlength=count) for column in values.T]
        )


def collect_rows(blocks: Iterable[Block], router: LoadedRouter, seed: int = 0) -> Rows:
    """Let the new router decide every row; texts are not kept."""
    places = {name: place for place, name in enumerate(router.expert_names)}
    project = _projection(router.n_features, seed)
    drawn: dict[str, int] = {}
    parts: list[tuple[FloatArray | IntArray, ...]] = []
    for block in blocks:
        X = router.features(block.texts)
        first = np.asarray(block.decides)
        for name, decides in zip(block.chosen, block.decides, strict=True):
            if decides:
                drawn[name] = drawn.get(name, 0) + 1
        values = router.decision_function(X)
        narrow = X if project is None else X @ project
        parts.append(
            (
                np.asarray(block.episodes, np.intp),
                np.asarray([places.get(name, -1) for name in block.chosen], np.intp)[first],
                np.asarray(block.propensity, float)[first],
                router.predict(X)[first],
                np.column_stack([narrow, values]).astype(np.float32),
                np.asarray(block.dollars, float),
                np.asarray(block.failed, float),
                np.asarray([np.nan if e is None else e for e in block.error], float),
            )
        )
    if not parts:
        none = np.empty(0, np.intp)
        empty = np.empty(0)
        return Rows(none, none, empty, none, {}, np.empty((0, 1), np.float32), empty, empty, empty)
    episode, chosen, propensity, wanted, features, dollars, failed, error = (
        np.concatenate(part) for part in zip(*parts, strict=True)
    )
    return Rows(episode, chosen, propensity, wanted, drawn, features, dollars, failed, error)


def _projection(width: int, seed: int) -> FloatArray | None:
    if width <= WIDE:
        return None
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((width, NARROW)) / np.sqrt(NARROW)).astype(np.float32)
