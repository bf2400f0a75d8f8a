"""Run an experiment with language models; each finished cell is added to the results file at once."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.images.methods import Method, decisions
from experiments.images.problem import judged, reference
from experiments.paper import BETA, QWEN
from experiments.records import SCHEMA, DivergedError, Record, ResultsFile, cell_key, surroundings
from mild.artifact.expert_names import match_expert
from mild.core.arrays import FloatArray
from mild.core.costs import REWARDS
from mild.core.decisions import decide
from mild.data import Outcomes
from mild.data.data_quality import duplicate_groups
from mild.data.outcome_table import outcomes_fingerprint
from mild.data.splits import Split, folds, joined_groups, random_splits
from mild.errors import DataFileError, InvalidInputError, check_option
from mild.features import make_features
from mild.features.base import flat_scale
from mild.features.pretrained import digest_files, model_folder
from mild.metrics.routing import shuffled_control
from mild.routers.linear import LinearRouter
from mild.routers.objective import LDAM_SCALE
from mild.routers.search import RouterCV

Floats = NDArray[np.floating[Any]]
Tell = Callable[[str], None]

EXPERIMENTS = ("llm", "ablation", "noise", "extreme")
COSTS = ("error", "cost")
#: Ways to see a query; the last one is trained with the router.
FEATURES = ("hashing", "encoder", "vectors", "transformer")
ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
FOLDS = 5
MARGIN_FACTORS = (0.5, 1.0, 2.0)
NOISE_STREAM = 0x4E4F4953
LINEAR_METHODS = (
    *("tdef", "mild", "mild:counts=best", "mild:rewards=complement"),
    *("mild:rewards=complement,counts=best", "mild:rewards=contrast"),
    *("mild:rewards=contrast,counts=best", "tuned", "ce", "cwce", "ldam"),
)
TRANSFORMER_METHODS = (
    *("tdef", "mild", "mild:total=mean1", "mild:counts=best"),
    *("mild:rewards=complement,total=mean1", "tuned", "ce", "cwce", "ldam"),
)
ABLATION_METHODS = ("tdef", "uniform:total=1", "mild", "mild:counts=best", "tuned:total=1")
# Options of the transformer router that change what a training gives.
TRANSFORMER_SETTINGS = (
    *("epochs", "lr", "head_lr", "batch_size", "max_length", "weight_decay", "warmup", "clip"),
    *("dropout", "pooling", "precision"),
)


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on the training costs.

    The paper says 20 % random Gaussian variations of the cost matrix. Read as ``max(0, c + std * z)``
    ("additive") or ``max(0, c * (1 + std * z))`` ("relative"), z standard normal.
    """

    kind: str = "additive"
    std: float = 0.2

    def __post_init__(self) -> None:
        check_option("noise", self.kind, ("additive", "relative"))
        if not 0 <= self.std < math.inf:
            raise InvalidInputError(f"noise_std must be finite and not negative; got {self.std}.")

    def added_to(self, costs: Floats, seed: int) -> Floats:
        """Costs (n, p) with noise."""
        z = np.random.default_rng([NOISE_STREAM, seed]).standard_normal(costs.shape)
        varied = costs + self.std * z if self.kind == "additive" else costs * (1 + self.std * z)
        return np.maximum(varied, 0.0)


@dataclass(frozen=True, eq=False)
class Request:
    """An experiment on a table of outcomes of three experts, every score known.

    ``experts`` are the names of the three, from strong to tiny; none for those of ``ordered_trio``. All
    arrays have the experts in this order, whatever their order in the table.
    ``skew`` is the share of the rows on which the first expert is to be cheapest, for "extreme"; ``alphas``
    are strengths of the penalty to choose from by cross-validation; with ``validation`` a fifth of the
    training rows of each split is judged on in place of its test rows; the command's options explain the
    rest.
    """

    experiment: str
    table: Outcomes
    name: str
    results: Path
    beta: tuple[float, ...] = BETA
    costs: tuple[str, ...] = ()
    methods: tuple[Method, ...] = ()
    seeds: int = 5
    features: str = "hashing"
    model: str | None = None
    vectors: Any = None
    test_share: float = 1 / 3
    noise: Noise = field(default_factory=Noise)
    skew: float = 0.95
    alphas: tuple[float, ...] = ALPHAS
    transformer: dict[str, Any] = field(default_factory=dict)
    jobs: int | None = None
    validation: bool = False
    experts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_option("experiment", self.experiment, EXPERIMENTS)
        check_option("features", self.features, FEATURES)
        names, scores = self.expert_names, self.scores
        if len(names) != 3 or len(self.beta) != 3 or not all(0 <= b < math.inf for b in self.beta):
            raise InvalidInputError(
                f"these experiments need three experts, from strong to tiny, and a finite cost of 0 or "
                f"more for each; got {', '.join(names)} and {self.beta}. Name three with --experts."
            )
        missing = np.isnan(scores)
        if missing.any():
            row, expert = np.argwhere(missing)[0]
            raise InvalidInputError(
                f"scores must be known for every expert and query; {int(missing.sum()):,} are missing, "
                f"such as {names[expert]}'s in row {row}. Leave out such rows, or name other experts."
            )
        for name, value, holds in (
            ("seeds", self.seeds, self.seeds >= 1),
            ("test_share", self.test_share, 0 < self.test_share < 1),
            ("skew", self.skew, 0 < self.skew < 1),
            ("alpha", self.alphas, all(0 < alpha < math.inf for alpha in self.alphas)),
        ):
            if not holds:
                raise InvalidInputError(f"{name} is out of range; got {value}.")
        if self.features == "transformer" and any(m.margins == "grid" for m in self.methods):
            raise InvalidInputError("margins 'grid' take a network per point; use 'tuned' instead.")

    @property
    def expert_names(self) -> list[str]:
        """The experts, from strong to tiny."""
        return list(self.experts) or ordered_trio(self.table.experts)

    @property
    def scores(self) -> FloatArray:
        """Scores (n_rows, 3), in the order of ``expert_names``."""
        scores, _, _ = self.table.outcomes_of(self.expert_names)
        return scores

    def fingerprint(self) -> str:
        """The fingerprint of the table with its experts in the order of ``expert_names``."""
        table, names = self.table, self.expert_names
        order = [table.experts.index(name) for name in names]
        arrays: dict[str, Any] = {}
        for name in ("scores", "prices", "latencies"):
            values = getattr(table, name)
            arrays[name] = None if values is None else values[:, order]
        arrays["vectors"] = table.vectors
        return outcomes_fingerprint(names, table.queries, arrays)

    @property
    def cells(self) -> list[tuple[int, str, Noise | None, Method]]:
        """Seed, cost type, noise and method of every training; noise has its clean twin before it."""
        texts: tuple[str, ...] = (
            TRANSFORMER_METHODS if self.features == "transformer" else LINEAR_METHODS
        )
        texts = ABLATION_METHODS if self.experiment == "ablation" else texts
        methods = self.methods or tuple(map(Method.parse, texts))
        costs = self.costs or (COSTS if self.experiment == "llm" else ("cost",))
        noises = (None, self.noise) if self.experiment == "noise" else (None,)
        return list(itertools.product(range(self.seeds), costs, noises, methods))


def run(request: Request, progress: Callable[[int, int, str], Any] | None = None) -> list[Record]:
    """Records of all cells, in their order; those that the results file holds are not run again."""
    results = ResultsFile(request.results)
    with results.locked():
        runner = _Runner(request, results)
        cells = []
        for seed, cost, noise, method in request.cells:
            title = f"{cost}{', noise' if noise else ''}, {method.text}, seed {seed}"
            cells.append((title, partial(runner.record, seed, cost, noise, method)))
        return results.run(cells, progress)


class _Runner:
    """Costs, splits and features of a request; features of a split are made once for all its cells."""

    def __init__(self, request: Request, results: ResultsFile) -> None:
        self.request, self.results = request, results
        self.errors = 1.0 - request.scores
        queries = request.table.queries
        some = any(query.strip() for query in queries)
        self.groups = joined_groups(duplicate_groups(queries)) if some else np.arange(len(queries))
        self.splits = random_splits(self.groups, request.seeds, request.test_share)
        if request.validation:
            for seed, split in enumerate(self.splits):
                fitted, held = folds(self.groups[split.train], FOLDS, seed)[0]
                train, test = split.train[fitted], split.train[held]
                self.splits[seed] = replace(split, train=train, test=test)
        self.prices: Floats = np.tile(request.beta, (len(self.errors), 1))
        self.added: float | None = None
        if request.experiment == "extreme":
            words = np.array([max(1, len(query.split())) for query in queries], dtype=np.float64)
            self.prices, self.added = skewed_prices(
                self.errors, request.beta, words / words.mean(), request.skew
            )
        self.identity: dict[str, Any] = {}
        if request.features == "transformer":
            self.protocol = _transformer_protocol(request.model, request.transformer)
        else:
            self._prepare()
            self.protocol = {
                "name": "linear",
                "features": self.identity,
                "alphas": list(request.alphas),
                "folds": FOLDS,
            }
        self._features: tuple[int, Floats, Floats] | None = None

    def _prepare(self) -> None:
        """Check the features, and name the files behind them beyond doubt."""
        request = self.request
        self.vectors: Floats | None = None
        self.identity = {"kind": request.features}
        if request.features == "vectors":
            vectors = request.table.vectors if request.vectors is None else request.vectors
            if vectors is None:
                raise InvalidInputError(
                    "features 'vectors' need a column of vectors, or a .npy file."
                )
            self.vectors = np.ascontiguousarray(vectors, dtype=np.float32)
            digest = hashlib.sha256(self.vectors.astype("<f4").tobytes()).hexdigest()
            self.identity |= {"model": request.model or "given", "sha256": digest}
            return
        step = self._step()
        source = getattr(step, "source", None)
        if source is not None:
            folder = Path(str(source)).expanduser()
            self.identity["model"] = folder.name if folder.is_dir() else str(source)
            state = step.fit(request.table.queries[:1]).state()[0]
            names = ("sha256", "table_sha256", "tokenizer_sha256", "max_length")
            self.identity |= {name: state[name] for name in names if name in state}

    def _step(self) -> Any:
        options = {"source": self.request.model} if self.request.model else {}
        return make_features(self.request.features, **options)

    def entry(self, seed: int, cost: str, noise: Noise | None, method: Method) -> dict[str, Any]:
        """The cell of a record."""
        request, names = self.request, self.request.expert_names
        paper = tuple(name.casefold() for name in names) == tuple(n.casefold() for n in QWEN)
        skew = None
        if self.added is not None and cost == "cost":
            skew = {"share": request.skew, "added": round(self.added, 6)}
        return {
            **({"validation": True} if request.validation else {}),
            "table": request.experiment,
            "dataset": request.name,
            "data": request.fingerprint()[:16],
            "setup": "qwen2.5" if paper else "other",
            "coverage": [round(float(value), 4) for value in request.scores.mean(axis=0)],
            "experts": "language models",
            "models": list(names),
            "cost": cost,
            "beta": list(request.beta) if cost == "cost" else None,
            "noise": None if noise is None else asdict(noise),
            "skew": skew,
            "holdout": False,
            "expert_seed": None,
            "test_share": request.test_share,
            "protocol": self.protocol,
            "method": method.as_dict(),
            "seed": seed,
        }

    def record(
        self, seed: int, cost: str, noise: Noise | None, method: Method, report: Tell
    ) -> Record:
        """The record of a cell, from the results file or a training."""
        entry = self.entry(seed, cost, noise, method)
        key = cell_key(entry)
        if key in self.results.records:
            return self.results.records[key]
        training = cell_key({name: value for name, value in entry.items() if name != "table"})
        known = self.results.same_training(training)
        if known is not None:
            return self.results.add({**known, "key": key, "cell": entry})
        costs = self.errors if cost == "error" else self.errors + self.prices
        largest = 1.0 if cost == "error" else 1.0 + float(self.prices.max())
        split = self.splits[seed]
        train, test = costs[split.train], costs[split.test]
        if noise is not None:
            train = noise.added_to(train, seed)
            largest = max(largest, float(train.max()))
        start = time.monotonic()
        fitted = self._fit(method, split, train, largest, seed, report)
        margins = next(reversed(fitted.values()))[1]
        repeated = len(costs) - len(np.unique(self.groups))
        repeats = f", {repeated:,} of which repeat another's text" if repeated else ""
        return self.results.add(
            {
                "schema": SCHEMA,
                "key": key,
                "twin": training,
                "cell": entry,
                "margins": None if margins is None else list(margins),
                "outcomes": {rule: _outcome(rule, test, *found) for rule, found in fitted.items()},
                "reference": reference(test),
                "rows": {"train": len(split.train), "test": len(split.test)},
                "chosen": None,
                "training": {"seconds": round(time.monotonic() - start, 3)},
                **surroundings(self._device(), torch=self.request.features == "transformer"),
                "note": f"{len(costs):,} queries{repeats}; a split never has one text on both sides",
            }
        )

    def _fit(
        self, method: Method, split: Split, costs: Floats, largest: float, seed: int, report: Tell
    ) -> dict[str, Fitted]:
        """Scores, margins and what was found, by decision rule."""
        queries = self.request.table.queries
        known, new = ([queries[i] for i in rows] for rows in (split.train, split.test))
        if self.request.features == "transformer":
            return self._fit_transformer(method, known, costs, new, largest, seed, report)
        if self._features is None or self._features[0] != seed:
            if self.vectors is not None:
                centre, scale = flat_scale(self.vectors[split.train])
                first, second = (
                    ((self.vectors[rows] - centre) / scale).astype(np.float32)
                    for rows in (split.train, split.test)
                )
            else:
                step = self._step().fit(known)
                first, second = step.transform(known), step.transform(new)
            self._features = (seed, first, second)
        inner = folds(self.groups[split.train], FOLDS, seed)
        both = method.name == "mild" and method.margins != "uniform"
        # Each rule is searched by itself: neither is judged by what suits the other.
        return {
            rule: self._fit_linear(method, rule, costs, inner, largest, seed)
            for rule in (("argmax", "stationary") if both else ("argmax",))
        }

    def _fit_linear(
        self, method: Method, rule: str, costs: Floats, inner: Any, largest: float, seed: int
    ) -> Fitted:
        """The strength, and searched margins, of the least cross-validated deferral loss by this rule."""
        assert self._features is not None
        _, train, test = self._features
        p = costs.shape[1]
        strengths = [_unit(method, p) * alpha for alpha in self.request.alphas]
        if method.margins == "grid":
            strengths = strengths[1::2] or strengths
        searches = []
        for kind in REWARDS if method.rewards == "any" else (method.rewards,):
            options: dict[str, Any] = {"decision": rule, "ties": "first"}
            if method.name in ("mild", "tdef"):
                options["cost_scale"] = largest
            if method.name == "mild":
                options |= {"rewards": kind, "counts": method.counts or "reward"}
                options["margins"] = "theory" if method.searched else method.margins
                if method.strength is not None:
                    options["strength"] = method.strength
                if not isinstance(method.margins, tuple):
                    options["total"] = method.sum_of_margins(p)
            search = RouterCV(
                LinearRouter(method.name, **options),
                alphas=strengths,
                margin_factors=MARGIN_FACTORS if method.margins == "tuned" else (1.0,),
                margin_exponents=(),
                grid="paper" if method.margins == "grid" else "ratios",
                cv=inner,
                one_standard_error=False,
                constant_if_better=False,
                n_jobs=self.request.jobs,
                random_state=seed,
            )
            searches.append(search.fit(train, costs))
        best = min(searches, key=_least)
        router = best.best_estimator_
        found = {"alpha": float(router.alpha), "cross_validated": _least(best)}
        found["tried"] = len(best.cv_results_["mean_cost"])
        margins = None
        if method.name in ("mild", "tdef"):
            margins = tuple(float(value) for value in router.margins_)
        if method.name == "mild":
            found["rewards"] = router.rewards
        return router.decision_function(test), margins, found

    def _fit_transformer(
        self,
        method: Method,
        train: Sequence[str],
        costs: Floats,
        test: Sequence[str],
        largest: float,
        seed: int,
        report: Tell,
    ) -> dict[str, Fitted]:
        from experiments.llm.transformer import DEBERTA, TransformerRouter

        asked: dict[str, Any] = {"loss": method.name, "ties": "first"}
        if method.name in ("mild", "tdef"):
            asked["cost_scale"] = largest
        if method.name == "mild":
            asked |= {"rewards": method.rewards, "counts": method.counts or "reward"}
            asked["margins"] = method.margins
            if not isinstance(method.margins, tuple):
                asked["total"] = method.sum_of_margins(costs.shape[1])
        router = TransformerRouter(
            self.request.model or DEBERTA,
            **{**asked, **self.request.transformer},
            random_state=seed,
            progress=lambda done, total, message: report(f"step {done} of {total}, {message}"),
        )
        router.fit(list(train), costs)
        margins = None
        if method.name in ("mild", "tdef"):
            margins = tuple(float(value) for value in router.margins_)
        scores = router.decision_function(list(test))
        found = {"final_loss": float(router.history_[-1]["loss"])}
        return dict.fromkeys(decisions(margins), (scores, margins, found))

    def _device(self) -> str:
        if self.request.features != "transformer":
            return "cpu"
        from experiments.images.run import choose_device

        return choose_device(str(self.request.transformer.get("device", "auto")))


#: Scores (n_test, p), margins (None for methods that learn from labels), and what was found.
Fitted = tuple[Floats, tuple[float, ...] | None, dict[str, Any]]


def _outcome(
    rule: str, costs: Floats, scores: Floats, margins: tuple[float, ...] | None, found: Any
) -> dict[str, Any]:
    if not np.isfinite(scores).all():
        raise DivergedError("scores must be finite; the training diverged.")
    chosen = decide(scores, margins, decision=rule)
    return {
        **judged(costs, chosen),
        "control": shuffled_control(costs, chosen),
        "margins": None if margins is None else list(margins),
        "found": found,
    }


def _unit(method: Method, p: int) -> float:
    """Factor that makes a strength mean the same for all methods.

    Scores t times as large, with margins that are so, too, make the same decisions and have t^2 times the
    penalty.
    """
    if method.name == "ldam":
        return LDAM_SCALE**2
    if method.name != "mild":
        return 1.0
    given = method.margins
    return float((p / (sum(given) if isinstance(given, tuple) else method.sum_of_margins(p))) ** 2)


def _least(search: RouterCV) -> float:
    return float(search.cv_results_["mean_cost"][search.best_index_])


def _transformer_protocol(model: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    from experiments.llm.transformer import DEBERTA, TransformerRouter

    source = model or DEBERTA
    router = TransformerRouter(source, **options)
    folder = model_folder(source)
    features: dict[str, Any] = {"kind": "transformer", "model": Path(source).name}
    if folder is not None:
        features["sha256"] = digest_files(folder, ("config.json", "model.safetensors"))
    settings = {name: getattr(router, name) for name in TRANSFORMER_SETTINGS}
    return {"name": "transformer", "features": features, **settings}


def skewed_prices(
    errors: Floats, beta: Sequence[float], lengths: Floats, share: float
) -> tuple[Floats, float]:
    """Prices (n, p) per word, raised until expert 0 is cheapest on ``share`` of the rows; and the raise.

    The paper prints neither its skewed costs nor how they were found. Here the price of every expert but
    the first is raised by the same amount per word, the least that reaches the share.

    >>> errors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    >>> prices, added = skewed_prices(errors, (0.0, 0.0), np.array([0.5, 1.5, 1.0]), 0.6)
    >>> round(added, 3), ((errors + prices).argmin(axis=1) == 0).tolist()
    (0.667, [False, True, True])
    """
    prices = np.asarray(beta, dtype=np.float64)
    needed = (errors[:, :1] - errors[:, 1:]) / lengths[:, None] + prices[0] - prices[1:]
    place = math.ceil(share * len(needed)) - 1
    added = max(0.0, float(np.sort(needed.max(axis=1))[place]))
    raised = np.concatenate([prices[:1], prices[1:] + added])
    # Rounding must not undo what the raise was chosen for.
    return np.where(np.arange(len(prices)) > 0, 1 + 1e-12, 1.0) * raised * lengths[:, None], added


def ordered_trio(names: Sequence[str]) -> list[str]:
    """The three experts to route among where none are named: the paper's, or the table's by size.

    >>> ordered_trio(["tiny-1B", "large-70B", "mid-8B"])
    ['large-70B', 'mid-8B', 'tiny-1B']
    """
    by_case = {name.casefold(): name for name in names}
    paper = [by_case[name.casefold()] for name in QWEN if name.casefold() in by_case]
    if len(paper) == 3:
        return paper
    sizes = {}
    for name in names:
        found = re.findall(
            r"(?<![\w.])(\d+(?:\.\d+)?)\s*[bB](?![a-zA-Z0-9])", name.replace("_", "-")
        )
        if found:
            sizes[name] = float(found[-1])
    if len(names) != 3 or len(set(sizes.values())) < 3:
        raise InvalidInputError(
            f"these experiments need three experts that report their sizes by their names, such as 7B; got "
            f"{', '.join(names)}. Name three, from strong to tiny, with --experts."
        )
    return sorted(names, key=lambda name: -sizes[name])


def parse_beta(text: str, names: Sequence[str]) -> tuple[float, ...]:
    """What asking each expert costs: numbers in the order of the experts, or ``expert=cost`` pairs.

    >>> parse_beta("0.5B=0.1,7B=1", ["7B", "1.5B", "0.5B"])
    (1.0, 0.0, 0.1)
    """
    parts = [part.strip() for part in text.strip().removesuffix(",").split(",")]
    try:
        if "=" not in text:
            return tuple(map(float, parts))
        pairs = [part.rpartition("=") for part in parts]
        costs = {match_expert(name.strip(), names): float(value) for name, _, value in pairs}
    except ValueError as error:
        raise InvalidInputError(
            f"beta must be numbers such as 1,0.6,0.1, or EXPERT=COST pairs; got {text!r} ({error})."
        ) from error
    return tuple(costs.get(name, 0.0) for name in names)


def read_vectors(path: Path, n_rows: int) -> Floats:
    """Vectors (n_rows, d) from a .npy file, one row per row of the table."""
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataFileError(f"{path} must be a .npy file of vectors; {error}.") from error
    if (
        found.ndim != 2
        or found.dtype.kind != "f"
        or len(found) != n_rows
        or not np.isfinite(found).all()
    ):
        raise DataFileError(
            f"{path} must hold finite vectors ({n_rows:,}, width), one per row of the table; got "
            f"{found.dtype} of shape {found.shape}."
        )
    return found
