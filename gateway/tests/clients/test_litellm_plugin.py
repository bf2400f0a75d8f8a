"""The plug-in inside LiteLLM: its Router, and its proxy in a process of its own."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from clients.client_cases import FACT, SUM

litellm = pytest.importorskip("litellm")

from mild_gateway.demo import demo_router  # noqa: E402
from mild_gateway.litellm_plugin import MildPlugin  # noqa: E402

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "from-litellm.md"
NAMES = ("smollm2", "gemma3", "rules")


def deployment(name, **more):
    params = {"model": f"openai/{name}", "api_key": "none", "mock_response": f"from {name}", **more}
    return {"model_name": name, "litellm_params": params}


def user(text):
    return [{"role": "user", "content": text}]


def said(answer):
    return answer.choices[0].message.content


@pytest.fixture
def router():
    made = litellm.Router(model_list=[deployment(name) for name in NAMES], num_retries=0)
    MildPlugin(demo_router()).attach(made)
    return made


def test_the_router_asks_the_expert_that_mild_chooses(router):
    assert said(router.completion(model="mild", messages=user(SUM))) == "from rules"
    assert said(router.completion(model="mild", messages=user(FACT))) == "from gemma3"
    assert said(router.completion(model="smollm2", messages=user(SUM))) == "from smollm2"
    answer = asyncio.run(router.acompletion(model="mild", messages=user(SUM)))
    assert said(answer) == "from rules"
    cheap = router.completion(model="router-mild-10000000", messages=user(FACT))
    assert said(cheap) == "from rules"


def test_streams_are_routed(router):
    async def ask():
        stream = await router.acompletion(model="mild", messages=user(SUM), stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(ask()) == "from rules"


def test_fallbacks_are_litellms():
    failing = deployment("rules", mock_response="litellm.InternalServerError")
    made = litellm.Router(
        model_list=[deployment("smollm2"), deployment("gemma3"), failing],
        num_retries=0,
        fallbacks=[{"mild": ["smollm2"]}],
    )
    MildPlugin(demo_router()).attach(made)
    answer = asyncio.run(made.acompletion(model="mild", messages=user(SUM)))
    assert said(answer) == "from smollm2"


def test_an_expert_that_cools_down_is_passed_over():
    failing = deployment("rules", mock_response="litellm.RateLimitError")
    made = litellm.Router(
        model_list=[deployment("smollm2"), deployment("gemma3"), failing],
        num_retries=0,
        allowed_fails=0,
        cooldown_time=60,
    )
    plugin = MildPlugin(demo_router())
    plugin.attach(made)
    second = plugin.order("mild", user(SUM))[1]

    async def ask():
        with pytest.raises(litellm.RateLimitError):
            await made.acompletion(model="mild", messages=user(SUM))
        return await made.acompletion(model="mild", messages=user(SUM))

    assert said(asyncio.run(ask())) == f"from {second}"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """Address of LiteLLM's proxy with the files of the documentation."""
    pytest.importorskip("litellm.proxy.proxy_server")
    folder = tmp_path_factory.mktemp("proxy")
    page = PAGE.read_text(encoding="utf-8")
    (plugin,) = re.findall(r"```python\n(# mild_plugin\.py\n.*?)```", page, re.DOTALL)
    (config,) = re.findall(r"```yaml\n(# config\.yaml\n.*?)```", page, re.DOTALL)
    (folder / "mild_plugin.py").write_text(plugin)
    # The endpoints of the page are not there: the answers are LiteLLM's.
    config = re.sub(r"api_base: .*", "mock_response: from somebody", config)
    config = re.sub(r"api_key: .*", "api_key: none", config)
    for name in NAMES:
        config = re.sub(
            rf"(model_name: {name}\n.*?mock_response: from) somebody",
            rf"\1 {name}",
            config,
            flags=re.DOTALL,
        )
    (folder / "config.yaml").write_text(config)
    _save_demo_router(folder / "router")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from litellm import run_server; run_server()"]
    process = subprocess.Popen(
        [*command, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)],
        cwd=folder,
        env={**os.environ, "LITELLM_MASTER_KEY": "sk-master", "LITELLM_TELEMETRY": "False"},
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            assert process.poll() is None, "the proxy ended"
            try:
                urllib.request.urlopen(f"{url}/health/live", timeout=5)
                break
            except OSError:
                time.sleep(0.5)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _save_demo_router(folder):
    from mild.artifact import save

    save(demo_router(), folder)


def post(url, document):
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(document).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer sk-master"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def test_the_proxy_of_the_documentation_routes(proxy):
    assert post(proxy, {"model": "mild", "messages": user(SUM)}) == "from rules"
    assert post(proxy, {"model": "mild", "messages": user(FACT)}) == "from gemma3"
    assert post(proxy, {"model": "smollm2", "messages": user(SUM)}) == "from smollm2"


def test_a_weight_that_is_no_number_is_refused_by_the_proxy(proxy):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(proxy, {"model": "router-mild-x", "messages": user(SUM)})
    assert caught.value.code == 400
