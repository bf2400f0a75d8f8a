"""What is asked of every expert: prompts, the answers that are known, and the counts of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral

from mild.errors import OptionError
from mild_gateway.collect.ledger import Ledger, StoredAnswer, request_key
from mild_gateway.collect.prompts import PROMPTS, fill_prompt
from mild_gateway.collect.questions import Question
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.prices import Usage, most_tokens

MAX_SAMPLES = 100


@dataclass
class ExpertRun:
    """What one expert is asked, and what came of it; dollars are in ``spent`` and ``lost``.

    ``name`` is that of the expert, or of one of its further samples, such as ``small#2``. ``prompts`` and
    ``keys`` of the ledger are one for each question, the same for equal questions, and ``answers`` are by
    key. ``attempts`` counts repeated requests, too, ``lost`` what replies that never came may have cost,
    ``reasons`` why attempts failed; ``stopped`` says why it is not asked any more.
    """

    expert: Expert
    name: str
    prompts: list[str]
    keys: list[str]
    answers: dict[str, StoredAnswer] = field(default_factory=dict)
    from_ledger: int = 0
    asked: int = 0
    failed: int = 0
    attempts: int = 0
    in_flight: int = 0
    spent: float = 0.0
    lost: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None

    def pending(self) -> list[int]:
        """Indices of the questions that have no answer yet, equal ones once."""
        indices = []
        seen = set(self.answers)
        for index, key in enumerate(self.keys):
            if key not in seen:
                seen.add(key)
                indices.append(index)
        return indices

    @cached_property
    def total(self) -> int:
        """Different questions that are answered or to be asked."""
        return len(self.pending()) + len(self.answers)

    @property
    def done(self) -> int:
        """Questions that need no more waiting."""
        if self.stopped is not None:
            return self.total
        return len(self.answers) + self.failed

    def describe(self) -> str:
        """Where this expert stands, in a few words."""
        words = f"{self.name} {len(self.answers)}/{self.total}"
        if self.expert.price.known:
            words += f" ${self.spent:.4f}"
        if self.failed:
            words += f" ({self.failed} failed)"
        if self.stopped is not None:
            words += " stopped"
        return words


def plan_runs(
    questions: Sequence[Question],
    experts: Sequence[Expert],
    ledger: Ledger | None,
    prompts: Mapping[str, str] = PROMPTS,
    samples: Mapping[str, int] | None = None,
) -> list[ExpertRun]:
    """What every expert would be asked, with the answers that the ledger, if there is one, has.

    ``samples`` says how often an expert is asked each question, 1 where it names none; there is a run for
    each sample.
    """
    counts = dict(samples or {})
    check_samples(counts, experts)
    runs = []
    for expert in experts:
        texts = [fill_prompt(prompts[q.kind], q.query, q.options) for q in questions]
        for number in range(1, counts.get(expert.name, 1) + 1):
            run = ExpertRun(expert, sample_name(expert, number), texts, [])
            for text in texts:
                run.keys.append(_answer_key(expert, text, number))
            if ledger is not None:
                run.answers = ledger.answers(run.keys)
            run.from_ledger = len(run.answers)
            runs.append(run)
    _check_names(runs)
    return runs


def sample_name(expert: Expert, number: int) -> str:
    """The name of a sample, counted from 1: ``small``, ``small#2``, ``small#3``, ..."""
    if number == 1:
        return expert.name
    return f"{expert.name}#{number}"


def check_samples(samples: Mapping[str, int], experts: Sequence[Expert]) -> None:
    """Refuse samples of unknown experts, numbers that are none, and samples that would all be equal."""
    by_name = {expert.name: expert for expert in experts}
    for name, count in samples.items():
        if name not in by_name:
            known = ", ".join(by_name)
            rule = f"must name experts that are asked ({known}); got {name!r}."
            raise OptionError(parameter="samples", rule=rule)
        if (
            isinstance(count, bool)
            or not isinstance(count, Integral)
            or not 1 <= count <= MAX_SAMPLES
        ):
            rule = f"must be an integer in [1, {MAX_SAMPLES}]; got {count!r}."
            raise OptionError(parameter="samples", rule=rule)
        if count > 1 and "seed" in by_name[name].extra:
            rule = (
                f"must be 1 for {name!r}: with the seed in its extra, all samples would be equal."
            )
            raise OptionError(parameter="samples", rule=rule)


def most_usage(expert: Expert, prompt: str) -> Usage:
    """Tokens that a request can take at most: a token is a byte or longer."""
    system = expert.system or ""
    return Usage(most_tokens(system + prompt), expert.max_tokens)


def check_prices(what: str, experts: Sequence[Expert], parameter: str | None = None) -> None:
    """Refuse experts without a price, which something needs."""
    for expert in experts:
        if not expert.price.known:
            raise OptionError(
                f"{what} needs the price of every expert; {expert.name!r} has none. Set price_in and "
                f"price_out, or price_per_query (0 if it is free).",
                parameter=parameter,
            )


def _answer_key(expert: Expert, prompt: str, sample_number: int) -> str:
    """The key of an answer in the ledger."""
    if sample_number == 1:
        return request_key(expert.request(prompt))
    return request_key(expert.request(prompt), sample_number)


def _check_names(runs: Sequence[ExpertRun]) -> None:
    names = set()
    for run in runs:
        if run.name in names:
            rule = f"must have names that no sample has; {run.name!r} is both. Rename that expert."
            raise OptionError(parameter="experts", rule=rule)
        names.add(run.name)
