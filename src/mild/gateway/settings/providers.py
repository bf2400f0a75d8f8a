"""Providers by LiteLLM's names: which of them speak OpenAI's protocol, and where."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Endpoint", "endpoint_of"]

# Address and variable of the key, as LiteLLM knows them.
_PUBLIC = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "text-completion-openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "together_ai": ("https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY"),
    "fireworks_ai": ("https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY"),
    "perplexity": ("https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"),
    "cerebras": ("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
}
# At their own address these speak OpenAI's protocol too; at another one LiteLLM means theirs.
_TRANSLATED = {
    "anthropic": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "gemini": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
}
# Servers that people run themselves.
_PRIVATE = (
    "hosted_vllm",
    "vllm",
    "custom_openai",
    "openai_like",
    "lm_studio",
    "llamafile",
    "litellm_proxy",
)
_OLLAMA = ("ollama", "ollama_chat")
_FOREIGN = (
    "azure",
    "azure_ai",
    "azure_text",
    "bedrock",
    "cloudflare",
    "cohere",
    "cohere_chat",
    "databricks",
    "huggingface",
    "oobabooga",
    "predibase",
    "replicate",
    "sagemaker",
    "sagemaker_chat",
    "snowflake",
    "triton",
    "vertex_ai",
    "vertex_ai_beta",
    "watsonx",
    "watsonx_text",
)
_BARE = (("openai", ("gpt-", "o1", "o3", "o4", "chatgpt-")), ("anthropic", ("claude-",)))


@dataclass(frozen=True)
class Endpoint:
    """Where a model is asked: address, its name there, and the usual variable of the key."""

    base_url: str
    model: str
    variable: str | None = None


def endpoint_of(model: str, base: str | None) -> Endpoint | str:
    """The endpoint of LiteLLM's ``model`` and ``api_base``, or why there is none.

    Examples
    --------
    >>> endpoint_of("openai/gpt-4o", None)
    Endpoint(base_url='https://api.openai.com/v1', model='gpt-4o', variable='OPENAI_API_KEY')
    >>> endpoint_of("openai/facebook/opt-125m", "http://127.0.0.1:8000/v1/")
    Endpoint(base_url='http://127.0.0.1:8000/v1', model='facebook/opt-125m', variable=None)
    >>> endpoint_of("bedrock/titan", None)
    'bedrock speaks a protocol of its own: name a LiteLLM proxy in front of it as api_base'
    """
    provider, slash, name = model.partition("/")
    address = None if base is None else base.rstrip("/")
    if not slash:
        provider, name = _provider_of(model), model
    own = (
        f"{provider} speaks a protocol of its own: name a LiteLLM proxy in front of it as api_base"
    )
    if provider in _FOREIGN or (provider in _TRANSLATED and address is not None and slash):
        return own
    if provider in _OLLAMA:
        address = address or "http://127.0.0.1:11434"
        return Endpoint(address if address.endswith("/v1") else f"{address}/v1", name)
    if (provider in _PUBLIC and address is not None) or provider in _PRIVATE:
        # A provider's key is sent to that provider alone.
        return Endpoint(address, name) if address is not None else "it has no api_base"
    if provider in _PUBLIC or (provider in _TRANSLATED and address is None):
        url, variable = (_PUBLIC | _TRANSLATED)[provider]
        return Endpoint(url, name, variable)
    if address is not None:
        return Endpoint(address, model)
    return "its provider is not known, and it has no api_base"


def _provider_of(model: str) -> str:
    """Provider of a name without one, by how it begins."""
    return next((name for name, starts in _BARE if model.startswith(starts)), "")
