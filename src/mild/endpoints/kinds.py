"""Kinds of experts: a model behind an endpoint, and a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mild.endpoints.prices import Price

__all__ = ["CommandExpert", "Expert", "HttpExpert"]


@dataclass(frozen=True, kw_only=True)
class Expert:
    """What every expert has: a name, a price, limits."""

    name: str
    price: Price
    concurrency: int = 4
    requests_per_minute: float | None = None
    timeout_s: float = 120.0
    retries: int = 5
    backoff_s: float = 0.5
    max_wait_s: float = 120.0

    def request(self, prompt: str) -> dict[str, Any]:
        """All that decides an answer, ready for JSON; the secret and the limits are no part of it."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class HttpExpert(Expert):
    """A model behind an OpenAI-compatible chat endpoint."""

    base_url: str
    model: str
    api_key_env: str | None = None
    api_key_header: str = "Authorization"
    system: str | None = None
    max_tokens: int = 512
    max_tokens_field: str = "max_tokens"
    temperature: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    tokens_per_minute: float | None = None
    connect_timeout_s: float = 10.0

    @property
    def url(self) -> str:
        """Where chats are completed."""
        return self.base_url.rstrip("/") + "/chat/completions"

    def request(self, prompt: str) -> dict[str, Any]:
        """Address and body."""
        messages = [{"role": "user", "content": prompt}]
        if self.system is not None:
            messages.insert(0, {"role": "system", "content": self.system})
        body: dict[str, Any] = {"model": self.model, "messages": messages}
        body[self.max_tokens_field] = self.max_tokens
        if self.temperature is not None:
            body["temperature"] = self.temperature
        return {"url": self.url, "body": body | dict(self.extra)}


@dataclass(frozen=True, kw_only=True)
class CommandExpert(Expert):
    """A program that reads the query on stdin and answers on stdout."""

    command: tuple[str, ...]
    # A program that was changed is another expert.
    files: tuple[str, ...] = ()

    def request(self, prompt: str) -> dict[str, Any]:
        """Command, its files and what it reads."""
        return {"command": list(self.command), "files": list(self.files), "stdin": prompt}
