"""OpenTelemetry traces: a span per request with the decision, and a child span per attempt at an expert.

Names follow the GenAI semantic conventions; what they have no name for begins with ``mild.``. Texts of
requests and answers are never recorded.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mild.errors import MissingExtraError, install_hint
from mild_gateway._version import __version__
from mild_gateway.config import TracingSettings

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

    from mild_gateway.experts.expert import Expert
    from mild_gateway.ledger.records import Record
    from mild_gateway.selection.selector import Selection

# Names that the semantic conventions have for what an endpoint does; the others are a chat.
_OPERATIONS = {"/completions": "text_completion", "/embeddings": "embeddings"}
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
# Seconds at the end for spans that were not sent yet.
FLUSH_SECONDS = 3.0

logger = logging.getLogger("mild_gateway")


def is_enabled(settings: TracingSettings, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether spans are sent: the file names an endpoint, or the standard variables ask for them."""
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter == "none":
        return False
    if settings.endpoint is not None or exporter == "otlp":
        return True
    return any(environment.get(name) for name in _ENDPOINTS)


def open_tracing(settings: TracingSettings) -> Tracing | None:
    """Tracing as the settings and the variables ``OTEL_*`` say; None where it is off.

    MissingExtraError if the file names an endpoint and the extra ``otel`` is missing. Where only the
    variables ask for traces, that is logged, because they may be meant for other programs.
    """
    if not is_enabled(settings):
        return None
    try:
        exporter = import_exporter()
    except MissingExtraError as error:
        if settings.endpoint is not None:
            raise
        logger.warning("the OTEL_* variables ask for traces, but none are sent: %s", error)
        return None
    # A line per failure is enough; the exporter logs every retry, too.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.ERROR)
    return Tracing(make_provider(exporter(endpoint=settings.endpoint)))


def import_exporter() -> type[OTLPSpanExporter]:
    """The exporter of spans; MissingExtraError without the extra ``otel``."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        hint = install_hint("otel", "mild-gateway")
        raise MissingExtraError(f"traces need OpenTelemetry; install it with: {hint}") from error
    return OTLPSpanExporter


def make_provider(exporter: SpanExporter) -> TracerProvider:
    """A provider that sends to the exporter in batches, from a thread of its own.

    Which requests are traced is up to ``OTEL_TRACES_SAMPLER``, by default all.
    """
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    service: dict[str, Any] = {"service.version": __version__}
    # The SDK reads the name from these; what is given here would replace it.
    if "OTEL_SERVICE_NAME" not in os.environ and "service.name" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        service["service.name"] = "mild"
    provider = TracerProvider(resource=Resource.create(service), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


class Tracing:
    """Makes the traces of requests with a provider of spans."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self.tracer = provider.get_tracer("mild_gateway", __version__)
        self.propagator = TraceContextTextMapPropagator()

    def start(self, endpoint: str, headers: Mapping[str, str], start: float) -> RequestTrace:
        """Begin the span of a request, below the one in its ``traceparent``.

        ``start`` is when the request came, by ``time.perf_counter()``.
        """
        from opentelemetry.trace import SpanKind

        operation = _OPERATIONS.get(endpoint, "chat")
        began = time.time_ns() - int((time.perf_counter() - start) * 1e9)
        parent = self.propagator.extract(headers)
        span = self.tracer.start_span(operation, parent, SpanKind.SERVER, start_time=began)
        return RequestTrace(self, span, operation)

    def close(self) -> None:
        """Send what is left, for a few seconds at most: the exporter would retry for longer."""
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(FLUSH_SECONDS)


class RequestTrace:
    """The span of one request, and of the attempt that is under way."""

    def __init__(self, tracing: Tracing, span: Span, operation: str) -> None:
        self._tracing = tracing
        self._span = span
        self._operation = operation
        self._attempt: Span | None = None
        self.attempts = 0

    def start_attempt(self, expert: Expert, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Begin an attempt; the headers to send, with its ``traceparent``."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        self.attempts += 1
        address = urlsplit(expert.base_url)
        port = address.port
        if not port:
            port = 80
            if address.scheme == "https":
                port = 443
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": self._operation,
            "gen_ai.provider.name": expert.api,
            "gen_ai.request.model": expert.model,
            "server.address": address.hostname or "",
            "server.port": port,
            "mild.expert": expert.name,
            "mild.attempt": self.attempts,
        }
        self._attempt = self._tracing.tracer.start_span(
            f"{self._operation} {expert.model}",
            set_span_in_context(self._span),
            SpanKind.CLIENT,
            attributes,
        )
        sent = {name: value for name, value in headers.items() if name != "tracestate"}
        self._tracing.propagator.inject(sent, set_span_in_context(self._attempt))
        return sent

    def branch(self) -> RequestTrace:
        """For the attempts of a call that is made while others are."""
        return RequestTrace(self._tracing, self._span, self._operation)

    def end_attempt(self, attributes: Mapping[str, Any], error: str | None = None) -> None:
        """End the attempt that is under way, if there is one."""
        if self._attempt is not None:
            self._attempt.set_attributes(_known(attributes))
            if error is not None:
                _set_error(self._attempt, error)
            self._attempt.end()
            self._attempt = None

    def finish(self, record: Record, selection: Selection | None) -> None:
        """End the request, and the attempt that answered it."""
        usage = _known(
            {
                "gen_ai.usage.input_tokens": record.tokens_in,
                "gen_ai.usage.output_tokens": record.tokens_out,
                "http.response.status_code": record.status,
            }
        )
        failed = record.outcome in ("cut", "failed")
        error = record.error or record.outcome
        if failed:
            self.end_attempt(usage, error)
        else:
            self.end_attempt(usage)
        span = self._span
        if span.is_recording():
            span.update_name(f"{self._operation} {record.asked}")
            span.set_attributes(usage | _request_attributes(record) | _decision(selection))
            span.set_attribute("gen_ai.operation.name", self._operation)
            if failed or record.outcome == "refused":
                # 4xx is an error of whoever asked.
                _set_error(span, error, ours=record.outcome == "cut" or record.status >= 500)
        span.end()


def _request_attributes(record: Record) -> dict[str, Any]:
    return _known(
        {
            "gen_ai.provider.name": "mild",
            "gen_ai.request.model": record.asked,
            "gen_ai.response.model": record.expert,
            "gen_ai.conversation.id": record.session,
            "mild.request.id": record.request_id,
            "mild.key": record.key,
            "mild.router": record.router,
            "mild.outcome": record.outcome,
            "mild.attempts": record.attempts,
            "mild.streamed": record.streamed,
            "mild.price": record.price,
            "mild.overhead_ms": record.overhead_ms,
            "mild.first_byte_ms": record.first_byte_ms,
        }
    )


def _decision(selection: Selection | None) -> dict[str, Any]:
    """The decision as attributes; expected costs by expert are two lists of one order."""
    if selection is None:
        return {}
    if selection.chosen is None:
        reason = "named"
    elif selection.pinned_by is not None:
        reason = "session"
    elif selection.explored:
        reason = "explored"
    else:
        reason = "router"
    expected = selection.expected or {}
    return _known(
        {
            "mild.decision.reason": reason,
            "mild.decision.expert": selection.chosen or selection.order[0],
            "mild.decision.order": selection.order,
            "mild.decision.propensity": selection.propensity,
            "mild.decision.experts": list(expected) or None,
            "mild.decision.expected_costs": list(expected.values()) or None,
        }
    )


def _known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _set_error(span: Span, kind: str, *, ours: bool = True) -> None:
    from opentelemetry.trace import StatusCode

    # A kind is one word; what follows it is for the operator.
    span.set_attribute("error.type", kind.partition(":")[0])
    if ours:
        span.set_status(StatusCode.ERROR)
