"""A classifier that learns together with the decision which expert to ask instead."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from mild.artifact import load as load_router
from mild.artifact import save as save_router
from mild.core.arrays import FloatArray, IntArray, check_integer, check_number, invalid
from mild.deferral.answers import (
    ExpertAnswers,
    check_every_expert_answers,
    class_indices,
    expert_cost_vector,
    read_answers,
)
from mild.deferral.curves import CoverageCurve, coverage_curve
from mild.deferral.decisions import (
    KEPT,
    capacity_vector,
    check_max_deferred,
    choose_experts,
    threshold_for_share,
)
from mild.deferral.methods import METHODS, check_method, check_n_experts
from mild.errors import (
    DegenerateDataWarning,
    InvalidInputError,
    MissingExtraError,
    RouterFileError,
    UnsupportedError,
    check_constructor,
    install_hint,
)
from mild.features.vectors import VectorFeatures
from mild.metrics import expected_calibration_error
from mild.policies import DeferralValues, full_deferral_policy
from mild.policies.base import can_be_saved

#: The name of the classifier among the experts of a saved router.
MODEL = "model"
LARGEST_SEED = 2**31 - 1


@check_constructor
@dataclass(eq=False, repr=False)
class DeferralClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that may defer to experts, both learned at once or one after the other.

    The cost of a row is 1 if the answer of the system is wrong, plus ``expert_costs[j]`` if it is that of
    expert j. Every method makes the mean of this cost small. The methods that estimate the probability
    that an expert is right subtract the cost of asking when they decide; in the others it is in the loss.

    Parameters
    ----------
    loss : name of the method
        One stage, for several experts: "cross_entropy" (Mozannar and Sontag 2020), "ova" (Verma and
        Nalisnick 2022), "picce" (Liu et al. 2026), "comp_sum" (Mao, Mohri, Zhong 2023), "mild" (classes and
        experts with margins), "mixture_of_experts" (Madras et al. 2018). One stage, for one expert:
        "realizable" (Mozannar et al. 2023), "asymmetric_softmax" (Cao et al. 2023), "rl2d" (Mao, Mohri,
        Zhong 2024), "triage" (Okati et al. 2021). After the classifier: "confidence" (Chow),
        "compare_confidence" (Raghu et al. 2019), "two_stage_tdef" and "two_stage_mild" (a router of mild
        between the classifier and the experts).
    body : "linear", "mlp" (one hidden layer of 64), a sequence of widths of hidden layers, a torch module
        with one output for each class and expert, or a callable ``(n_features, n_outputs)`` that returns
        one. "mixture_of_experts", "triage" and the methods after the classifier train two networks, so
        they take a callable instead of a module.
    loss_params : dict of options of the loss, or None
        "cross_entropy", "realizable": alpha. "comp_sum": surrogate, q. "rl2d": q. "mild": rewards,
        strength, margins ("theory", "uniform" or one number for each class and expert). "triage": share
        (largest share of the training rows for the human), rounds. "two_stage_tdef", "two_stage_mild":
        cross_fit (folds in which the classifier predicts rows it has not seen; 1 for none); the latter
        also rewards, margins.
    expert_costs : cost of asking an expert, one number or (n_experts,); None for 0
    max_deferred : largest share of rows that is deferred, in [0, 1], or None
        A threshold is chosen for it on the rows held out, or on the training rows if there are none. New
        rows may exceed it by chance.
    validation_fraction : share of the rows held out of training, in [0, 1)
        On them the threshold is chosen, and the epoch that is kept (not for linear heads).
    weight_decay : float
        For a linear head: the objective is the mean loss + weight_decay / 2 * ||W||^2, the intercepts free.
        For others: AdamW's decoupled decay of matrices.
    lr, epochs, batch_size : of AdamW with one cycle of the learning rate; a linear head is solved by
        L-BFGS. A method whose loss is not convex is first trained on "cross_entropy" for as many epochs,
        and the classifier of "mixture_of_experts" alone
    device : "auto" (a CUDA device if there is one, else the CPU) or what torch calls a device
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : (n_classes,) sorted labels
    n_experts_ : number of experts
    expert_names_ : list of str: "model", and then the columns of ``experts`` if it has any
    expert_costs_ : (n_experts,) array
    threshold_ : float; an expert is asked if its value exceeds the classifier's by more than this
    n_iter_ : int, iterations or epochs
    policy_ : scores and decides with NumPy, unless the body is a torch module
    n_features_in_ : number of features

    Examples
    --------
    The expert knows the right half of the line, where the classes mix.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (400, 1))
    >>> y = np.where(X[:, 0] < 0, X[:, 0] < -0.5, rng.uniform(size=400) < 0.5).astype(int)
    >>> experts = np.where(X[:, 0] < 0, 1 - y, y)[:, None]
    >>> features = np.hstack([X, np.maximum(X, 0)])
    >>> classifier = DeferralClassifier().fit(features, y, experts=experts)
    >>> classifier.defer([[-0.9, 0.0], [0.9, 0.9]])
    array([-1,  0])
    >>> classifier.system_score(features, y, experts=experts) > 0.9
    True
    """

    loss: str = "ova"
    _: KW_ONLY
    body: Any = "linear"
    loss_params: Any = None
    expert_costs: Any = None
    max_deferred: float | None = None
    validation_fraction: float = 0.0
    weight_decay: float = 1e-4
    lr: float = 1e-3
    epochs: int = 50
    batch_size: int = 256
    device: Any = "auto"
    random_state: Any = None

    def fit(self, X: Any, y: Any, experts: Any = None) -> Self:
        """Fit to inputs, labels and the answers of the experts.

        Parameters
        ----------
        X : (n_samples, n_features) array
        y : (n_samples,) labels
        experts : (n_samples, n_experts) answers, coded like ``y``; (n_samples,) for one expert
            NaN, None or a masked entry means that an expert has no answer for a row. Required: the default
            is there only because scikit-learn calls ``fit(X, y)``.

        Returns
        -------
        self
        """
        method, options = check_method(self.loss, self.loss_params)
        self._check_numbers()
        inputs, labels = self._validated(X, y)
        self.classes_, class_of = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInputError(
                f"y must hold at least two classes; got one class, {self.classes_.tolist()[0]!r}.",
                parameter="y",
                code="one_class",
            )
        answers = read_answers(experts, self.classes_, len(inputs))
        check_n_experts(self.loss, method, answers.n_experts)
        check_every_expert_answers(answers)
        self.n_experts_ = answers.n_experts
        self.expert_costs_ = expert_cost_vector(self.expert_costs, self.n_experts_)
        names = answers.names or [f"expert_{expert}" for expert in range(self.n_experts_)]
        self.expert_names_ = [MODEL, *names]
        self._check_costs_of_loss(options)
        self._train(inputs, class_of, answers)
        return self

    def predict(self, X: Any) -> Any:
        """Predict the class of each row by the classifier alone, also where the system would defer.

        Parameters
        ----------
        X : (n_samples, n_features) array

        Returns
        -------
        (n_samples,) array of labels
        """
        values = self._values(X)
        return self.classes_[values.classes.argmax(axis=1)]

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class by the classifier alone.

        Parameters
        ----------
        X : (n_samples, n_features) array

        Returns
        -------
        (n_samples, n_classes) array
        """
        inputs = self._check_inputs(X)
        return self.policy_.class_probabilities(inputs)

    def expert_proba(self, X: Any) -> FloatArray:
        """Return the probability that each expert is right.

        It is calibrated for "ova", "asymmetric_softmax" and "compare_confidence". For "cross_entropy",
        "picce", "comp_sum" and "mild" it is what their scores imply, at most 1; for "confidence" it is the
        expert's accuracy, the same in every row. The other methods learn whom to ask, not who is right, and
        raise an error (code ``no_expert_probability``).

        Parameters
        ----------
        X : (n_samples, n_features) array

        Returns
        -------
        (n_samples, n_experts) array
        """
        inputs = self._check_inputs(X)
        is_estimate = METHODS[self.loss].estimates_experts
        if is_estimate and self.loss == "comp_sum":
            _, options = check_method(self.loss, self.loss_params)
            is_estimate = options["surrogate"] != "mean_absolute_error"
        if not is_estimate:
            raise UnsupportedError(
                f"loss={self.loss!r} learns whom to ask, not how likely an expert is right. Use 'ova', or "
                "'compare_confidence'.",
                code="no_expert_probability",
            )
        return self.policy_.expert_probabilities(inputs)

    def scores(self, X: Any) -> FloatArray:
        """Return the scores of the network: classes first, then experts; for two stages the router's.

        Parameters
        ----------
        X : (n_samples, n_features) array

        Returns
        -------
        (n_samples, n_outputs) array
        """
        inputs = self._check_inputs(X)
        return self.policy_.scores(inputs)

    def deferral_margin(self, X: Any) -> FloatArray:
        """Return by how much the best expert's value exceeds the classifier's.

        A row is deferred if its margin exceeds ``threshold_``. Values estimate 1 minus the cost of an
        answer, so the margin is on the scale of probabilities.

        Parameters
        ----------
        X : (n_samples, n_features) array

        Returns
        -------
        (n_samples,) array
        """
        values = self._values(X)
        return values.experts.max(axis=1) - values.model

    def defer(self, X: Any, *, capacity: Any = None) -> IntArray:
        """Choose an expert for each row, or none.

        Parameters
        ----------
        X : (n_samples, n_features) array
        capacity : integer or (n_experts,) array, or None
            The largest number of rows that each expert can take in this call; None for any number. Rows
            with the largest margin come first; a row whose expert can take no more goes to the next best
            one, or stays with the classifier.

        Returns
        -------
        (n_samples,) array of indices of experts, -1 where the classifier answers
        """
        values = self._values(X)
        limit = capacity_vector(capacity, self.n_experts_)
        return choose_experts(values, self.threshold_, capacity=limit)

    def system_predict(self, X: Any, *, experts: Any, capacity: Any = None) -> Any:
        """Return the answer of the system: that of the expert it defers to, or of the classifier.

        Only experts that have an answer to a row are asked about it: where the best one has none, the next
        best follows, if its value still exceeds the classifier's.

        Parameters
        ----------
        X : (n_samples, n_features) array
        experts : (n_samples, n_experts) answers, as for ``fit``
        capacity : as for ``defer``

        Returns
        -------
        (n_samples,) array of labels
        """
        values = self._values(X)
        answers = self._read_answers(experts, len(values.model))
        limit = capacity_vector(capacity, self.n_experts_)
        chosen = choose_experts(values, self.threshold_, answers.asked, limit)
        return self.classes_[_system_classes(values, answers, chosen)]

    def system_score(self, X: Any, y: Any, *, experts: Any) -> float:
        """Return the accuracy of the system.

        Parameters
        ----------
        X : (n_samples, n_features) array
        y : (n_samples,) labels
        experts : (n_samples, n_experts) answers, as for ``fit``

        Returns
        -------
        float
        """
        answer = self.system_predict(X, experts=experts)
        labels = column_or_1d(y)
        if len(labels) != len(answer):
            raise invalid("y", f"must have {len(answer)} rows, as X has; got {len(labels)}.")
        return float((answer == labels).mean())

    def coverage_curve(self, X: Any, y: Any, *, experts: Any) -> CoverageCurve:
        """Return the accuracy of the system at every coverage, by moving the threshold.

        Rows are deferred in the order of their margin, each to the best expert that has an answer to it.

        Parameters
        ----------
        X : (n_samples, n_features) array
        y : (n_samples,) labels
        experts : (n_samples, n_experts) answers, as for ``fit``

        Returns
        -------
        CoverageCurve with the arrays ``coverage`` (falling from 1), ``accuracy`` and ``threshold``
        """
        values = self._values(X)
        answers = self._read_answers(experts, len(values.model))
        class_of = self._class_indices(y, len(values.model))
        expert_values = np.where(answers.asked, values.experts, -np.inf)
        best_expert = expert_values.argmax(axis=1)
        margin = expert_values.max(axis=1) - values.model
        classifier_is_right = values.classes.argmax(axis=1) == class_of
        expert_is_right = answers.correct(class_of)[np.arange(len(best_expert)), best_expert]
        return coverage_curve(margin, classifier_is_right, expert_is_right)

    def expert_calibration_error(
        self, X: Any, y: Any, *, experts: Any, n_bins: int = 10
    ) -> FloatArray:
        """Return the expected calibration error of ``expert_proba``, over the rows an expert answered.

        Parameters
        ----------
        X : (n_samples, n_features) array
        y : (n_samples,) labels
        experts : (n_samples, n_experts) answers, as for ``fit``
        n_bins : number of bins, of equally many rows

        Returns
        -------
        (n_experts,) array, NaN for an expert without an answer
        """
        probability = self.expert_proba(X)
        answers = self._read_answers(experts, len(probability))
        correct = answers.correct(self._class_indices(y, len(probability)))
        errors = np.full(self.n_experts_, np.nan)
        for expert in range(self.n_experts_):
            rows = answers.asked[:, expert]
            if rows.any():
                estimate = probability[rows, expert]
                errors[expert] = expected_calibration_error(correct[rows, expert], estimate, n_bins)
        return errors

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        expert_names: Sequence[str] | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write the classifier to a folder, as JSON and safetensors.

        ``DeferralClassifier.load`` reads it back. ``mild.load`` reads it as a router, whose ``route(X)``
        returns "model" or the name of an expert. Neither needs torch.

        Parameters
        ----------
        folder : folder to write; it must not exist yet or must be empty, unless ``overwrite``
        expert_names : one name per expert; None for the column names of the answers, or "expert_0", ... if
            there are none
        overwrite : whether an existing router may be replaced

        Returns
        -------
        Path of the folder
        """
        check_is_fitted(self, "policy_")
        if not can_be_saved(self.policy_) or not can_be_saved(self.policy_.network):
            raise UnsupportedError(
                "a DeferralClassifier around a torch module cannot be written as JSON and safetensors: its "
                "weights cannot be used without its code. Save the weights of policy_.network.module "
                "yourself, or fit body='linear' or 'mlp'.",
                code="body_not_saved",
            )
        names = self.expert_names_
        if expert_names is not None:
            names = [MODEL, *expert_names]
        # A saved router reads texts unless it is told otherwise: with these, route(X) takes vectors.
        vectors = VectorFeatures(self.n_features_in_)
        return save_router(self, folder, experts=names, text=vectors, overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read a classifier that ``save`` wrote; it predicts and defers without torch.

        Parameters
        ----------
        folder : folder of the classifier

        Returns
        -------
        DeferralClassifier, fitted
        """
        router = load_router(folder)
        policy = full_deferral_policy(router.policy)
        if policy is None:
            raise RouterFileError(
                f"{folder} holds a {router.policy.kind} router, not a DeferralClassifier with all its "
                "experts; use mild.load."
            )
        # Parameters that were added after the classifier was saved keep their defaults.
        parameters: dict[str, Any] = {}
        if router.info.estimator is not None:
            names = {parameter.name for parameter in fields(cls)}
            saved_parameters = router.info.estimator.params
            parameters = {name: saved_parameters[name] for name in names & set(saved_parameters)}
        classifier = cls(**parameters)
        # The fitted attributes are read from the policy, whose first cost is the classifier's own.
        classifier.policy_ = policy
        classifier.classes_ = np.array(policy.classes)
        classifier.expert_names_ = router.experts
        classifier.n_experts_ = len(policy.costs) - 1
        classifier.expert_costs_ = policy.costs[1:]
        classifier.threshold_ = policy.threshold
        classifier.n_features_in_ = policy.n_features
        if router.feature_names is not None:
            classifier.feature_names_in_ = np.array(router.feature_names, dtype=object)
        return classifier

    def _train(self, inputs: FloatArray, class_of: IntArray, answers: ExpertAnswers) -> None:
        """Set ``policy_``, ``n_iter_`` and ``threshold_``; warn if every row is deferred.

        The threshold is chosen on the held-out rows, or on the training rows if there are none.
        """
        _check_torch()
        # Imported late, because it imports torch.
        from mild.deferral.estimation import estimate_policy

        seed = int(self._random_state().randint(LARGEST_SEED))
        train, held_out = _split_rows(len(inputs), float(self.validation_fraction), seed)
        policy, self.n_iter_ = estimate_policy(
            self, inputs, class_of, answers, train=train, held_out=held_out, seed=seed
        )
        threshold_rows = train
        if len(held_out):
            threshold_rows = held_out
        values = policy.values(inputs[threshold_rows])
        if self.max_deferred is not None:
            margin = values.experts.max(axis=1) - values.model
            policy.threshold = threshold_for_share(margin, float(self.max_deferred))
        self.threshold_ = policy.threshold
        self.policy_ = policy
        is_deferred = choose_experts(values, self.threshold_) != KEPT
        if is_deferred.all():
            warnings.warn(
                f"every row is deferred: on all {len(threshold_rows):,} rows that were looked at, an "
                "expert seems better than the classifier. Set max_deferred, give the experts a cost, or "
                "check the features.",
                DegenerateDataWarning,
                stacklevel=3,
            )

    def _check_numbers(self) -> None:
        check_max_deferred(self.max_deferred)
        check_number("validation_fraction", self.validation_fraction, "lie in [0, 1)")
        check_number("weight_decay", self.weight_decay, "be finite and non-negative")
        check_number("lr", self.lr, "be positive")
        check_integer("epochs", self.epochs)
        check_integer("batch_size", self.batch_size)

    def _check_costs_of_loss(self, options: dict[str, Any]) -> None:
        if self.loss == "rl2d" and options["q"] < 1 and self.expert_costs_.any():
            raise invalid(
                "expert_costs",
                "must be 0 for loss='rl2d' with q < 1, whose costs are at most 1; use q=1.",
            )

    def _random_state(self) -> np.random.RandomState:
        try:
            return check_random_state(self.random_state)
        except ValueError as error:
            raise invalid(
                "random_state", f"must be an integer, a RandomState or None: {error}"
            ) from error

    def _values(self, X: Any) -> DeferralValues:
        inputs = self._check_inputs(X)
        return self.policy_.values(inputs)

    def _check_inputs(self, X: Any) -> FloatArray:
        check_is_fitted(self, "policy_")
        try:
            return validate_data(self, X, reset=False, **self._input_rules())
        except ValueError as error:
            raise _invalid_features(error) from error

    def _validated(self, X: Any, y: Any) -> tuple[FloatArray, Any]:
        """Validate inputs and labels as scikit-learn does, with mild's exceptions."""
        if y is None:
            reason = "DeferralClassifier requires y to be passed, but the target y is None."
            raise InvalidInputError(reason, parameter="y")
        try:
            inputs = validate_data(self, X, ensure_min_samples=2, **self._input_rules())
        except ValueError as error:
            raise _invalid_features(error) from error
        try:
            labels = column_or_1d(y, warn=True)
            if labels.dtype.kind == "f":
                assert_all_finite(labels, input_name="y")
            check_classification_targets(labels)
        except ValueError as error:
            raise InvalidInputError(str(error), parameter="y") from error
        if len(labels) != len(inputs):
            raise invalid("y", f"must have {len(inputs)} rows, as X has; got {len(labels)}.")
        return inputs, labels

    def _input_rules(self) -> dict[str, Any]:
        # A module may read images; every other body reads vectors.
        is_module = callable(self.body)
        return {"dtype": [np.float64, np.float32], "order": "C", "allow_nd": is_module}

    def _read_answers(self, experts: Any, n_rows: int) -> ExpertAnswers:
        answers = read_answers(experts, self.classes_, n_rows)
        if answers.n_experts != self.n_experts_:
            raise invalid(
                "experts",
                f"must have {self.n_experts_} columns, as in fit; got {answers.n_experts}.",
            )
        return answers

    def _class_indices(self, y: Any, n_rows: int) -> IntArray:
        labels = column_or_1d(y)
        if len(labels) != n_rows:
            raise invalid("y", f"must have {n_rows} rows, as X has; got {len(labels)}.")
        return class_indices(labels, self.classes_, "y")


def _check_torch() -> None:
    """Raise an error that says how to install torch if it is missing."""
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            "DeferralClassifier needs torch to fit, which is not installed; run: "
            f"{install_hint('neural')}."
        ) from error


def _invalid_features(error: ValueError) -> InvalidInputError:
    """Return mild's exception for scikit-learn's error about X.

    The message is the same, without the list of scikit-learn's estimators that accept NaN.
    """
    message = str(error)
    if message.startswith("Input X contains NaN"):
        message = "Input X contains NaN; fill in these features, or leave out their rows."
    return InvalidInputError(message, parameter="X")


def _system_classes(values: DeferralValues, answers: ExpertAnswers, chosen: IntArray) -> IntArray:
    """Return the class index (n,) that the chosen expert, or else the classifier, gives to each row."""
    rows = np.arange(len(chosen))
    expert_classes = answers.indices[rows, np.maximum(chosen, 0)]
    return np.where(chosen == KEPT, values.classes.argmax(axis=1), expert_classes)


def _split_rows(n_rows: int, held_out_share: float, seed: int) -> tuple[IntArray, IntArray]:
    """Return the indices of the rows to train on and of the rows held out, both ascending."""
    order = np.random.default_rng([seed, 2]).permutation(n_rows)
    n_held_out = int(held_out_share * n_rows)
    return np.sort(order[n_held_out:]), np.sort(order[:n_held_out])
