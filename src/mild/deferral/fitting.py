"""From rows to a policy, method by method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    """What is to be fitted, and on what."""

    loss: str
    method: DeferralMethod
    options: Mapping[str, Any]
    body: Body
    rows: DeferralTrainingRows
    held_out: DeferralTrainingRows | None
    expert_costs: FloatArray  # (p,)
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
        """A network of the body, on the device and in the precision of the rows."""
        network = self.body.build(self.n_features, n_outputs)
        network = network.to(self.rows.X.device, self.rows.X.dtype)
        if self.body.module is not None:
            # This also gives lazy layers their shapes.
            check_outputs(network, self.rows.X[:2], n_outputs)
        return network

    def train(
        self, network: nn.Module, loss: RowLoss, rows: DeferralTrainingRows | None = None
    ) -> int:
        """Train a network in place, on all rows or on some of them."""
        if rows is None:
            rows = self.rows
        return self.trainer.train(network, rows, self.held_out, loss, self.body.is_linear)


@dataclass(frozen=True)
class FittedNetwork:
    """A network that scores classes and experts, and how its scores are read."""

    network: ScorePolicy
    score_margins: FloatArray
    n_iter: int
    strength: float = 0.0
    scale: float = 1.0


def fit_network(problem: DeferralProblem) -> FittedNetwork:
    """Train what the method trains."""
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
    """The policy of a fitted network, with the threshold 0."""
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
    """One loss over all scores, whose experts may have a network of their own."""
    margins, strength, scale = _reading_of_rewards(problem)
    network = _one_stage_network(problem)
    margin_list = margins.tolist() if problem.loss == "mild" else None
    loss = row_loss(problem.loss, problem.options, margin_list, problem.largest_cost)
    if problem.body.is_linear and not _is_convex(problem):
        # A start that does not depend on chance, from which these losses improve.
        problem.train(network, row_loss("cross_entropy", {"alpha": 1.0}, None, 1.0))
    n_iter = problem.train(network, loss)
    return FittedNetwork(_score_policy(problem, network), margins, n_iter, strength, scale)


def _one_stage_network(problem: DeferralProblem) -> nn.Module:
    if problem.method.n_networks == 1 or problem.body.is_linear:
        # Linear scores share nothing: two networks are one.
        return problem.new_network(problem.n_outputs)
    classifier = problem.new_network(problem.rows.n_classes)
    expert_network = problem.new_network(problem.rows.n_experts)
    return SideBySide(classifier, expert_network)


def _is_convex(problem: DeferralProblem) -> bool:
    if problem.loss == "comp_sum":
        return problem.options["surrogate"] not in NOT_CONVEX
    # A gate begins at one half; cross-entropy would begin with its shares.
    return problem.method.is_convex or problem.method.reading == "gate"


def _reading_of_rewards(problem: DeferralProblem) -> tuple[FloatArray, float, float]:
    """Margins of all scores, and strength and scale of the rewards, by which shares become costs."""
    ones = np.ones(problem.n_outputs)
    options = problem.options
    if problem.loss == "comp_sum":
        return ones * _comp_sum_margin(options), 0.0, problem.largest_cost
    if problem.loss == "mild":
        strengths = {"complement": 0.0, "contrast": 0.0, "others": 1.0}
        strength = strengths.get(options["rewards"], options["strength"])
        scale = problem.largest_cost if options["rewards"] == "complement" else 1.0
        return _mild_margins(problem), strength, scale
    return ones, 0.0, 1.0


def _comp_sum_margin(options: Mapping[str, Any]) -> float:
    """The margin under which the softmax of the scores is the share of the rewards.

    At the minimiser the share is proportional to P^2 ("exponential"), or to P^(1 - q) of a generalised
    cross-entropy: a softmax of scores times this power.
    """
    if options["surrogate"] == "exponential":
        return 1 / 2
    if options["surrogate"] == "generalized_cross_entropy":
        return 1 / (1 - options["q"])
    return 1.0


def _mild_margins(problem: DeferralProblem) -> FloatArray:
    """Margins (K + p,) of classes and experts together.

    Masses are those of the reward distribution. How often an alternative is cheapest would count no
    expert: the right class costs nothing in every row.
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
    """Chow's rule: the classifier's confidence against the expert's accuracy, the same in every row."""
    if problem.body.module is not None:
        problem.body.check_two_networks(problem.loss)
    classifier = problem.new_network(problem.rows.n_classes)
    n_iter = problem.train(classifier, class_loss)
    asked = problem.rows.asked.sum(dim=0)
    accuracy = problem.rows.correct.sum(dim=0) / asked
    odds = accuracy.clamp(SMALLEST_SHARE, 1 - SMALLEST_SHARE).logit()
    constant = _ConstantScores(odds.to(problem.rows.X.dtype))
    if problem.body.module is not None:
        network: ScorePolicy = _module_policy(problem, SideBySide(classifier, constant))
        return FittedNetwork(network, np.ones(problem.n_outputs), n_iter)
    weights, biases = layers_of(classifier)
    n_experts = problem.rows.n_experts
    weights[-1] = np.pad(weights[-1], ((0, n_experts), (0, 0)))
    biases[-1] = np.append(biases[-1], constant.scores.cpu().numpy())
    return FittedNetwork(score_network(weights, biases), np.ones(problem.n_outputs), n_iter)


class _ConstantScores(nn.Module):
    """The same scores (p,) for every row."""

    scores: Tensor

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.register_buffer("scores", scores)

    def forward(self, X: Tensor) -> Tensor:
        """Scores (n, p)."""
        return self.scores.expand(len(X), -1)


def _fit_triage(problem: DeferralProblem) -> FittedNetwork:
    """The classifier and the choice of its rows in turn; then a gate that learns the choice."""
    rows = problem.rows
    share = 1.0 if problem.options["share"] is None else problem.options["share"]
    human_losses = _human_log_losses(rows) + float(problem.expert_costs[0])
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
        # The rows of the human are stored where correct answers are.
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
    """Log-loss (n,) of the human's answer, taken as a distribution.

    The classifier's loss is in logarithms; the human gives an answer only. With e the share of wrong
    answers, the answer has the probability 1 - e, and each other class e / (K - 1).
    """
    n_right = rows.correct[:, 0].sum()
    n_asked = rows.asked[:, 0].sum()
    # One more right and one more wrong answer, so that neither share is 0.
    error = 1 - (n_right + 1) / (n_asked + 2)
    wrong_loss = -torch.log(error / (rows.n_classes - 1))
    right_loss = -torch.log(1 - error)
    return torch.where(rows.correct[:, 0], right_loss, wrong_loss).to(rows.X.dtype)


def _fit_two_stage(problem: DeferralProblem) -> FittedNetwork:
    """A classifier, and then a router that chooses between it and the experts."""
    rows = problem.rows
    classifier = problem.new_network(rows.n_classes)
    n_iter = problem.train(classifier, class_loss)
    model_is_wrong = _out_of_fold_classes(problem, classifier) != rows.y
    expert_costs = rows.costs.masked_fill(~rows.asked, torch.nan)
    costs = torch.cat([model_is_wrong[:, None].to(expert_costs.dtype), expert_costs], dim=1)
    router = _second_stage(problem)
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


def _second_stage(problem: DeferralProblem) -> Any:
    """The router of the second stage, unfitted."""
    trainer = problem.trainer
    common: dict[str, Any] = {"loss": problem.loss.removeprefix("two_stage_")}
    if common["loss"] == "mild":
        common["rewards"] = problem.options["rewards"]
        common["margins"] = problem.options["margins"]
    else:
        common["cost_scale"] = problem.largest_cost
    if problem.body.is_linear:
        # LinearRouter's penalty is alpha ||W||^2.
        return LinearRouter(**common, alpha=trainer.weight_decay / 2)
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
        **common,
    )


def _out_of_fold_classes(problem: DeferralProblem, classifier: nn.Module) -> Tensor:
    """Class (n,) that a classifier predicts for each row without having been trained on it.

    On the rows it was trained on a classifier is right too often, so the router would defer too little.
    With one fold, the given classifier predicts them all the same.
    """
    rows = problem.rows
    n_folds = min(problem.options["cross_fit"], len(rows))
    if n_folds == 1:
        return score_rows(classifier, rows).argmax(dim=1)
    order = np.random.default_rng([problem.trainer.seed, 1]).permutation(len(rows))
    predicted = torch.empty_like(rows.y)
    for fold in np.array_split(order, n_folds):
        inside = torch.zeros(len(rows), dtype=torch.bool)
        inside[torch.from_numpy(fold)] = True
        inside = inside.to(rows.X.device)
        network = problem.new_network(rows.n_classes)
        problem.train(network, class_loss, rows.take(~inside))
        predicted[inside] = score_rows(network, rows.take(inside)).argmax(dim=1)
    return predicted


def _score_policy(problem: DeferralProblem, network: nn.Module) -> ScorePolicy:
    """A network as a policy; only one that mild has built runs without torch."""
    if problem.body.module is not None:
        return _module_policy(problem, network)
    return score_network(*layers_of(network))


def _module_policy(problem: DeferralProblem, network: nn.Module) -> ModulePolicy:
    n_outputs = problem.n_outputs
    if problem.method.reading == "router":
        # The router scores the model, too.
        n_outputs += 1
    decoder = Decoder(np.ones(n_outputs), "argmax", "logistic")
    return ModulePolicy(
        network, decoder, problem.n_features, problem.trainer.batch_size, problem.rows.X.device
    )
