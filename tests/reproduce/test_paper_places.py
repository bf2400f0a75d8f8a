import pytest

from mild.reproduce.paper_places import levels_differ, paper_figure

MODELS = {
    "experts": "language models",
    "setup": "qwen2.5",
    "dataset": "mine",
    "cost": "cost",
    "beta": [1.0, 0.6, 0.1],
    "noise": None,
}
NOISE = {"kind": "additive", "std": 0.2}


@pytest.mark.parametrize(
    ("cell", "method", "loss"),
    [
        ({"table": "llm"}, {"name": "cwce"}, 0.942),
        ({"table": "llm", "cost": "error", "beta": None}, {"name": "tdef"}, 0.438),
        ({"table": "ablation"}, {"name": "mild", "margins": "uniform"}, 0.884),
        ({"table": "ablation"}, {"name": "mild", "margins": "grid"}, 0.813),
        ({"table": "ablation"}, {"name": "tdef"}, 0.928),
        ({"table": "noise"}, {"name": "mild", "margins": "theory"}, 0.813),
        ({"table": "noise", "noise": NOISE}, {"name": "mild", "margins": "theory"}, 0.826),
        ({"table": "extreme"}, {"name": "tdef"}, 0.950),
    ],
)
def test_a_result_with_the_paper_s_models_stands_beside_its_figure(cell, method, loss):
    assert paper_figure(MODELS | cell, method).loss == loss


@pytest.mark.parametrize(
    ("cell", "method"),
    [
        ({"table": "llm", "setup": "other"}, {"name": "tdef"}),
        ({"table": "llm", "beta": [1.0, 0.5, 0.1]}, {"name": "tdef"}),
        ({"table": "llm", "cost": "error"}, {"name": "ce"}),
        ({"table": "ablation"}, {"name": "mild", "margins": [1.0, 2.0, 3.0]}),
        ({"table": "noise", "noise": NOISE}, {"name": "ldam"}),
    ],
)
def test_what_the_paper_has_not_stands_alone(cell, method):
    assert paper_figure(MODELS | cell, method) is None


def test_only_skewed_prices_put_the_loss_on_another_scale():
    assert levels_differ({"table": "extreme"})
    assert not levels_differ({"table": "noise"})
