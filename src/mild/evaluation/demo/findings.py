"""What the numbers say, in sentences computed from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mild.evaluation.demo.blocks import REFERENCE, Block, verdict_of
from mild.evaluation.demo.run import DemoResults

__all__ = ["caption", "findings"]


def findings(results: DemoResults) -> list[str]:
    """Sentences on who beats whom, counted over the digits blocks by their intervals."""
    blocks = results.blocks
    return [
        _against_tdef(blocks),
        _margins(blocks),
        _argmax(blocks),
        _tuned_argmax(blocks),
        _constant(blocks),
        _leaders(blocks),
        _regions(results),
        _tail(results),
        _line(results),
    ]


def caption(results: DemoResults) -> str:
    """How the numbers were made and what the marks mean."""
    settings = results.settings
    level = f"{100 * settings.confidence:g} %"
    alphas = ", ".join(f"{alpha:g}" for alpha in settings.alphas)
    factors = ", ".join(f"{factor:g}" for factor in settings.margin_factors)
    return (
        f"Deferral loss, mean ± standard deviation over {_count(settings.seeds, 'split')} of 1,797 "
        f"digits (half train, half test), and share of test rows per expert in %. ★ and bold: the "
        f"least mean, and against every other row but the oracle's the {level} interval of the "
        f"difference lies below 0 and the loss is less in at least four fifths of the splits (rows "
        f"with the very same choices share the mark). ▲ better, ▼ worse than TDEF by the interval; "
        f"no mark: undecided. The interval is a paired bootstrap over the test rows of all splits, "
        f"the same digit drawn together; each holds by itself.\n"
        f"All methods see the same 128 radial features. Linear methods: alpha from {alphas} by "
        f"{settings.folds}-fold cross-validation (LDAM: times its squared scale), kNN: k likewise. "
        f"MILD: logistic, others rewards, margins of mean 1; theory: best counts; tuned: margins of "
        f"reward counts times {factors} (all combinations up to 81, else one margin at a time), "
        f"powers of best counts and a bias, searched for the rule it decides by. With equal margins "
        f"the two rules agree. Real experts' costs are taken on the rows they learned from, as in "
        f"the paper."
    )


def _against_tdef(blocks: Sequence[Block]) -> str:
    key = "mild_tuned_stationary"
    verdicts = [block.row(key).verdict for block in blocks]
    sentence = f"MILD tuned, stationary, against TDEF: {_tally(verdicts)}."
    gains = [block for block in blocks if block.row(key).verdict == "better"]
    if not gains:
        return sentence
    most = min(gains, key=lambda block: block.row(key).mean - block.row(REFERENCE).mean)
    return (
        f"{sentence} The largest gain is from {most.row(REFERENCE).mean:.4f} to "
        f"{most.row(key).mean:.4f} ({_name(most)})."
    )


def _margins(blocks: Sequence[Block]) -> str:
    uniform = [block.row("mild_uniform").verdict for block in blocks]
    gained = [verdict_of(block.pairs["mild_tuned_stationary", "mild_uniform"]) for block in blocks]
    return (
        f"MILD with equal margins against TDEF: {_tally(uniform)}; tuning the margins on top of "
        f"that: {_tally(gained)}."
    )


def _argmax(blocks: Sequence[Block]) -> str:
    pair = ("mild_theory_argmax", "mild_theory_stationary")
    verdicts = [verdict_of(block.pairs[pair]) for block in blocks]
    worst = max(blocks, key=lambda block: block.pairs[pair].estimate)
    behind = sum(
        verdict_of(block.pairs["mild_theory_argmax", "constant"]) == "worse" for block in blocks
    )
    return (
        f"The theory's unequal margins decided by argmax, against the same loss decided by the "
        f"stationary rule: {_tally(verdicts)}. The largest gap is "
        f"{worst.row(pair[0]).mean:.4f} to {worst.row(pair[1]).mean:.4f} ({_name(worst)}); in "
        f"{_count(behind, 'block')} argmax is worse than the best constant."
    )


def _tuned_argmax(blocks: Sequence[Block]) -> str:
    pair = ("mild_tuned_argmax", "mild_tuned_stationary")
    verdicts = [verdict_of(block.pairs[pair]) for block in blocks]
    return f"With margins tuned for it, argmax against the stationary rule: {_tally(verdicts)}."


def _constant(blocks: Sequence[Block]) -> str:
    verdicts = [verdict_of(block.pairs["mild_tuned_stationary", "constant"]) for block in blocks]
    pays = sum(verdict == "better" for verdict in verdicts)
    return (
        f"Routing pays in {pays} of {_count(len(blocks), 'block')}: MILD tuned, stationary, beats "
        f"the best constant there by its interval."
    )


def _leaders(blocks: Sequence[Block]) -> str:
    leaders = Counter(block.leader.label for block in blocks)
    marked = sum(any(row.best for row in block.rows) for block in blocks)
    who = "; ".join(f"{label}: {number}" for label, number in leaders.most_common())
    knn = [verdict_of(block.pairs["mild_tuned_stationary", "knn"]) for block in blocks]
    return (
        f"Blocks in which a method has the least mean loss: {who}. In {marked} of "
        f"{_count(len(blocks), 'block')} the leader earns the mark. MILD "
        f"tuned, stationary, against kNN: {_tally(knn)}."
    )


def _regions(results: DemoResults) -> str:
    block = results.region_block
    return (
        f"Experts that specialise by region: MILD tuned, stationary, "
        f"{block.row('mild_tuned_stationary').mean:.4f}, best constant "
        f"{block.row('constant').mean:.4f}, a router told the true label "
        f"{block.row('label').mean:.4f}: the label is worth nothing there, the input is."
    )


def _tail(results: DemoResults) -> str:
    tdef, uniform, _, theory, argmax, _ = results.tail
    return (
        f"Among 20 experts with a long tail of shares and 400 rows, mean of "
        f"{_count(len(tdef.losses), 'draw')}: TDEF {tdef.losses.mean():.4f}, MILD with equal margins "
        f"{uniform.losses.mean():.4f}, with theory margins from best counts "
        f"{theory.losses.mean():.4f} (by argmax {argmax.losses.mean():.4f}); the rarer half of the "
        f"experts is found for {100 * tdef.recall.mean():.0f}, {100 * uniform.recall.mean():.0f} and "
        f"{100 * theory.recall.mean():.0f} % of its inputs."
    )


def _line(results: DemoResults) -> str:
    line = results.line
    parts = [
        f"{entry.label} asks the best expert for {100 * entry.agreement:.1f} % of the inputs "
        f"(cost {entry.loss:.4f})"
        for entry in line.learned
    ]
    return f"On the line, where the best cost is {line.best_loss:.4f}: {'; '.join(parts)}."


def _tally(verdicts: Sequence[str]) -> str:
    counts = Counter(verdicts)
    return (
        f"better in {counts['better']}, worse in {counts['worse']}, undecided in "
        f"{counts['level']} of {_count(len(verdicts), 'block')}"
    )


def _name(block: Block) -> str:
    return f"setup {block.setup}, {block.experts} experts, {block.cost.replace('+', ' + ')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
