"""Tables, evaluations of routers that were fitted on them, verdicts, intervals and metrics."""

from functools import partial

import numpy as np

from . import tables
from .adapter import (
    call,
    cascade,
    column,
    evaluate,
    fit,
    judge_cost,
    judge_target,
    limits,
    outcomes,
)

BY_TOPIC = {"groups": "topic"}


def the_tables():
    """If this alone differs, the generator draws other numbers, and everything else has to differ."""
    made = {
        "vectors": tables.vectors()[0],
        "priced": tables.priced()[0],
        "answered": tables.answered()[0],
        "priced, with gaps": tables.with_gaps(tables.priced()[0]),
    }
    values = {}
    for name, rows in made.items():
        values[f"inputs of {name}"] = rows.inputs.mean(axis=0)
        values[f"errors of {name}"] = np.nanmean(rows.errors, axis=0)
        if rows.prices is not None:
            values[f"prices of {name}"] = np.nanmean(rows.prices, axis=0)
    texts = sorted({str(answer) for answer in tables.answered()[0].answers.flat})
    return {"values": values, "facts": {"answers": len(texts), "first": texts[:5]}}


def table_costs(**terms):
    costs = outcomes(tables.with_gaps(tables.priced()[0])).costs(**terms)
    return {"values": {"means": np.nanmean(costs, axis=0), "unknown": np.isnan(costs).sum(axis=0)}}


def split_by_topic():
    """Rows of one topic are on one side."""
    table = outcomes(tables.priced()[0])
    parts = table.split(test_size=0.25, groups="topic", random_state=0)
    topics = [list(column(part, "topic")) for part in parts]
    return {
        "facts": {
            "rows": [len(part) for part in topics],
            "topics on both sides": len(set(topics[0]) & set(topics[1])),
        }
    }


def verdict_numbers(verdict):
    ((estimate, low, high),) = limits(verdict).tolist()
    return {
        "means": {"difference": estimate},
        "intervals": {"difference": [low, high]},
        "facts": {"rows": verdict.n_rows, "groups": verdict.n_groups, "pays": verdict.pays},
    }


def evaluation(rows, router, gaps=False, judged_by=None, **settings):
    """A router that was fitted by ``mild.fit``, on rows that it has not seen."""
    train, test = rows()
    if gaps:
        train, test = tables.with_gaps(train), tables.with_gaps(test)
    fitted = fit(outcomes(train), router, **settings)
    held = evaluated(fitted, test, **(judged_by or {}))
    return {**held, "rows": {"chosen": route(fitted, test)}}


def evaluated(router, rows, **settings):
    verdict, means = evaluate(router, outcomes(rows), **settings)
    held = verdict_numbers(verdict)
    dollars = means.pop("dollars")
    if dollars is not None:
        means["dollars per 100 queries"] = dollars / 10
    held["means"] |= means
    return held


def route(router, rows):
    """Indices of the experts whose names a router gives."""
    return [rows.experts.index(name) for name in router.route(rows.inputs)]


def nearest_evaluation():
    """A router that is made of a fitted estimator."""
    train, test = tables.vectors()
    nearest = call("routers.KNNRouter").fit(train.inputs, train.errors)
    return evaluated(fit(outcomes(train), nearest), test)


def cascade_evaluation():
    """What a cascade costs, with the prices of all experts that it asks."""
    train, test = tables.answered()
    fitted = cascade(train, "number", steps=[[1, 2], [0]], price_weight=10.0)
    return evaluated(fit(outcomes(train), fitted), test, price_weight=10.0)


def without_expert():
    """The choices of a router from which an expert was taken."""
    train, test = tables.priced()
    router = fit(outcomes(train), "ridge", price_weight=20.0).without("medium-1")
    return {"rows": {"chosen": route(router, test)}}


def by_hand():
    """Rows with prices, the costs of each expert, and choices between the second and the third."""
    rows = tables.priced()[1]
    x = rows.inputs
    chosen = np.where(x[:, 1] - x[:, 0] > 0.2 + x[:, 2] - x[:, 1], 1, 2)
    return rows, rows.errors + 20 * rows.prices, chosen


def cost_verdict(expert, reference, by_topic=False):
    """One expert, or the choices, beside always the same expert."""
    rows, costs, chosen = by_hand()
    experts = chosen if expert is None else np.full(len(costs), expert)
    groups = rows.topics if by_topic else None
    verdict = judge_cost(costs[np.arange(len(costs)), experts], costs[:, reference], groups)
    return verdict_numbers(verdict)


def target_verdict(keep_quality):
    """The choices against a share of the quality of the first expert."""
    rows, _, chosen = by_hand()
    interval, is_met = judge_target(rows, chosen, 0, keep_quality=keep_quality)
    ((estimate, low, high),) = limits(interval).tolist()
    return {
        "means": {"kept": estimate},
        "intervals": {"kept": [low, high]},
        "facts": {"met": is_met},
    }


def interval_of_pairs(by_topic):
    rows, costs, _ = by_hand()
    groups = rows.topics if by_topic else None
    interval = call("metrics.paired_interval", costs[:, 1], costs[:, 2], groups=groups)
    return held_intervals(interval)


def joint_intervals():
    """The third expert beside each other one."""
    _, costs, _ = by_hand()
    return held_intervals(call("metrics.joint_intervals", costs[:, [0, 1, 3]] - costs[:, [2]]))


def intervals_over_splits():
    """The same two experts beside the third in five random splits."""
    _, costs, _ = by_hand()
    rng = np.random.default_rng(60)
    splits = [rng.permutation(len(costs))[:72] for _ in range(5)]
    differences = [costs[rows][:, [0, 1]] - costs[rows][:, [2]] for rows in splits]
    return held_intervals(
        call("metrics.split_intervals", differences, groups=splits, test_over_train=3 / 7)
    )


def held_intervals(intervals):
    numbers = limits(intervals)
    return {"means": {"differences": numbers[:, 0]}, "intervals": {"differences": numbers[:, 1:]}}


def metrics_of_choices(gaps=False):
    """Of choices, and of single experts."""
    rows, costs, chosen = by_hand()
    weight = 1.25 + rows.inputs[:, 0]
    if gaps:
        costs = np.where(np.isnan(tables.with_gaps(rows).errors), np.nan, costs)
    values = {
        "deferral_loss": call("metrics.deferral_loss", costs, chosen, missing="skip"),
        "shares": call("metrics.expert_shares", chosen, 4),
    }
    for name in ("balanced_deferral_loss", "expert_recall", "balanced_recall"):
        values[name] = call(f"metrics.{name}", costs, chosen)
        values[f"{name}, weighted"] = call(f"metrics.{name}", costs, chosen, sample_weight=weight)
    for name in ("constant_losses", "oracle_loss", "oracle_shares"):
        values[name] = call(f"metrics.{name}", costs)
        values[f"{name}, weighted"] = call(f"metrics.{name}", costs, sample_weight=weight)
    return {"values": values}


def ties_of_the_oracle():
    """Of experts that are equally good, the first one counts as the best."""
    errors = tables.priced()[1].errors
    return {
        "values": {
            "shares": call("metrics.oracle_shares", errors),
            "recall": call("metrics.expert_recall", errors, np.zeros(len(errors), int)),
        }
    }


def two_experts():
    """The quality at every share of the stronger expert; its points are too many to be held."""
    rows, _, _ = by_hand()
    preference = rows.inputs[:, 2] - rows.inputs[:, 0]
    weak, strong = 1 - rows.errors[:, 3], 1 - rows.errors[:, 0]
    curve = call("metrics.two_expert_curve", preference, weak, strong)
    return {"values": {"apgr": curve.apgr, "auc": curve.auc, "cpt": curve.cpt(0.5)}}


def risk_control():
    """Losses of four settings, from the safest to the riskiest."""
    losses = tables.priced()[1].errors
    certificate = call("metrics.certify", losses, 0.5, guarantee=0.9)
    return {
        "values": {
            "p-values": call("metrics.betting_p_values", losses, 0.5),
            "estimates": certificate.estimates,
        },
        "facts": {"certified": certificate.n_certified},
    }


def deferral_metrics():
    """A classifier that is right where an expert is, who is asked where the first feature is large."""
    rows = tables.vectors()[1]
    y = (rows.inputs[:, 1] > 0).astype(int)
    predicted = np.where(rows.errors[:, 2] < 0.5, y, 1 - y)
    answers = np.where(rows.errors < 0.6, y[:, None], 1 - y[:, None])
    margin = rows.inputs[:, 0]
    deferred_to = np.where(margin > 0.4, 0, -1)
    summary = call("metrics.deferral_summary", y, predicted, deferred_to, answers)
    correct = call("metrics.expert_correctness", y, answers)
    is_right = [predicted == y, correct[:, 0]]
    curve = call("metrics.accuracy_coverage_curve", *is_right, margin)
    second = call("metrics.accuracy_coverage_curve", *is_right, -margin)
    mean = call("metrics.mean_coverage_curve", [curve, second])
    probability = np.round(1 - rows.errors[:, 0], 6)
    reliability = call("metrics.reliability_curve", correct[:, 0], probability)
    error = call("metrics.expected_calibration_error", correct[:, 0], probability)
    return {
        "values": {
            "accuracy": summary.system_accuracy,
            "coverage": summary.coverage,
            "accuracy of the classifier": summary.classifier_accuracy,
            "accuracy of the experts": summary.expert_accuracy,
            "area": curve.area,
            "accuracy at coverages": [curve.at(share) for share in (0.2, 0.5, 0.8)],
            "mean of two": [mean.at(share) for share in (0.2, 0.5, 0.8)],
            "predicted": reliability.predicted,
            "observed": reliability.observed,
            "calibration error": error,
        },
        "intervals": {"at the tenth point": [curve.low[10], curve.high[10]]},
    }


def off_policy(name, with_model=False):
    """The mean cost of other choices than those in a log."""
    _, costs, chosen = by_hand()
    rng = np.random.default_rng(61)
    propensities = np.array([0.1, 0.4, 0.3, 0.2])
    drawn = np.searchsorted(propensities.cumsum()[:-1], rng.random(len(costs)))
    n = len(drawn)
    answers = call(
        "evaluation.LoggedAnswers", drawn, propensities[drawn], np.ones(n), np.ones(n), np.arange(n)
    )
    target = np.eye(4)[chosen]
    arguments = [answers, costs[np.arange(n), drawn], target]
    if with_model:
        arguments.append(np.tile(costs.mean(axis=0), (n, 1)))
    estimate = call(f"evaluation.{name}", *arguments)
    return {"values": {"interval": limits(estimate.interval)}}


RESPONSES = {
    "number": [
        ["12", "The answer is 12.0.", "13", None],
        ["1,200", "1200.00", "$1,200", "1.2e3"],
        ["\\boxed{3/4}", "0.75", "3 of 4 are left, so 0.25", "I cannot answer."],
        ["-5", "5", "3 + 2 = 5", "#### -5"],
    ],
    "choice": [
        ["B", "(b)", "The answer is B.", "C) because it is larger"],
        ["A", "a)", None, "Answer: D"],
    ],
    "json": [
        ['{"a": 1, "b": [2]}', '{"b": [2], "a": 1.0}', '{"a": 1}', "[1]"],
        [
            '{"name": "add", "arguments": {"x": 1, "y": 2}}',
            '[{"name": "add", "arguments": {"y": 2, "x": 1}}]',
            '{"name": "add", "arguments": {"x": 2, "y": 1}}',
            None,
        ],
    ],
    "code": [["[1, 2]\n", "[1, 2]", "[1,2]", None], ["True", "true", "False", "True"]],
}


def agreement(kind):
    """Which of four answers agree: equal digits in a row; "-" where one says nothing."""
    patterns = []
    for row in RESPONSES[kind]:
        contents = [call("answers.canonical_answer", answer, kind) for answer in row]
        patterns.append(
            "".join("-" if said is None else str(contents.index(said)) for said in contents)
        )
    return {"facts": {"patterns": patterns}}


def read_answers():
    texts = ["3 boxes of 4 are 12, and 1,200.50 in all.", "The answer is 3/4, of 9", "5%", "none"]
    numbers = [list(map(float, call("answers.extract_number", text))) for text in texts]
    letters = ["The answer is (C).", "B", "It is A or B.", "Paris"]
    options = ["London", "Paris", "Rome"]
    return {
        "facts": {
            "numbers": numbers,
            "letters": [call("answers.extract_letter", text, options) for text in letters],
            "kinds": [
                call("answers.detect_kind", row)
                for row in (["12", "3.5"], ["B", "(c)"], ['{"a": 1}', "[2]"])
            ],
        }
    }


EVALUATIONS = {
    "linear": (tables.vectors, "linear"),
    "linear, tdef by argmax": (tables.vectors, "linear", {"loss": "tdef", "decision": "argmax"}),
    "ridge": (tables.vectors, "ridge"),
    "constant": (tables.vectors, "constant"),
    "linear, dollars": (tables.priced, "linear", {"price_weight": 20.0}),
    "linear, dollars and seconds, by topic": (
        tables.priced,
        "linear",
        {"price_weight": 20.0, "latency_weight": 0.05, "judged_by": BY_TOPIC},
    ),
    "linear, other terms": (tables.priced, "linear", {"judged_by": {"price_weight": 20.0}}),
    "ridge, fixed costs": (tables.priced, "ridge", {"beta": {"large-1": 0.25, "medium-2": 0.05}}),
    "priced, by topic": (tables.priced, "priced", {"price_weight": 20.0, "judged_by": BY_TOPIC}),
    "priced, cells not asked": (tables.priced, "priced", {"price_weight": 20.0, "gaps": True}),
}
ENTRIES = {
    "tables: as they are made": the_tables,
    "tables: errors": table_costs,
    "tables: dollars": partial(table_costs, price_weight=20.0),
    "tables: all terms": partial(
        table_costs, beta={"large-1": 0.25}, price_weight=20.0, latency_weight=0.05
    ),
    "tables: split by topic": split_by_topic,
    "evaluate: cascade": cascade_evaluation,
    "evaluate: knn": nearest_evaluation,
    "router without an expert": without_expert,
    "verdict: pays": partial(cost_verdict, None, 0),
    "verdict: pays, by topic": partial(cost_verdict, None, 0, by_topic=True),
    "verdict: does not pay": partial(cost_verdict, 3, 1),
    "verdict: not clear": partial(cost_verdict, 1, 2),
    "verdict: not clear, by topic": partial(cost_verdict, 1, 2, by_topic=True),
    "verdict: target met": partial(target_verdict, 0.6),
    "verdict: target missed": partial(target_verdict, 1.2),
    "intervals: paired": partial(interval_of_pairs, by_topic=False),
    "intervals: paired, by topic": partial(interval_of_pairs, by_topic=True),
    "intervals: joint": joint_intervals,
    "intervals: splits": intervals_over_splits,
    "metrics: choices": metrics_of_choices,
    "metrics: cells not asked": partial(metrics_of_choices, gaps=True),
    "metrics: ties": ties_of_the_oracle,
    "metrics: two experts": two_experts,
    "metrics: risk control": risk_control,
    "metrics: deferral": deferral_metrics,
    "off-policy: inverse propensity": partial(off_policy, "inverse_propensity"),
    "off-policy: self-normalised": partial(off_policy, "self_normalised"),
    "off-policy: doubly robust": partial(off_policy, "doubly_robust", with_model=True),
    "answers: read": read_answers,
}
for name, (rows, router, *settings) in EVALUATIONS.items():
    ENTRIES[f"evaluate: {name}"] = partial(evaluation, rows, router, **dict(*settings))
for kind in RESPONSES:
    ENTRIES[f"answers: {kind}"] = partial(agreement, kind)
