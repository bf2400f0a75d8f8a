"""The router: one class for tuned and for loaded routers. It decides with NumPy only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from itertools import islice
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from mild.artifact.estimates import Estimates, chances, possible_costs
from mild.artifact.explanation import Explanation, drawn_part, explain
from mild.artifact.facts import mix_words, router_facts, setting_words
from mild.artifact.folder import write_folder
from mild.artifact.frames import as_frame
from mild.artifact.hub import upload
from mild.artifact.info import CostInfo
from mild.artifact.inputs import as_texts, check_finite, checked_inputs
from mild.artifact.parts import RouterParts
from mild.artifact.targets import Target, at_target
from mild.core.arrays import BoolArray, FloatArray, IntArray, first_columns, invalid
from mild.core.costs import best_first
from mild.errors import UnsupportedError, check_arguments, check_option
from mild.features import TextFeatures
from mild.features.base import check_text, is_table
from mild.policies import (
    Ask,
    CascadePolicy,
    Decisions,
    MixPolicy,
    Policy,
    cascade_of,
    cascades_of,
    mix_of,
)
from mild.policies.base import blocks

# Number of texts whose features are in memory at a time.
TEXT_BLOCK = 4096


class NextStep(NamedTuple):
    """What a cascade does next: it asks experts, or it accepts an answer.

    Attributes
    ----------
    ask : tuple of str
        Experts to ask at the same time; empty if an answer is accepted.
    accepted : str or None
        The expert whose answer is accepted.
    probability : float or None
        Estimated probability that the accepted answer is right.
    """

    ask: tuple[str, ...]
    accepted: str | None = None
    probability: float | None = None


@dataclass(eq=False, repr=False)
class Router(RouterParts):
    """A policy with the names of its experts, its text features and what is known about it.

    Attributes
    ----------
    policy : Policy
        What decides for vectors.
    experts : list of str
        Names of the experts, in the order of the indices that ``predict`` gives.
    feature_names : list of str or None
        Names of the columns that the router was fitted on; None if they had none.
    info : RouterInfo
        What is recorded about the router: cost, data and target.
    text : TextFeatures or None
        Fitted text features; None if the router was fitted on numbers.
    query_hashes : ndarray of shape (n_queries,) or None
        Ascending hashes of the training queries; None if they were not saved.
    novelty : Novelty or None
        Distances to the training inputs; None if they are not recorded.

    Examples
    --------
    >>> from mild.features import HashingFeatures
    >>> from mild.policies import ConstantPolicy
    >>> features = HashingFeatures().fit(["2 + 2 = ?", "Who wrote Faust?"])
    >>> policy = ConstantPolicy(np.array([0.5, 0.2]), features.n_features_)
    >>> router = Router(policy, ["small", "large"], text=features)
    >>> router.route(["What is 17 * 23?", "Who wrote Emma?"])
    ['large', 'large']
    >>> router.without("large").route(["What is 17 * 23?"])
    ['small']
    """

    def __post_init__(self) -> None:
        self.experts = list(self.experts)
        if self.feature_names is not None:
            self.feature_names = list(self.feature_names)
        if self.mix is not None and self.text is not None and self.text.kind == "vectors":
            raise UnsupportedError(
                "a mix is drawn by the text of a query, and this router reads vectors; give it one policy.",
                parameter="policy",
            )

    # What the router is.

    @property
    def n_features(self) -> int:
        """Number of features; what ``features`` gives has one more column for a router with a mix."""
        return self.policy.n_features

    @property
    def n_experts(self) -> int:
        """Number of experts."""
        return self.policy.n_experts

    @property
    def margins(self) -> list[float] | None:
        """Margins of the policy that decides; None if it has none."""
        if self.policy.margins is None:
            return None
        return [float(margin) for margin in self.policy.margins]

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the policy."""
        return self.policy.state()[0]

    @property
    def facts(self) -> dict[str, str]:
        """What is known about the router, by name and in words: kind, parameters, cost, training data.

        >>> from mild.policies import ConstantPolicy
        >>> Router(ConstantPolicy(np.array([0.5, 0.2]), 1), ["small", "large"]).facts
        {'kind': 'constant', 'features': '1, unnamed'}
        """
        return router_facts(self)

    def as_dict(self) -> dict[str, Any]:
        """What ``mild explain DIR --json`` prints about the router.

        Returns
        -------
        dict
            JSON-ready values; None for what is not known.

        Examples
        --------
        >>> router.as_dict()["experts"]
        ['large', 'small']
        """
        info = self.info
        return {
            "kind": self.policy.kind,
            "parts": self.policy.parts,
            "experts": self.experts,
            "best_first": self._names_best_first(),
            **self._described_steps(),
            "margins": self.margins,
            "settings": self.settings,
            "estimator": info.estimator and info.estimator.as_dict(),
            "n_features": self.n_features,
            "text": self.text and self.text.kind,
            "notes": info.notes,
            "feature_names": self.feature_names,
            "data": info.data and info.data.as_dict(),
            "tensors": info.tensors,
            "mild_version": info.mild_version,
            "created": info.created,
            "schema_version": info.schema_version,
        }

    def _names_best_first(self) -> list[str]:
        """Names of the experts, the best one first, if their ranks are known."""
        ranks = self.policy.ranks
        if ranks is None:
            return self.experts
        return self._names_of(best_first(ranks))

    def _names_of(self, experts: Iterable[int]) -> list[str]:
        """Names of experts, by index."""
        return [self.experts[expert] for expert in experts]

    def _described_steps(self) -> dict[str, Any]:
        """The steps of a cascade and the settings of a mix, JSON-ready; None where there are none."""
        if self.mix is not None:
            return {"steps": None, "mix": _described_mix(self.mix, self.experts)}
        if self.cascade is not None:
            steps = _named_steps(self.cascade.cascades[0], self.experts)
            return {"steps": steps, "mix": None}
        return {"steps": None, "mix": None}

    @property
    def cascade(self) -> CascadePolicy | MixPolicy | None:
        """The policy, if it asks experts in steps and reads their answers; otherwise None.

        It is one cascade, or a mix of two.
        """
        return cascade_of(self.policy)

    @property
    def cascades(self) -> list[CascadePolicy]:
        """The cascades that decide: one, two that divide the queries, or none."""
        return cascades_of(self.policy)

    @property
    def mix(self) -> MixPolicy | None:
        """The policy, if it decides some queries by one setting and the others by another one."""
        return mix_of(self.policy)

    @property
    def has_prices(self) -> bool:
        """Whether errors and prices are separate, so that prices can be changed without a refit."""
        return self.policy.has_prices

    def for_text(self, text: str) -> Router:
        """The router that decides on a text: itself or, for a mix, the setting drawn for the text.

        Parameters
        ----------
        text : str
            The query.

        Returns
        -------
        Router
            A router without a mix.

        Examples
        --------
        >>> router.for_text("Who wrote Emma?") is router
        True
        """
        if self.mix is None:
            return self
        return replace(self, policy=self.mix.policy_for(check_text(text)))

    @property
    def direct(self) -> Router:
        """The router that reads no answers: for a cascade, its companion that chooses one expert."""
        if self.cascade is None:
            return self
        info = replace(self.info, target=None, verdict=None)
        return replace(self, policy=self.cascade.direct, info=info)

    # Steps of a cascade.

    def next(self, query: Any, answers: Mapping[str, Any]) -> NextStep:
        """What to do with a query after some answers: whom to ask, or whose answer to accept.

        A router without a cascade asks the expert that it chooses and accepts its answer; in place of an
        expert that failed it asks the one that it likes best of the others.

        Parameters
        ----------
        query : str or array-like of shape (n_features,)
            A text, or a vector for a router that was fitted on vectors or numbers.
        answers : dict
            The answers so far, by expert: texts, tool calls as JSON, or None for an expert that
            failed.

        Returns
        -------
        NextStep
            The experts to ask, or the answer that is accepted; if all of them failed, that of the expert
            that was asked first.

        Examples
        --------
        >>> router.next("Who wrote Emma?", {}).ask
        ('large',)
        >>> from mild.policies import ConstantPolicy
        >>> from mild.policies.cascade import AgreementTable
        >>> codes, scores = np.array([[0, 0, 0], [0, 1, 1]]), np.array([[1.0, 1, 1], [0, 0, 1]])
        >>> table = AgreementTable.of_rows(codes, scores, np.array([50.0, 50.0]))
        >>> direct = ConstantPolicy(np.array([0.5, 0.5, 0.0]), 1)
        >>> policy = CascadePolicy("number", [[0, 1], [2]], 0.9, table, direct)
        >>> router = Router(policy, ["small", "medium", "large"])
        >>> router.next([1.0], {})
        NextStep(ask=('small', 'medium'), accepted=None, probability=None)
        >>> router.next([1.0], {"small": "4", "medium": "4.0"}).accepted
        'small'
        >>> router.next([1.0], {"small": "4", "medium": "5"}).ask
        ('large',)
        """
        answers_by_index = self._by_index(answers)
        router = self.for_text(query)
        X = router.features([query]) if self.text is not None else checked_inputs([query], self)
        check_finite(X, 0, self.feature_names)
        if router.cascade is None:
            return router._next_choice(X, answers_by_index)
        (cascade,) = router.cascade.cascades
        outcome = cascade.next(X[0], answers_by_index)
        if isinstance(outcome, Ask):
            return NextStep(tuple(self._names_of(outcome.experts)))
        return NextStep((), self.experts[outcome.expert], outcome.probability)

    def _next_choice(self, X: FloatArray, answers: Mapping[int, Any]) -> NextStep:
        """``next`` of a router that chooses one expert, for one row X."""
        decisions = self.decide_features(X)
        first = int(decisions.chosen[0])
        others = np.argsort(-decisions.values[0], kind="stable")
        for expert in [first, *others[others != first].tolist()]:
            if expert not in answers:
                return NextStep((self.experts[expert],))
            if answers[expert] is not None:
                return NextStep((), self.experts[expert])
        return NextStep((), self.experts[first])

    def _by_index(self, answers: Mapping[str, Any]) -> dict[int, Any]:
        """Answers, by the index of the expert."""
        names = self.experts
        if not isinstance(answers, Mapping) or not set(answers) <= set(names):
            rule = f"must map experts ({', '.join(names)}) to their answers; got {answers!r:.200}."
            raise invalid("answers", rule)
        return {names.index(name): answer for name, answer in answers.items()}

    def first_steps(self, X: Any) -> list[list[str]] | None:
        """Experts that a cascade asks first, at the same time; ``predict`` gives the first of them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs; for texts, what ``features`` gives.

        Returns
        -------
        list of list of str, or None
            Names for each row; None if the router is not a cascade.

        Examples
        --------
        >>> router.first_steps(router.features(["What is 3 + 3?"])) is None
        True
        """
        if self.cascade is None:
            return None
        steps = self.cascade.first_asked(checked_inputs(X, self))
        return [self._names_of(experts) for experts in steps]

    # Decisions for features.

    def predict(self, X: Any) -> IntArray:
        """Choose an expert for each input.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs; for texts, what ``features`` gives.

        Returns
        -------
        ndarray of shape (n_samples,)
            Indices into ``experts``.

        Examples
        --------
        >>> from mild.policies import LinearCostPolicy
        >>> router = Router(LinearCostPolicy(np.array([[1.0], [-1.0]]), np.zeros(2)), ["a", "b"])
        >>> router.predict([[-3.0], [2.0]])
        array([0, 1])
        """
        return self.policy.predict_checked(checked_inputs(X, self), self._check_finite)

    def predict_proba(self, X: Any) -> FloatArray:
        """Estimate each expert's share of the expected reward.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs; for texts, what ``features`` gives.

        Returns
        -------
        ndarray of shape (n_samples, n_experts)
            Shares; each row sums to 1.

        Examples
        --------
        >>> from mild.policies import LinearCostPolicy
        >>> router = Router(LinearCostPolicy(np.array([[1.0], [0.0]]), np.array([0.0, 1.0])), ["a", "b"])
        >>> router.predict_proba([[3.0], [1.0]])
        array([[0.25, 0.75],
               [0.5 , 0.5 ]])
        """
        return self._in_blocks(self.policy.predict_proba, X)

    def decision_function(self, X: Any) -> FloatArray:
        """Score each expert; the expert of the largest score is chosen.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs; for texts, what ``features`` gives.

        Returns
        -------
        ndarray of shape (n_samples, n_experts)
            Scores, larger is better.

        Examples
        --------
        >>> X = router.features(["What is 3 + 3?", "Who wrote Emma?"])
        >>> router.decision_function(X).argmax(axis=1)
        array([1, 0])
        """
        return self._in_blocks(self.policy.decision_function, X)

    def expected_costs(self, X: Any) -> FloatArray:
        """Estimate what each expert costs, if the router has learned it.

        These are the numbers that ``explain``, ``mild route`` and the gateway show: they are within the
        possible range.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs; for texts, what ``features`` gives.

        Returns
        -------
        ndarray of shape (n_samples, n_experts)
            Costs, in the units of the cost that the router was fitted with.

        Examples
        --------
        >>> from mild.policies import LinearCostPolicy
        >>> router = Router(LinearCostPolicy(np.array([[1.0], [0.0]]), np.array([0.0, 1.0])), ["a", "b"])
        >>> router.expected_costs([[3.0]])
        array([[3., 1.]])
        """

        def costs_of(block: Any) -> FloatArray:
            return self._possible(block, self.policy.expected_costs(block))

        return self._in_blocks(costs_of, X)

    def decide(self, X: Any) -> Decisions:
        """Choose experts, and estimate shares and costs, in one pass.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs; for texts, what ``features`` gives.

        Returns
        -------
        Decisions
            It has ``chosen``, ``probabilities`` and ``costs``, which is None if unknown.

        Examples
        --------
        >>> router.decide(router.features(["What is 3 + 3?", "Who wrote Emma?"])).chosen
        array([1, 0])
        """
        inputs = checked_inputs(X, self)
        self._check_finite(inputs, 0)
        return self.decide_features(inputs)

    def decide_features(self, X: FloatArray) -> Decisions:
        """``decide`` for the result of ``features``, unchecked; serving, display and logs use it.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            What ``features`` gave.

        Returns
        -------
        Decisions
            As for ``decide``.

        Examples
        --------
        >>> X = router.features(["What is 3 + 3?", "Who wrote Emma?"])
        >>> router.decide_features(X).chosen
        array([1, 0])
        """
        decisions = self.policy.decide(X)
        if decisions.costs is None:
            return decisions
        return replace(decisions, costs=self._possible(X, decisions.costs))

    def decide_one(self, x: FloatArray) -> int:
        """Choose an expert for one vector. Nothing is checked: this is the fast path.

        Parameters
        ----------
        x : ndarray of shape (n_features,)
            Floats.

        Returns
        -------
        int
            Index into ``experts``.

        Examples
        --------
        >>> x = router.features(["Who wrote Emma?"])[0]
        >>> router.decide_one(x)
        0
        """
        return self.policy.decide_one(x)

    def _in_blocks(self, decide: Callable[[Any], FloatArray], X: Any) -> FloatArray:
        """Check and decide block by block, so that a block stays in cache."""
        inputs = checked_inputs(X, self)
        results = []
        for rows in blocks(inputs) or [slice(0, 0)]:
            block = inputs[rows]
            self._check_finite(block, rows.start)
            results.append(decide(block))
        if len(results) == 1:
            return results[0]
        return np.concatenate(results)

    def _check_finite(self, block: Any, first_row: int) -> None:
        check_finite(block, first_row, self.feature_names)

    # Decisions for texts.

    def decide_text(self, text: str) -> int:
        """Choose an expert for one text: the fast path.

        Parameters
        ----------
        text : str
            The query.

        Returns
        -------
        int
            Index into ``experts``.

        Examples
        --------
        >>> router.decide_text("Who wrote Emma?")
        0
        """
        return self.policy.decide_one(self.features_one(text))

    def features_one(self, text: str) -> FloatArray:
        """Features of one text, for ``decide_one``: the fast path.

        Parameters
        ----------
        text : str
            The query.

        Returns
        -------
        ndarray of shape (n_features,)
            Features; for a router with a mix, followed by the draw of the text.

        Examples
        --------
        >>> router.features_one("Who wrote Emma?").shape == (router.n_features,)
        True
        """
        x = self._text_features().transform_one(text)
        if self.mix is None:
            return x
        return self.mix.with_draws(x[None], [text])[0]

    def own_columns(self, X: FloatArray) -> FloatArray:
        """The columns that this router reads, from the features that a related router computed.

        A router with a mix reads the text's draw after the features. Its routers without the mix, as
        ``direct`` and ``with_prices`` may give them, do not.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features) or (n_samples, n_features + 1)
            Features, perhaps with a column of draws.

        Returns
        -------
        ndarray
            X, or X without the draws.

        Examples
        --------
        >>> X = router.features(["Who wrote Emma?"])
        >>> router.own_columns(X).shape == X.shape
        True
        """
        return first_columns(X, self.policy.n_columns)

    def features(self, texts: Iterable[str]) -> FloatArray:
        """Features of texts, for the methods that take X.

        Parameters
        ----------
        texts : iterable of str
            A list, Series, column of a table, or generator of texts.

        Returns
        -------
        ndarray of shape (n_texts, n_features)
            Features; for a router with a mix, with the draws of the texts as one more column.

        Examples
        --------
        >>> router.features(["What is 3 + 3?", "Who wrote Emma?"]).shape == (2, router.n_features)
        True
        """
        features = self._text_features()
        if self.mix is None:
            return features.vectorize(as_texts(texts))
        if not _is_list_of_texts(texts):
            return features.vectorize(texts)  # refuses it
        text_list = list(as_texts(texts))
        return self.mix.with_draws(features.vectorize(text_list), text_list)

    def _text_features(self) -> TextFeatures:
        """The text features; a router without them is refused."""
        if self.text is None:
            raise UnsupportedError(
                "this router was fitted on numbers and has no step from texts to features; use "
                "predict(X), or save it with mild.save(router, folder, text=features)."
            )
        return self.text

    def predict_texts(self, texts: Iterable[str]) -> IntArray:
        """Choose an expert for each text.

        Texts are read block by block, so a generator of any length takes constant memory.

        Parameters
        ----------
        texts : iterable of str
            A list, Series, column of a table, or generator of texts.

        Returns
        -------
        ndarray of shape (n_texts,)
            Indices into ``experts``.

        Examples
        --------
        >>> router.predict_texts(["What is 3 + 3?", "Who wrote Emma?"])
        array([1, 0])
        """
        self._text_features()  # a router without them says so here
        if not _is_list_of_texts(texts):
            return self.predict(self.features(texts))  # refuses it, unless it is for vectors
        remaining = iter(as_texts(texts))
        chosen = [np.empty(0, np.intp)]
        while block := list(islice(remaining, TEXT_BLOCK)):
            chosen.append(self.predict(self.features(block)))
        return np.concatenate(chosen)

    def route(self, texts: Iterable[str]) -> list[str]:
        """Name the expert that is chosen for each text.

        Parameters
        ----------
        texts : iterable of str
            A list, Series, column of a table, or generator of texts.

        Returns
        -------
        list of str
            Names of experts.

        Examples
        --------
        >>> router.route(["What is 3 + 3?", "Who wrote Emma?"])
        ['small', 'large']
        """
        return self._names_of(self.predict_texts(texts).tolist())

    # Tables of decisions.

    def route_table(self, texts: Any) -> Any:
        """Expert, probabilities and, if known, expected costs for each text, as a table.

        Its columns are ``expert``, ``p__<name>`` and ``expected_cost__<name>``. For a cascade,
        ``first_step`` lists the experts that are asked first, and ``expert`` is one of them.

        Parameters
        ----------
        texts : list of str, or column of a table
            The queries.

        Returns
        -------
        frame or dict
            A frame of the library that ``texts`` come from (pandas, polars or pyarrow; a pandas
            index is kept), else a dict of columns.

        Examples
        --------
        >>> router.route_table(["What is 3 + 3?", "Who wrote Emma?"])["expert"]
        ['small', 'large']
        """
        return self._decision_table(self.features(texts), like=texts)

    def predict_table(self, X: Any) -> Any:
        """``route_table`` for a router that was fitted on numbers.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        frame or dict
            As for ``route_table``, with a row for each row of X.

        Examples
        --------
        >>> from mild.policies import LinearCostPolicy
        >>> router = Router(LinearCostPolicy(np.array([[1.0], [0.0]]), np.array([0.0, 1.0])), ["a", "b"])
        >>> router.predict_table([[3.0]])["expected_cost__a"]
        [3.0]
        """
        return self._decision_table(X, like=X)

    def _decision_table(self, X: Any, like: Any) -> Any:
        """Decisions as a table of the library that ``like`` comes from."""
        decisions = self.decide(X)
        first_steps = self.first_steps(X)
        columns: dict[str, Any] = {"expert": self._names_of(decisions.chosen.tolist())}
        if first_steps is not None:
            columns["first_step"] = first_steps
        for expert, name in enumerate(self.experts):
            columns[f"p__{name}"] = decisions.probabilities[:, expert].tolist()
        if decisions.costs is not None:
            for expert, name in enumerate(self.experts):
                columns[f"expected_cost__{name}"] = decisions.costs[:, expert].tolist()
        frame = as_frame(columns, like=like)
        if hasattr(frame, "iloc") and hasattr(like, "index"):
            frame.index = like.index
        return frame

    # Explanations and estimates.

    def explain(
        self, text: Any, max_evidence: int = 12, answers: Mapping[str, Any] | None = None
    ) -> Explanation:
        """Explain the decision on a text, or a vector.

        For a cascade, the explanation follows the path of the query if ``answers`` are given: which experts
        were asked, which answer was accepted, and why. Without them, it shows the first step and the
        agreement that would be accepted.

        Parameters
        ----------
        text : str or array-like of shape (n_features,)
            The query; a vector for a router that was fitted on vectors.
        max_evidence : int, default=12
            Maximum number of pieces of evidence.
        answers : dict, default=None
            The answers that a cascade has received so far, by expert, as in ``next``.

        Returns
        -------
        Explanation
            The figures and the evidence; its ``repr`` presents them as sentences.

        Examples
        --------
        >>> router.explain("Who wrote Emma?").expert
        'large'
        """
        if self.text is None:
            raise UnsupportedError(
                "explain needs a router that was fitted on texts or vectors; this one was fitted on "
                "columns of numbers. mild route, and predict_table in Python, give its choices for a table."
            )
        if self.mix is not None:
            # A mix draws one of two settings for each text: explain the one that is drawn for this text.
            explanation = self.for_text(text).explain(text, max_evidence, answers)
            return replace(explanation, mix=drawn_part(self.mix, text, self.experts))
        answers_by_index = None
        if answers is not None:
            if self.cascade is None:
                raise UnsupportedError(
                    "answers are read by a cascade, and this router is not a cascade; leave them out.",
                    parameter="answers",
                )
            answers_by_index = self._by_index(answers)
        is_graded = self.info.table is not None and bool(self.info.table.graded)
        return explain(
            self.policy,
            self.text,
            self.experts,
            text,
            self.estimate([text]),
            max_evidence=max_evidence,
            graded=is_graded,
            answers=answers_by_index,
        )

    def estimate(self, texts: Sequence[Any]) -> Estimates:
        """Estimate each expert's cost and chance of a right answer, and how novel each input is.

        Expected costs are those of ``decide``. ``right`` is NaN for novel inputs.

        Parameters
        ----------
        texts : list of str, or array-like of shape (n_samples, n_features)
            Texts, or vectors for a router that was fitted on vectors.

        Returns
        -------
        Estimates
            ``costs``, ``right``, ``novelty`` and ``novel``; None where unknown.

        Examples
        --------
        >>> router.estimate(["Who wrote Emma?"]).costs.round(1)
        array([[0.1, 1. ]], dtype=float32)
        """
        features = self._text_features()
        X = self.features(texts)
        costs = self.decide_features(X).costs
        policy = self.direct.policy
        # The features of a mix end with a column of draws, which is dropped here.
        inputs = self.direct.own_columns(X)
        right = chances(policy, inputs, costs, self.experts, self._terms)
        if self.novelty is None:
            return Estimates(costs, right, None, None)
        # Computed only here: it takes a second pass over the texts, and only the novelty needs it.
        unseen_shares = features.unseen_shares(texts)
        scores = self.novelty.scores(first_columns(X, self.n_features), unseen_shares)
        novel = self.novelty.is_novel(scores)
        if right is not None:
            right[novel] = np.nan
        return Estimates(costs, right, self.novelty.shares(scores), novel)

    def _possible(self, X: Any, costs: FloatArray) -> FloatArray:
        """Expected costs within their possible range."""
        deciding = self.direct.policy
        inputs = first_columns(X, deciding.n_columns)
        return possible_costs(deciding, inputs, costs, self.experts, self._terms)

    @property
    def _terms(self) -> CostInfo | None:
        """Terms of the expected costs; only errors where a single expert meets the target."""
        cost = self.info.cost
        target = self.info.target
        if cost is None or target is None or target.expert is None:
            return cost
        return CostInfo.of_errors()

    def is_novel(self, texts: Sequence[Any], X: FloatArray | None = None) -> BoolArray:
        """Whether each text is farther from the training texts than 99 % of the held-out texts.

        Parameters
        ----------
        texts : list of str, or array-like of shape (n_texts, n_features)
            Texts, or vectors for a router that was fitted on vectors.
        X : ndarray of shape (n_texts, n_features), default=None
            Features of the texts, if they are known; None computes them.

        Returns
        -------
        ndarray of bool of shape (n_texts,)
            Whether each text is novel.

        Raises
        ------
        UnsupportedError
            The router does not record how far inputs are from its training inputs.

        Examples
        --------
        >>> router.is_novel(["Who wrote Emma, act 1?"])
        array([False])
        """
        if self.novelty is None:
            raise UnsupportedError(
                "this router does not record how far inputs are from its training inputs; fit it again "
                "from a table of outcomes (mild fit, mild tune).",
                parameter="on_novel",
            )
        features = self._text_features()
        inputs = features.vectorize(texts) if X is None else first_columns(X, self.n_features)
        scores = self.novelty.scores(inputs, features.unseen_shares(texts))
        return self.novelty.is_novel(scores)

    # Related routers: fewer experts, other prices, another target.

    def without(self, expert: int | str) -> Router:
        """The router without one expert.

        Parameters
        ----------
        expert : int or str
            Index or name of the expert.

        Returns
        -------
        Router
            A router of the other experts.

        Examples
        --------
        >>> from mild.policies import ConstantPolicy
        >>> router = Router(ConstantPolicy(np.array([0.5, 0.2, 0.4]), 1), ["a", "b", "c"])
        >>> router.without("b")
        Router(constant, 1 features, experts a, c)
        """
        if isinstance(expert, Integral):
            index = int(expert)
        elif expert in self.experts:
            index = self.experts.index(expert)
        else:
            raise invalid("expert", f"must be one of {', '.join(self.experts)}; got {expert!r}.")
        policy = self.policy.without(index)
        removed_name = self.experts[index]
        others = np.delete(np.arange(self.policy.n_experts), index)
        # Target and verdict were found with all experts, so they are dropped, but for a target that is met
        # by always asking another expert. Without the target, ``_terms`` are those of the costs.
        target = self.info.target
        cost = self.info.cost
        if target is not None and target.expert in (None, removed_name):
            target = None
            cost = self._terms
        info = replace(self.info, target=target, cost=cost, verdict=None)
        info = info.without_frontier(f"with expert {removed_name}")
        return replace(self._with_experts(others, policy), info=info)

    def _with_experts(self, experts: IntArray, policy: Policy) -> Router:
        """The router with a policy of these experts, by index."""
        novelty = self.novelty
        if novelty is not None:
            novelty = novelty.with_experts(experts)
        return replace(self, policy=policy, experts=self._names_of(experts), novelty=novelty)

    @check_arguments
    def with_prices(self, *, price_weight: float | None = None) -> Router:
        """The router under another weight of dollars, if it has separate heads for errors and prices.

        ``info.cost`` is then the new cost, by which ``mild.evaluate`` judges the router. A mix of two
        settings is dropped, because its share was chosen for the old weight; ``info.dropped_mix`` says
        which it was.

        Parameters
        ----------
        price_weight : float, default=None
            Wrong answers that one dollar is worth. By default the router keeps its own weight.

        Returns
        -------
        Router
            The router under the new weight.

        Raises
        ------
        UnsupportedError
            The router has no separate head for prices.
        InvalidInputError
            Its prices are not recorded as dollars.

        Examples
        --------
        >>> from mild.artifact.info import RouterInfo
        >>> from mild.policies import PricedPolicy
        >>> none, dollars, free = np.zeros((2, 1)), np.array([0.0, 0.1]), np.zeros(2)
        >>> policy = PricedPolicy(none, np.array([0.4, 0.1]), none, dollars, free, 1.0, "ridge")
        >>> router = Router(policy, ["small", "large"], info=RouterInfo(price_head="dollars"))
        >>> router.predict([[1.0]]), router.with_prices(price_weight=5.0).predict([[1.0]])
        (array([1]), array([0]))
        """
        if price_weight is None:
            return self
        if self.has_prices:
            self._check_dollars()
        policy = self.policy.with_prices(price_weight=price_weight)
        return self._at_other_prices(policy, CostInfo.of_dollars(float(price_weight)))

    def _at_other_prices(self, policy: Policy, cost: CostInfo) -> Router:
        """The router that decides by a policy with other prices, at a new cost."""
        # Target and verdict are those of the old prices.
        info = replace(self.info, target=None, verdict=None, shares=None)
        info = info.without_frontier("for other prices")
        if self.mix is not None:
            info = replace(info, dropped_mix=mix_words(self.mix, self.experts))
        # Without a recorded cost it is not known what an error is.
        if info.cost is not None and cost != info.cost:
            info = replace(info, cost=cost, constant=None)
        return replace(self, policy=policy, info=info)

    def _check_dollars(self) -> None:
        """Refuse another price weight unless prices are recorded as dollars."""
        cost = self.info.cost
        # A price head in dollars can be weighted even if the router was fitted for accuracy only.
        are_dollars = self.info.price_head == "dollars"
        if cost is not None and cost.price_weight:
            are_dollars = True
        if (cost is not None and cost.has_other_prices) or not are_dollars:
            raise invalid(
                "price_weight",
                "can be changed after fitting only if dollars are the only price that the router was "
                "fitted with; fit again.",
            )

    @check_arguments
    def with_target(self, target: Target | None = None, **wanted: float) -> Router:
        """The router at the trade-off that meets targets on its held-out rows, e.g. ``max_dollars=2``.

        Targets are ``keep_quality``, ``max_quality_loss`` and ``max_dollars``. On the same number of new
        rows they are expected to be met; a ``target_probability`` above 0.5 makes it more certain, by
        safety margins that are recorded in ``info.target``.

        Parameters
        ----------
        target : Target, default=None
            The targets, instead of named ones.
        **wanted : float
            Targets by name, such as ``max_dollars=2``.

        Returns
        -------
        Router
            The router at the setting; ``info.target`` says what is expected of it.

        Raises
        ------
        UnsupportedError
            The router has no record of its settings.
        InvalidInputError
            No setting meets the target.

        Examples
        --------
        >>> router.route(["Who wrote Faust, act 2?"])
        ['large']
        >>> router.with_target(max_dollars=1).route(["Who wrote Faust, act 2?"])
        ['small']
        """
        for name in wanted:
            check_option("target", name, [field.name for field in fields(Target)])
        if target is None:
            target = Target(**wanted)
        if not isinstance(target, Target):
            raise invalid("target", f"must be named, such as max_dollars=2; got {target!r}.")
        if self.info.dropped_frontier is not None:
            raise UnsupportedError(
                "this router cannot be set to a target: its settings were recorded "
                f"{self.info.dropped_frontier}. Use the router that tune saved.",
                parameter="target",
            )
        policy, target_info = at_target(self.policy, self.info, self.experts, target)
        # The verdict is that of the router as it was saved.
        info = replace(self.info, target=target_info, verdict=None)
        return replace(self, policy=policy, info=info)

    # Folders and repositories.

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the router to a folder, as JSON and safetensors; ``mild.load`` reads it.

        Parameters
        ----------
        folder : str or path
            Folder to write.
        overwrite : bool, default=False
            Whether a router that is there is replaced.

        Returns
        -------
        Path
            The folder.

        Examples
        --------
        >>> import tempfile
        >>> from mild.policies import ConstantPolicy
        >>> router = Router(ConstantPolicy(np.array([0.5, 0.2]), 1), ["small", "large"])
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     sorted(file.name for file in router.save(parent + "/router").iterdir())
        ['router.json', 'tensors.safetensors']
        """
        return write_folder(folder, self, overwrite)

    @check_arguments
    def push_to_hub(self, name: str) -> str:
        """Put the router into a repository of the Hugging Face Hub (extra ``hub``).

        ``mild.load("hf://owner/name")`` reads it. Log in first, with ``hf auth login``. A router that is
        there is replaced, and other files stay. Models outside the router, such as a sentence encoder, are
        not uploaded; they are named without their folder.

        Parameters
        ----------
        name : str
            Repository such as "owner/name", which is created if there is none.

        Returns
        -------
        str
            Address of the commit.

        Examples
        --------
        >>> router.push_to_hub("owner/name")  # doctest: +SKIP
        >>> router = mild.load("hf://owner/name")  # doctest: +SKIP
        """
        with TemporaryDirectory() as parent:
            return upload(write_folder(Path(parent) / "router", self, False, portable=True), name)

    # What people see.

    def __repr__(self) -> str:
        kind_of_features = ""
        if self.text is not None:
            kind_of_features = f"{self.text.kind} "
        return (
            f"Router({self.policy.kind}, {self.n_features} {kind_of_features}features, "
            f"experts {', '.join(self.experts)})"
        )

    def _repr_html_(self) -> str:
        """The facts as a table for notebooks."""
        rows = []
        for name, fact in {"experts": ", ".join(self.experts), **self.facts}.items():
            rows.append(f"<tr><th>{escape(name)}</th><td>{escape(fact)}</td></tr>")
        return f"<table><caption>Router</caption>{''.join(rows)}</table>"


def _is_list_of_texts(texts: object) -> bool:
    """Whether something may be a list, a column or a generator of texts."""
    if isinstance(texts, (str, bytes)) or is_table(texts):
        return False
    return isinstance(texts, Iterable)


def _named_steps(cascade: CascadePolicy, names: Sequence[str]) -> list[list[str]]:
    return [[names[expert] for expert in experts] for experts in cascade.steps]


def _described_mix(mix: MixPolicy, names: Sequence[str]) -> dict[str, Any]:
    """A mix, JSON-ready: the share of the second setting, both settings in words, and their steps."""
    described: dict[str, Any] = {
        "share": mix.share,
        "first": setting_words(mix.first, names),
        "second": setting_words(mix.second, names),
    }
    if mix.cascades:
        described["steps"] = [_named_steps(cascade, names) for cascade in mix.cascades]
    return described


def in_order_of(router: Router, expert_names: Sequence[str]) -> Router:
    """The same router with its experts in the order of their names in a table, which has all of them.

    >>> from mild.policies import ConstantPolicy
    >>> router = Router(ConstantPolicy(np.array([0.5, 0.2]), 1), ["small", "large"])
    >>> in_order_of(router, ["large", "medium", "small"])
    Router(constant, 1 features, experts large, small)
    """
    index_of = {name: index for index, name in enumerate(router.experts)}
    experts = np.array([index_of[name] for name in expert_names if name in index_of])
    if (np.diff(experts) > 0).all():
        return router
    return router._with_experts(experts, router.policy.with_experts(experts))


def with_betas(router: Router, beta: Mapping[str, float]) -> Router:
    """The router that decides by costs of asking, in wrong answers, in place of all its prices.

    ``beta`` has the cost of every expert of the router.
    """
    policy = router.policy.with_prices([beta[name] for name in router.experts], 1.0)
    priced = router._at_other_prices(policy, CostInfo.of_betas(beta))
    # The head for dollars is gone.
    return replace(priced, info=replace(priced.info, price_head=None))
