import numpy as np
import pytest

from mild.decisions import decide
from mild.metrics import best_constant, deferral_loss
from mild.reproduce.llm.linear import ALPHAS, fit_linear
from mild.reproduce.methods import Method
from mild.splits import folds


@pytest.fixture(scope="module")
def problem():
    """Two features tell which of three experts errs; the first is right most often."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)).astype(np.float32)
    centres = np.array([[0.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    near = ((X[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    costs = (rng.random((300, 3)) < np.where(np.arange(3) == near[:, None], 0.05, 0.9)) + 0.0
    return X[:200], costs[:200], X[200:], costs[200:]


def fit(problem, text, **more):
    train, costs, test, _ = problem
    inner = folds(np.arange(len(train)), 3)
    return fit_linear(Method.parse(text), train, costs, test, inner, 1.0, 0, **more)


@pytest.mark.parametrize(
    "text",
    [
        *("tdef", "ce", "cwce", "ldam", "mild", "uniform:total=1", "mild:counts=best", "tuned"),
        *("mild:rewards=complement", "mild:margins=1/2/3", "tuned:rewards=any"),
    ],
)
def test_every_method_learns_and_gives_a_result_per_decision_that_differs(text, problem):
    results = fit(problem, text)
    method = Method.parse(text)
    both = method.name == "mild" and method.margins != "uniform"
    wanted = ["argmax", "stationary"] if both else ["argmax"]
    assert [result.decision for result in results] == wanted
    test = problem[3]
    # The last one is the rule that is right at unequal margins.
    last = results[-1]
    chosen = decide(last.scores, last.margins, rule=last.decision)
    assert deferral_loss(test, chosen) < best_constant(test).cost - 0.1
    for result in results:
        assert (result.margins is None) == (method.name in ("ce", "cwce", "ldam"))


def test_margins_are_those_that_the_method_asks_for(problem):
    assert fit(problem, "tdef")[0].margins == (1.0, 1.0, 1.0)
    assert fit(problem, "uniform:total=1")[0].margins == pytest.approx((1 / 3,) * 3)
    assert fit(problem, "mild:margins=1/2/3")[0].margins == (1.0, 2.0, 3.0)
    theory = fit(problem, "mild:counts=best")[0].margins
    assert sum(theory) == pytest.approx(1)
    assert theory[0] == max(theory)
    assert sum(fit(problem, "tuned")[0].margins) == pytest.approx(3)


@pytest.mark.parametrize("text", ["uniform:total=1", "mild:counts=best"])
def test_a_strength_means_the_same_whatever_the_sum_of_the_margins(text, problem):
    small = fit(problem, text, alphas=(0.01,))
    large = fit(problem, text.replace("total=1", "total=30").replace("best", "best,total=30"),
                alphas=(0.01,))  # fmt: skip
    for one, other in zip(small, large, strict=True):
        decisions = [decide(r.scores, r.margins, rule=r.decision) for r in (one, other)]
        assert (decisions[0] == decisions[1]).mean() > 0.98
        assert other.found["alpha"] == pytest.approx(one.found["alpha"] / 900)


def test_the_search_says_what_it_found_and_one_strength_is_used_as_it_is(problem):
    searched = fit(problem, "tdef")[0].found
    assert searched["alpha"] in ALPHAS
    assert searched["tried"] == len(ALPHAS)
    assert 0 < searched["cross_validated"] < 1
    assert fit(problem, "tdef", alphas=(0.5,))[0].found["alpha"] == 0.5
    assert fit(problem, "tuned")[0].found["tried"] == 9 * len(ALPHAS)


@pytest.mark.slow
def test_the_paper_s_grid_is_searched_by_either_decision(problem):
    argmax, stationary = fit(problem, "grid", alphas=(0.01,))
    assert argmax.found["tried"] == stationary.found["tried"] == 216
    # Steps of 1 from the theory, upwards: downwards nothing is positive.
    assert max(argmax.margins) < 6
