"""Fit the policy of a ``DeferralClassifier``, from its parameters and validated arrays.

The module imports torch, so the classifier imports it in ``fit`` alone.
"""

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
    """Fit the networks of a ``DeferralClassifier``, and make its policy.

    Parameters
    ----------
    classifier : DeferralClassifier
        Its parameters, with ``classes_`` and ``expert_costs_`` already set.
    X : array of shape (n_samples, n_features)
        Features; with more dimensions for a torch module that reads them.
    class_of : array of shape (n_samples,)
        Index of each row's class.
    answers : ExpertAnswers
        Answers of the experts on the same rows.
    train, held_out : arrays of row indices
        Rows to train on, and rows on which the best epoch is chosen; these may be none.
    seed : int
        Seed of everything random in the fit.

    Returns
    -------
    policy : DeferralPolicy
        With the threshold 0.
    n_iter : int
        Number of iterations, or of epochs.
    """
    method, options = check_method(classifier.loss, classifier.loss_params)
    body = read_body(classifier.body)
    if method.n_networks > 1:
        body.check_two_networks(classifier.loss)
    device = find_device(classifier.device)
    dtype = torch.float32
    if body.is_linear:
        # A linear head is optimised to convergence, for which single precision is too coarse.
        dtype = torch.float64

    def rows_on_device(indices: IntArray) -> DeferralTrainingRows:
        return training_rows(
            X[indices],
            class_of[indices],
            answers.take(indices),
            classifier.expert_costs_,
            len(classifier.classes_),
            dtype,
            device,
        )

    # All randomness comes from the seed, and torch's own generators are put back afterwards.
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
            rows=rows_on_device(train),
            held_out=rows_on_device(held_out),
            expert_costs=classifier.expert_costs_,
            trainer=trainer,
        )
        fitted = fit_network(problem)
    policy = make_policy(problem, fitted, classifier.classes_.tolist())
    return policy, fitted.n_iter
