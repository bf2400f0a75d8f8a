"""Margins that are searched on a held-out tenth of the router's rows, once for all seeds.

``tuned``: a network trained with TDEF's loss on the other rows gives features of the held-out ones, and
linear heads on these are searched. ``grid``: the paper's, a network per grid point trained on the
other rows and judged on the held-out ones by argmax. What is found is kept in a small file whose name
covers all that it depends on; a kill loses one grid point at most.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mild.costs import REWARDS
from mild.decisions import decide
from mild.exceptions import DataFileError
from mild.margins import paper_grid
from mild.metrics import deferral_loss
from mild.reproduce.experts.splits import HELD_OUT, TUNING_SEED, held_out_rows
from mild.reproduce.files import replace_json
from mild.reproduce.head_search import SETTINGS, search_heads
from mild.reproduce.images.protocol import RECIPE
from mild.reproduce.methods import Method
from mild.reproduce.objective import theory
from mild.reproduce.results import cell_key
from mild.reproduce.routing import RoutingProblem
from mild.reproduce.turns import Tell

__all__ = ["TuningFile", "found_method", "tune"]

SCHEMA = 1
# How many of the heads that were judged a record tells of; the file has them all.
TOLD = 5


class TuningFile:
    """What is known of one search; replaced as a whole, so that a reader finds one state of it.

    Parameters
    ----------
    folder : where such files are kept
    cell : what was searched for: a cell without its table and seed
    """

    def __init__(self, folder: Path, cell: Mapping[str, Any]) -> None:
        kept = {name: value for name, value in cell.items() if name not in ("table", "seed")}
        self.what = {
            "cell": kept,
            "held_out": HELD_OUT,
            "seed": TUNING_SEED,
            "heads": SETTINGS,
            "recipe": RECIPE,
            "features": "tdef",
        }
        self.key = cell_key(self.what)
        self.path = folder / f"{self.key}.json"

    def read(self) -> dict[str, Any]:
        """``found`` (None until the search is over) and ``points`` of the grid so far."""
        if not self.path.exists():
            return {"found": None, "points": []}
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["schema"] != SCHEMA or content["key"] != self.key:
                raise ValueError("another schema or key")
            if content["found"] is not None:
                _check_found(content["found"])
            for point in content["points"]:
                _check_margins(point["margins"])
                if not isinstance(point["loss"], (int, float)):
                    raise ValueError("a point without a loss")
            return {"found": content["found"], "points": list(content["points"])}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataFileError(
                f"{self.path} must hold what a search found; it cannot be read ({error}). Delete it, "
                f"and the search is run again."
            ) from error

    def write(self, found: Mapping[str, Any] | None, points: list[dict[str, Any]]) -> None:
        """Replace the file."""
        content = {
            "schema": SCHEMA,
            "key": self.key,
            "what": self.what,
            "found": found,
            "points": points,
        }
        replace_json(self.path, content)


def _check_found(found: Mapping[str, Any]) -> None:
    """Refuse what no search writes; errors are Python's own."""
    _check_margins(found["margins"])
    if not isinstance(found["rewards"], str):
        raise ValueError("rewards must be a text")
    if not isinstance(found.get("candidates", []), list):
        raise ValueError("candidates must be a list")


def _check_margins(margins: object) -> None:
    numbers = isinstance(margins, list) and all(isinstance(each, (int, float)) for each in margins)
    if not numbers or not margins:
        raise ValueError("margins must be a list of numbers")


def tune(
    method: Method, make_problem: Callable[[], RoutingProblem], file: TuningFile, tell: Tell
) -> dict[str, Any]:
    """What the search of ``method`` finds on a problem, from the file if it is known already.

    The problem is made only if there is something to search.

    Returns
    -------
    dict, JSON-ready, for a record's ``chosen``: ``margins`` (scaled to the method's sum), ``rewards``
    and how they were found
    """
    known = file.read()
    if known["found"] is None:
        problem = make_problem()
        if method.margins == "tuned":
            known["found"] = _search_heads(method, problem, file.key, tell)
        else:
            known["found"] = _search_grid(method, problem, file, known["points"], tell)
        file.write(known["found"], known["points"])
        for place in range(max(1, len(known["points"]))):
            problem.forget(_name(file.key, place))
    found: dict[str, Any] = dict(known["found"])
    if "candidates" in found:
        found["tried"] = len(found["candidates"])
        found["candidates"] = found["candidates"][:TOLD]
    found["file"] = file.path.name
    return found


def found_method(method: Method, chosen: Mapping[str, Any] | None) -> Method:
    """The method at what its search found; itself if there was none."""
    if chosen is None:
        return method
    return method.with_margins(chosen["margins"], chosen["rewards"])


def _search_heads(method: Method, problem: RoutingProblem, key: str, tell: Tell) -> dict[str, Any]:
    start = time.perf_counter()
    kinds = REWARDS if method.rewards == "any" else (str(method.rewards),)
    rest, held = held_out_rows(problem.costs)
    network, _ = problem.train(
        Method("tdef"),
        TUNING_SEED,
        _name(key),
        rest,
        lambda said: tell(f"features for tuning, {said}"),
    )
    tell(f"linear heads on {len(held)} held-out rows")
    features = network.features(problem.images[held])
    found = search_heads(features, problem.costs[held], problem.largest, kinds, TUNING_SEED)
    p = problem.costs.shape[1]
    scale = method.sum_of_margins(p) / sum(found["margins"])
    found["margins"] = [value * scale for value in found["margins"]]
    how = (
        f"linear heads on frozen features of {len(held)} held-out training rows, stationary decision; "
        f"searched once with seed {TUNING_SEED} and used for all seeds"
    )
    return {**found, "how": how, "seconds": round(time.perf_counter() - start, 3)}


def _search_grid(
    method: Method,
    problem: RoutingProblem,
    file: TuningFile,
    points: list[dict[str, Any]],
    tell: Tell,
) -> dict[str, Any]:
    start = time.perf_counter()
    center = theory(method, problem.costs, problem.largest)
    grid = paper_grid(center)
    rest, held = held_out_rows(problem.costs)
    for place, vector in enumerate(grid.margins):
        if place < len(points):
            continue
        at = f"grid point {place + 1} of {len(grid)}"
        tell(f"{at} ({grid.dropped} more are not positive)")
        name = _name(file.key, place)
        network, _ = problem.train(
            method.with_margins(vector),
            TUNING_SEED,
            name,
            rest,
            lambda said, at=at: tell(f"{at}, {said}"),  # type: ignore[misc]
        )
        chosen = decide(network.scores(problem.images[held]), rule="argmax")
        points.append({"margins": list(vector), "loss": deferral_loss(problem.costs[held], chosen)})
        file.write(None, points)
        problem.forget(name)
    # Of equals the nearest to the theory.
    best = min(points, key=lambda point: (point["loss"], _distance(point["margins"], center)))
    how = (
        f"the paper's grid, one network per point, judged by argmax on {len(held)} held-out training "
        f"rows; searched once with seed {TUNING_SEED} and used for all seeds"
    )
    return {
        "margins": best["margins"],
        "rewards": str(method.rewards),
        "loss": best["loss"],
        "center": list(center),
        "points": len(grid),
        "dropped": grid.dropped,
        "losses": [min(p["loss"] for p in points), max(p["loss"] for p in points)],
        "how": how,
        "seconds": round(time.perf_counter() - start, 3),
    }


def _distance(margins: list[float], center: tuple[float, ...]) -> float:
    return max(abs(a - b) for a, b in zip(margins, center, strict=True))


def _name(key: str, place: int = 0) -> str:
    """Name of one of the trainings of a search."""
    return f"{key}-{place}"
