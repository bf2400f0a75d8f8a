"""How many of our functions are between tune and the optimiser."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

import mild
from answer_table_cases import answer_table
from mild.routers import cost_models, linear, solver

MOST_FRAMES = 8
SOURCE = str(Path(mild.__file__).parent)


class ReachedError(Exception):
    """The optimiser was called."""


def frames_to_optimiser(monkeypatch, **options):
    """Names of our functions between tune and minimise, outermost first."""

    def stop(*args, **kwargs):
        raise ReachedError

    for module in (solver, cost_models, linear):
        if hasattr(module, "minimise"):
            monkeypatch.setattr(module, "minimise", stop)
    search = mild.RouterCV(n_jobs=1, cv=3)
    with pytest.raises(ReachedError) as reached:
        mild.tune(answer_table(120), search=search, **options)
    ours = [
        f"{Path(frame.filename).stem}.{frame.name}"
        for frame in traceback.extract_tb(reached.value.__traceback__)
        if frame.filename.startswith(SOURCE)
    ]
    return ours[ours.index("tune.tune") + 1 :]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"price_weight": 3.0},
        {"keep_quality": 0.9},
        {"keep_quality": 0.9, "cascade": True},
    ],
)
def test_at_most_eight_of_our_frames_are_between_tune_and_the_optimiser(monkeypatch, options):
    frames = frames_to_optimiser(monkeypatch, **options)
    assert frames
    assert len(frames) <= MOST_FRAMES, " -> ".join(frames)
