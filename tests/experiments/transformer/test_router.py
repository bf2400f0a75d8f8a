"""Fine-tuning learns, repeats itself, resumes, and refuses what cannot be meant."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from experiments.llm.transformer import DEBERTA, TransformerRouter
from mild.errors import (
    DegenerateDataWarning,
    InvalidInputError,
    MissingExtraError,
)
from mild.metrics import best_constant, deferral_loss
from tolerances import rounding
from transformer_cases import make_task

pytest.importorskip("torch", reason="a transformer router is fitted with it")

TEXTS, COSTS = make_task(96)
STEPS = 6
FAST = {
    "lr": 3e-3,
    "head_lr": 3e-2,
    "batch_size": 8,
    "max_length": 16,
    "dropout": 0.0,
    "pooling": "mean",
}


def small(folder, **options):
    return TransformerRouter(folder, **{**FAST, "epochs": 2, **options})


@pytest.fixture(scope="module")
def fitted(models):
    return small(models["deberta"], epochs=4, loss="tdef").fit(TEXTS, COSTS)


def test_the_defaults_are_the_papers():
    router = TransformerRouter()
    assert router.model == DEBERTA == "microsoft/deberta-v3-xsmall"
    assert (router.epochs, router.lr) == (5, 5e-5)


def test_training_reduces_the_loss_and_beats_the_best_constant_on_new_texts(folder):
    router = small(folder, epochs=4, loss="tdef").fit(TEXTS, COSTS)
    losses = [record["loss"] for record in router.history_]
    assert len(losses) == 4
    assert losses[-1] < 0.5 * losses[0]
    texts, costs = make_task(60, seed=1)
    constant = best_constant(COSTS).expert
    assert deferral_loss(costs, router.predict(texts)) < 0.3 * costs[:, constant].mean()
    assert router.score(texts, costs) == -deferral_loss(costs, router.predict(texts))


def test_scores_probabilities_and_choices_belong_together(fitted):
    scores = fitted.decision_function(TEXTS[:20])
    shares = fitted.predict_proba(TEXTS[:20])
    assert scores.shape == shares.shape == (20, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(shares.argmax(axis=1), fitted.predict(TEXTS[:20]))
    np.testing.assert_allclose(
        fitted.policy_.decision_function(fitted.features(TEXTS[:20])), scores
    )


@pytest.mark.parametrize("loss", ["mild", "tdef", "ce", "cwce", "ldam"])
def test_every_loss_learns(models, loss):
    router = small(models["bert"], loss=loss, epochs=4).fit(TEXTS, COSTS)
    assert router.history_[-1]["loss"] < router.history_[0]["loss"]
    assert deferral_loss(COSTS, router.predict(TEXTS)) < 0.3


def test_experts_that_were_never_asked_are_no_evidence(models):
    rng = np.random.default_rng(0)
    costs = np.where(rng.random(COSTS.shape) < 0.3, np.nan, COSTS)
    costs[np.isnan(costs).all(axis=1), 0] = 1.0
    router = small(models["bert"], epochs=4).fit(TEXTS, costs)
    assert all(np.isfinite(record["loss"]) for record in router.history_)
    assert deferral_loss(COSTS, router.predict(TEXTS)) < 0.4


def test_the_same_seed_gives_the_same_router_and_leaves_torch_alone(models):
    import torch

    before = torch.random.get_rng_state()
    options = {"dropout": 0.3, "random_state": 3}
    first = small(models["deberta"], **options).fit(TEXTS, COSTS)
    second = small(models["deberta"], **options).fit(TEXTS, COSTS)
    other = small(models["deberta"], **{**options, "random_state": 4}).fit(TEXTS, COSTS)
    assert torch.equal(before, torch.random.get_rng_state())
    scores = first.decision_function(TEXTS)
    np.testing.assert_array_equal(scores, second.decision_function(TEXTS))
    assert not np.allclose(scores, other.decision_function(TEXTS))


def test_one_text_is_decided_as_among_others(fitted):
    together = fitted.decision_function(TEXTS[:30])
    alone = np.concatenate([fitted.decision_function([text]) for text in TEXTS[:30]])
    np.testing.assert_allclose(alone, together, atol=1e-5)


def test_weights_and_rows_of_weight_zero_are_kept(models):
    weight = np.ones(len(TEXTS))
    weight[64:] = 0
    whole = small(models["bert"]).fit(TEXTS, COSTS, weight)
    part = small(models["bert"]).fit(TEXTS[:64], COSTS[:64])
    assert [r["loss"] for r in whole.history_] == pytest.approx([r["loss"] for r in part.history_])


def test_with_rows_held_out_the_best_epoch_is_kept(models):
    router = small(models["bert"], epochs=4, validation_fraction=0.25).fit(TEXTS, COSTS)
    held = [(r["validation_loss"], r["validation_surrogate"]) for r in router.history_]
    assert router.best_epoch_ == 1 + held.index(min(held))


def test_an_expert_can_go_without_a_refit(fitted):
    fewer = fitted.without(1)
    scores = fitted.decision_function(TEXTS[:10])
    near = rounding(np.float32, np.abs(scores).max())
    np.testing.assert_allclose(fewer.decision_function(TEXTS[:10]), scores[:, [0, 2]], **near)


def test_one_expert_leaves_nothing_to_train(models):
    router = small(models["bert"]).fit(TEXTS[:10], COSTS[:10, :1])
    assert router.history_ == []
    assert set(router.predict(TEXTS[:10])) == {0}


def test_costs_that_are_all_equal_are_said_to_teach_nothing(models):
    with pytest.warns(DegenerateDataWarning, match="nothing to learn"):
        small(models["bert"], epochs=1).fit(TEXTS[:10], np.ones((10, 3)))


def test_a_rate_beyond_reason_is_said_to_diverge(models):
    with pytest.raises(InvalidInputError, match=r"training diverged in epoch 1.*Lower lr=1e\+30"):
        small(models["bert"], lr=1e30, clip=1e30).fit(TEXTS, COSTS)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("model", ""),
        ("loss", "mlid"),
        ("margins", "best"),
        ("margins", [1.0, 2.0]),
        ("pooling", "max"),
        ("precision", "float16"),
        ("max_length", 4),
        ("head_lr", -1),
        ("clip", float("nan")),
        ("warmup", 1),
        ("dropout", 1.0),
        ("random_state", None),
        ("progress", 3),
        ("device", "no-such"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(models, option, value):
    with pytest.raises(InvalidInputError) as caught:
        small(models["bert"]).set_params(**{option: value}).fit(TEXTS[:8], COSTS[:8])
    assert caught.value.code == f"invalid_{option}"


@pytest.mark.parametrize(
    ("texts", "costs", "code"),
    [
        ("one text", COSTS[:1], "texts"),
        ([1.0, 2.0], COSTS[:2], "texts"),
        (TEXTS[:1], COSTS[:1], "input"),
        (TEXTS[:3], COSTS[:2], "costs"),
        (TEXTS[:2], None, "y"),
    ],
)
def test_data_that_are_no_texts_and_costs_are_refused(models, texts, costs, code):
    with pytest.raises(InvalidInputError) as caught:
        small(models["bert"]).fit(texts, costs)
    assert caught.value.code == f"invalid_{code}"


def test_predicting_takes_texts_alone(fitted):
    with pytest.raises(InvalidInputError, match="texts must be strings"):
        fitted.predict([[1.0, 2.0]])
    assert fitted.predict([]).shape == (0,)


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_a_missing_package_is_named(models, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"torch and transformers; pip install .*encoder"):
        small(models["bert"]).fit(TEXTS[:8], COSTS[:8])


def test_its_parameters_can_be_written_as_json(models):
    params = small(models["bert"]).get_params()
    assert json.loads(json.dumps(params, default=str))["epochs"] == 2
