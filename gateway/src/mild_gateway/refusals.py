"""Answers that refuse a request, in OpenAI's or Anthropic's shape, so that clients know them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from mild.errors import MildError
from mild_gateway.experts.translation.answers import anthropic_error

# OpenAI's word for what kind of error a status is; others are invalid requests or server errors.
_KINDS = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    408: "timeout_error",
    429: "rate_limit_error",
}


class Refusal(MildError):  # noqa: N818 - it is an answer, not a failure
    """A request that is not served, with everything that the answer says; the message is no secret.

    ``kind``, ``code`` and ``param`` are OpenAI's ``type``, ``code`` and ``param``. ``retry_after`` is
    sent in whole seconds, rounded up.

    >>> refusal = Refusal(429, "Too many requests.", code="rate_limit_exceeded", retry_after=0.2)
    >>> refusal.kind, refusal.headers
    ('rate_limit_error', {'Retry-After': '1'})
    >>> Refusal(400, "Not JSON.").body()
    b'{"error": {"message": "Not JSON.", "type": "invalid_request_error", "param": null, "code": null}}'
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        other_kind = "invalid_request_error"
        if status >= 500:
            other_kind = "server_error"
        self.kind = _KINDS.get(status, other_kind)
        self.code = code
        self.param = param
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after)))

    def document(self, path: str = "") -> dict[str, Any]:
        """The error as the API of a path writes it; also what an ``error`` event of a stream holds."""
        if f"{path}/".removeprefix("/v1").startswith("/messages/"):
            return anthropic_error(self.status, self.message, self.code)
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}

    def body(self, path: str = "") -> bytes:
        """The document as JSON in plain ASCII."""
        return json.dumps(self.document(path)).encode("ascii")
