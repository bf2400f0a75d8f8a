"""The seam alone: the router behind it is a stand-in that remembers its options."""

import sys
from types import ModuleType

import numpy as np
import pytest

from mild.reproduce.llm.transformer import fit_transformer, transformer_protocol
from mild.reproduce.methods import Method

TEXTS = ["one", "two", "three"]
COSTS = np.eye(3)


class StandIn:
    """Scores that say how long a text is."""

    def __init__(self, model, **options):
        options.setdefault("epochs", 5)
        vars(self).update({"model": model, **options})
        for name in (
            *("lr", "head_lr", "batch_size", "max_length", "weight_decay", "warmup", "clip"),
            *("dropout", "pooling", "precision"),
        ):
            vars(self).setdefault(name, None)
        self.options = options
        made.append(self)

    def fit(self, texts, costs):
        self.texts, self.costs = texts, costs
        self.history_ = [{"loss": 0.5}]
        self.progress(1, 2, "half way")
        margins = self.options.get("margins")
        self.margins_ = np.ones(3) if self.loss == "tdef" else np.array([0.5, 0.3, 0.2])
        if isinstance(margins, tuple):
            self.margins_ = np.array(margins)

    def decision_function(self, texts):
        return np.array([[len(text), 0.0, 0.0] for text in texts])


made: list[StandIn] = []


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch):
    made.clear()
    module = ModuleType("mild.transformer")
    module.DEBERTA = "some/deberta"
    module.TransformerRouter = StandIn
    monkeypatch.setitem(sys.modules, "mild.transformer", module)


def fit(text, **options):
    told = []
    results = fit_transformer(
        Method.parse(text), TEXTS, COSTS, ["seven"], 2.0, 3, None, options, told.append
    )
    return results, made[-1], told


def test_a_method_becomes_options_of_the_router():
    _, router, told = fit("mild:rewards=complement,counts=best,total=mean1")
    assert router.options | {"progress": None} == {
        "loss": "mild",
        "cost_scale": 2.0,
        "rewards": "complement",
        "counts": "best",
        "margins": "theory",
        "total": 3.0,
        "random_state": 3,
        "epochs": 5,
        "progress": None,
    }
    assert router.model == "some/deberta"
    assert (router.texts, told) == (TEXTS, ["step 1 of 2, half way"])
    assert fit("tuned:total=1")[1].options["margins"] == "tuned"
    numbers = fit("mild:margins=1/2/3")[1].options
    assert numbers["margins"] == (1.0, 2.0, 3.0)
    assert "total" not in numbers
    assert "rewards" not in fit("ldam")[1].options
    assert "cost_scale" not in fit("ce")[1].options


def test_one_training_serves_both_decisions():
    results, router, _ = fit("mild", epochs=1)
    assert [result.decision for result in results] == ["argmax", "stationary"]
    assert results[0].scores is results[1].scores
    assert results[0].margins == (0.5, 0.3, 0.2)
    assert router.epochs == 1
    assert [result.decision for result in fit("tdef")[0]] == ["argmax"]
    assert fit("ce")[0][0].margins is None
    assert results[0].found == {"final_loss": 0.5}


def test_a_record_names_model_files_and_settings(tmp_path):
    (tmp_path / "mini").mkdir()
    (tmp_path / "mini" / "config.json").write_text("{}")
    protocol = transformer_protocol(str(tmp_path / "mini"), {"epochs": 2})
    assert protocol["features"]["model"] == "mini"
    assert len(protocol["features"]["sha256"]) == 64
    assert (protocol["name"], protocol["epochs"]) == ("transformer", 2)
    assert transformer_protocol(None, {})["features"]["model"] == "deberta"


def test_a_tiny_transformer_is_fine_tuned_through_the_seam(tmp_path, monkeypatch):
    for package in ("torch", "transformers", "tokenizers"):
        pytest.importorskip(package, reason="a transformer router is fitted with it")
    monkeypatch.delitem(sys.modules, "mild.transformer")
    from llm_cases import make_outcomes
    from mild.reproduce.llm.requests import LLMRequest
    from mild.reproduce.llm.run import reproduce_llm
    from mild.reproduce.records import record_problem
    from transformer_cases import build_model

    (tmp_path / "tiny").mkdir()
    request = LLMRequest(
        "llm",
        make_outcomes(60),
        "made up",
        tmp_path / "r.jsonl",
        costs=("cost",),
        methods=(Method("tdef"), Method("mild")),
        seeds=1,
        features="transformer",
        model=str(build_model(tmp_path / "tiny", "bert")),
        transformer={"epochs": 1, "max_length": 16, "device": "cpu"},
    )
    tdef, mild = reproduce_llm(request)
    assert [record_problem(record) for record in (tdef, mild)] == [None, None]
    assert set(mild["outcomes"]) == {"argmax", "stationary"}
    assert sum(mild["margins"]) == pytest.approx(1)
    assert tdef["cell"]["protocol"]["epochs"] == 1
    assert tdef["versions"]["torch"]
