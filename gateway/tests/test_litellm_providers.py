"""LiteLLM's names of models as endpoints."""

from __future__ import annotations

import pytest

from mild_gateway.litellm_config import Endpoint, endpoint_of


@pytest.mark.parametrize(
    ("model", "base", "found"),
    [
        ("gpt-4o", None, Endpoint("https://api.openai.com/v1", "gpt-4o", "OPENAI_API_KEY")),
        ("groq/llama", None, Endpoint("https://api.groq.com/openai/v1", "llama", "GROQ_API_KEY")),
        (
            "claude-3",
            None,
            Endpoint("https://api.anthropic.com/v1", "claude-3", "ANTHROPIC_API_KEY", "anthropic"),
        ),
        ("anthropic/a", "http://x", Endpoint("http://x/v1", "a", api="anthropic")),
        ("anthropic/a", "http://x/v1/messages", Endpoint("http://x/v1", "a", api="anthropic")),
        ("openai/a/b", "http://x/v1", Endpoint("http://x/v1", "a/b")),
        ("my-model", "http://x/v1", Endpoint("http://x/v1", "my-model")),
        ("gpt-4o", "http://x/v1", Endpoint("http://x/v1", "gpt-4o")),
        ("claude-3", "http://x/v1", Endpoint("http://x/v1", "claude-3")),
        ("meta-llama/Llama-3", "http://x/v1", Endpoint("http://x/v1", "meta-llama/Llama-3")),
        ("ollama_chat/q", "http://x:1", Endpoint("http://x:1/v1", "q")),
        ("ollama/q", "http://x:1/v1/", Endpoint("http://x:1/v1", "q")),
    ],
)
def test_the_endpoint_is_found(model, base, found):
    assert endpoint_of(model, base) == found


@pytest.mark.parametrize(
    ("model", "base", "why"),
    [
        ("azure/a", "http://x", "azure has a protocol of its own"),
        ("gemini/a", "http://x", "gemini has a protocol of its own"),
        ("hosted_vllm/a", None, "no api_base"),
        ("unknown/a", None, "provider is not known"),
        ("llama", None, "provider is not known"),
    ],
)
def test_why_there_is_none_is_said(model, base, why):
    found = endpoint_of(model, base)
    assert isinstance(found, str)
    assert why in found
