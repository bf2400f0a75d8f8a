"""The plug-in for LiteLLM, without LiteLLM; with it: tests/journeys_litellm."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from starlette.exceptions import HTTPException

from cascade_cases import EASY, cascade_router
from gateway_cases import priced_router, scored_router
from mild.artifact import save
from mild.errors import InvalidInputError
from mild_gateway.demo import demo_router
from mild_gateway.litellm_plugin import MildPlugin
from mild_gateway.refusals import Refusal

SUM, FACT = "What is 17 * 23?", "What is the capital of France?"


def user(text):
    return [{"role": "user", "content": text}]


def routed(plugin, **data):
    """The model's name behind the hook of the proxy."""
    changed = asyncio.run(plugin.async_pre_call_hook(None, None, data, "completion"))
    assert changed is data
    return data.get("model")


@pytest.mark.parametrize(
    "data",
    [
        {"messages": user(SUM)},
        {"messages": [*user(FACT), *user(SUM)]},
        {"messages": user([{"type": "text", "text": SUM}])},
        {"prompt": SUM},
        {"prompt": [SUM]},
        {"input": SUM},
        {"input": user([{"type": "input_text", "text": SUM}])},
    ],
)
def test_the_hook_puts_the_routers_choice_in_place_of_the_model(data):
    assert routed(MildPlugin(demo_router()), model="mild", **data) == "rules"


def test_other_models_and_requests_without_one_are_left_alone():
    plugin = MildPlugin(demo_router())
    assert routed(plugin, model="gpt-5", messages=user(SUM)) == "gpt-5"
    assert routed(plugin, messages=user(SUM)) is None
    assert routed(plugin, model="mild", messages=[]) in demo_router().experts


def test_a_folder_a_price_weight_and_all_messages(tmp_path):
    folder = save(priced_router(weight=0.0), tmp_path / "router")
    assert MildPlugin(folder).order("mild", user(SUM)) == ["large", "small"]
    assert MildPlugin(folder).order("router-mild-100", user(SUM)) == ["small", "large"]
    assert MildPlugin(folder, price_weight=100.0).order("mild", user(SUM))[0] == "small"
    conversation = [*user(SUM), *user("Thanks")]
    both = MildPlugin(demo_router(), text="all")
    assert both.order("mild", conversation) == both.order("mild", f"{SUM}\n\nThanks")


def test_a_weight_that_cannot_be_used_is_the_clients_error():
    plugin = MildPlugin(scored_router())
    with pytest.raises(Refusal):
        plugin.order("router-mild-1", user(SUM))
    for model in ("router-mild-1", "router-mild-x"):
        with pytest.raises(HTTPException) as caught:
            routed(plugin, model=model, messages=user(SUM))
        assert caught.value.status_code == 400


class FakeRouter:
    """What the plug-in uses of a ``litellm.Router``."""

    def __init__(self, names, cooling=()):
        self.names, self.cooling = names, cooling

    def get_model_names(self):
        return self.names

    def set_custom_routing_strategy(self, strategy):
        self.strategy = strategy

    def get_available_deployment(self, model, messages=None, input=None, **more):
        if model in self.cooling:
            raise ValueError(f"no deployment of {model}")
        return SimpleNamespace(model=model, messages=messages, more=more)

    async def async_get_available_deployment(self, **given):
        return self.get_available_deployment(**given)


def find(router, **given):
    """The deployment, found in both ways."""
    one = router.strategy.get_available_deployment(**given)
    other = asyncio.run(router.strategy.async_get_available_deployment(**given))
    assert one == other
    return one


def test_a_router_finds_a_deployment_of_the_chosen_expert():
    router = FakeRouter(["smollm2", "gemma3", "rules", "gpt-5"])
    MildPlugin(demo_router()).attach(router)
    found = find(router, model="mild", messages=user(SUM), request_kwargs={"a": 1})
    assert (found.model, found.messages) == ("rules", user(SUM))
    assert found.more == {"request_kwargs": {"a": 1}}
    assert find(router, model="gpt-5", messages=user(SUM)).model == "gpt-5"
    assert find(router, model="mild", input=SUM).model == "rules"


def test_an_expert_without_a_free_deployment_is_passed_over():
    names = ["smollm2", "gemma3", "rules"]
    plugin = MildPlugin(demo_router())
    router = FakeRouter(names, cooling=["rules"])
    plugin.attach(router)
    second = plugin.order("mild", user(SUM))[1]
    assert find(router, model="mild", messages=user(SUM)).model == second
    router.cooling = names
    with pytest.raises(ValueError, match="no deployment"):
        router.strategy.get_available_deployment("mild", user(SUM))
    with pytest.raises(ValueError, match="no deployment"):
        asyncio.run(router.strategy.async_get_available_deployment("mild", user(SUM)))


def test_every_expert_must_be_a_model_of_the_router():
    with pytest.raises(InvalidInputError) as caught:
        MildPlugin(demo_router()).attach(FakeRouter(["smollm2", "rules"]))
    assert caught.value.code == "invalid_model_list"
    assert "gemma3" in str(caught.value)


def test_of_a_cascade_the_first_expert_of_the_first_step_is_asked(caplog):
    plugin = MildPlugin(cascade_router())
    assert "first step" in caplog.text
    assert routed(plugin, model="mild", messages=user(EASY)) == "small"
    assert plugin.order("mild", user(EASY))[:2] == ["small", "medium"]
    assert sorted(plugin.order("mild", user(EASY))) == ["large", "medium", "small", "spare"]
    caplog.clear()
    direct = cascade_router().direct
    plugin = MildPlugin(direct)
    assert not caplog.records
    assert plugin.order("mild", user(EASY))[0] == direct.route([EASY])[0]


def test_the_direct_router_of_a_cascade_and_repeated_calls_of_one_expert():
    router = cascade_router()
    plugin = MildPlugin(router)
    assert plugin.order("mild-direct", user(EASY)) == MildPlugin(router.direct).order("mild", EASY)
    again = MildPlugin(replace(router, experts=["small", "small#2", "large", "spare"]))
    assert again.order("mild", user(EASY))[0] == "small"
    assert sorted(again.order("mild", user(EASY))) == ["large", "small", "spare"]
    again.attach(
        SimpleNamespace(
            get_model_names=lambda: ["small", "large", "spare"],
            set_custom_routing_strategy=lambda strategy: None,
            get_available_deployment=None,
            async_get_available_deployment=None,
        )
    )
