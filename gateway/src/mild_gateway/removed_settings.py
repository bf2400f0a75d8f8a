"""Settings of ``mild.toml`` that 0.10 took away, and what to use instead.

``docs/development/migration.md`` shows the same rows; a test compares the two.
"""

from __future__ import annotations

#: (section, setting) -> what to do instead, as a sentence, sorted. The section is ``experts`` for that of
#: any expert and ``top level`` outside all sections.
REMOVED_SETTINGS: dict[tuple[str, str], str] = {
    ("access", "anonymous"): (
        "Requests without a key are counted under the name anonymous, the former default; "
        "a client that needs a name of its own gets a key."
    ),
    ("access", "lost_allowance"): (
        "While the store is lost, requests are refused and nothing is spent."
    ),
    ("access", "trust_loopback"): (
        "Use require_key = true: requests from this machine then have no privileges."
    ),
    ("access", "when_store_lost"): (
        "While the store is lost, requests are refused with 503 and Retry-After: "
        "nothing is spent that nobody can count."
    ),
    ("cascade", "stuck_after"): (
        "A cascade starts with its first step: repeated tool calls are rarely the "
        "expert's fault, and an answer that is not accepted goes one step further "
        "anyway."
    ),
    ("drift", "alpha"): (
        "Remove it: the probability of any false flag is 0.05, the former default."
    ),
    ("drift", "baseline"): (
        "Remove it: an expert is compared with its first 200 judged answers, the former default."
    ),
    ("drift", "novel_share"): (
        "Remove it: up to 0.05 of the queries may be novel, the former default."
    ),
    ("experts", "backoff_s"): (
        "`mild collect` begins with a pause of at most 0.5 s and doubles it after each "
        "failure; an endpoint that wants a longer pause says so in `Retry-After`."
    ),
    ("experts", "breaker"): (
        "After three failures in a row an expert is asked last for 30 seconds; it is "
        "never refused, so there is nothing to tune."
    ),
    ("experts", "command"): (
        "Serve the program behind `/v1/chat/completions` and give its address as "
        "`base_url`: the guide Collect outcomes shows how, in ten lines."
    ),
    ("experts", "concurrency"): ("Use `max_in_flight`."),
    ("experts", "connect_seconds"): (
        "It is 5 seconds: an endpoint that takes longer to connect is down, and slow "
        "answers have `first_byte_seconds`."
    ),
    ("experts", "connect_timeout_s"): (
        "Connecting may take 5 seconds: an endpoint that takes longer is down, and slow "
        "answers have `first_byte_seconds`."
    ),
    ("experts", "idle_seconds"): (
        "It is 60 seconds, as it was by default: `total_seconds` ends an answer that "
        "takes too long."
    ),
    ("experts", "json_schema"): (
        'Use `unsupported = ["json_schema"]`: one list says what an expert cannot do, '
        "and only a capability that is missing was ever declared."
    ),
    ("experts", "max_wait_s"): (
        "`mild collect` leaves an expert alone that asks for a pause of more than 120 "
        "s; the next run goes on."
    ),
    ("experts", "reasoning"): ('Use `unsupported = ["reasoning"]`.'),
    ("experts", "retries"): (
        "It is 1: after a second failure the next expert is asked; use `max_attempts` "
        "of `[routing]` for fewer attempts."
    ),
    ("experts", "samples"): (
        "Use `mild collect --samples NAME=COUNT`, in Python `collect_outcomes(..., "
        "samples={NAME: COUNT})`."
    ),
    ("experts", "temperature"): (
        "Use `extra = { temperature = 0.2 }`. It replaces the temperature of a request, "
        "so that an expert answers the gateway as it answered `mild collect`."
    ),
    ("experts", "timeout_s"): ("Use `total_seconds`."),
    ("experts", "tokens_per_minute"): (
        "Use `requests_per_minute`; what an endpoint refuses with status 429 is asked "
        "again after its pause."
    ),
    ("experts", "tools"): ('Use `unsupported = ["tools"]`.'),
    ("experts", "vision"): ('Use `unsupported = ["images"]`.'),
    ("grading", "answer_column"): (
        "Call the column `answer`, `target` or `gold`, as in every table that mild reads."
    ),
    ("grading", "explored_share"): (
        "Remove it: all answers whose expert was drawn are graded, the former default: "
        "they are few and tell most."
    ),
    ("grading", "max_tokens"): (
        "Remove it: the judge may answer with 1,024 tokens, the former default; a score "
        "needs fewer."
    ),
    ("grading", "query_column"): (
        "Call the column `query`, `prompt` or `question`, as in every table that mild reads."
    ),
    ("limits", "header_seconds"): (
        "Heads of requests have no time limit here; a reverse proxy has one "
        "(`client_header_timeout` in nginx)."
    ),
    ("limits", "keep_alive_seconds"): (
        "It is fixed to 75 s, longer than proxies keep a connection."
    ),
    ("limits", "max_bytes_in_flight"): (
        "The memory of bodies is at most `max_in_flight` times `max_body_bytes`; lower "
        "one of these."
    ),
    ("limits", "max_connections"): (
        "A reverse proxy limits connections; here `max_in_flight` limits requests, and "
        "4,096 connections, or four times `max_in_flight`, are a backstop."
    ),
    ("limits", "max_header_bytes"): (
        "A reverse proxy limits heads (`large_client_header_buffers` in nginx)."
    ),
    ("limits", "max_headers"): (
        "A reverse proxy limits heads (`large_client_header_buffers` in nginx)."
    ),
    ("limits", "max_unread_bytes"): (
        "An answer has at most 64 MB, and a reverse proxy reads it for slow clients."
    ),
    ("limits", "min_body_rate"): (
        "Use `body_seconds`, the time for a whole body; a reverse proxy can limit more "
        "(`client_body_timeout` in nginx)."
    ),
    ("routing", "cache_seconds"): (
        "A prompt cache is expected to last 300 seconds, the former default."
    ),
    ("routing", "fallback"): ("Use `max_attempts = 1`: then nobody else is asked."),
    ("routing", "max_sessions"): (
        "Each key has its newest 1,000 sessions, so that no key pushes out those of another."
    ),
    ("routing", "session_seconds"): (
        "A session is remembered for 3,600 seconds after its last request, longer than "
        "any prompt cache."
    ),
    ("routing.target", "save_dollars"): ("Use max_dollars, dollars per 1,000 requests."),
    ("routing.target", "strong_share"): (
        "Use max_dollars with prices of 0 for the weak and 1 for the strong expert in the table."
    ),
    ("top level", "litellm"): ("Run `mild import-litellm config.yaml > mild.toml`."),
    ("top level", "store_env"): ('Use store = "env:NAME".'),
    ("tracing", "enabled"): (
        "Name an `endpoint`, or use OpenTelemetry's own variables: "
        "`OTEL_TRACES_EXPORTER=otlp` sends spans and `OTEL_SDK_DISABLED=true` stops "
        "them."
    ),
    ("tracing", "sample"): (
        "Set OpenTelemetry's own variables, "
        "`OTEL_TRACES_SAMPLER=parentbased_traceidratio` and "
        "`OTEL_TRACES_SAMPLER_ARG=0.1`."
    ),
}


def removal_message(section: str, setting: str) -> str | None:
    """The sentence about a removed setting, or None if the section never had one of that name."""
    instead = REMOVED_SETTINGS.get((section, setting))
    if instead is None:
        return None
    return f"{setting} was removed in mild 0.10. {instead}"
