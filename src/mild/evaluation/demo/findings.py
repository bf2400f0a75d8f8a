"""What the numbers say, in sentences computed from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mild.evaluation.demo.run import REFERENCE, Block, DemoResults, verdict_of

__all__ = ["caption", "findings"]

TUNED = "mild_tuned_stationary"
THEORY = ("mild_theory_argmax", "mild_theory_stationary")


def findings(results: DemoResults) -> list[str]:
    """Sentences on which method beats which, counted over the digits blocks by their intervals."""
    blocks, region = results.blocks, results.region_block

    def against(first: str, second: str) -> list[str]:
        return [verdict_of(block.pairs[first, second]) for block in blocks]

    def against_tdef(key: str) -> list[str]:
        return [block.row(key).verdict for block in blocks]

    first = f"MILD tuned, stationary, against TDEF: {_tally(against_tdef(TUNED))}."
    gains = [block for block in blocks if block.row(TUNED).verdict == "better"]
    if gains:
        most = min(gains, key=lambda block: block.row(TUNED).mean - block.row(REFERENCE).mean)
        first += (
            f" The largest gain is from {most.row(REFERENCE).mean:.4f} to "
            f"{most.row(TUNED).mean:.4f} ({_name(most)})."
        )
    worst = max(blocks, key=lambda block: block.pairs[THEORY].estimate)
    behind = against("mild_theory_argmax", "constant").count("worse")
    pays = against(TUNED, "constant").count("better")
    leaders = Counter(block.leader.label for block in blocks).most_common()
    marked = sum(any(row.best for row in block.rows) for block in blocks)
    n_blocks = _count(len(blocks), "block")
    tdef, uniform, _, theory, argmax, _ = results.tail
    learned = [
        f"{entry.label} asks the best expert for {100 * entry.agreement:.1f} % of the inputs "
        f"(cost {entry.loss:.4f})"
        for entry in results.line.learned
    ]
    return [
        first,
        f"MILD with equal margins against TDEF: {_tally(against_tdef('mild_uniform'))}; tuning the "
        f"margins on top of that: {_tally(against(TUNED, 'mild_uniform'))}.",
        f"The theory's unequal margins decided by argmax, against the same loss decided by the "
        f"stationary rule: {_tally(against(*THEORY))}. The largest gap is "
        f"{worst.row(THEORY[0]).mean:.4f} to {worst.row(THEORY[1]).mean:.4f} ({_name(worst)}); in "
        f"{_count(behind, 'block')} argmax is worse than the best constant.",
        f"With margins tuned for it, argmax against the stationary rule: "
        f"{_tally(against('mild_tuned_argmax', TUNED))}.",
        f"Routing pays in {pays} of {n_blocks}: MILD tuned, stationary, beats the best constant "
        f"there by its interval.",
        f"Blocks in which a method has the least mean loss: "
        f"{'; '.join(f'{label}: {number}' for label, number in leaders)}. In {marked} of "
        f"{n_blocks} the leader earns the mark. MILD tuned, stationary, against kNN: "
        f"{_tally(against(TUNED, 'knn'))}.",
        f"Experts that specialise by region: MILD tuned, stationary, "
        f"{region.row(TUNED).mean:.4f}, best constant {region.row('constant').mean:.4f}, a router "
        f"told the true label {region.row('label').mean:.4f}: the label is worth nothing there, the "
        f"input is.",
        f"Among 20 experts with a long tail of shares and 400 rows, mean of "
        f"{_count(len(tdef.losses), 'draw')}: TDEF {tdef.losses.mean():.4f}, MILD with equal margins "
        f"{uniform.losses.mean():.4f}, with theory margins from best counts "
        f"{theory.losses.mean():.4f} (by argmax {argmax.losses.mean():.4f}); the rarer half of the "
        f"experts is found for {100 * tdef.recall.mean():.0f}, {100 * uniform.recall.mean():.0f} and "
        f"{100 * theory.recall.mean():.0f} % of its inputs.",
        f"On the line, where the best cost is {results.line.best_loss:.4f}: {'; '.join(learned)}.",
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
