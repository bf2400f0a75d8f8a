"""The comparisons with published routers, on small tables of the same shape."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from experiments import additions, clusters, low_rank, open_bandit, published, routellm, routerdc
from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import DataFileError
from mild.tuning.tasks import make_task

FAMILIES = ["ridge", "knn", "stack"]
TEXTS = {"gsm8k": "Add numbers and apples", "humaneval": "def function(value): return"}


def routerdc_rows(rows, sets, seed=0):
    """Model a is right about everything but code, model b about code alone."""
    rng = np.random.default_rng(seed)
    names = [sets[i % len(sets)] for i in range(rows)]
    code = np.array([name in ("humaneval", "mbpp") for name in names])
    words = [TEXTS["humaneval" if is_code else "gsm8k"] for is_code in code]
    return pd.DataFrame(
        {
            "query": [f"{text} {rng.integers(1000)}" for text in words],
            "dataset": names,
            "score__a": np.where(code, 0.0, 1.0),
            "score__b": np.where(code, 1.0, 0.0),
        }
    )


@pytest.fixture(autouse=True)
def few_clusters(monkeypatch):
    monkeypatch.setattr(clusters, "SIZES", (3,))


def test_routerdc_is_judged_per_data_set():
    train = routerdc_rows(80, routerdc.INSIDE)
    results = routerdc.run(train, routerdc_rows(160, routerdc.SETS, 1), FAMILIES)
    rows = results["rows"]
    for name in ("mild tune", "mild tune, with clusters", "oracle"):
        assert rows[name]["in"][0] == rows[name]["out"][0] == 100
    # Always a: everything but one of five data sets, and two of three.
    assert rows["best single model"]["in"] == pytest.approx([80, 80, 80])
    assert rows["best single model"]["out"][0] == pytest.approx(200 / 3)
    assert rows["best model per data set, known at test time"]["out"][0] == 100
    assert results["as reported"]["RouterDC"]["in"] == pytest.approx(58.54, abs=0.005)
    assert "RouterDC, as reported" in routerdc.table(results).index


def test_pooled_means_weigh_rows_and_intervals_contain_the_figure():
    sets = [*routerdc.SETS, "mmlu", "mmlu"] * 5
    scores = np.zeros((len(sets), 2))
    scores[np.array(sets) == "mmlu", 0] = 1
    scores[:8, 0] = 1
    found = routerdc.judge(scores, sets, np.zeros(len(sets), int))
    assert found["mmlu"] == [100, 100, 100]
    assert found["in"][0] == pytest.approx((100 + 4 * 20) / 5)
    assert found["pooled in"][0] == pytest.approx(100 * (15 + 4) / 35)
    for figure, low, high in found.values():
        assert low <= figure <= high


def test_gap_metrics_of_perfect_random_and_reversed_scores():
    rng = np.random.default_rng(0)
    weak = (rng.random(4000) < 0.6).astype(float)
    strong = np.maximum(weak, rng.random(4000) < 0.5)
    best = routellm.gap_metrics(strong - weak + rng.random(4000) / 10, weak, strong)
    random = routellm.gap_metrics(rng.random(4000), weak, strong)
    worst = routellm.gap_metrics(weak - strong + rng.random(4000) / 10, weak, strong)
    assert best[0] > 0.85 > random[0]
    assert random == pytest.approx([0.5, 50, 80], abs=0.05 * 50)
    assert random[0] == pytest.approx(0.5, abs=0.05)
    assert worst[0] < 0.15
    assert best[1] < random[1] < worst[1]


@pytest.fixture
def routellm_folder(tmp_path):
    rng = np.random.default_rng(0)
    for name, rows in (("mmlu", 120), ("gsm8k", 40)):
        hard = np.arange(rows) % 2
        frame = pd.DataFrame(
            {
                "prompt": [f"{('easy', 'hard')[h]} question {rng.integers(10**6)}" for h in hard],
                routellm.WEAK: 1 - hard,
                routellm.STRONG: 1,
            }
        )
        if name == "mmlu":
            frame["subject"] = np.where(np.arange(rows) % 5, "law", routellm.ARTEFACT)
        (tmp_path / "routing").mkdir(exist_ok=True)
        (tmp_path / "published").mkdir(exist_ok=True)
        frame.to_parquet(tmp_path / f"routing/routellm_{name}_test.parquet")
        line = json.dumps({"eval_prompt": frame["prompt"][0]}) + "\n"
        (tmp_path / f"published/{name}_contaminated_prompts.jsonl").write_text(line)
    return tmp_path


def test_routellm_trains_on_drawn_rows_and_judges_the_rest(routellm_folder, monkeypatch):
    monkeypatch.setattr(routellm, "SETTINGS", {"small": (60, "mmlu")})
    out = routellm_folder / "results.json"
    words = ["--data", str(routellm_folder), "--draws", "2", "--out", str(out)]
    words += ["--families", ",".join(FAMILIES)]
    done = CliRunner().invoke(routellm.app, words)
    assert done.exit_code == 0, done.output
    results = json.loads(out.read_text())
    assert results["rows"] == {"mmlu": 119, "gsm8k": 39}
    found = results["settings"]["small"]
    assert found["seeds"] == [100, 101]
    assert set(found["summary"]) == {
        "all",
        f"without {routellm.ARTEFACT}",
        "gsm8k, not trained on",
    }
    # Hard questions are half of all, and need the strong model.
    assert found["summary"]["all"]["APGR"][0] > 0.7
    assert results["commit"] is None or isinstance(results["commit"], str)


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(DataFileError, match="routellm_mmlu_test"):
        routellm.read_rows(tmp_path, "mmlu")
    with pytest.raises(DataFileError, match=r"all\.csv"):
        open_bandit.read_log(tmp_path, "random", "all")
    pd.DataFrame({"query": ["a"]}).to_parquet(tmp_path / "table.parquet")
    with pytest.raises(DataFileError, match="dataset"):
        published.read_parquet(tmp_path / "table.parquet", ("query", "dataset"))


@pytest.fixture
def bandit_folder(tmp_path):
    """Two items: the first is clicked in half of the impressions, the second never."""
    rng = np.random.default_rng(0)
    for policy, share in (("random", 0.5), ("bts", 0.9)):
        item = (rng.random(3000) >= share).astype(int)
        log = pd.DataFrame(
            {
                "item_id": item,
                "position": rng.integers(1, 4, 3000),
                "click": (item == 0) & (rng.random(3000) < 0.5),
                "propensity_score": 0.5,
                "user_feature_0": rng.choice(["x", "y"], 3000),
            }
        ).astype({"click": int})
        folder = tmp_path / f"dataset/obd/{policy}/all"
        folder.mkdir(parents=True)
        log.to_csv(folder / "all.csv")
    return tmp_path


def test_open_bandit_estimates_are_near_what_the_other_policy_earned(bandit_folder, monkeypatch):
    shares = np.array([[0.9] * 3, [0.1] * 3])
    monkeypatch.setattr(open_bandit, "thompson_shares", lambda data, campaign, seed: shares)
    results = open_bandit.run(bandit_folder, "all", runs=2)
    assert results["truth"] == pytest.approx(0.45, abs=0.03)
    for name in ("DM", "IPW", "SNIPW", "DR", "switch-DR", "DR-OS"):
        assert results["relative error"][name]["mean"] < 0.12, name
    assert open_bandit.table(results).loc["DM", "obp, as reported"] == 0.157


def test_thompson_shares_follow_the_priors(tmp_path):
    (tmp_path / "policy/conf").mkdir(parents=True)
    priors = {"all": {"alpha": [90, 50, 10, 1], "beta": [10, 50, 90, 99]}}
    (tmp_path / "policy/conf/prior_bts.yaml").write_text(json.dumps(priors))
    shares = open_bandit.thompson_shares(tmp_path, "all", draws=10_000)
    np.testing.assert_allclose(shares.sum(axis=0), 1)
    assert (np.diag(shares) > 0.9).all()


def test_experts_that_share_a_direction_are_found_to_have_rank_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(260, 20))
    loadings = np.linspace(-1, 1, 8)
    costs = 5 + 0.6 * np.outer(X[:, 0], loadings) + 0.5 * rng.normal(size=(260, 8))
    found = low_rank.run_draw(X[:60], costs[:60], X[60:], costs[60:], np.arange(60))
    paid = found["costs"]
    assert found["rank"] == 1
    assert paid["low rank"] < paid["full rank"] < paid["constant"]
    assert set(low_rank.BLENDS) < set(paid)


def test_additions_are_judged_on_the_same_rows(tmp_path):
    rows = routerdc_rows(200, routerdc.INSIDE)
    rows.to_parquet(tmp_path / "table.parquet")
    task = make_task(read_outcomes(tmp_path / "table.parquet"), CostTerms())
    variants = {
        "one": (FAMILIES, ("hashing",)),
        "same": (FAMILIES, ("hashing",)),
        "two": (FAMILIES, ("hashing", "hashing")),
    }
    found = additions.run_draw(task, 80, 0, variants)
    assert found["one"]["cost"] == found["same"]["cost"] == found["two"]["cost"] == 0
    assert found["one"]["explained"] == found["same"]["explained"]
    assert 0.9 < found["one"]["explained"] <= 1
