"""Arguments that functions of the gateway refuse, by their codes."""

import pyarrow as pa
import pytest

import mild_gateway
from mild.errors import MildError
from small_router_cases import priced_router


def code_of(call, *arguments, **options):
    with pytest.raises(MildError) as caught:
        call(*arguments, **options)
    assert len(str(caught.value).splitlines()) == 1
    return caught.value.code


@pytest.fixture
def router():
    return priced_router()


@pytest.mark.parametrize(
    ("call", "name", "meant"),
    [
        (mild_gateway.replay, "feedbak", "feedback"),
        (mild_gateway.collect_outcomes, "max_spent", "max_spend"),
    ],
)
def test_misspelled_arguments_are_recognised(call, name, meant):
    with pytest.raises(MildError, match=f"Did you mean '{meant}'") as caught:
        call(**{name: 1})
    assert caught.value.code == f"invalid_{name}"


@pytest.mark.parametrize("call", [mild_gateway.replay])
def test_missing_arguments_have_a_code(call):
    assert code_of(call) == "invalid_arguments"


def test_replay_refuses(router, tmp_path):
    assert code_of(mild_gateway.replay, None) == "invalid_arguments"
    assert code_of(mild_gateway.replay, None, router) == "invalid_ledger"
    assert code_of(mild_gateway.replay, tmp_path / "ledger.sqlite", None) == "invalid_router"


@pytest.mark.parametrize(("name", "value"), [("limit", "a"), ("limit", 0), ("max_spend", "a")])
def test_collect_refuses(tmp_path, name, value):
    experts = tmp_path / "experts.toml"
    experts.write_text('[experts.a]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n')
    questions = pa.table({"question": ["2 + 2?"], "answer": ["4"]})
    out = tmp_path / "log.parquet"
    code = code_of(mild_gateway.collect_outcomes, questions, experts, out, **{name: value})
    assert code == f"invalid_{name}"
    assert list(tmp_path.iterdir()) == [experts]
