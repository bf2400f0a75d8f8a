"""Estimators with fixed settings: what they choose on rows that they were not fitted on."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from . import tables
from .adapter import call, cascade, next_step

# Expected costs are held for the first rows.
SHOWN = 15


def vectors(gaps):
    """Rows to train on, of which with ``gaps`` not every expert was asked, and rows to judge."""
    train, test = tables.vectors()
    return (tables.with_gaps(train) if gaps else train), test


def choices(router, rows):
    """The experts that a router chooses, and what they cost on average."""
    chosen = router.predict(rows.inputs)
    cost = rows.errors[np.arange(len(chosen)), chosen].mean()
    return {"rows": {"chosen": chosen}, "means": {"cost": cost}}


def row_weights(rows):
    """Rows count more the larger their first feature is."""
    return 1.25 + rows.inputs[:, 0]


def linear(gaps=False, weighted=False, **settings):
    train, test = vectors(gaps)
    sample_weight = row_weights(train) if weighted else None
    router = call("routers.LinearRouter", **settings)
    router.fit(train.inputs, train.errors, sample_weight=sample_weight)
    return {**choices(router, test), "values": {"margins": router.margins_}}


def probabilities():
    """The mean stationary distribution of a router with unequal margins."""
    train, test = tables.vectors()
    router = call("routers.LinearRouter", margins=(1.5, 0.4, 1.1)).fit(train.inputs, train.errors)
    return {"means": {"probabilities": router.predict_proba(test.inputs).mean(axis=0)}}


def expecting(name, gaps=False, weighted=False, **settings):
    """A router that expects costs."""
    train, test = vectors(gaps)
    arguments = {"sample_weight": row_weights(train)} if weighted else {}
    router = call(f"routers.{name}", **settings).fit(train.inputs, train.errors, **arguments)
    held = choices(router, test)
    held["means"]["expected costs"] = router.expected_costs(test.inputs[:SHOWN])
    return held


def ties():
    """Four neighbours, whose answers are right or wrong; of experts that tie the last is the best."""
    train, test = tables.priced()
    best_last = np.argsort(-train.errors.mean(axis=0))
    router = call("routers.KNNRouter", n_neighbors=4)
    router.fit(train.inputs, train.errors[:, best_last])
    return choices(router, replace(test, errors=test.errors[:, best_last]))


def priced(price_weight=20.0, gaps=False, weighted=False):
    """A router that expects errors and prices apart; also at another weight of the prices."""
    train, test = tables.priced()
    if gaps:
        train = tables.with_gaps(train)
    arguments = {"sample_weight": row_weights(train)} if weighted else {}
    router = call("routers.PricedRouter", price_weight=price_weight)
    router.fit(train.inputs, train.errors, prices=train.prices, **arguments)
    dearer = router.with_prices(price_weight=4 * price_weight)
    held = choices(router, test)
    chosen = held["rows"]["chosen"]
    held["rows"]["chosen where dollars count more"] = dearer.predict(test.inputs)
    held["means"] |= {
        "expected errors": router.expected_errors(test.inputs[:SHOWN]),
        "expected dollars of 100 queries": 100 * router.expected_prices(test.inputs[:SHOWN]),
        "dollars of 100 queries": 100 * test.prices[np.arange(len(chosen)), chosen].mean(),
    }
    return held


def blend(gaps=False):
    """Three routers; what they expect together depends on the folds more than what they choose."""
    train, test = vectors(gaps)
    members = [
        ("linear", call("routers.LinearRouter")),
        ("ridge", call("routers.RidgeRouter")),
        ("nearest", call("routers.KNNRouter")),
    ]
    router = call("routers.BlendRouter", members).fit(train.inputs, train.errors)
    return choices(router, test)


def network(n_features, n_outputs):
    """A perceptron with a hidden layer, always with the same weights."""
    import torch

    rng = np.random.default_rng(59)
    body = torch.nn.Sequential(
        torch.nn.Linear(n_features, 16), torch.nn.ReLU(), torch.nn.Linear(16, n_outputs)
    )
    with torch.no_grad():
        for parameter in body.parameters():
            start = rng.random(tuple(parameter.shape)) - 0.5
            parameter.copy_(torch.from_numpy(start))
    return body


def neural(gaps=False, **settings):
    """A network that starts at given weights and sees all rows in every step: nothing is random."""
    train, test = vectors(gaps)
    router = call(
        "routers.NeuralRouter",
        body=network,
        epochs=60,
        lr=0.02,
        batch_size=len(train.inputs),
        validation_fraction=0.0,
        device="cpu",
        **settings,
    )
    return choices(router.fit(train.inputs, train.errors), test)


def cost_sensitive(**settings):
    """The label is the expert who answers best; each other one costs what it errs more."""
    train, test = tables.vectors()
    labels = train.errors.argmin(axis=1)
    costs = train.errors - train.errors.min(axis=1, keepdims=True)
    classifier = call("routers.CostSensitiveClassifier", **settings)
    classifier.fit(train.inputs, labels, costs)
    return {**choices(classifier, test), "values": {"margins": classifier.margins_}}


def classes(rows):
    """Four classes, and the answers of experts who are right where their errors are small."""
    y = 2 * (rows.inputs[:, 0] + rows.errors[:, 2] > 0.5) + (rows.inputs[:, 1] > 0)
    return y, np.where(rows.errors < 0.5, y[:, None], (y[:, None] + 1) % 4)


def deferral(n_experts=3, features=(0, 1, 2, 3), gaps=False, **settings):
    """A linear classifier of four classes that sees some of the features, and whom it asks."""
    features = list(features)
    train, test = tables.vectors()
    y, answers = classes(train)
    if gaps:
        answers = np.where(np.isnan(tables.with_gaps(train).errors), np.nan, answers)
    classifier = call("deferral.DeferralClassifier", device="cpu", random_state=0, **settings)
    classifier.fit(train.inputs[:, features], y, answers[:, :n_experts])
    y, answers = classes(test)
    inputs = test.inputs[:, features]
    accuracy = classifier.system_score(inputs, y, experts=answers[:, :n_experts])
    return {
        "rows": {
            "class": classifier.predict(inputs),
            "deferred to": classifier.defer(inputs),
        },
        "means": {
            "accuracy": accuracy,
            "margin": classifier.deferral_margin(inputs).mean(),
        },
    }


def cascade_steps(**settings):
    """Whom a cascade asks and whose answer it accepts, such as "12>0=0"; and what the answers cost."""
    train, test = tables.answered()
    router = cascade(train, "number", **settings)
    runs = [one_run(router, answers) for answers in test.answers]
    rows = np.arange(len(runs))
    accepted = [run.accepted for run in runs]
    early = [run.probability for run in runs if len(run.asked) < 3]
    dollars = [prices[run.asked].sum() for prices, run in zip(test.prices, runs, strict=True)]
    return {
        "rows": {"steps": [run.steps for run in runs]},
        "means": {
            "cost": test.errors[rows, accepted].mean(),
            "dollars of 100 queries": 100 * np.mean(dollars),
            "probability without the last step": np.mean(early),
        },
    }


class Run(NamedTuple):
    """What a cascade did with one query."""

    steps: str
    asked: list
    accepted: int
    probability: float  # that the accepted answer is right


def one_run(router, answers):
    """Ask whom the cascade wants to ask, until it accepts an answer."""
    steps, asked = "", []
    for _ in range(len(answers) + 1):
        experts, accepted, probability = next_step(router, {k: answers[k] for k in asked})
        if accepted is not None:
            return Run(f"{steps[1:]}={accepted}", asked, accepted, probability)
        steps += ">" + "".join(map(str, experts))
        asked += experts
    raise AssertionError(f"no answer is accepted after {steps[1:]}")


LINEAR = {
    "mild": {},
    "mild, argmax": {"decision": "argmax"},
    "mild, uniform margins": {"margins": "uniform"},
    "mild, given margins": {"margins": (1.5, 0.4, 1.1)},
    "mild, given margins, argmax": {"margins": (1.1, 0.9, 1.0), "decision": "argmax"},
    "mild, complement": {"rewards": "complement"},
    "mild, contrast": {"rewards": "contrast"},
    "mild, baseline": {"rewards": "baseline", "strength": 0.25},
    "mild, exponential": {"surrogate": "exponential"},
    "mild, pairwise_logistic": {"surrogate": "pairwise_logistic"},
    "mild, pairwise_exponential": {"surrogate": "pairwise_exponential"},
    "mild, tau 0.5": {"surrogate": 0.5},
    # With the rewards "others" the hinge is least at weights of zero, where all experts tie.
    "mild, hinge": {"surrogate": "hinge", "rewards": "contrast"},
    "mild, strong penalty": {"alpha": 0.03},
    "mild, without intercept": {"fit_intercept": False},
    "mild, weighted rows": {"weighted": True},
    "mild, cells not asked": {"gaps": True},
    "tdef": {"loss": "tdef"},
    "tdef, cost scale": {"loss": "tdef", "cost_scale": 2.0},
    "tdef, cells not asked": {"loss": "tdef", "gaps": True},
    "ce": {"loss": "ce"},
    "cwce": {"loss": "cwce"},
    "ldam": {"loss": "ldam"},
    "logit_adjusted": {"loss": "logit_adjusted"},
    "temperature": {"loss": "temperature"},
}
NEURAL = {
    "mild": {},
    "mild, argmax": {"decision": "argmax"},
    "mild, exponential": {"surrogate": "exponential"},
    "mild, cells not asked": {"gaps": True},
    "tdef": {"loss": "tdef"},
    "ce": {"loss": "ce"},
    "ldam": {"loss": "ldam"},
}
COST_SENSITIVE = {
    "max": {},
    "max, hinge": {"surrogate": "hinge"},
    "sum": {"reduction": "sum"},
    "log_sum": {"reduction": "log_sum"},
    "given margins": {"reduction": "sum", "margins": (1.5, 0.4, 1.1)},
}
# Without the feature that tells even classes from odd ones, it pays to ask the one expert; without the
# penalty the scores grow too large to be held to 0.002.
ONE_EXPERT = {"n_experts": 1, "features": (0, 2, 3), "weight_decay": 0.001}
DEFERRAL = {
    "cross_entropy": {},
    "ova": {},
    "ova, costs": {"expert_costs": [0.1, 0.0, 0.05]},
    "ova, cells not asked": {"gaps": True},
    "comp_sum": {"expert_costs": 0.1},
    "mild": {"expert_costs": 0.1},
    "picce": {},
    "realizable": ONE_EXPERT,
    "asymmetric_softmax": ONE_EXPERT,
    "rl2d": ONE_EXPERT,
    "confidence": {},
    "compare_confidence": {},
}
CASCADES = {
    "two, then one": {"steps": [[1, 2], [0]], "price_weight": 10.0},
    "one after the other": {"steps": [[1], [2], [0]], "price_weight": 10.0},
    "the last too dear": {"steps": [[1, 2], [0]], "price_weight": 100.0},
}
EXPECTING = {
    "ridge": {"name": "RidgeRouter"},
    "ridge, strong penalty": {"name": "RidgeRouter", "alpha": 100.0},
    "ridge, weighted rows": {"name": "RidgeRouter", "weighted": True},
    "ridge, cells not asked": {"name": "RidgeRouter", "gaps": True},
    "knn": {"name": "KNNRouter"},
    "knn, 5 neighbors": {"name": "KNNRouter", "n_neighbors": 5},
    "knn, cells not asked": {"name": "KNNRouter", "gaps": True},
    "constant": {"name": "ConstantRouter"},
    "constant, given": {"name": "ConstantRouter", "expert": 1},
}
ENTRIES = {
    "linear: probabilities": probabilities,
    "costs: knn, ties": ties,
    "priced": priced,
    "priced, weighted rows": partial(priced, weighted=True),
    "priced, cells not asked": partial(priced, gaps=True),
    "blend": blend,
    "blend, cells not asked": partial(blend, gaps=True),
}
for function, kind, held in (
    (linear, "linear", LINEAR),
    (expecting, "costs", EXPECTING),
    (cost_sensitive, "cost-sensitive", COST_SENSITIVE),
    (cascade_steps, "cascade", CASCADES),
    (neural, "torch: neural", NEURAL),
):
    ENTRIES |= {f"{kind}: {name}": partial(function, **held[name]) for name in held}
for name, settings in DEFERRAL.items():
    loss = name.partition(",")[0]
    ENTRIES[f"torch: deferral {name}"] = partial(deferral, loss=loss, **settings)
