"""The contract of every router: ``fit(X, costs)``, where the cost matrix is scikit-learn's ``y``."""

from __future__ import annotations

import copy
import functools
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from operator import attrgetter
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np
import sklearn.exceptions
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from mild.core.arrays import FloatArray, IntArray, check_costs, invalid
from mild.errors import ConvergenceWarning, DegenerateDataWarning, InvalidInputError
from mild.metrics import deferral_loss
from mild.policies import Policy
from mild.routers.parameters import check_parameters

P = ParamSpec("P")
R = TypeVar("R")


def from_policy(path: str, doc: str) -> Any:
    """Make a property of a router that reads an attribute of its policy, such as "decoder.margins"."""
    return property(lambda router: attrgetter(path)(router.policy_), doc=doc)


class BaseRouter(BaseEstimator):  # type: ignore[misc]
    """Base of all routers: chooses one of several experts for each row.

    ``fit`` validates its arguments and calls ``_fit``, which subclasses implement. ``_fit`` returns a
    policy, which makes the decisions: it needs only NumPy, and can be saved.

    Attributes
    ----------
    policy_ : Policy
        The learned policy, which needs only NumPy.
    n_experts_ : int
        Number of experts.
    expert_names_ : list of str
        Names of the experts, from the columns of ``costs`` if it has any.
    n_features_in_ : int
        Number of features.
    """

    policy_: Any
    n_experts_: int
    expert_names_: list[str]

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from inputs and costs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.
        y : array-like of shape (n_samples, n_experts)
            What each expert costs; NaN where it was never asked about this row.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        self : BaseRouter
            The fitted router.
        """
        inputs, matrix, weight = self._check_fit(X, y, sample_weight)
        self.policy_ = self._fit(inputs, matrix, weight).with_ranks(self._ranks)
        return self

    @abstractmethod
    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> Policy:
        """Learn a policy from validated arrays."""

    def _check_fit(
        self, X: Any, costs: Any, sample_weight: Any
    ) -> tuple[Any, FloatArray, FloatArray | None]:
        """Check the parameters of the router and the arguments of ``fit``, and return them as arrays.

        Also sets ``n_experts_`` and ``expert_names_``, and the ranks that decide ties between experts.

        Returns
        -------
        inputs : (n_samples, n_features) array
        costs : (n_samples, n_experts) array
        sample_weight : (n_samples,) array, or None
        """
        self._check_options()
        if costs is None:
            reason = f"{type(self).__name__} requires y to be passed, but the target y is None."
            raise InvalidInputError(reason, parameter="y")
        inputs = self._validated(X, ensure_min_samples=2, order="C")
        matrix = _cost_matrix(costs, n_samples=inputs.shape[0])
        self._set_experts(costs, n_experts=matrix.shape[1])
        if sample_weight is None:
            return inputs, matrix, None
        weight = _check_sample_weight(
            sample_weight, inputs, dtype=np.float64, ensure_non_negative=True
        )
        if not weight.any():
            raise invalid("sample_weight", "must not be all zero.")
        return inputs, matrix, weight

    def _set_experts(self, costs: Any, n_experts: int) -> None:
        """Set number and names of the experts, and the ranks that decide ties between them."""
        names = _column_names(costs)
        for number, name in enumerate(names):
            if name in names[:number]:
                rule = f"must have a column of its own for every expert; {name!r} appears twice."
                raise invalid("costs", f"{rule} Rename one.")
        self.n_experts_ = n_experts
        self.expert_names_ = names or [f"expert_{k}" for k in range(n_experts)]
        # Of experts that tie, the one of lowest rank is chosen; None where the index decides.
        self._ranks: IntArray | None = None
        if isinstance(costs, NamedCosts):
            self._ranks = costs.ranks

    def _check_options(self) -> None:
        """Check the parameters."""
        check_parameters(self)

    def _warn_if_degenerate(self, costs: FloatArray, by_label: bool = False) -> None:
        """Warn if nothing can be learned from the costs, or nothing about some experts from labels."""
        if costs.shape[1] == 1:
            return
        least = np.nanmin(costs, axis=1, keepdims=True)
        largest = np.nanmax(costs, axis=1, keepdims=True)
        costs_differ = bool((largest > least).any())
        n_cheapest = None
        if by_label:
            n_cheapest = (costs == least).sum(axis=0)
        has_missing = bool(np.isnan(costs).any())
        warn_if_degenerate(costs_differ, has_missing, n_cheapest, self.expert_names_, stacklevel=5)

    @property
    def classes_(self) -> Any:
        """Costs are not labels, so there are no classes."""
        # Read by cross_val_predict after it has replaced the costs by the ranks of their values.
        raise AttributeError(
            "a router has no classes_. cross_val_predict would fit it on ranks instead of costs: pass them "
            'as cross_val_predict(router, X, params={"y": costs}, method="predict_proba").'
        )

    def predict(self, X: Any) -> IntArray:
        """Choose an expert for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        Returns
        -------
        experts : ndarray of shape (n_samples,)
            Index of the chosen expert.
        """
        inputs = self._check_inputs(X)
        return self.policy_.predict(inputs)

    def decision_function(self, X: Any) -> FloatArray:
        """Score the experts for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_experts)
            Larger is better.
        """
        inputs = self._check_inputs(X)
        return self.policy_.decision_function(inputs)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the stationary distribution over the experts for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_experts)
            Each expert's share of the expected reward.
        """
        inputs = self._check_inputs(X)
        return self.policy_.predict_proba(inputs)

    def expected_costs(self, X: Any) -> FloatArray:
        """Return the expected cost of each expert, where the router has learned it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        Returns
        -------
        costs : ndarray of shape (n_samples, n_experts)

        Raises
        ------
        UnsupportedError
            If the router does not learn costs.
        """
        inputs = self._check_inputs(X)
        return self.policy_.expected_costs(inputs)

    def decide_one(self, x: FloatArray) -> int:
        """Choose an expert for one input. Nothing is checked: this is the fast path.

        Parameters
        ----------
        x : ndarray of shape (n_features,)
            The input, as floats.

        Returns
        -------
        expert : int
            Index of the chosen expert.
        """
        return self.policy_.decide_one(x)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return minus the mean cost of the chosen experts, over the rows in which it is known.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.
        y : array-like of shape (n_samples, n_experts)
            What each expert costs; NaN where it was never asked.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
        """
        chosen = self.predict(X)
        return -deferral_loss(np.asarray(y), chosen, sample_weight, missing="skip")

    def without(self, expert: int | str) -> Self:
        """Return the router without one expert; no refit.

        Parameters
        ----------
        expert : int or str
            Index or name of the expert.

        Returns
        -------
        router : BaseRouter
            A new router; this one keeps the expert.
        """
        check_is_fitted(self, "policy_")
        index = self._expert_index(expert)
        names = [*self.expert_names_[:index], *self.expert_names_[index + 1 :]]
        return self._with_policy(self.policy_.without(index), names)

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> Self:
        """Return the router under new prices, if it has separate heads; no refit.

        Parameters
        ----------
        betas : sequence of float, default=None
            One constant price per expert; None keeps the prices.
        price_weight : float, default=None
            How much one unit of price counts in units of error; None keeps it.

        Returns
        -------
        router : BaseRouter
            A new router; this one keeps its prices.
        """
        check_is_fitted(self, "policy_")
        return self._with_policy(self.policy_.with_prices(betas, price_weight), self.expert_names_)

    def _with_policy(self, policy: Policy, names: list[str]) -> Self:
        """Return a copy that decides by another policy, between the experts of these names."""
        router = copy.copy(self)
        router.policy_ = policy
        router.n_experts_ = policy.n_experts
        router.expert_names_ = list(names)
        return router

    def _expert_index(self, expert: int | str) -> int:
        """Return the index of an expert, from an index or a name."""
        if isinstance(expert, str):
            if expert not in self.expert_names_:
                names = ", ".join(self.expert_names_)
                raise invalid("expert", f"must be one of {names}; got {expert!r}.")
            return self.expert_names_.index(expert)
        if isinstance(expert, bool) or not isinstance(expert, Integral):
            raise invalid("expert", f"must be an index or a name; got {expert!r}.")
        return int(expert)

    def _check_inputs(self, X: Any) -> Any:
        """Return X as the fitted router needs it."""
        check_is_fitted(self, "policy_")
        return self._validated(X, reset=False)

    def _validated(self, X: Any, **options: Any) -> Any:
        """Validate X as scikit-learn does, with mild's exceptions."""
        try:
            return validate_data(
                self, X, accept_sparse="csr", dtype=[np.float64, np.float32], **options
            )
        except ValueError as error:
            message = str(error)
            if message.startswith("Input X contains NaN"):
                # Without the list of scikit-learn's estimators that accept it.
                message = message.partition("\n")[0]
            raise InvalidInputError(message, parameter="X") from error

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn needs to know: costs are a two-dimensional, non-negative target."""
        tags = super().__sklearn_tags__()
        tags.estimator_type = None
        tags.target_tags.required = True
        tags.target_tags.one_d_labels = False
        tags.target_tags.two_d_labels = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        tags.target_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class SurrogateRouter(BaseRouter):
    """A router whose scores are trained on a surrogate of the deferral loss.

    LinearRouter documents these parameters.
    """

    loss: str = "mild"
    rewards: str = "others"
    strength: float = 0.5
    surrogate: Any = "logistic"
    margins: Any = "theory"
    counts: str = "reward"
    total: float | None = None
    cost_scale: float | None = None
    decision: str = "stationary"
    ties: str | None = None

    margins_ = from_policy("decoder.margins", "(n_experts,) margins the router was trained with.")


def warn_if_degenerate(
    costs_differ: bool,
    has_missing: bool,
    n_cheapest: IntArray | FloatArray | None,
    expert_names: Sequence[str],
    stacklevel: int = 2,
) -> None:
    """Warn if nothing can be learned from the costs, or nothing about some of the experts.

    Parameters
    ----------
    costs_differ : bool
        Whether some row has two experts that were asked and differ in cost.
    has_missing : bool
        Whether some cost is unknown.
    n_cheapest : array of shape (n_experts,) or None
        Number of rows in which each expert is the cheapest, for label-based losses, which use only these
        labels; None for other losses.
    expert_names : sequence of str
        Names of the experts.
    stacklevel : int, default=2
        As for ``warnings.warn``.
    """
    if not costs_differ:
        if has_missing:
            reason = (
                "the experts that were asked have the same cost in every row: a loss that compares "
                "experts within a row learns nothing. Use RidgeRouter or KNNRouter."
            )
        else:
            reason = (
                "every expert costs the same in every row: there is nothing to learn, and all "
                "choices are equally good."
            )
        warnings.warn(reason, DegenerateDataWarning, stacklevel=stacklevel)
    if n_cheapest is None:
        return
    never_cheapest = np.flatnonzero(n_cheapest == 0).tolist()
    if never_cheapest:
        names = [expert_names[k].removeprefix("expert_") for k in never_cheapest]
        warnings.warn(
            f"a label-based loss learns nothing about experts that are never cheapest: "
            f"{', '.join(names)}.",
            DegenerateDataWarning,
            stacklevel=stacklevel,
        )


def unwarned(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that it gives no warnings that a solver stopped early.

    Meant for fits of candidates and fits on parts of the rows: their held-out loss says how good they
    are, and users could do nothing about the warnings. The final fit of the winner warns.
    """

    @functools.wraps(function)
    def quiet(*args: P.args, **kwargs: P.kwargs) -> R:
        with no_convergence_warnings():
            return function(*args, **kwargs)

    return quiet


@contextmanager
def no_convergence_warnings() -> Iterator[None]:
    """Suppress warnings that a solver stopped early, see ``unwarned``."""
    with warnings.catch_warnings():
        for category in (ConvergenceWarning, sklearn.exceptions.ConvergenceWarning):
            warnings.simplefilter("ignore", category)
        yield


class NamedCosts(np.ndarray[Any, Any]):
    """Costs (n_samples, n_experts) whose columns have the names of the experts, as those of a frame.

    The ranks (n_experts,) decide ties between experts, as ``expert_ranks`` says.
    """

    columns: Sequence[str] = ()
    ranks: IntArray | None = None

    @classmethod
    def of(
        cls, costs: FloatArray, names: Sequence[str], ranks: IntArray | None = None
    ) -> NamedCosts:
        """Return a view of the costs with names; with an empty sequence the experts are numbered."""
        named = costs.view(cls)
        named.columns = list(names)
        named.ranks = ranks
        return named


def _cost_matrix(costs: Any, n_samples: int) -> FloatArray:
    """Return checked costs (n_samples, n_experts); NaN where unknown."""
    array = np.asarray(costs)
    if array.ndim == 1:
        raise invalid(
            "costs",
            f"must have shape (n_samples, n_experts); got one dimension, shape {array.shape}. "
            f"Reshape your data with costs.reshape(-1, 1) if there is one expert.",
        )
    return check_costs(array, n_samples=n_samples)


def _column_names(costs: Any) -> list[str]:
    """Return the names of the columns of a frame or of a table; empty for an array."""
    # The columns of a pyarrow table are arrays; their names are stored separately.
    names = getattr(costs, "column_names", None)
    if not names:
        names = getattr(costs, "columns", [])
    return [str(name) for name in names]


def label_numbers(labels: Any, n_rows: int, name: str) -> IntArray:
    """Return the number (n_rows,) of each row's label; ``name`` is the parameter that holds them."""
    labels = np.asarray(labels)
    if labels.shape != (n_rows,):
        raise invalid(name, f"must have shape (n_samples,) = ({n_rows},); got {labels.shape}.")
    return np.unique(labels, return_inverse=True)[1]


def weights_or_ones(sample_weight: FloatArray | None, n_rows: int) -> FloatArray:
    """Return the weights (n_rows,) of the rows; 1 for each row if they are None."""
    if sample_weight is None:
        return np.ones(n_rows)
    return sample_weight


def weights_of(sample_weight: FloatArray | None, rows: Any) -> FloatArray | None:
    """Return the weights of some of the rows; None if there are no weights."""
    if sample_weight is None:
        return None
    return sample_weight[rows]
