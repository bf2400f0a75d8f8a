import pytest

from mild_gateway.refusals import Refusal
from mild_gateway.selection.models import ModelRequest, read_model

EXPERTS = ["small", "large"]


@pytest.mark.parametrize(
    ("name", "weight"),
    [("router-mild-0.5", 0.5), ("router-mild-1e-3", 0.001), ("router-mild-0", 0.0)],
)
def test_the_weight_is_read_from_the_right(name, weight):
    assert read_model(name, EXPERTS, True) == ModelRequest(price_weight=weight)


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "0.5-", "١", "0" * 1000, "1e199"])
def test_a_weight_that_is_no_number_is_refused(text):
    with pytest.raises(Refusal) as caught:
        read_model(f"router-mild-{text}", EXPERTS, True)
    assert caught.value.status == 400


@pytest.mark.parametrize("name", [None, 5, "", ["mild"], {}, True])
def test_a_model_must_be_named_by_text(name):
    with pytest.raises(Refusal) as caught:
        read_model(name, EXPERTS, True)
    assert caught.value.status == 400
    assert caught.value.param == "model"


def test_an_unknown_name_is_told_the_valid_ones():
    with pytest.raises(Refusal) as caught:
        read_model("gpt-9" * 100, EXPERTS, False)
    assert caught.value.status == 404
    assert caught.value.code == "model_not_found"
    assert "mild, mild-direct, small, large" in caught.value.message
    assert len(caught.value.message) < 300
