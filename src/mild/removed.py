"""What 0.10 took away, and what to use instead.

This is the one table behind the messages about removed commands, options, parameters, names and values.
``docs/development/migration.md`` shows the same rows; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["REMOVED", "Removed", "removal_message"]

#: What was removed: a command, an option of a command, a parameter of a function or estimator, a public
#: name, or a value of a parameter.
Kind = Literal["command", "option", "parameter", "name", "value"]


@dataclass(frozen=True)
class Removed:
    """One thing that was removed.

    Attributes
    ----------
    kind : Kind
        What it was.
    name : str
        Its name, as users wrote it: ``plan``, ``--topic``, ``topic``, ``mild.plan``, ``transformer``.
    instead : str
        What to do instead, as a sentence.
    where : tuple of str, default=()
        The commands (``tune``, ``data convert``), functions or classes (``tune``, ``RouterCV``,
        ``OutcomeTable.costs``) that had it, or the parameters (``families``) that took the value; empty
        for all of them.
    """

    kind: Kind
    name: str
    instead: str
    where: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The sentence that a user gets."""
        return f"{self.name} was removed in mild 0.10. {self.instead}"


#: Rows are sorted by kind, then by name.
REMOVED: tuple[Removed, ...] = (
    Removed(
        "command",
        "card",
        "The card is written by `Router.save_pretrained`; `Router.card` gives its text.",
    ),
    Removed(
        "command",
        "plan",
        "Use `python -m experiments.planning plan`, from a checkout of the repository.",
    ),
    Removed(
        "command",
        "predict",
        "Use `mild route ROUTER TABLE`; with `--out FILE` it writes `p__<expert>`, too.",
    ),
    Removed(
        "command",
        "reload",
        "A running gateway watches its router's folder and takes over a new version by itself.",
    ),
    Removed(
        "command",
        "rollback",
        "Use `mild versions ROUTER --rollback N`.",
    ),
    Removed(
        "command",
        "show",
        "Use `mild explain ROUTER`, without a query.",
    ),
    Removed(
        "name",
        "mild.AddedExpert",
        "Import it from `mild.tuning.add_expert`; `mild.add_expert` returns it.",
    ),
    Removed(
        "name",
        "mild.Comparison",
        "Import it from `mild.evaluation.comparison`; `mild.compare` returns it.",
    ),
    Removed(
        "name",
        "mild.Evaluation",
        "Import it from `mild.evaluation.evaluate`; `mild.evaluate` returns it.",
    ),
    Removed(
        "name",
        "mild.LabelPlan",
        "Use `experiments.planning.LabelPlan`, from a checkout of the repository.",
    ),
    Removed(
        "name",
        "mild.artifact.LoadedRouter",
        "Use `mild.Router`.",
    ),
    Removed(
        "name",
        "mild.collect",
        "Use `mild_gateway.collect`; `pip install mild-gateway`.",
    ),
    Removed(
        "name",
        "mild.collect_outcomes",
        "Use `mild_gateway.collect_outcomes`; `pip install mild-gateway`.",
    ),
    Removed(
        "name",
        "mild.core.bounds",
        "Use `experiments.theory.bounds`, from a checkout of the repository.",
    ),
    Removed(
        "name",
        "mild.data.Matrices",
        "Use `OutcomeTable.from_arrays(X, costs)`.",
    ),
    Removed(
        "name",
        "mild.data.cost_formula",
        "Use `mild.data.CostTerms(...).formula(table)`.",
    ),
    Removed(
        "name",
        "mild.data.is_outcome_table",
        "Use `mild.read_outcomes`, which reads tables of numbers, too.",
    ),
    Removed(
        "name",
        "mild.data.outcome_costs",
        "Use `table.costs(...)`.",
    ),
    Removed(
        "name",
        "mild.data.read_matrices",
        "Use `mild.read_outcomes`, which reads tables of numbers, too.",
    ),
    Removed(
        "name",
        "mild.endpoints",
        "Use `mild_gateway.experts`; `pip install mild-gateway`.",
    ),
    Removed(
        "name",
        "mild.gateway",
        "Use `mild_gateway`; `pip install mild-gateway`.",
    ),
    Removed(
        "name",
        "mild.import_feedback",
        "Use `mild_gateway.import_feedback`; `pip install mild-gateway`.",
    ),
    Removed(
        "name",
        "mild.learn",
        "Use `mild_gateway.learn`; `pip install mild-gateway`.",
    ),
    Removed(
        "name",
        "mild.learning",
        "Use `mild_gateway.learning`; `pip install mild-gateway`.",
    ),
    Removed(
        "name",
        "mild.mlflow",
        "Log the folder of the router with `mlflow.pyfunc`; the guide to registries has a recipe.",
    ),
    Removed(
        "name",
        "mild.plan",
        "Use `experiments.planning.make_plan`, from a checkout of the repository.",
    ),
    Removed(
        "name",
        "mild.replay",
        "Use `mild_gateway.replay`; `pip install mild-gateway`.",
    ),
    Removed(
        "name",
        "mild.rollback",
        "Use `mild.artifact.rollback`.",
    ),
    Removed(
        "name",
        "mild.routers.AnswerCascadeRouter",
        "Use `mild.CascadeRouter`.",
    ),
    Removed(
        "name",
        "mild.routers.GroupRouter",
        "Use mild.routers.ClusterRouter.",
    ),
    Removed(
        "name",
        "mild.routers.transformer",
        "Use `experiments.llm.transformer`, from a checkout of the repository.",
    ),
    Removed(
        "option",
        "--address",
        "Use Python: call `mild.tune(table, search=RouterCV(n_jobs=-1))` within `mild.batch.joblib_ray.joblib_on_ray(address)`.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--alphas",
        "Use Python: `mild.tune(table, search=RouterCV(alphas=[0.01, 0.1]))`.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--answer-column",
        "Convert the table once: `mild data convert FILE outcomes.parquet --answer-column COLUMN`.",
        where=("add-expert", "compare", "data describe", "evaluate", "fit", "report", "tune"),
    ),
    Removed(
        "option",
        "--answer-kind",
        "Leave it out: answers are not read.",
        where=("add-expert", "fit"),
    ),
    Removed(
        "option",
        "--balance",
        "Leave it out. For figures per value of a column, evaluate with --where COLUMN=VALUE.",
        where=("compare", "evaluate", "fit", "tune"),
    ),
    Removed(
        "option",
        "--batch-size",
        'Use Python: `mild.fit(table, "neural", batch_size=256)`.',
        where=("fit",),
    ),
    Removed(
        "option",
        "--calibration-share",
        "Leave it out: a guarantee keeps half of the rows for calibration.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--candidates",
        "Use --details for the 10 best candidates, or --json for all of them.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--checkpoint",
        "A neural router is trained in one run.",
        where=("fit",),
    ),
    Removed(
        "option",
        "--choices",
        "Convert the table once: `mild data convert FILE outcomes.parquet --choices`.",
        where=("add-expert", "compare", "data describe", "evaluate", "fit", "report", "tune"),
    ),
    Removed(
        "option",
        "--choices",
        "Leave it out: the choices of a question are a part of the query.",
        where=("data split",),
    ),
    Removed(
        "option",
        "--confidence",
        "Intervals have 95 %. In Python, pass search=RouterCV(confidence=...).",
        where=("compare", "tune"),
    ),
    Removed(
        "option",
        "--constant-if-better",
        "Leave it out: it is the default.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--costs",
        "Convert the table once: `mild data convert FILE outcomes.parquet --costs COLUMNS`.",
        where=("evaluate", "fit", "report", "tune"),
    ),
    Removed(
        "option",
        "--counts",
        'Use Python: `mild.fit(table, counts="best")`.',
        where=("fit", "tune"),
    ),
    Removed(
        "option",
        "--cv",
        "Methods choose their strength in 5 folds. In Python, pass search=RouterCV(cv=...).",
        where=("compare",),
    ),
    Removed(
        "option",
        "--cv",
        "Candidates are judged in 5 folds. In Python, pass search=RouterCV(cv=...).",
        where=("tune",),
    ),
    Removed(
        "option",
        "--decision",
        "The router decides as it was fitted: give `--decision` to `mild fit`.",
        where=("route",),
    ),
    Removed(
        "option",
        "--decision",
        'Use Python: `mild.tune(table, search=RouterCV(LinearRouter(decision="argmax")))`.',
        where=("tune",),
    ),
    Removed(
        "option",
        "--engine",
        "Use Python: call `mild.tune(table, search=RouterCV(n_jobs=-1))` within `mild.batch.joblib_ray.joblib_on_ray(address)`.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--epochs",
        'Use Python: `mild.fit(table, "neural", epochs=50)`.',
        where=("fit",),
    ),
    Removed(
        "option",
        "--features",
        "Convert the table once: `mild data convert FILE outcomes.parquet --features COLUMNS`.",
        where=("evaluate", "fit", "report", "tune"),
    ),
    Removed(
        "option",
        "--form",
        "Convert the table once: `mild data convert FILE outcomes.parquet --form FORM`.",
        where=("add-expert", "compare", "data describe", "evaluate", "fit", "report", "tune"),
    ),
    Removed(
        "option",
        "--hidden",
        'Use Python: `mild.fit(table, "neural", hidden=(64, 32))`.',
        where=("fit",),
    ),
    Removed(
        "option",
        "--id-column",
        "Call the column `id`, which tells equal queries of a long table apart.",
        where=(
            "add-expert",
            "compare",
            "data convert",
            "data describe",
            "evaluate",
            "fit",
            "report",
            "tune",
        ),
    ),
    Removed(
        "option",
        "--jobs",
        "Leave it out: `--engine ray` uses all processors.",
        where=("fit", "route"),
    ),
    Removed(
        "option",
        "--latencies",
        "Convert the table once: `mild data convert FILE outcomes.parquet --latencies COLUMNS`.",
        where=("add-expert", "compare", "data describe", "evaluate", "fit", "report", "tune"),
    ),
    Removed(
        "option",
        "--loss",
        'Use Python: `mild.tune(table, search=RouterCV(LinearRouter(loss="tdef")))`.',
        where=("tune",),
    ),
    Removed(
        "option",
        "--margin-factors",
        "Use Python: `mild.tune(table, search=RouterCV(margin_factors=[0.5, 1, 2]))`.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--max-calls",
        "Leave it out: a cascade asks at most 4 experts.",
        where=("compare",),
    ),
    Removed(
        "option",
        "--max-calls",
        "Use `--cascade 3` for at most 3 calls.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--model",
        'Use Python: `mild.tune(table, text=EncoderFeatures("NAME"))`.',
        where=("tune",),
    ),
    Removed(
        "option",
        "--model-column",
        "Convert the table once: `mild data convert FILE outcomes.parquet --model-column COLUMN`.",
        where=("add-expert", "compare", "data describe", "evaluate", "fit", "report", "tune"),
    ),
    Removed(
        "option",
        "--n-jobs",
        "Use `--jobs`.",
        where=("compare", "tune"),
    ),
    Removed(
        "option",
        "--neighbors",
        'Use Python: `mild.fit(table, "knn", n_neighbors=20)`.',
        where=("fit",),
    ),
    Removed(
        "option",
        "--no-choices",
        "Convert the table once: `mild data convert FILE outcomes.parquet --no-choices`.",
        where=("add-expert", "compare", "data describe", "evaluate", "fit", "report", "tune"),
    ),
    Removed(
        "option",
        "--no-choices",
        "Name the column of the question with `--group` to keep equal questions on one side.",
        where=("data split",),
    ),
    Removed(
        "option",
        "--no-constant-if-better",
        "Use Python: `mild.tune(table, search=RouterCV(constant_if_better=False))`.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--no-one-standard-error",
        "Use Python: `mild.tune(table, search=RouterCV(one_standard_error=False))`.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--no-standardize",
        "Use Python: `mild.fit(table, standardize=False)`.",
        where=("fit", "tune"),
    ),
    Removed(
        "option",
        "--one-standard-error",
        "Leave it out: it is the default.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--paper",
        "Run `make demo-paper`, in a checkout.",
        where=("demo",),
    ),
    Removed(
        "option",
        "--paper-grid",
        'Use Python: `mild.tune(table, search=RouterCV(grid="paper"))`.',
        where=("tune",),
    ),
    Removed(
        "option",
        "--plan",
        "Use `python -m experiments.planning collect`, from a checkout of the repository.",
        where=("collect",),
    ),
    Removed(
        "option",
        "--port",
        "A running gateway takes over a new version by itself.",
        where=("learn", "versions"),
    ),
    Removed(
        "option",
        "--prices",
        "Convert the table once: `mild data convert FILE outcomes.parquet --prices COLUMNS`.",
        where=("add-expert", "compare", "data describe", "evaluate", "fit", "report", "tune"),
    ),
    Removed(
        "option",
        "--responses",
        "Read the columns `answer__<expert>`, which are always written.",
        where=("collect",),
    ),
    Removed(
        "option",
        "--rewards",
        'Use Python: `mild.tune(table, search=RouterCV(LinearRouter(rewards="contrast")))`.',
        where=("tune",),
    ),
    Removed(
        "option",
        "--safe",
        "Use Python: `mild.tune(table, search=RouterCV(safe=True))`.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--save-dollars",
        "Use --max-dollars, dollars per 1,000 queries.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--scores",
        "Convert the table once: `mild data convert FILE outcomes.parquet --scores COLUMNS`.",
        where=("add-expert", "compare", "data describe", "evaluate", "fit", "report", "tune"),
    ),
    Removed(
        "option",
        "--scratch",
        "Leave it out: a table that does not fit into memory is fitted with `--engine ray`.",
        where=("fit",),
    ),
    Removed(
        "option",
        "--standardize",
        "Use Python: `mild.fit(table, standardize=True)`.",
        where=("fit", "tune"),
    ),
    Removed(
        "option",
        "--stream",
        "Leave it out: a table that does not fit into memory is fitted with `--engine ray`.",
        where=("fit",),
    ),
    Removed(
        "option",
        "--strength",
        'Use Python: `mild.fit(table, rewards="baseline", strength=0.5)`.',
        where=("fit", "tune"),
    ),
    Removed(
        "option",
        "--strong-share",
        "Use --max-dollars with prices of 0 for the weak and 1 for the strong expert.",
        where=("tune",),
    ),
    Removed(
        "option",
        "--surrogate",
        'Use Python: `mild.tune(table, search=RouterCV(LinearRouter(surrogate="hinge")))`.',
        where=("tune",),
    ),
    Removed(
        "option",
        "--test-share",
        "Use Python: `mild.compare(table, test_size=0.3)`.",
        where=("compare",),
    ),
    Removed(
        "option",
        "--tokens",
        "Convert the table once: `mild data convert FILE outcomes.parquet --tokens IN,OUT`.",
        where=("add-expert", "compare", "data describe", "evaluate", "fit", "report", "tune"),
    ),
    Removed(
        "option",
        "--topic",
        "Leave it out: kinds of queries are found in their texts, as clusters.",
        where=("compare", "tune"),
    ),
    Removed(
        "option",
        "--vectors",
        "Convert the table once: `mild data convert FILE outcomes.parquet --vectors COLUMN`.",
        where=("add-expert", "compare", "data describe", "evaluate", "fit", "report", "tune"),
    ),
    Removed(
        "option",
        "--vectors",
        "Leave it out: a column `embedding` is found, and `mild data convert` makes one of another column.",
        where=("data split",),
    ),
    Removed(
        "parameter",
        "alpha",
        "Use `experiments.score_cascade.ScoreCascadeRouter`, from a checkout of the repository.",
        where=("CascadeRouter",),
    ),
    Removed(
        "parameter",
        "alpha",
        "Pass search=RouterCV(LinearRouter(alpha=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "alphas",
        "Pass search=RouterCV(alphas=...).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "balance",
        "Leave it out. For figures per value of a column, evaluate table.take(rows) of each value.",
        where=("compare", "evaluate", "fit", "tune"),
    ),
    Removed(
        "parameter",
        "bias",
        "Pass search=RouterCV(LinearRouter(bias=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "calibration_share",
        "Leave it out: a guarantee keeps half of the rows for calibration.",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "checkpoint",
        "A neural router is trained in one run.",
        where=("NeuralRouter",),
    ),
    Removed(
        "parameter",
        "choices",
        "Leave it out, or name the column of the question with `groups`.",
        where=("split_file",),
    ),
    Removed(
        "parameter",
        "clusters",
        "Pass groups to RouterCV.fit.",
        where=("RouterCV",),
    ),
    Removed(
        "parameter",
        "confidence",
        "Pass search=RouterCV(confidence=...).",
        where=("compare", "tune"),
    ),
    Removed(
        "parameter",
        "confidence_columns",
        "Use `experiments.score_cascade.ScoreCascadeRouter`, from a checkout of the repository.",
        where=("CascadeRouter",),
    ),
    Removed(
        "parameter",
        "constant_if_better",
        "Pass search=RouterCV(constant_if_better=...).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "cost_scale",
        "Pass search=RouterCV(LinearRouter(cost_scale=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "costs",
        "Make a table of the arrays: `OutcomeTable.from_arrays(X, costs)`.",
        where=("compare", "evaluate"),
    ),
    Removed(
        "parameter",
        "counts",
        "Pass search=RouterCV(LinearRouter(counts=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "cv",
        "Pass search=RouterCV(cv=...).",
        where=("compare", "tune"),
    ),
    Removed(
        "parameter",
        "decision",
        "Pass search=RouterCV(LinearRouter(decision=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "families",
        "Pass search=RouterCV(families=...).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "fit_intercept",
        "Pass search=RouterCV(LinearRouter(fit_intercept=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "grid",
        "Pass search=RouterCV(grid=...).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "groups",
        "Leave it out: kinds of inputs are found as clusters. Groups that stay in one fold go to RouterCV.fit.",
        where=("RouterCV",),
    ),
    Removed(
        "parameter",
        "loss",
        "Pass search=RouterCV(LinearRouter(loss=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "margin_factors",
        "Pass search=RouterCV(margin_factors=...).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "margins",
        "Pass search=RouterCV(LinearRouter(margins=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "marks",
        "Use `query_hashes`.",
        where=("save",),
    ),
    Removed(
        "parameter",
        "max_calls",
        "Leave it out: a cascade asks at most 4 experts.",
        where=("compare",),
    ),
    Removed(
        "parameter",
        "max_calls",
        "Pass cascade=3 for at most 3 calls.",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "max_iter",
        "Pass search=RouterCV(LinearRouter(max_iter=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "n_jobs",
        "Pass search=RouterCV(n_jobs=...).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "n_thresholds",
        "Use `experiments.score_cascade.ScoreCascadeRouter`, from a checkout of the repository.",
        where=("CascadeRouter",),
    ),
    Removed(
        "parameter",
        "names",
        "Pass `ranks`, such as those of `mild.core.costs.expert_ranks(mean_scores, mean_prices)`.",
        where=("best_constant", "common_constant"),
    ),
    Removed(
        "parameter",
        "norms",
        "Pass search=RouterCV(LinearRouter(norms=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "one_standard_error",
        "Pass search=RouterCV(one_standard_error=...).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "order",
        "Use `experiments.score_cascade.ScoreCascadeRouter`, from a checkout of the repository.",
        where=("CascadeRouter",),
    ),
    Removed(
        "parameter",
        "pay_for_asked",
        "Use `experiments.score_cascade.ScoreCascadeRouter`, from a checkout of the repository.",
        where=("CascadeRouter",),
    ),
    Removed(
        "parameter",
        "plan",
        "Use `experiments.planning.collect_planned`, from a checkout of the repository.",
        where=("collect_outcomes",),
    ),
    Removed(
        "parameter",
        "prices",
        "Use `experiments.score_cascade.ScoreCascadeRouter`, from a checkout of the repository.",
        where=("CascadeRouter",),
    ),
    Removed(
        "parameter",
        "prices",
        "Pass `ranks`, such as those of `mild.core.costs.expert_ranks(mean_scores, mean_prices)`.",
        where=("best_constant", "common_constant"),
    ),
    Removed(
        "parameter",
        "responses",
        "Read the columns `answer__<expert>`, which are always written.",
        where=("collect_outcomes",),
    ),
    Removed(
        "parameter",
        "resume",
        "A neural router is trained in one run.",
        where=("NeuralRouter",),
    ),
    Removed(
        "parameter",
        "rewards",
        "Pass search=RouterCV(LinearRouter(rewards=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "safe",
        "Pass search=RouterCV(safe=...).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "sampling",
        "Pass search=RouterCV(LinearRouter(sampling=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "save_dollars",
        "Use max_dollars, dollars per 1,000 queries.",
        where=("tune", "Router.with_target"),
    ),
    Removed(
        "parameter",
        "scores",
        "Pass `ranks`, such as those of `mild.core.costs.expert_ranks(mean_scores, mean_prices)`.",
        where=("best_constant", "common_constant"),
    ),
    Removed(
        "parameter",
        "share_below",
        "Pass search=RouterCV(LinearRouter(share_below=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "standardize",
        "Leave it out: features are scaled unless they are made of texts.",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "strata",
        "Pass sample_weight, such as scikit-learn's compute_sample_weight('balanced', strata).",
        where=("RouterCV.fit",),
    ),
    Removed(
        "parameter",
        "strength",
        "Pass search=RouterCV(LinearRouter(strength=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "strong_share",
        "Use max_dollars with prices of 0 for the weak and 1 for the strong expert.",
        where=("tune", "Router.with_target"),
    ),
    Removed(
        "parameter",
        "surrogate",
        "Pass search=RouterCV(LinearRouter(surrogate=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "ties",
        "Pass search=RouterCV(LinearRouter(ties=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "tol",
        "Pass search=RouterCV(LinearRouter(tol=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "topic",
        "Leave it out: kinds of queries are found in their texts, as clusters.",
        where=("compare", "fit", "tune"),
    ),
    Removed(
        "parameter",
        "topics",
        "Leave it out: kinds of inputs are found as clusters.",
        where=("RouterCV.fit", "BlendRouter.fit"),
    ),
    Removed(
        "parameter",
        "total",
        "Pass search=RouterCV(LinearRouter(total=...)).",
        where=("tune",),
    ),
    Removed(
        "parameter",
        "vectors",
        "Leave it out: a column `embedding` is found, and `mild data convert` makes one of another column.",
        where=("split_file",),
    ),
    Removed(
        "parameter",
        "warm_start",
        "Pass search=RouterCV(LinearRouter(warm_start=...)).",
        where=("tune",),
    ),
    Removed(
        "value",
        "cascade",
        "Use `mild tune --cascade`, or `mild.tune(table, cascade=True)`.",
        where=("router",),
    ),
    Removed(
        "value",
        "groups",
        "Use clusters.",
        where=("families",),
    ),
    Removed(
        "value",
        "transformer",
        "Use `experiments.llm.transformer`, from a checkout of the repository.",
        where=("router",),
    ),
)


def removal_message(kind: Kind, name: str, where: str = "") -> str | None:
    """The sentence about a removed thing, or None if nothing of that name was removed there.

    Parameters
    ----------
    kind : Kind
        What is looked for.
    name : str
        Its name, as users wrote it.
    where : str, default=""
        The command, function, class or parameter that it was used with.

    >>> removal_message("option", "--never-existed", "tune") is None
    True
    """
    for removed in _matching(kind, name):
        if not removed.where or where in removed.where:
            return removed.message
    return None


def _matching(kind: Kind, name: str) -> Iterator[Removed]:
    """All rows about this name."""
    for removed in REMOVED:
        if removed.kind == kind and removed.name == name:
            yield removed
