"""Train the networks of each method of learning to defer, and make a policy of them.

K classes and p experts have scores side by side, classes first. Most methods train them on one loss;
"confidence", "triage" and the methods with two stages train one network after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mild.core.arrays import FloatArray, check_margins
from mild.core.margins import expert_mass, theory_margins
from mild.deferral.bodies import Body, SideBySide, check_outputs, layers_of, side_by_side
from mild.deferral.data import DeferralTrainingRows
from mild.deferral.losses import RowLoss, class_loss, row_loss
from mild.deferral.methods import NOT_CONVEX, DeferralMethod
from mild.deferral.training import Trainer, score_rows
from mild.nn import defer
from mild.policies import Decoder, DeferralPolicy, ScorePolicy, score_network
from mild.routers.linear import LinearRouter
from mild.routers.neural import NeuralRouter
from mild.routers.neural.network import ModulePolicy

# Shares of right answers are kept this far from 0 and 1 where their log-odds are taken.
SMALLEST_SHARE = 1e-6


@dataclass(frozen=True)
class DeferralProblem:
    """What is to be fitted, on which rows, and how."""

    loss: str  # name of the method
    method: DeferralMethod
    options: Mapping[str, Any]  # ``loss_params`` with the defaults
    body: Body  # kind of network
    rows: DeferralTrainingRows  # to train on
    held_out: DeferralTrainingRows | None  # to choose the epoch
    expert_costs: FloatArray  # (p,) of asking
    trainer: Trainer

    @property
    def n_features(self) -> int:
        """Number of features; of arrays with more dimensions the length of the second."""
        return self.rows.X.shape[1]

    @property
    def n_outputs(self) -> int:
        """Number of classes and experts."""
        return self.rows.n_classes + self.rows.n_experts

    @property
    def largest_cost(self) -> float:
        """Largest possible cost of an answer: a wrong one of the dearest expert."""
        return 1.0 + float(self.expert_costs.max())

    def new_network(self, n_outputs: int) -> nn.Module:
        """Make a network of the body, on the device and in the precision of the rows."""
        network = self.body.build(self.n_features, n_outputs)
        network = network.to(self.rows.X.device, self.rows.X.dtype)
        if self.body.module is not None:
            # This also gives lazy layers their shapes.
            check_outputs(network, self.rows.X[:2], n_outputs)
        return network

    def train(
        self, network: nn.Module, loss: RowLoss, rows: DeferralTrainingRows | None = None
    ) -> int:
        """Train a network in place; return the number of iterations or epochs.

        ``rows`` are some of the training rows; None for all.
        """
        if rows is None:
            rows = self.rows
        return self.trainer.train(network, rows, self.held_out, loss, self.body.is_linear)


@dataclass(frozen=True)
class FittedNetwork:
    """A network that scores classes and experts, and how a policy reads probabilities from its scores."""

    network: ScorePolicy
    score_margins: FloatArray  # (n_outputs,) margins of the scores
    n_iter: int  # iterations or epochs
    strength: float = 0.0  # of "mild": how rewards become costs, see ``DeferralPolicy``
    scale: float = 1.0  # largest possible cost


def fit_network(problem: DeferralProblem) -> FittedNetwork:
    """Train the network or the networks of the method."""
    if problem.loss == "confidence":
        return _fit_confidence(problem)
    if problem.loss == "triage":
        return _fit_triage(problem)
    if problem.loss.startswith("two_stage"):
        return _fit_two_stage(problem)
    return _fit_one_stage(problem)


def make_policy(
    problem: DeferralProblem, fitted: FittedNetwork, classes: list[Any]
) -> DeferralPolicy:
    """Return the policy of a fitted network, with the threshold 0."""
    return DeferralPolicy(
        network=fitted.network,
        classes=classes,
        reading=problem.method.reading,
        costs=np.append(0.0, problem.expert_costs),
        costs_in_loss=problem.method.costs_in_loss,
        score_margins=fitted.score_margins,
        strength=fitted.strength,
        scale=fitted.scale,
    )


def _fit_one_stage(problem: DeferralProblem) -> FittedNetwork:
    """Train classes and experts together, on one loss."""
    reading = _score_reading(problem)
    network = _one_stage_network(problem)
    margin_list = None
    if problem.loss == "mild":
        margin_list = reading.margins.tolist()
    loss = row_loss(problem.loss, problem.options, margin_list, problem.largest_cost)
    first_loss = _first_loss(problem)
    if first_loss is not None:
        problem.train(network, first_loss)
    n_iter = problem.train(network, loss)
    policy = _score_policy(problem, network)
    return FittedNetwork(policy, reading.margins, n_iter, reading.strength, reading.scale)


def _one_stage_network(problem: DeferralProblem) -> nn.Module:
    """Make the network, or two networks side by side for a method that wants the experts apart."""
    if problem.method.n_networks == 1 or problem.body.is_linear:
        # Linear scores share no weights, so two linear networks are the same as one.
        return problem.new_network(problem.n_outputs)
    classifier = problem.new_network(problem.rows.n_classes)
    expert_network = problem.new_network(problem.rows.n_experts)
    return SideBySide(classifier, expert_network)


def _first_loss(problem: DeferralProblem) -> RowLoss | None:
    """Return the loss that the network is trained on before the method's own; None for no other loss.

    A method with a gate begins with a trained classifier and a gate at one half. From random weights, the
    gate soon gives every row to an expert who is better than the untrained classifier, and a classifier
    without rows does not learn.

    A loss that is not convex in the scores has several minima, and hardly a slope far from them if it is
    bounded. The minimum of L_CE is a start that does not depend on chance.
    """
    if problem.method.reading == "gate":
        return class_loss
    is_convex = problem.method.is_convex
    if problem.loss == "comp_sum":
        is_convex = problem.options["surrogate"] not in NOT_CONVEX
    if is_convex:
        return None
    return row_loss("cross_entropy", {"alpha": 1.0}, None, 1.0)


class _ScoreReading(NamedTuple):
    """How shares of the reward, and from them costs, are read from scores; see ``DeferralPolicy``."""

    margins: FloatArray  # (n_outputs,): the shares are the softmax of scores / margins
    strength: float = 0.0
    scale: float = 1.0


def _score_reading(problem: DeferralProblem) -> _ScoreReading:
    """Return how the scores of a method with one loss are read."""
    ones = np.ones(problem.n_outputs)
    options = problem.options
    if problem.loss == "comp_sum":
        margins = ones * _comp_sum_margin(options)
        return _ScoreReading(margins, scale=problem.largest_cost)
    if problem.loss == "mild":
        strengths = {"complement": 0.0, "contrast": 0.0, "others": 1.0}
        strength = strengths.get(options["rewards"], options["strength"])
        scale = 1.0
        if options["rewards"] == "complement":
            scale = problem.largest_cost
        return _ScoreReading(_mild_margins(problem), strength, scale)
    return _ScoreReading(ones)


def _comp_sum_margin(options: Mapping[str, Any]) -> float:
    """Return the margin under which the softmax of the scores is the share of the rewards.

    At the minimiser with the softmax P of the scores, the share is proportional to ``P^2`` ("exponential"),
    or to ``P^(1 - q)`` of a generalised cross-entropy: it is a softmax of the scores times this power.
    """
    if options["surrogate"] == "exponential":
        return 1 / 2
    if options["surrogate"] == "generalized_cross_entropy":
        return 1 / (1 - options["q"])
    return 1.0


def _mild_margins(problem: DeferralProblem) -> FloatArray:
    """Return the margins (K + p,) of classes and experts.

    Those of the theory depend on the mass of each alternative, which here is its share of the rewards. The
    other usual mass, how often an alternative is the cheapest, would be 0 for every expert: the right class
    costs nothing in every row.
    """
    margins = problem.options["margins"]
    if not isinstance(margins, str):
        return check_margins(margins, problem.n_outputs)
    if margins == "uniform":
        return np.ones(problem.n_outputs)
    rows = problem.rows
    costs = defer.one_stage_costs(
        rows.y, rows.correct, rows.n_classes, asked=rows.asked, expert_costs=rows.costs
    )
    mass = expert_mass(
        costs.cpu().numpy(), problem.options["rewards"], "reward", problem.options["strength"]
    )
    # An expert that is never right still needs a margin.
    return theory_margins(np.maximum(mass, 1.0))


def _fit_confidence(problem: DeferralProblem) -> FittedNetwork:
    """Train a classifier alone, for Chow's rule: compare its confidence with the expert's accuracy.

    The score of an expert is the log-odds of its accuracy, the same in every row.
    """
    if problem.body.module is not None:
        problem.body.check_two_networks(problem.loss)
    classifier = problem.new_network(problem.rows.n_classes)
    n_iter = problem.train(classifier, class_loss)
    n_asked = problem.rows.asked.sum(dim=0)
    accuracy = problem.rows.correct.sum(dim=0) / n_asked
    log_odds = accuracy.clamp(SMALLEST_SHARE, 1 - SMALLEST_SHARE).logit()
    constant = _ConstantScores(log_odds.to(problem.rows.X.dtype))
    if problem.body.module is not None:
        network: ScorePolicy = _module_policy(problem, SideBySide(classifier, constant))
        return FittedNetwork(network, np.ones(problem.n_outputs), n_iter)
    # The last layer gets an output per expert, with weights of 0 and the log-odds as its bias.
    weights, biases = layers_of(classifier)
    n_experts = problem.rows.n_experts
    weights[-1] = np.pad(weights[-1], ((0, n_experts), (0, 0)))
    biases[-1] = np.append(biases[-1], constant.scores.cpu().numpy())
    return FittedNetwork(score_network(weights, biases), np.ones(problem.n_outputs), n_iter)


class _ConstantScores(nn.Module):
    """A network that gives every row the same scores (p,)."""

    scores: Tensor

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.register_buffer("scores", scores)

    def forward(self, X: Tensor) -> Tensor:
        """Return scores (n, p)."""
        return self.scores.expand(len(X), -1)


def _fit_triage(problem: DeferralProblem) -> FittedNetwork:
    """Train a classifier and choose the rows it leaves to the human, in turn; then learn that choice.

    In each round the classifier is trained on the rows that it keeps, and the human gets the rows on which
    the human's loss is lower. Finally a gate, a network with one output, learns which rows these are.
    """
    rows = problem.rows
    share = problem.options["share"]
    if share is None:
        share = 1.0
    human_losses = _human_log_losses(rows) + float(problem.expert_costs[0])
    # A human without an answer cannot take the row.
    human_losses = human_losses.masked_fill(~rows.asked[:, 0], torch.inf)
    classifier = problem.new_network(rows.n_classes)
    to_human = torch.zeros(len(rows), dtype=torch.bool, device=rows.X.device)
    n_iter = 0
    for _ in range(problem.options["rounds"]):
        if bool(to_human.all()):
            break
        n_iter += problem.train(classifier, class_loss, rows.take(~to_human))
        class_losses = class_loss(score_rows(classifier, rows), rows)
        to_human = defer.triage_rows(class_losses, human_losses, share)

    def gate_loss(scores: Tensor, batch: DeferralTrainingRows) -> Tensor:
        # Logistic regression; ``correct`` holds the rows of the human.
        terms = nn.functional.softplus(scores) - scores * batch.correct
        return terms.sum(dim=1)

    gate = problem.new_network(1)
    gate_rows = DeferralTrainingRows(
        rows.X, rows.y, to_human[:, None], rows.asked, rows.costs, rows.n_classes
    )
    is_linear = problem.body.is_linear
    n_iter += problem.trainer.train(gate, gate_rows, None, gate_loss, is_linear)
    network = _score_policy(problem, SideBySide(classifier, gate))
    return FittedNetwork(network, np.ones(problem.n_outputs), n_iter)


def _human_log_losses(rows: DeferralTrainingRows) -> Tensor:
    """Return the log-loss (n,) of the human's answer, to compare it with the classifier's.

    The human gives a class and no probabilities. With e the share of wrong answers, the answer is taken to
    have the probability 1 - e, and each of the other classes e / (K - 1).
    """
    n_right = rows.correct[:, 0].sum()
    n_asked = rows.asked[:, 0].sum()
    # One more right and one more wrong answer, so that neither share is 0.
    error = 1 - (n_right + 1) / (n_asked + 2)
    wrong_loss = -torch.log(error / (rows.n_classes - 1))
    right_loss = -torch.log(1 - error)
    return torch.where(rows.correct[:, 0], right_loss, wrong_loss).to(rows.X.dtype)


def _fit_two_stage(problem: DeferralProblem) -> FittedNetwork:
    """Train a classifier, and then a router that chooses between it and the experts.

    The costs of the router, (n, 1 + p), are those of the classifier and of the experts.
    """
    rows = problem.rows
    classifier = problem.new_network(rows.n_classes)
    n_iter = problem.train(classifier, class_loss)
    model_is_wrong = _out_of_fold_classes(problem, classifier) != rows.y
    expert_costs = rows.costs.masked_fill(~rows.asked, torch.nan)
    costs = torch.cat([model_is_wrong[:, None].to(expert_costs.dtype), expert_costs], dim=1)
    router = _unfitted_router(problem)
    router.fit(rows.X.cpu().numpy(), costs.cpu().numpy())
    policy = router.policy_
    margins = policy.decoder.margins
    if problem.body.module is not None:
        network: ScorePolicy = _module_policy(problem, SideBySide(classifier, policy.module))
        return FittedNetwork(network, margins, n_iter)
    if problem.body.is_linear:
        router_layers = ([policy.coef], [policy.intercept])
    else:
        router_layers = (policy.weights, policy.biases)
    layers = side_by_side(layers_of(classifier), router_layers)
    return FittedNetwork(score_network(*layers), margins, n_iter)


def _unfitted_router(problem: DeferralProblem) -> Any:
    """Return the router of the second stage, with the same kind of network and the same training."""
    trainer = problem.trainer
    parameters: dict[str, Any] = {"loss": problem.loss.removeprefix("two_stage_")}
    if parameters["loss"] == "mild":
        parameters["rewards"] = problem.options["rewards"]
        parameters["margins"] = problem.options["margins"]
    else:
        parameters["cost_scale"] = problem.largest_cost
    if problem.body.is_linear:
        # LinearRouter's penalty is alpha ||W||^2, without the half.
        return LinearRouter(**parameters, alpha=trainer.weight_decay / 2)
    return NeuralRouter(
        problem.body.module,
        hidden=problem.body.hidden,
        lr=trainer.lr,
        epochs=trainer.epochs,
        batch_size=trainer.batch_size,
        weight_decay=trainer.weight_decay,
        schedule="onecycle",
        validation_fraction=0.0,
        device=str(problem.rows.X.device),
        random_state=trainer.seed,
        **parameters,
    )


def _out_of_fold_classes(problem: DeferralProblem, classifier: nn.Module) -> Tensor:
    """Predict the class (n,) of each row by a classifier that was not trained on it.

    On the rows that it was trained on a classifier is right too often: the router would defer too little.
    With one fold ``classifier``, which was trained on all rows, predicts them nevertheless.
    """
    rows = problem.rows
    n_folds = min(problem.options["cross_fit"], len(rows))
    if n_folds == 1:
        return score_rows(classifier, rows).argmax(dim=1)
    order = np.random.default_rng([problem.trainer.seed, 1]).permutation(len(rows))
    predicted = torch.empty_like(rows.y)
    for fold in np.array_split(order, n_folds):
        in_fold = torch.zeros(len(rows), dtype=torch.bool)
        in_fold[torch.from_numpy(fold)] = True
        in_fold = in_fold.to(rows.X.device)
        network = problem.new_network(rows.n_classes)
        problem.train(network, class_loss, rows.take(~in_fold))
        predicted[in_fold] = score_rows(network, rows.take(in_fold)).argmax(dim=1)
    return predicted


def _score_policy(problem: DeferralProblem, network: nn.Module) -> ScorePolicy:
    """Return a network as a policy, which runs without torch unless the user's module is in it."""
    if problem.body.module is not None:
        return _module_policy(problem, network)
    return score_network(*layers_of(network))


def _module_policy(problem: DeferralProblem, network: nn.Module) -> ModulePolicy:
    """Return a torch module as a policy that gives its scores."""
    n_outputs = problem.n_outputs
    if problem.method.reading == "router":
        # The router has a score for the classifier as a whole, too.
        n_outputs += 1
    decoder = Decoder(np.ones(n_outputs), "argmax", "logistic")
    return ModulePolicy(
        network, decoder, problem.n_features, problem.trainer.batch_size, problem.rows.X.device
    )
