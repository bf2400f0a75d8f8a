"""Every code with which the gateway refuses a request: status, code, cause and remedy.

docs/reference/gateway-errors.md is made of this table; a test compares it with the codes in the source.
"""

from __future__ import annotations

from typing import NamedTuple


class ErrorCode(NamedTuple):
    """What a code means. ``status`` is "4xx" where the expert's own status is passed on."""

    status: str
    code: str
    cause: str
    remedy: str


_RETRY = "Send the request again after `Retry-After`."
_RETRY_LATER = "Send the request again later."

ERROR_CODES = tuple(
    ErrorCode(*line)
    for line in (
        # The protocol.
        ("400", "invalid_host", "The header `Host` is missing, malformed or given twice.",
         "Send one `Host`."),
        ("408", "request_timeout", "The body took longer than `body_seconds`.",
         "Send it faster, or raise the limit in `[limits]`."),
        ("413", "request_too_large", "The body is longer than `max_body_bytes`.",
         "Shorten it, or raise the limit in `[limits]`."),
        # The request.
        ("400", "invalid_body", "The body is not a JSON object in UTF-8, or is nested too deeply. Where a "
         "request is translated, also a number that is not finite.", "Correct the body."),
        ("400", "duplicate_key", "An object in the body has a key twice: endpoints differ in which of the "
         "two values they take.", "Remove one of the two."),
        ("400", "invalid_type", "A field has another type than the API says, such as `stream: \"yes\"`.",
         "Correct the field that `param` names."),
        ("400", "invalid_field", "A field of the API is written in another case, such as `Max_Tokens`: "
         "endpoints differ in whether they take it.", "Correct the field that `param` names."),
        ("400", "missing_required_parameter", "`messages`, `prompt`, `input`, or `max_tokens` of "
         "`/v1/messages` is missing.", "Add the field that `param` names."),
        ("400", "model_missing", "`model` is missing or is not text.",
         "Ask for `mild` or for an expert."),
        ("404", "model_not_found", "There is no such model.", "Use a name of `GET /v1/models`."),
        ("404", "not_found", "There is no such path.", "Use a path of the HTTP API, spelled exactly."),
        ("405", "method_not_allowed", "The path takes another method.",
         "Use the method that `Allow` names."),
        ("400", "invalid_price_weight", "In `router-mild-<t>`, t is not a number from 0 to 1e12.",
         "Correct the number."),
        ("400", "price_weight_not_supported", "`router-mild-<t>` needs a router with separate error and "
         "price heads.", "Fit one with `mild tune` on a table with prices, or ask for `mild`."),
        ("400", "invalid_deadline", "`x-mild-deadline` is not a number of seconds above 0.",
         "Correct the header."),
        ("400", "unsupported_field", "A field cannot be translated into the API of any expert.",
         "Leave the field out, or add an expert that speaks the client's API."),
        ("400", "unknown_field", "A request that has to be translated has an unknown field.",
         "Leave the field out, or add an expert that speaks the client's API."),
        ("400", "unsupported_content", "Content cannot be translated, such as audio.",
         "Send text or images, or add an expert that speaks the client's API."),
        ("400", "unsupported_tool", "A request that has to be translated has a tool that is not a "
         "function.",
         "Use functions, or add an expert that speaks the client's API."),
        ("400", "unsupported_endpoint", "The API of this expert has no embeddings.",
         "Ask another expert."),
        ("400", "embeddings_unsupported", "The expert has no `embeddings = true`, or `mild` was "
         "asked and "
         "several experts have it.", "Name an expert with `embeddings = true`."),
        ("400", "no_capable_expert", "No expert can serve the request: its images, tools, schema or "
         "length. "
         "The message has the reason for each expert.", "Change the request, or add an expert."),
        ("400", "uncountable_input", "A budget applies, the request has input whose tokens cannot be "
         "counted (a document, a recording, an image by address, a hosted tool, or what the endpoint "
         "keeps), and the expert has no `context`.", "Set `context`, or send text."),
        ("400", "unpriced_service", "A budget applies, and `service_tier`, `speed` or `inference_geo` "
         "chooses a service with a price of its own.", "Leave the field out, or name an expert that has "
         "it in `extra`, with its prices."),
        ("400", "field_not_allowed", "A budget applies, and nobody knows what the field or tool that "
         "`param` names may cost: other models, searches, or a field that is not of the API.",
         "Leave it out, or list it in the expert's `allow_fields`."),
        # Feedback.
        ("400", "invalid_feedback", "Feedback has no `request_id`, not exactly one of `score` and "
         "`correct`, or a score outside [0, 1].", "Correct the body."),
        ("403", "foreign_request", "The request belongs to another key.",
         "Use the key that made the request."),
        ("404", "unknown_request", "The ledger does not have the request, or no longer.",
         "Send the value of `x-mild-request-id`, within `keep_days`."),
        ("409", "no_answer", "The request has no answer that can be judged.",
         "Judge answered requests only."),
        ("501", "no_ledger", "The gateway has no ledger.", "Set `enabled = true` in `[ledger]`."),
        ("503", "ledger_unavailable", "The ledger cannot be used, so the feedback was not written.",
         _RETRY_LATER),
        # Access.
        ("401", "invalid_api_key", "The key is missing, unknown or revoked.",
         "Send a key of `mild keys add`."),
        ("402", "insufficient_quota", "A budget has too little left. The message says when it renews.",
         "Wait, lower `max_tokens`, or raise the budget."),
        ("403", "admin_key_required", "The metrics, or the figures of the dashboard, need an admin key.",
         "Create one with `mild keys add NAME --admin`."),
        ("403", "cross_site_request", "A web page of another site asks a gateway without keys.",
         "Name its origin in `cors_origins`."),
        ("403", "unknown_host", "A foreign `Host` at a gateway without keys on loopback.",
         "Use localhost, or set `require_key = true` behind a proxy."),
        ("429", "budget_held", "Running requests hold the rest of a budget.", _RETRY),
        ("429", "rate_limit_exceeded", "The key has no requests per minute left; of feedback it may send "
         "600 a minute.", _RETRY),
        ("503", "store_unavailable", "The store of keys and budgets cannot be reached.", _RETRY),
        # Load.
        ("429", "overloaded", "`max_in_flight` requests are running, or half of that are of this key and "
         "there are others, the experts are full, or too many decisions wait to be explained.", _RETRY),
        # Experts.
        ("400", "expert_unsupported", "The expert does not support something in the request.",
         "Change the request, or ask another expert."),
        ("4xx", "client_error", "The expert refused the request and did not say why in JSON.",
         "Correct the request."),
        ("429", "expert_rate", "The experts limit their rate.", _RETRY),
        ("502", "expert_connect", "The expert cannot be reached.", "Check `base_url` with `mild check`."),
        ("502", "expert_credentials", "The expert refused the gateway's key, or has no such model "
         "or path.",
         "Check key, `base_url` and `model` with `mild check`."),
        ("502", "expert_cut", "The expert broke off its answer.", _RETRY_LATER),
        ("502", "expert_garbled", "The expert's answer breaks the protocol: bad chunks, a wrong "
         "length, a "
         "redirect, a compressed or endless body.", "Check that `base_url` is an API endpoint."),
        ("502", "expert_server", "The expert answered with a server error.", _RETRY_LATER),
        ("502", "stream_broken", "In an `error` event: the stream broke off after its first byte.",
         _RETRY_LATER),
        ("504", "expert_timeout", "The expert did not answer in time.",
         "Send the request again, or raise the expert's time limits."),
        ("504", "total_timeout", "The request with all its attempts took too long.",
         "Send the request again, or raise `total_seconds` in `[limits]`."),
        ("500", "internal_error", "An error in the gateway.", "Report it with the line of the log."),
    )
)  # fmt: skip
