"""Frontiers with figures that are easy to follow."""

from __future__ import annotations

import numpy as np

from mild.metrics.operating_points import ALONE, COLUMNS, EXPERT, TRADE_OFF, Frontier, Setting

EXPERT_NAMES = ["small", "large"]


def trade_off(weight):
    return Setting(TRADE_OFF, weight)


def frontier_of(experts, *paths, n_queries=400, **errors):
    """A frontier of single experts and of paths.

    ``experts`` are pairs of quality and dollars; the best one is the reference. A path is a list of
    settings, each with quality and dollars, from the cheapest to the best. ``errors`` are those of
    all points; the loss of the reference is known exactly, as it is compared with itself.
    """
    settings = [Setting(EXPERT, expert) for expert in range(len(experts))]
    columns = {name: [] for name in COLUMNS}

    def add(path, first, second, share, quality, dollars):
        point = {
            "path": path,
            "first": first,
            "second": second,
            "share": share,
            "quality": quality,
            "dollars": dollars,
        }
        for name in COLUMNS:
            columns[name].append(point.get(name, errors.get(name, 0.0)))

    for expert, (quality, dollars) in enumerate(experts):
        add(ALONE, expert, expert, 0.0, quality, dollars)
    for number, path in enumerate(paths):
        previous = None
        for setting, quality, dollars in path:
            if setting not in settings:
                settings.append(setting)
            place = settings.index(setting)
            if previous is None:
                add(number, place, place, 0.0, quality, dollars)
            else:
                add(number, previous, place, 1.0, quality, dollars)
            previous = place
    best_expert = int(np.argmax([quality for quality, _ in experts]))
    columns["loss_error"][best_expert] = 0.0
    columns["saving_error"][best_expert] = 0.0
    arrays = {}
    for name in COLUMNS:
        is_index = name in ("path", "first", "second")
        arrays[name] = np.array(columns[name], np.intp if is_index else np.float64)
    return Frontier(tuple(settings), best_expert, n_queries, **arrays)


def small_frontier(best=0.88, **errors):
    """Two experts and three trade-offs: 0.6 for $1, 0.85 for $4, 0.9 for $10."""
    path = [
        (trade_off(50.0), 0.6, 1.0),
        (trade_off(5.0), 0.85, 4.0),
        (trade_off(0.0), 0.9, 10.0),
    ]
    return frontier_of([(0.6, 1.0), (best, 10.0)], path, **errors)
