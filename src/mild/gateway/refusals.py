"""Answers that refuse a request, in OpenAI's or Anthropic's shape, so that clients know them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from mild.endpoints.translation import anthropic_error
from mild.errors import MildError

__all__ = ["Refusal"]

# OpenAI's word for what kind of error a status is, where nothing else is said.
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
}


class Refusal(MildError):  # noqa: N818 - it is an answer, not a failure
    """A request that is not served, with everything that the answer says.

    Parameters
    ----------
    status : HTTP status
    message : one sentence for the person who reads it; never a secret
    kind : OpenAI's ``type``; by default what goes with the status
    code : OpenAI's ``code``, a word for programs
    param : the request field that is meant
    retry_after : seconds until it may work, sent as ``Retry-After`` in whole seconds, rounded up
    headers : more response headers

    Examples
    --------
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
        kind: str | None = None,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or _KINDS.get(status) or _kind_of(status)
        self.code = code
        self.param = param
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after)))

    def document(self, path: str = "") -> dict[str, Any]:
        """The error as the API of a path writes it; also what an ``error`` event of a stream holds."""
        if path.endswith("/messages"):
            return anthropic_error(self.status, self.message, self.code)
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def body(self, path: str = "") -> bytes:
        """The document as JSON in plain ASCII."""
        return json.dumps(self.document(path)).encode("ascii")


def _kind_of(status: int) -> str:
    return "server_error" if status >= 500 else "invalid_request_error"
