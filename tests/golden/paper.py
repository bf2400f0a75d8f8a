"""Costs, rewards, margins, losses and decisions of the paper, in NumPy and in torch."""

from functools import partial

import numpy as np

from .adapter import call

MARGINS = (1.5, 0.4, 1.1)
SURROGATES = ("logistic", "exponential", "pairwise_logistic", "pairwise_exponential", 0.5, 1.5)
REWARDS = ("others", "complement", "contrast", "baseline")


def random_scores(n_rows=6, n_columns=3):
    return 3 * np.random.default_rng(56).random((n_rows, n_columns)) - 1.5


def random_costs(n_rows=6):
    """Costs of three experts, of which the first was not asked in the last row."""
    costs = 2 * np.random.default_rng(57).random((n_rows, 3))
    costs[-1, 0] = np.nan
    return costs


def loss_arguments():
    """The arguments of each loss besides the scores, by its name and what is special about them."""
    costs = random_costs()
    rewards = np.nan_to_num(2 - costs, nan=0.0)
    labels = np.nanargmin(costs, axis=1)
    # What it costs to decide for each expert where the label is right.
    pair_costs = np.nan_to_num(costs, nan=0.5)
    pair_costs[np.arange(len(costs)), labels] = 0
    counts = np.array([40.0, 5.0, 15.0])
    arguments = {
        "tdef_loss": [costs],
        "tdef_loss hinge": [costs, 2.5, "hinge"],
        "cross_entropy_loss": [labels],
        "cross_entropy_loss weighted": [labels, np.array([0.5, 3.0, 1.0])],
        "ldam_loss": [labels, counts, 0.5, 4.0],
        "logit_adjusted_loss": [labels, counts],
        "class_dependent_temperature_loss": [labels, counts],
        "cost_sensitive_loss sum": [labels, pair_costs, MARGINS, "logistic", "sum"],
        "log_sum_loss": [labels, pair_costs, MARGINS],
        "rho_margin_loss": [labels, pair_costs, MARGINS],
    }
    for surrogate in (*SURROGATES, "hinge"):
        arguments[f"mild_loss {surrogate}"] = [rewards, MARGINS, surrogate]
    for surrogate in ("logistic", "exponential", "hinge", 0.5):
        arguments[f"cost_sensitive_loss {surrogate}"] = [labels, pair_costs, MARGINS, surrogate]
    return arguments


def numpy_loss(name):
    """A loss of each row with its gradient; of ``rho_margin_loss`` there is none."""
    function = name.split()[0]
    arguments = [random_scores(), *loss_arguments()[name]]
    settings = {}
    if function == "mild_loss":
        settings["asked"] = ~np.isnan(random_costs())
    if function == "rho_margin_loss":
        return {"values": {"loss": call("core.rho_margin_loss", *arguments)}}
    loss, gradient = call(f"core.{function}", *arguments, **settings, return_gradient=True)
    return {"values": {"loss": loss, "gradient": gradient}}


def torch_loss(name):
    """A loss of each row with its gradient by autograd."""
    import torch

    function = name.split()[0]
    settings = {}
    if function == "mild_loss":
        settings["asked"] = torch.from_numpy(~np.isnan(random_costs()))
    scores = torch.tensor(random_scores(), requires_grad=True)
    loss = call(f"nn.{function}", scores, *tensors(loss_arguments()[name]), **settings)
    return with_gradient(loss, scores)


def with_gradient(loss, scores):
    loss.sum().backward()
    return {"values": {"loss": loss.detach().numpy(), "gradient": scores.grad.numpy()}}


def tensors(values):
    """Arrays as tensors, other values as they are."""
    import torch

    return [torch.from_numpy(v) if isinstance(v, np.ndarray) else v for v in values]


def deferral_loss(function, n_experts=2, **settings):
    """A loss of one-stage deferral, of four classes and some experts, with its gradient."""
    import torch

    rng = np.random.default_rng(58)
    scores = torch.tensor(random_scores(8, 4 + n_experts), requires_grad=True)
    y = torch.tensor(np.arange(8) % 4)
    correct = torch.tensor(rng.random((8, n_experts)) < 0.6)
    if settings.pop("with_costs", False):
        settings["expert_costs"] = torch.tensor(rng.random((8, n_experts)))
    return with_gradient(call(f"nn.defer.{function}", scores, y, correct, **settings), scores)


def decisions(surrogate):
    """The stationary distribution of some rows, and who is chosen in many."""
    scores = random_scores(200)
    distribution = call("core.stationary_distribution", scores[:6], MARGINS, surrogate)
    choices = call("core.decide", scores, MARGINS, "stationary", surrogate)
    return {"values": {"distribution": distribution}, "rows": {"chosen": choices}}


def torch_decisions(surrogate):
    scores = tensors([random_scores(200)])[0]
    distribution = call("nn.stationary_distribution", scores[:6], MARGINS, surrogate)
    choices = call("nn.decide", scores, MARGINS, "stationary", surrogate)
    return {"values": {"distribution": distribution.numpy()}, "rows": {"chosen": choices.numpy()}}


def ties():
    """Where scores tie and margins are equal the last expert is chosen, in labels the first."""
    scores = [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 2.0, 2.0]]
    return {
        "facts": {
            "argmax": call("core.decide", scores, MARGINS, "argmax"),
            "stationary": call("core.decide", scores, 1.0, "stationary"),
            "cheapest": call("core.cheapest", scores),
        }
    }


def reward_kind(kind):
    costs = random_costs(40)
    rewards = call("core.rewards", costs[-6:], kind, strength=0.25)
    mass = call("core.expert_mass", costs, kind, strength=0.25)
    return {
        "values": {
            "rewards": rewards,
            "distribution": call("core.reward_distribution", rewards),
            "mass": mass,
            "margins": call("core.theory_margins", mass),
        }
    }


def torch_rewards(kind):
    rewards = call("nn.rewards", tensors([random_costs()])[0], kind, strength=0.25)
    distribution = call("nn.reward_distribution", rewards)
    return {"values": {"rewards": rewards.numpy(), "distribution": distribution.numpy()}}


def costs_and_margins():
    predictions = [[1, 2, 0], [0, 0, 0], [2, 1, 1]]
    mass = [70.0, 20.0, 9.0, 1.0]
    return {
        "values": {
            "cost_matrix": call("core.cost_matrix", predictions, [1, 0, 2], [0.7, 0.2, 0.0]),
            "costs_from_correctness": call(
                "core.costs_from_correctness", [[1, 0.25], [0, np.nan]], [0.5, 0.1]
            ),
            "mass by the best": call("core.expert_mass", random_costs(40), counts="best"),
            "theory_margins": call("core.theory_margins", mass),
            "total and norms": call(
                "core.theory_margins", mass, norms=[1.0, 2.0, 1.0, 3.0], total=10.0
            ),
            "shared by rare experts": call("core.theory_margins", mass, share_below=0.15),
            "uniform_margins": call("core.uniform_margins", 3),
            "ratio_grid": list(call("core.ratio_grid", MARGINS)),
            "paper_grid": list(call("core.paper_grid", MARGINS, 0.5, 0.5)),
        }
    }


ENTRIES = {
    "core: costs and margins": costs_and_margins,
    "core: ties": ties,
    "nn.defer: cross_entropy": partial(deferral_loss, "cross_entropy_defer_loss", alpha=0.5),
    "nn.defer: one_versus_all": partial(deferral_loss, "one_versus_all_loss"),
    "nn.defer: realizable": partial(deferral_loss, "realizable_loss", n_experts=1, alpha=0.5),
    "nn.defer: asymmetric_softmax": partial(deferral_loss, "asymmetric_softmax_loss", n_experts=1),
    "nn.defer: rl2d": partial(deferral_loss, "rl2d_loss", n_experts=1, with_costs=True, q=0.7),
    "nn.defer: picce": partial(deferral_loss, "picce_loss"),
    "nn.defer: mixture_of_experts": partial(
        deferral_loss, "mixture_of_experts_loss", with_costs=True
    ),
    "nn.defer: mild": partial(
        deferral_loss, "mild_defer_loss", with_costs=True, margins=(1.0, 1.2, 0.8, 1.0, 0.5, 0.4)
    ),
}
for surrogate in ("logistic", "exponential", "generalized_cross_entropy", "mean_absolute_error"):
    ENTRIES[f"nn.defer: comp_sum {surrogate}"] = partial(
        deferral_loss, "comp_sum_defer_loss", surrogate=surrogate
    )
for kind in REWARDS:
    ENTRIES[f"core: rewards {kind}"] = partial(reward_kind, kind)
    ENTRIES[f"nn: rewards {kind}"] = partial(torch_rewards, kind)
for surrogate in SURROGATES:
    ENTRIES[f"core: decisions {surrogate}"] = partial(decisions, surrogate)
    ENTRIES[f"nn: decisions {surrogate}"] = partial(torch_decisions, surrogate)
for loss in loss_arguments():
    ENTRIES[f"core: {loss}"] = partial(numpy_loss, loss)
    ENTRIES[f"nn: {loss}"] = partial(torch_loss, loss)
