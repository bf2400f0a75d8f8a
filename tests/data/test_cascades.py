"""A run of a cascade as one more column of the outcomes."""

import numpy as np
import pyarrow as pa
from numpy.testing import assert_allclose

from mild.data import CostTerms, Outcomes
from mild.data.cascades import cascade_costs, cascade_scores
from mild.evaluation.cascades import cascade_outcomes
from mild.metrics.results import Results
from mild.policies.cascade import CascadeRun

NAN = np.nan
SCORES = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, NAN, 0.0]])
PRICES = np.array([[1.0, 2.0, 10.0], [1.0, 2.0, 10.0], [1.0, NAN, 10.0]])
SECONDS = np.array([[0.3, 0.1, 2.0], [0.1, 0.2, 2.0], [0.1, NAN, 2.0]])
# The first row ends with the pair, the second with the third expert, the third skips the pair.
RUN = CascadeRun(
    [[0, 1], [2]],
    np.array([0, 1, 1]),
    np.array([0, 2, 2]),
    np.array([0.9, 0.4, 0.5]),
    np.array([[True, True, False], [True, True, True], [False, False, True]]),
)


def table(**changes: object) -> Outcomes:
    names = ["little", "middle", "strong"]
    fields: dict[str, object] = {"prices": PRICES, "latencies": SECONDS, **changes}
    return Outcomes(["a", "b", "c"], names, SCORES, columns=pa.table({}), **fields)  # type: ignore[arg-type]


def test_a_cascade_pays_every_expert_it_asked_and_waits_for_the_slowest_in_parallel() -> None:
    found = cascade_outcomes(Results(1 - SCORES), table(), CostTerms(), RUN)
    assert found.scores is not None
    assert found.prices is not None
    assert found.latencies is not None
    assert_allclose(found.scores[:, 3], [1, 1, 0])
    assert_allclose(found.prices[:, 3], [3, 13, 10])
    assert_allclose(found.latencies[:, 3], [0.3, 2.2, 2.0])
    bare = table(prices=None, latencies=None)
    found = cascade_outcomes(Results(1 - SCORES), bare, CostTerms(), RUN)
    assert (found.prices, found.latencies) == (None, None)


def test_the_cost_adds_what_asking_each_expert_costs() -> None:
    terms = CostTerms({"little": 0.1, "middle": 0.2, "strong": 0.4}, 0.01, 0.5)
    assert_allclose(
        cascade_costs(table(), terms, RUN),
        [0.3 + 0.03 + 0.15, 0.7 + 0.13 + 1.1, 1 + 0.4 + 0.1 + 1.0],
    )
    assert_allclose(cascade_costs(table(), CostTerms(), RUN), [0, 0, 1])


def test_a_row_is_unknown_where_the_outcome_of_an_asked_expert_is() -> None:
    asked = RUN.asked.copy()
    asked[2, 1] = True
    assert_allclose(cascade_scores(SCORES, RUN._replace(asked=asked)), [1, 1, NAN])
    assert np.isnan(cascade_costs(table(), CostTerms(), RUN._replace(asked=asked))[2])
