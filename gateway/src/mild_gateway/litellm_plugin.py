"""LiteLLM plug-in: a mild router chooses the model inside ``litellm.Router`` or LiteLLM's proxy.

The experts of the router are model names of LiteLLM's ``model_list``. Load balancing among the deployments
of a name, cool-downs, retries and keys stay LiteLLM's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from starlette.exceptions import HTTPException

from mild.errors import InvalidInputError
from mild_gateway.config import RoutingSettings
from mild_gateway.decide import Router, cascade_of, load_router
from mild_gateway.refusals import Refusal
from mild_gateway.selection.models import (
    DIRECT_MODEL,
    ROUTER_MODEL,
    configured_name,
    read_model,
)
from mild_gateway.selection.selector import ExpertSelector
from mild_gateway.selection.text import request_text

try:
    from litellm.integrations.custom_logger import CustomLogger
except ImportError:  # without LiteLLM there is nobody to plug it into
    CustomLogger = object


logger = logging.getLogger("mild_gateway")


class MildPlugin(CustomLogger):  # type: ignore[misc]
    """Sends requests for ``mild`` and ``router-mild-<t>`` to the model that a router chooses.

    It runs no cascade: for ``mild`` it asks the first expert of the first step, and a line of the log
    says so. ``mild-direct``, or ``MildPlugin(mild.load("router").direct)``, chooses without answers.

    In LiteLLM's proxy it is a callback; in a program, ``attach`` puts it into a ``litellm.Router``.

    Parameters
    ----------
    router : folder of a saved router, or a loaded one; its experts must be names of ``model_list``
    price_weight : of the price against the error; None for the router's own
    text : the router reads the last user message, or all of them

    Examples
    --------
    >>> from mild_gateway.demo import demo_router
    >>> plugin = MildPlugin(demo_router())
    >>> plugin.order("mild", [{"role": "user", "content": "What is 17 * 23?"}])[0]
    'rules'
    >>> plugin.order("gpt-5", [])
    ['gpt-5']
    """

    def __init__(
        self,
        router: str | os.PathLike[str] | Router,
        *,
        price_weight: float | None = None,
        text: Literal["last", "all"] = "last",
    ) -> None:
        super().__init__()
        if not isinstance(router, Router):
            router = load_router(Path(router).expanduser())
        if cascade_of(router) is not None:
            logger.warning(
                "this router is a cascade, which this plug-in does not run: the first expert of its "
                "first step is asked. Ask for mild-direct, or serve the router with mild serve."
            )
        self._selector = ExpertSelector(router, RoutingSettings(price_weight, text=text))
        self._text = text

    def order(self, model: str, content: object) -> list[str]:
        """Model names for a request, the one to ask first in front; the model itself if it is not mild's.

        ``content`` is the list of messages, the input of the Responses API, or a prompt.
        """
        selector = self._selector
        if not _is_routed(model):
            return [model]
        takes_weight = selector.fixed_weight_reason is None
        model_request = read_model(model, selector.names, takes_weight)
        selector.check_weight(model_request.price_weight)
        text = request_text({"input": content}, self._text)
        scores = selector.score(text, model_request.price_weight)
        experts = list(scores.order)
        cascade_plan = selector.cascade_plan(model_request, scores, {}, {})
        if cascade_plan is not None:
            experts = [*cascade_plan.first_step(), *experts]
        names = [configured_name(selector.names[k]) for k in experts]
        # Each name once, in this order.
        return list(dict.fromkeys(names))

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Called by LiteLLM's proxy before a request: replaces the model's name."""
        model = data.get("model")
        if isinstance(model, str) and _is_routed(model):
            try:
                data["model"] = self.order(model, _content(data))[0]
            except Refusal as refusal:
                raise HTTPException(refusal.status, refusal.message) from None
        return data

    def attach(self, router: Any) -> None:
        """Put the plug-in into a ``litellm.Router``. An expert without a free deployment is passed over.

        LiteLLM's ``fallbacks`` apply to the name that was asked for: ``[{"mild": ["large"]}]``.
        """
        names = dict.fromkeys(map(configured_name, self._selector.names))
        missing = [name for name in names if name not in router.get_model_names()]
        if missing:
            raise InvalidInputError(
                "model_list must have every expert of the router "
                f"({', '.join(names)}); {', '.join(missing)} is missing.",
                parameter="model_list",
            )
        router.set_custom_routing_strategy(_Strategy(self, router))


class _Strategy:
    """What ``litellm.Router`` calls to find a deployment (``CustomRoutingStrategyBase``)."""

    def __init__(self, plugin: MildPlugin, router: Any) -> None:
        self._plugin = plugin
        self._find = router.get_available_deployment
        self._find_async = router.async_get_available_deployment

    def get_available_deployment(
        self, model: str, messages: Any = None, input: Any = None, **more: Any
    ) -> Any:
        for name in self._plugin.order(model, messages or input):
            try:
                return self._find(model=name, messages=messages, input=input, **more)
            except ValueError as error:
                refused = error
        raise refused

    async def async_get_available_deployment(
        self, model: str, messages: Any = None, input: Any = None, **more: Any
    ) -> Any:
        for name in self._plugin.order(model, messages or input):
            try:
                return await self._find_async(model=name, messages=messages, input=input, **more)
            except ValueError as error:
                refused = error
        raise refused


def _is_routed(model: str) -> bool:
    return model in (ROUTER_MODEL, DIRECT_MODEL) or model.startswith("router-mild-")


def _content(data: Mapping[str, Any]) -> object:
    """The messages of a request, its input, or its prompt."""
    for key in ("messages", "input", "prompt"):
        if data.get(key):
            return data[key]
    return None
