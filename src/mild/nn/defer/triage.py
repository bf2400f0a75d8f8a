"""Differentiable learning under triage: which rows go to the human (Okati et al. 2021)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mild.core.arrays import check_number, check_shape, invalid


def triage_rows(class_losses: Tensor, expert_losses: Tensor, share: float) -> Tensor:
    """Return which rows go to the human: those in which the human is better by most, up to a share.

    It is one step of an algorithm that alternates. With l the loss of the classifier and h that of the
    human, the rows with the largest l - h go to the human, at most ``share`` of all and only those with l
    > h; then the classifier is trained on the other rows. In the end a second network learns from x which
    rows went to whom.

    Parameters
    ----------
    class_losses : (n_samples,) tensor, loss of the classifier
    expert_losses : (n_samples,) tensor, loss of the human; infinite where there is no answer
    share : largest share of the rows that go to the human, in [0, 1]

    Returns
    -------
    (n_samples,) boolean tensor, True for the rows of the human

    References
    ----------
    N. Okati, A. De, M. Gomez Rodriguez. Differentiable learning under triage. NeurIPS 2021.

    Examples
    --------
    >>> import torch
    >>> triage_rows(torch.tensor([0.1, 2.0, 3.0]), torch.tensor([0.0, 1.5, 1.0]), 0.5)
    tensor([False, False,  True])
    """
    check_number("share", share, "lie in [0, 1]")
    if class_losses.ndim != 1:
        raise invalid("class_losses", f"must have one dimension; got {class_losses.ndim}.")
    check_shape("expert_losses", expert_losses.shape, "(n_samples,)", class_losses.shape)
    advantage = class_losses.detach() - expert_losses.detach()
    max_rows = math.floor(share * len(advantage))
    by_advantage = advantage.argsort(descending=True, stable=True)
    to_human = torch.zeros_like(advantage, dtype=torch.bool)
    to_human[by_advantage[:max_rows]] = True
    return to_human & (advantage > 0)
