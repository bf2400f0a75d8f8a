"""The router: one class for what was tuned and what was loaded. It decides with NumPy only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape
from itertools import islice
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mild.artifact.card import model_card
from mild.artifact.content import read_parts
from mild.artifact.estimates import Estimates, chances, possible_costs
from mild.artifact.expert_names import match_values
from mild.artifact.explanation import Explanation, drawn_part, explain
from mild.artifact.facts import mix_words, router_facts, setting_words
from mild.artifact.folder import write_folder
from mild.artifact.frames import as_frame
from mild.artifact.hub import check_repository, find_folder, push_folder
from mild.artifact.info import CostInfo, RouterInfo
from mild.artifact.novelty import Novelty
from mild.artifact.targets import Target, at_target
from mild.core.arrays import BoolArray, FloatArray, IntArray, first_columns, invalid
from mild.core.costs import best_first
from mild.errors import UnsupportedError, check_arguments, check_option, counted, listed
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
from mild.policies.mix import needs_text

# Texts whose features are held at a time.
TEXT_BLOCK = 4096


class NextStep(NamedTuple):
    """What a cascade does next: it asks experts, or it accepts an answer."""

    ask: tuple[str, ...]  # experts to ask at the same time; none if an answer is accepted
    accepted: str | None = None  # the expert whose answer is accepted
    probability: float | None = None  # that it is right, as the router estimates


@dataclass(eq=False, repr=False)
class Router:
    """A policy with the names of its experts, its text features and what is known about it.

    Attributes
    ----------
    policy : decides for vectors
    expert_names : names, in the order of the indices that ``predict`` gives
    feature_names : names of the columns that the router was fitted on; None if they had none
    info : what is recorded about the router: cost, data, target, calibration, versions
    text : fitted text features; None if the router was fitted on numbers
    query_hashes : (n,) ascending hashes of the training queries; None if they were not saved
    novelty : distances to the training inputs; None if they are not recorded
    calibration : slopes and offsets (n_experts,) of calibrated costs that do not decide; None if there
        are none

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

    policy: Policy
    expert_names: list[str]
    feature_names: list[str] | None = None
    info: RouterInfo = field(default_factory=RouterInfo)
    text: TextFeatures | None = None
    query_hashes: NDArray[np.uint64] | None = None
    novelty: Novelty | None = None
    calibration: tuple[FloatArray, FloatArray] | None = None

    def __post_init__(self) -> None:
        self.expert_names = list(self.expert_names)
        self.feature_names = None if self.feature_names is None else list(self.feature_names)
        if self.mix is not None and self.text is not None and self.text.kind == "vectors":
            raise UnsupportedError(
                "a mix is drawn by the text of a query, and this router reads vectors; give it one policy.",
                parameter="policy",
            )

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
        margins = self.policy.margins
        return None if margins is None else [float(margin) for margin in margins]

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
        text = None if self.text is None else self.text.kind
        return router_facts(
            self.policy, self.expert_names, self.feature_names, self.info, text, self.novelty
        )

    def as_dict(self) -> dict[str, Any]:
        """What ``mild explain DIR --json`` prints about the router.

        Returns
        -------
        dict, JSON-ready

        Examples
        --------
        >>> router.as_dict()["experts"]
        ['large', 'small']
        """
        info, names, ranks = self.info, self.expert_names, self.policy.ranks
        ordered_names = names
        if ranks is not None:
            ordered_names = [names[k] for k in best_first(ranks)]
        steps = None
        if self.cascade is not None and self.mix is None:
            steps = _named_steps(self.cascade.cascades[0], names)
        return {
            "kind": self.policy.kind,
            "parts": self.policy.parts,
            "experts": names,
            "best_first": ordered_names,
            "steps": steps,
            "mix": None if self.mix is None else _described_mix(self.mix, names),
            "margins": self.margins,
            "settings": self.settings,
            "estimator": info.estimator and info.estimator.as_dict(),
            "n_features": self.n_features,
            "text": None if self.text is None else self.text.kind,
            "notes": info.notes,
            "feature_names": self.feature_names,
            "data": info.data and info.data.as_dict(),
            "tensors": info.tensors,
            "mild_version": info.mild_version,
            "created": info.created,
            "schema_version": info.schema_version,
            "version": info.version,
        }

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

    def for_text(self, text: str) -> Router:
        """The router that decides a text: itself, or of a mix the setting that is drawn for the text.

        Parameters
        ----------
        text : the query

        Returns
        -------
        Router without a mix

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
        """The router without answers: of a cascade, the one beside it that chooses one expert."""
        if self.cascade is None:
            return self
        info = replace(self.info, target=None, verdict=None)
        return replace(self, policy=self.cascade.direct, info=info)

    def next(self, query: Any, answers: Mapping[str, Any]) -> NextStep:
        """What a cascade does with a query after some answers, by expert.

        Parameters
        ----------
        query : text, or vector for a router that was fitted on vectors or numbers
        answers : the answers so far: texts, tool calls as JSON, ``mild.core.answers.Answer`` with a
            log-probability, or None for an expert that failed

        Returns
        -------
        NextStep: the experts to ask, or the answer that is accepted

        Examples
        --------
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
        given, names = self._by_index(answers), self.expert_names
        router = self.for_text(query)
        assert router.cascade is not None
        (cascade,) = router.cascade.cascades
        X = router.features([query]) if self.text is not None else self._check_inputs([query])
        self._check_finite(X, 0)
        found = cascade.next(X[0], given)
        if isinstance(found, Ask):
            return NextStep(tuple(names[k] for k in found.experts))
        return NextStep((), names[found.expert], found.probability)

    def _by_index(self, answers: Mapping[str, Any]) -> dict[int, Any]:
        """Answers for the cascade, by the index of the expert."""
        if self.cascade is None:
            raise UnsupportedError("this router is not a cascade: it chooses one expert (route).")
        names = self.expert_names
        if not isinstance(answers, Mapping) or not set(answers) <= set(names):
            rule = f"must map experts ({', '.join(names)}) to their answers; got {answers!r:.200}."
            raise invalid("answers", rule)
        return {names.index(name): answer for name, answer in answers.items()}

    def first_steps(self, X: Any) -> list[list[str]] | None:
        """Experts that a cascade asks first, at the same time, for each row of X; None for other routers.

        ``predict`` gives the first of them.

        Parameters
        ----------
        X : (n_samples, n_features) array or sparse matrix; for texts, what ``features`` gives

        Returns
        -------
        list of names for each row; None if the router is not a cascade

        Examples
        --------
        >>> router.first_steps(router.features(["What is 3 + 3?"])) is None
        True
        """
        if self.cascade is None:
            return None
        steps = self.cascade.first_asked(self._check_inputs(X))
        return [[self.expert_names[k] for k in step] for step in steps]

    @property
    def has_prices(self) -> bool:
        """Whether errors and prices are separate, so that prices can be changed without a refit."""
        return self.policy.has_prices

    def predict(self, X: Any) -> IntArray:
        """Index of the chosen expert for each row of X (n_samples, n_features).

        Parameters
        ----------
        X : (n_samples, n_features) array or sparse matrix; for texts, what ``features`` gives

        Returns
        -------
        (n_samples,) array of indices of ``expert_names``

        Examples
        --------
        >>> from mild.policies import LinearCostPolicy
        >>> router = Router(LinearCostPolicy(np.array([[1.0], [-1.0]]), np.zeros(2)), ["a", "b"])
        >>> router.predict([[-3.0], [2.0]])
        array([0, 1])
        """
        return self.policy.predict_checked(self._check_inputs(X), self._check_finite)

    def predict_proba(self, X: Any) -> FloatArray:
        """Estimate (n_samples, n_experts) of each expert's share of the expected reward.

        Parameters
        ----------
        X : (n_samples, n_features) array or sparse matrix; for texts, what ``features`` gives

        Returns
        -------
        (n_samples, n_experts) array; rows sum to 1

        Examples
        --------
        >>> from mild.policies import LinearCostPolicy
        >>> router = Router(LinearCostPolicy(np.array([[1.0], [0.0]]), np.array([0.0, 1.0])), ["a", "b"])
        >>> router.predict_proba([[3.0], [1.0]])
        array([[0.25, 0.75],
               [0.5 , 0.5 ]])
        """
        return self._collect("predict_proba", X)

    def decision_function(self, X: Any) -> FloatArray:
        """Scores (n_samples, n_experts), larger is better.

        Parameters
        ----------
        X : (n_samples, n_features) array or sparse matrix; for texts, what ``features`` gives

        Returns
        -------
        (n_samples, n_experts) array

        Examples
        --------
        >>> X = router.features(["What is 3 + 3?", "Who wrote Emma?"])
        >>> router.decision_function(X).argmax(axis=1)
        array([1, 0])
        """
        return self._collect("decision_function", X)

    def expected_costs(self, X: Any) -> FloatArray:
        """Expected cost (n_samples, n_experts) of each expert, if the router has learned it.

        It is the number that ``explain``, ``mild route`` and the gateway show: within the possible range.

        Parameters
        ----------
        X : (n_samples, n_features) array or sparse matrix; for texts, what ``features`` gives

        Returns
        -------
        (n_samples, n_experts) array, in the units of the cost that the router was fitted with

        Examples
        --------
        >>> from mild.policies import LinearCostPolicy
        >>> router = Router(LinearCostPolicy(np.array([[1.0], [0.0]]), np.array([0.0, 1.0])), ["a", "b"])
        >>> router.expected_costs([[3.0]])
        array([[3., 1.]])
        """
        return self._collect("expected_costs", X)

    def decide(self, X: Any) -> Decisions:
        """Choice, probabilities and expected costs of each row of X, in one pass.

        Parameters
        ----------
        X : (n_samples, n_features) array or sparse matrix; for texts, what ``features`` gives

        Returns
        -------
        Decisions, with ``chosen``, ``probabilities`` and ``costs`` (None if unknown)

        Examples
        --------
        >>> router.decide(router.features(["What is 3 + 3?", "Who wrote Emma?"])).chosen
        array([1, 0])
        """
        inputs = self._check_inputs(X)
        self._check_finite(inputs, 0)
        return self.decide_features(inputs)

    def decide_features(self, X: FloatArray) -> Decisions:
        """``decide`` for what ``features`` gives, unchecked; all that is served, shown and logged.

        Parameters
        ----------
        X : (n_samples, n_features) float array that ``features`` gave

        Returns
        -------
        Decisions

        Examples
        --------
        >>> X = router.features(["What is 3 + 3?", "Who wrote Emma?"])
        >>> router.decide_features(X).chosen
        array([1, 0])
        """
        found = self.policy.decide(X)
        if found.costs is None:
            return found
        return replace(found, costs=self._possible(X, found.costs))

    def decide_one(self, x: FloatArray) -> int:
        """Expert for one float vector (n_features,). Nothing is checked: this is the fast path.

        Parameters
        ----------
        x : (n_features,) float array

        Returns
        -------
        index of ``expert_names``

        Examples
        --------
        >>> x = router.features(["Who wrote Emma?"])[0]
        >>> router.decide_one(x)
        0
        """
        return self.policy.decide_one(x)

    def decide_text(self, text: str) -> int:
        """Expert for one text: the fast path.

        Parameters
        ----------
        text : the query

        Returns
        -------
        index of ``expert_names``

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
        text : the query

        Returns
        -------
        (n_features,) float array; with the draw behind the features for a router with a mix

        Examples
        --------
        >>> router.features_one("Who wrote Emma?").shape == (router.n_features,)
        True
        """
        x = self._text_step().transform_one(text)
        if self.mix is None:
            return x
        return self.mix.with_draws(x[None], [text])[0]

    def own_columns(self, X: FloatArray) -> FloatArray:
        """The columns that this router reads of what ``features`` of a related router gave.

        A router with a mix reads the draw of the text behind the features. Its routers without the mix, as
        ``direct`` and ``with_prices`` may give them, do not.

        Parameters
        ----------
        X : (n_samples, n_features) array, perhaps with a column of draws

        Returns
        -------
        X, or X without the draws

        Examples
        --------
        >>> X = router.features(["Who wrote Emma?"])
        >>> router.own_columns(X).shape == X.shape
        True
        """
        return first_columns(X, self.policy.n_columns)

    def features(self, texts: Iterable[str]) -> FloatArray:
        """Features (n_texts, n_features) of texts, for the methods that take X.

        Parameters
        ----------
        texts : list, Series, column of a table, or generator of texts

        Returns
        -------
        (n_texts, n_features) float array; for a router with a mix, with the draws of the texts as one more
        column

        Examples
        --------
        >>> router.features(["What is 3 + 3?", "Who wrote Emma?"]).shape == (2, router.n_features)
        True
        """
        step = self._text_step()
        if self.mix is None:
            return step.vectorize(_as_texts(texts))
        if isinstance(texts, (str, bytes)) or is_table(texts) or not isinstance(texts, Iterable):
            return step.vectorize(texts)  # refuses it
        known = list(_as_texts(texts))
        return self.mix.with_draws(step.vectorize(known), known)

    def predict_texts(self, texts: Iterable[str]) -> IntArray:
        """Index of the chosen expert for each text.

        Texts are read block by block, so a generator of any length takes constant memory.

        Parameters
        ----------
        texts : list, Series, column of a table, or generator of texts

        Returns
        -------
        (n_texts,) array of indices of ``expert_names``

        Examples
        --------
        >>> router.predict_texts(["What is 3 + 3?", "Who wrote Emma?"])
        array([1, 0])
        """
        self._text_step()  # a router without one says so here
        if isinstance(texts, (str, bytes)) or is_table(texts) or not isinstance(texts, Iterable):
            return self.predict(self.features(texts))  # refuses it, unless it is for vectors
        rest, chosen = iter(_as_texts(texts)), [np.empty(0, np.intp)]
        while block := list(islice(rest, TEXT_BLOCK)):
            chosen.append(self.predict(self.features(block)))
        return np.concatenate(chosen)

    def route(self, texts: Iterable[str]) -> list[str]:
        """Name of the chosen expert for each text.

        Parameters
        ----------
        texts : list, Series, column of a table, or generator of texts

        Returns
        -------
        list of names

        Examples
        --------
        >>> router.route(["What is 3 + 3?", "Who wrote Emma?"])
        ['small', 'large']
        """
        return [self.expert_names[k] for k in self.predict_texts(texts).tolist()]

    def route_table(self, texts: Any) -> Any:
        """Expert, probabilities and, if known, expected costs for each text, as a table.

        It is a frame of the library that ``texts`` are a column of (pandas, polars or pyarrow; a pandas
        index is kept), else a dict of columns: ``expert``, ``p__<name>`` and ``expected_cost__<name>``.
        For a cascade, ``first_step`` lists the experts that are asked first, and ``expert`` is one of them.

        Parameters
        ----------
        texts : list of texts, or a column of a table

        Returns
        -------
        frame, or dict of columns

        Examples
        --------
        >>> router.route_table(["What is 3 + 3?", "Who wrote Emma?"])["expert"]
        ['small', 'large']
        """
        return self._table(self.features(texts), like=texts)

    def predict_table(self, X: Any) -> Any:
        """``route_table`` for a router that was fitted on numbers, of each row of X.

        Parameters
        ----------
        X : (n_samples, n_features) array, or frame

        Returns
        -------
        frame, or dict of columns

        Examples
        --------
        >>> from mild.policies import LinearCostPolicy
        >>> router = Router(LinearCostPolicy(np.array([[1.0], [0.0]]), np.array([0.0, 1.0])), ["a", "b"])
        >>> router.predict_table([[3.0]])["expected_cost__a"]
        [3.0]
        """
        return self._table(X, like=X)

    def _table(self, X: Any, like: Any) -> Any:
        found, first, names = self.decide(X), self.first_steps(X), self.expert_names
        columns: dict[str, Any] = {"expert": [names[k] for k in found.chosen.tolist()]}
        if first is not None:
            columns["first_step"] = first
        for prefix, values in {"p__": found.probabilities, "expected_cost__": found.costs}.items():
            if values is not None:
                columns |= {
                    f"{prefix}{name}": values[:, k].tolist() for k, name in enumerate(names)
                }
        frame = as_frame(columns, like=like)
        if hasattr(frame, "iloc") and hasattr(like, "index"):
            frame.index = like.index
        return frame

    def explain(
        self, text: Any, most: int = 12, answers: Mapping[str, Any] | None = None
    ) -> Explanation:
        """The decision on a text, or a vector, and at most ``most`` pieces of evidence for it.

        With ``answers``, by expert and as in ``next``, it is the path of a cascade: what was asked, what
        was accepted, and why. Without them, it is the first step and which agreement would be accepted.

        Parameters
        ----------
        text : the query; a vector for a router that was fitted on vectors
        most : number of pieces of evidence at most
        answers : answers so far, by expert, for a cascade

        Returns
        -------
        Explanation; its ``repr`` is a sentence

        Examples
        --------
        >>> router.explain("Who wrote Emma?").expert
        'large'
        """
        if self.text is None:
            raise UnsupportedError(
                "this router was fitted on columns of numbers: mild route, and predict_table in Python, "
                "give its choices for a table."
            )
        if self.mix is not None:
            found = self.for_text(text).explain(text, most, answers)
            return replace(found, mix=drawn_part(self.mix, text, self.expert_names))
        trusted = self.estimate([text])
        graded = self.info.table is not None and bool(self.info.table.graded)
        given = None if answers is None else self._by_index(answers)
        names = self.expert_names
        return explain(self.policy, self.text, names, text, trusted, most, graded, given)

    def estimate(self, texts: Sequence[Any]) -> Estimates:
        """What can be expected of the experts on texts, or vectors, and how far it can be trusted.

        Expected costs are those of ``decide``. What is right is not known of a novel text.

        Parameters
        ----------
        texts : list of texts, or of vectors

        Returns
        -------
        Estimates, with ``costs``, ``right``, ``novelty`` and ``novel``; None where unknown

        Examples
        --------
        >>> router.estimate(["Who wrote Emma?"]).costs.round(1)
        array([[0.1, 1. ]], dtype=float32)
        """
        step, X, known = self._text_step(), self.features(texts), self.novelty
        costs = trusted = self.decide_features(X).costs
        policy, calibrated = self.direct.policy, None
        inputs = first_columns(X, policy.n_columns)
        if self.calibration is not None:
            policy = policy.calibrated(*self.calibration)
            calibrated = trusted = self._possible(X, policy.expected_costs(inputs), policy)
        right = chances(policy, inputs, trusted, self.expert_names, self._terms)
        if known is None:
            return Estimates(costs, calibrated, right, None, None)
        # Few routers need the shares, which take a second pass over the texts.
        known_inputs = first_columns(X, self.n_features)
        scores = known.scores(known_inputs, step.unseen_shares(texts))
        novel = known.is_novel(scores)
        if right is not None:
            right[novel] = np.nan
        return Estimates(costs, calibrated, right, known.shares(scores), novel)

    def _possible(self, X: Any, costs: FloatArray, policy: Policy | None = None) -> FloatArray:
        deciding = policy or self.direct.policy
        inputs = first_columns(X, deciding.n_columns)
        return possible_costs(deciding, inputs, costs, self.expert_names, self._terms)

    @property
    def _terms(self) -> CostInfo | None:
        """Terms of the expected costs. They are errors where a target is met by one expert for all."""
        cost, target = self.info.cost, self.info.target
        if cost is None or target is None or target.expert is None:
            return cost
        return replace(cost, beta=None, price_weight=None, latency_weight=None)

    def is_novel(self, texts: Sequence[Any], X: FloatArray | None = None) -> BoolArray:
        """Whether each text is farther from the training texts than 99 % of held-out ones were.

        ``X`` are the features of the texts, if they are known.

        Parameters
        ----------
        texts : list of texts
        X : features of the texts, if they are known

        Returns
        -------
        (n_texts,) array of truth values

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
        step = self._text_step()
        inputs = step.vectorize(texts) if X is None else first_columns(X, self.n_features)
        return self.novelty.is_novel(self.novelty.scores(inputs, step.unseen_shares(texts)))

    def without(self, expert: int | str) -> Router:
        """The router without one expert, given by index or name.

        Parameters
        ----------
        expert : name or index of the expert

        Returns
        -------
        Router

        Examples
        --------
        >>> from mild.policies import ConstantPolicy
        >>> router = Router(ConstantPolicy(np.array([0.5, 0.2, 0.4]), 1), ["a", "b", "c"])
        >>> router.without("b")
        Router(constant, 1 features, experts a, c)
        """
        if not isinstance(expert, Integral) and expert not in self.expert_names:
            raise invalid(
                "expert", f"must be one of {', '.join(self.expert_names)}; got {expert!r}."
            )
        index = self.expert_names.index(expert) if isinstance(expert, str) else int(expert)
        policy = self.policy.without(index)
        left = self._with_experts(np.delete(np.arange(self.policy.n_experts), index), policy)
        # Target and verdict are those of all experts. One that is met by always asking one of them
        # says how its costs are meant, too, and stays.
        target = self.info.target
        kept = target if target is not None and target.expert is not None else None
        info = replace(self.info, target=kept, verdict=None)
        name = self.expert_names[index]
        return replace(left, info=info.without_frontier(f"with expert {name}"))

    def _with_experts(self, experts: IntArray, policy: Policy) -> Router:
        """The router with a policy of these experts, by index."""
        novelty, pair = self.novelty, self.calibration
        if novelty is not None:
            novelty = novelty.with_experts(experts)
        if pair is not None:
            pair = pair[0][experts], pair[1][experts]
        names = [self.expert_names[expert] for expert in experts]
        return replace(self, policy=policy, expert_names=names, novelty=novelty, calibration=pair)

    def with_prices(
        self,
        betas: Mapping[str, float] | Sequence[float] | None = None,
        price_weight: float | None = None,
        *,
        in_dollars: bool = False,
    ) -> Router:
        """The router under new prices, if it has separate heads for errors and prices.

        A mix of two settings is dropped, because its share was chosen for the old prices;
        ``info.dropped_mix`` says which it was.

        ``info.cost`` is then the new cost, by which ``mild.evaluate`` judges the router.

        Parameters
        ----------
        betas : prices in wrong answers, by name or short name of every expert; or a sequence of them, in
            the order of the experts. They replace all prices
        price_weight : wrong answers that one unit of the price head is worth, usually a dollar
        in_dollars : whether a new weight is refused where prices are not recorded as dollars

        Returns
        -------
        Router

        Examples
        --------
        >>> from mild.policies import PricedPolicy
        >>> none, free = np.zeros((2, 1)), np.zeros(2)
        >>> policy = PricedPolicy(none, np.array([0.4, 0.1]), none, free, free, 1.0, "ridge")
        >>> router = Router(policy, ["small", "large"])
        >>> dear = router.with_prices({"small": 0.0, "large": 0.5})
        >>> router.predict([[1.0]]), dear.predict([[1.0]])
        (array([1]), array([0]))
        """
        if betas is None and price_weight is None:
            return self
        if isinstance(betas, Mapping):
            if price_weight is not None:
                raise invalid(
                    "price_weight",
                    "cannot be changed after fitting together with beta: new betas replace all prices. "
                    "Give one of them.",
                )
            named = match_values(betas, self.expert_names)
            if self.has_prices:
                self._check_complete(named)
            betas = [named.get(name, 0.0) for name in self.expert_names]
        if price_weight is None:
            price_weight = 1.0
        elif betas is None and self.has_prices and (in_dollars or self.info.cost is not None):
            self._check_dollars()
        policy = self.policy.with_prices(betas, price_weight)
        # The calibration is that of the policy that decided before, and so are target and verdict.
        kept = self.calibration if policy.parts == self.policy.parts else None
        info = self._info_at_prices(betas, price_weight)
        if self.mix is not None:
            info = replace(info, dropped_mix=mix_words(self.mix, self.expert_names))
        return replace(self, policy=policy, calibration=kept, info=info)

    def _check_complete(self, betas: Mapping[str, float]) -> None:
        """Refuse prices that leave an expert out."""
        missing = [name for name in self.expert_names if name not in betas]
        if missing:
            verb = "has" if len(missing) == 1 else "have"
            raise invalid(
                "betas",
                "must name every expert, because they replace all prices; "
                f"{listed(missing, 6)} {verb} none. Give 0 for an expert that costs nothing.",
            )

    def _info_at_prices(self, betas: Sequence[float] | None, price_weight: float) -> RouterInfo:
        """What is known about the router under new prices."""
        info = replace(self.info, target=None, verdict=None, shares=None)
        info = info.without_frontier("for other prices")
        if betas is None:
            cost = CostInfo.of_dollars(float(price_weight))
        else:
            prices = [float(price_weight * beta) for beta in betas]
            cost = CostInfo.of_betas(dict(zip(self.expert_names, prices, strict=True)))
            # The head for dollars is gone.
            info = replace(info, price_head=None)
        # Without a recorded cost it is not known what an error is, nor in which unit the prices are.
        if info.cost is None or cost == info.cost:
            return info
        return replace(info, cost=cost, constant=None)

    def _check_dollars(self) -> None:
        """Refuse another price weight unless prices are recorded as dollars."""
        cost = self.info.cost
        weighed = cost is not None and bool(cost.price_weight)
        # A price head in dollars can be weighed even if the router was fitted for accuracy only.
        dollars = weighed or self.info.price_head == "dollars"
        if (cost is not None and cost.has_other_prices) or not dollars:
            raise invalid(
                "price_weight",
                "can be changed after fitting only if dollars are the only price that the router was "
                "fitted with; give betas, or fit again.",
            )

    @check_arguments
    def with_target(self, target: Target | None = None, **wanted: float) -> Router:
        """The router at the trade-off that meets targets on its held-out rows, as ``max_dollars=2``.

        Targets are ``keep_quality``, ``max_quality_loss`` and ``max_dollars``. On the same number of new
        rows they are expected to be met; a ``target_probability`` above 0.5 makes it more certain, by
        margins that ``info.target`` has.

        Parameters
        ----------
        target : ``mild.artifact.targets.Target``, instead of named targets
        wanted : targets by name, such as ``max_dollars=2``

        Returns
        -------
        Router

        Examples
        --------
        >>> router.route(["Who wrote Faust, act 2?"])
        ['large']
        >>> router.with_target(max_dollars=1).route(["Who wrote Faust, act 2?"])
        ['small']
        """
        for name in wanted:
            check_option("target", name, [field.name for field in fields(Target)])
        asked = Target(**wanted) if target is None else target
        if not isinstance(asked, Target):
            raise invalid("target", f"must be named, such as max_dollars=2; got {asked!r}.")
        if self.info.dropped_frontier is not None:
            raise UnsupportedError(
                "this router cannot be set to a target: its settings were recorded "
                f"{self.info.dropped_frontier}. Use the router that tune saved.",
                parameter="target",
            )
        policy, solved = at_target(self.policy, self.info, self.expert_names, asked)
        # Calibration and verdict are those of the router as it was saved.
        info = replace(self.info, target=solved, verdict=None)
        return replace(self, policy=policy, calibration=None, info=info)

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the router to a folder, as JSON and safetensors; ``mild.load`` reads it.

        Parameters
        ----------
        folder : folder to write
        overwrite : whether a router that is there is replaced

        Returns
        -------
        path of the folder

        Examples
        --------
        >>> import tempfile
        >>> from mild.policies import ConstantPolicy
        >>> router = Router(ConstantPolicy(np.array([0.5, 0.2]), 1), ["small", "large"])
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     sorted(file.name for file in router.save(parent + "/router").iterdir())
        ['router.json', 'tensors.safetensors']
        """
        return self._write(folder, overwrite)

    def card(self, license: str | None = None, source: str = "owner/name") -> str:
        """The model card, as Markdown: what is known about the router, and what is not.

        Parameters
        ----------
        license : identifier of a licence on the Hub, such as "apache-2.0"; None if it is not known
        source : the folder or repository that the card's example loads

        Returns
        -------
        text in Markdown

        Examples
        --------
        >>> from mild.policies import ConstantPolicy
        >>> router = Router(ConstantPolicy(np.array([0.5, 0.2]), 1), ["small", "large"])
        >>> router.card(license="mit").splitlines()[1:3]
        ['library_name: mild', 'license: mit']
        """
        known = self.query_hashes
        return model_card(
            self.policy,
            self.expert_names,
            self.info,
            self.facts,
            None if self.text is None else self.text.outside_model,
            0 if known is None else len(known),
            license,
            source,
        )

    def save_pretrained(
        self, folder: str | os.PathLike[str], overwrite: bool = False, license: str | None = None
    ) -> Path:
        """Write the router to a folder with its model card, README.md; ``from_pretrained`` reads it.

        Parameters
        ----------
        folder : folder to write
        overwrite : whether a router that is there is replaced
        license : identifier of a licence on the Hub, such as "apache-2.0", for the card

        Returns
        -------
        path of the folder

        Examples
        --------
        >>> import tempfile
        >>> from mild.policies import ConstantPolicy
        >>> router = Router(ConstantPolicy(np.array([0.5, 0.2]), 1), ["small", "large"])
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     Router.from_pretrained(router.save_pretrained(parent + "/router"))
        Router(constant, 1 features, experts small, large)
        """
        source = os.fspath(folder) if isinstance(folder, (str, os.PathLike)) else ""
        return self._write(folder, overwrite, self.card(license, Path(source).resolve().name))

    @classmethod
    @check_arguments
    def from_pretrained(
        cls,
        path_or_repo: str | os.PathLike[str],
        revision: str | None = None,
        *,
        token: str | bool | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool = False,
    ) -> Router:
        """Read a router from a folder, or from a repository of the Hugging Face Hub (extra ``hub``).

        A folder goes before a repository of the same name. Of a repository, only the files of a router are
        downloaded; they are checked as ``mild.load`` checks them, and nothing is unpickled.

        Parameters
        ----------
        path_or_repo : folder, or repository such as "owner/name"
        revision : branch, tag or commit of the repository; None for its main branch
        token : of the Hub; None for the one of ``hf auth login``, False for none
        cache_dir : where downloads are kept; None for the cache of huggingface_hub
        local_files_only : whether only the cache is read

        Returns
        -------
        Router

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     loaded = Router.from_pretrained(router.save_pretrained(parent + "/router"))
        >>> loaded.route(["Who wrote Emma?"])
        ['large']
        """
        place = find_folder(path_or_repo, revision, token, cache_dir, local_files_only)
        return cls(**read_parts(place))

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        commit_message: str = "Upload a router",
        license: str | None = None,
    ) -> str:
        """Write the router and its model card to a repository of the Hugging Face Hub (extra ``hub``).

        There is one commit, after which the repository holds this router only: files of another router that
        were there are deleted, and so is what was written into its README.md by hand. Models outside the
        router, such as a sentence encoder, are not uploaded; they are named without their folder.

        Parameters
        ----------
        repo_id : such as "owner/name"; it is created if there is none
        private : whether it is private if it is created; None for the default of the account
        token : of the Hub; None for the one of ``hf auth login``
        revision : branch, which is created if there is none; None for the main branch
        commit_message : of the commit
        license : identifier of a licence on the Hub, for the card

        Returns
        -------
        Address of the commit

        Examples
        --------
        ``router.push_to_hub("owner/name", license="apache-2.0")`` uploads it. A name is checked first:

        >>> router.push_to_hub("owner/my router")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        mild.errors.InvalidInputError: repo_id must be a name or owner/name, ...
        """
        check_repository(repo_id)
        if not isinstance(commit_message, str) or not commit_message.strip():
            raise invalid("commit_message", f"must be a text; got {commit_message!r}.")
        card = self.card(license, repo_id)
        with TemporaryDirectory() as parent:
            folder = self._write(Path(parent) / "router", False, card, portable=True)
            return push_folder(folder, repo_id, private, token, revision, commit_message)

    def _write(
        self,
        folder: str | os.PathLike[str],
        overwrite: bool,
        card: str | None = None,
        portable: bool = False,
    ) -> Path:
        return write_folder(
            folder,
            overwrite,
            self.policy,
            self.expert_names,
            self.feature_names,
            self.info,
            self.text,
            self.query_hashes,
            self.novelty,
            self.calibration,
            card,
            portable,
        )

    def __repr__(self) -> str:
        source = "" if self.text is None else f"{self.text.kind} "
        return (
            f"Router({self.policy.kind}, {self.n_features} {source}features, "
            f"experts {', '.join(self.expert_names)})"
        )

    def _repr_html_(self) -> str:
        """The facts as a table for notebooks."""
        facts = {"experts": ", ".join(self.expert_names), **self.facts}
        rows = [
            f"<tr><th>{escape(name)}</th><td>{escape(fact)}</td></tr>"
            for name, fact in facts.items()
        ]
        return f"<table><caption>Router</caption>{''.join(rows)}</table>"

    def _text_step(self) -> TextFeatures:
        if self.text is None:
            raise UnsupportedError(
                "this router was fitted on numbers and has no step from texts to features; use "
                "predict(X), or save it with mild.save(router, folder, text=features)."
            )
        return self.text

    def _collect(self, method: str, X: Any) -> Any:
        """Check and decide block by block, so that a block stays in cache."""
        inputs = self._check_inputs(X)
        decide = getattr(self.policy, method)
        parts = []
        for rows in blocks(inputs) or [slice(0, 0)]:
            part = inputs[rows]
            self._check_finite(part, rows.start)
            found = decide(part)
            parts.append(self._possible(part, found) if method == "expected_costs" else found)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _check_inputs(self, X: Any) -> Any:
        """X as a float array or CSR matrix of the right width; float32 stays float32."""
        columns = getattr(X, "columns", None)
        if columns is not None and self.feature_names is not None:
            names = zip(self.feature_names, map(str, columns), strict=False)
            for i, (name, got) in enumerate(names):
                if name != got:
                    rule = "must have the columns that the router was fitted with, in that order"
                    raise invalid("X", f"{rule}; column {i} must be {name!r}, got {got!r}.")
        inputs = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X)
        if inputs.dtype.kind not in "fiubO":
            example = "" if inputs.size == 0 else f" such as {np.ravel(inputs)[0]!r}"
            remedy = "" if self.text is None else " For texts use route or predict_texts."
            raise invalid("X", f"must hold numbers; got {inputs.dtype}{example}.{remedy}")
        if inputs.ndim != 2:
            got = f"{counted(inputs.ndim, 'dimension')}, shape {inputs.shape}"
            rule = f"must have shape (n_samples, n_features) = (n_samples, {self.n_features})"
            raise invalid("X", f"{rule}; got {got}. For one input use X.reshape(1, -1).")
        if inputs.shape[1] != self.policy.n_columns:
            if self.mix is not None and inputs.shape[1] == self.n_features:
                raise needs_text()
            rule = f"must have {counted(self.n_features, 'feature')}, as many as the router was fitted with"
            raise invalid("X", f"{rule}; got {inputs.shape[1]}.")
        if inputs.dtype not in (np.float32, np.float64):
            try:
                inputs = inputs.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise invalid("X", f"must hold numbers; got {error}.") from error
        return inputs

    def _check_finite(self, part: Any, first_row: int) -> None:
        values = part.data if hasattr(part, "tocsr") else part
        # Faster than isfinite: a sum of squares is finite only if every number is.
        with np.errstate(over="ignore", invalid="ignore"):
            flat = values.ravel(order="K")
            if np.isfinite(np.dot(flat, flat)):
                return
        if np.isfinite(values).all():
            return
        dense = part.toarray() if hasattr(part, "tocsr") else part
        row, column = np.argwhere(~np.isfinite(dense))[0]
        name = "" if self.feature_names is None else f" ({self.feature_names[column]!r})"
        got = f"X[{first_row + row}, {column}] = {dense[row, column]}{name}"
        raise invalid("X", f"must be finite; got {got}.")


def _named_steps(cascade: CascadePolicy, names: Sequence[str]) -> list[list[str]]:
    return [[names[k] for k in step] for step in cascade.steps]


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


def _as_texts(texts: Any) -> Any:
    """A column of pyarrow as a list; other texts, and tables, as they are."""
    to_list = hasattr(texts, "to_pylist") and not is_table(texts)
    return texts.to_pylist() if to_list else texts


def in_order_of(router: Router, expert_names: Sequence[str]) -> Router:
    """The same router with its experts in the order of their names in a table, which has all of them.

    >>> from mild.policies import ConstantPolicy
    >>> router = Router(ConstantPolicy(np.array([0.5, 0.2]), 1), ["small", "large"])
    >>> in_order_of(router, ["large", "medium", "small"])
    Router(constant, 1 features, experts large, small)
    """
    index_of = {name: index for index, name in enumerate(router.expert_names)}
    experts = np.array([index_of[name] for name in expert_names if name in index_of])
    if (np.diff(experts) > 0).all():
        return router
    return router._with_experts(experts, router.policy.with_experts(experts))
