"""The estimator's parameters become a problem, and its solution a policy. This imports torch."""

from __future__ import annotations

from typing import Any

import torch

from mild.core.arrays import FloatArray, IntArray
from mild.deferral.answers import ExpertAnswers
from mild.deferral.bodies import read_body
from mild.deferral.data import DeferralTrainingRows, training_rows
from mild.deferral.fitting import DeferralProblem, fit_network, make_policy
from mild.deferral.methods import check_method
from mild.deferral.training import Trainer
from mild.policies import DeferralPolicy
from mild.routers.neural.network import find_device
from mild.routers.neural.training import own_randomness


def estimate_policy(
    classifier: Any,
    X: FloatArray,
    class_of: IntArray,
    answers: ExpertAnswers,
    *,
    train: IntArray,
    held_out: IntArray,
    seed: int,
) -> tuple[DeferralPolicy, int]:
    """Fit the network of a ``DeferralClassifier``; return the policy and the number of iterations.

    Parameters
    ----------
    classifier : DeferralClassifier
        Its parameters, with ``classes_`` and ``expert_costs_`` already set.
    X : (n_samples, n_features) array
    class_of : (n_samples,) class indices
    answers : ExpertAnswers
        Answers of the experts on the same rows.
    train, held_out : row numbers
        Rows to learn from, and rows on which a method that needs it makes a choice; there may be none.
    seed : int
        Seed of everything random in the fit.
    """
    method, options = check_method(classifier.loss, classifier.loss_params)
    body = read_body(classifier.body)
    if method.n_networks > 1:
        body.check_two_networks(classifier.loss)
    device = find_device(classifier.device)
    # A linear head is optimised to convergence, for which single precision is too coarse.
    dtype = torch.float32
    if body.is_linear:
        dtype = torch.float64
    n_classes = len(classifier.classes_)
    costs = classifier.expert_costs_

    def tensors_of(row_numbers: IntArray) -> DeferralTrainingRows:
        rows_answers = answers.take(row_numbers)
        return training_rows(
            X[row_numbers], class_of[row_numbers], rows_answers, costs, n_classes, dtype, device
        )

    with own_randomness(device) as reseed:
        reseed(seed)
        trainer = Trainer(
            weight_decay=float(classifier.weight_decay),
            lr=float(classifier.lr),
            epochs=int(classifier.epochs),
            batch_size=int(classifier.batch_size),
            seed=seed,
            reseed=reseed,
        )
        problem = DeferralProblem(
            loss=classifier.loss,
            method=method,
            options=options,
            body=body,
            rows=tensors_of(train),
            held_out=tensors_of(held_out),
            expert_costs=costs,
            trainer=trainer,
        )
        fitted = fit_network(problem)
    policy = make_policy(problem, fitted, classifier.classes_.tolist())
    return policy, fitted.n_iter
