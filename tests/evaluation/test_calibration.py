import numpy as np
import pytest

from mild.artifact.info import EstimatorInfo
from mild.errors import OptionError
from mild.evaluation.sections import calibration, reward_form
from report_cases import routed_rows


def gathered(costs, probabilities):
    costs = np.asarray(costs, float)
    names = [f"e{k}" for k in range(costs.shape[1])]
    return routed_rows(names, costs, np.zeros(len(costs), int), probabilities, None)


def test_one_bin_by_hand_with_rewards_of_others():
    # Rewards (others): rows (1, 0), (0.5, 1), (0, 1), so C = 1, 1.5, 1.
    costs = [[0, 1], [1, 0.5], [1, 0]]
    found = calibration(gathered(costs, [[0.5, 0.5], [0.2, 0.8], [0.4, 0.6]]), "others")
    (bin_,) = found["experts"][0]["bins"]
    assert bin_["rows"] == 3
    assert bin_["realised"] == pytest.approx(1.5 / 3.5)
    assert bin_["predicted"] == pytest.approx((0.5 + 0.2 * 1.5 + 0.4) / 3.5)
    assert found["experts"][0]["error"] == pytest.approx(abs(1.5 - 1.2) / 3.5)
    residual = np.array([1, 0.5, 0]) - 1.5 / 3.5 * np.array([1, 1.5, 1])
    reach = 1.959964 * np.sqrt((residual**2).sum() * 3 / 2) / 3.5
    assert bin_["high"] == pytest.approx(1.5 / 3.5 + reach, abs=1e-6)
    assert bin_["low"] == pytest.approx(max(0, 1.5 / 3.5 - reach), abs=1e-6)


def test_rows_of_a_group_count_once_in_the_interval():
    rng = np.random.default_rng(0)
    costs = np.repeat((rng.random((60, 2)) < 0.5).astype(float), 4, axis=0)
    evidence = gathered(costs, np.tile([[0.5, 0.5]], (240, 1)))

    def width(group):
        (bin_,) = calibration(evidence, "cheapest", groups=group)["experts"][0]["bins"]
        return bin_["high"] - bin_["low"]

    assert width(np.arange(240)) == width(None)
    # Four copies of each row tell nothing new.
    assert width(np.repeat(np.arange(60), 4)) == pytest.approx(2 * width(None), rel=0.01)


def test_how_often_an_expert_is_the_cheapest_is_a_plain_share():
    costs = np.tile([[0.0, 1.0]], (40, 1))
    costs[:10] = [1, 0]
    guess = np.tile([[0.7, 0.3]], (40, 1))
    found = calibration(gathered(costs, guess), "cheapest")
    (bin_,) = found["experts"][0]["bins"]
    assert (bin_["predicted"], bin_["realised"], bin_["rows"]) == (pytest.approx(0.7), 0.75, 40)
    assert sum(found["experts"][0]["counts"]) == 40


@pytest.mark.parametrize("form", ["others", "complement", "contrast", "cheapest"])
def test_true_shares_lie_on_the_line_and_others_do_not(form):
    rng = np.random.default_rng(0)
    n = 6000
    place = rng.random(n)
    costs = (rng.random((n, 2)) < np.column_stack([place, 1 - place])).astype(float)
    if form == "cheapest":
        truth = 1 - place * (1 - (1 - place))
    elif form == "others" or form == "complement":
        truth = 1 - place
    else:
        better = (1 - place) ** 2
        truth = better / (better + place**2)
    guess = np.column_stack([truth, 1 - truth])
    good = calibration(gathered(costs, guess), form)
    bad = calibration(gathered(costs, guess[::-1]), form)
    assert len(good["experts"][0]["bins"]) == 10
    assert good["experts"][0]["error"] < 0.025
    assert bad["experts"][0]["error"] > 0.1
    covered = [b["low"] <= b["predicted"] <= b["high"] for b in good["experts"][0]["bins"]]
    assert sum(covered) >= 8


def test_what_was_never_asked_is_shared_out():
    costs = [[0.0, 1.0, np.nan], [1.0, 0.0, np.nan]] * 20
    guess = np.tile([[0.3, 0.3, 0.4]], (40, 1))
    found = calibration(gathered(costs, guess), "others")
    (bin_,) = found["experts"][0]["bins"]
    assert bin_["predicted"] == pytest.approx(0.5)
    assert bin_["realised"] == pytest.approx(0.5)
    assert found["experts"][2] == {"bins": [], "error": None, "counts": [], "range": None}


def test_rows_without_reward_say_nothing():
    assert calibration(gathered([[0, 0], [0, 0]], [[0.5, 0.5]] * 2), "others") is None
    assert calibration(gathered([[0, 1]], None), "others") is None
    found = calibration(gathered([[0, 0], [0, 1]], [[0.5, 0.5]] * 2), "others")
    assert found["rows"] == 1


def test_an_unknown_form_is_refused():
    with pytest.raises(OptionError, match="form must be one of"):
        calibration(gathered([[0, 1]], [[0.5, 0.5]]), "odd")


@pytest.mark.parametrize(
    ("estimator", "form"),
    [
        ({"class": "LinearRouter", "params": {"loss": "mild", "rewards": "contrast"}}, "contrast"),
        ({"class": "LinearRouter", "params": {"rewards": "baseline", "strength": 0.2}}, "baseline"),
        ({"class": "LinearRouter", "params": {"loss": "ce"}}, "cheapest"),
        ({"class": "RidgeRouter", "params": {"alpha": 1.0}}, "others"),
        (
            {"class": "RouterCV", "best_family": "linear",
             "params": {"estimator": {"class": "LinearRouter", "params": {"loss": "tdef"}}}},
            "complement",
        ),
        (
            {"class": "RouterCV", "best_family": "knn",
             "params": {"estimator": {"class": "LinearRouter", "params": {"loss": "tdef"}}}},
            "others",
        ),
    ],
)  # fmt: skip
def test_a_saved_router_says_what_its_probabilities_are_shares_of(estimator, form):
    assert reward_form(EstimatorInfo.from_dict(estimator))[0] == form
