"""Spans of requests and attempts, as OpenTelemetry's exporters get them."""

import asyncio
import logging
import sys
import threading

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import ask, cascade_router, chat, expert, gateway, priced_router, solo
from mild.errors import MissingExtraError
from mild_gateway.config import AccessSettings, TracingSettings
from mild_gateway.tracing import Tracing, is_enabled, make_provider, open_tracing
from process_cases import served, write_files
from waiting import PATIENCE

memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
QUIET = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


class Traced:
    """Tracing whose finished spans can be looked at."""

    def __init__(self):
        self._exporter = memory.InMemorySpanExporter()
        self.provider = make_provider(self._exporter)
        self.tracing = Tracing(self.provider)

    def spans(self):
        """The attempts, then the request, with names of attributes as keys."""
        self.provider.force_flush()
        return self._exporter.get_finished_spans()


def serve(scripts, *documents, headers=None, expert_options=None, **options):
    """Finished spans, the ledger's rows, and what the experts got, after these requests."""
    traced = Traced()

    async def run():
        async with FakeUpstream(**scripts[0]) as first, FakeUpstream(**scripts[-1]) as second:
            more = expert_options or {}
            experts = [expert("small", first, **more), expert("large", second, **more)]
            async with gateway(experts, tracing=traced.tracing, **options) as g:
                answers = [await ask(g.port, document, **(headers or {})) for document in documents]
                spans = traced.spans()
                return answers, spans, g.ledger.records, (first, second)

    return asyncio.run(run())


def test_a_request_is_one_span_with_the_decision_and_one_below_it_for_the_attempt():
    router = priced_router(errors=(0.1, 0.5), prices=(0.01, 0.01))
    _, (attempt, request), (record,), (up, _) = serve(
        [{}], chat(user="conversation"), router=router
    )
    assert (request.name, request.kind) == ("chat mild", trace.SpanKind.SERVER)
    assert (attempt.name, attempt.kind) == ("chat small-model", trace.SpanKind.CLIENT)
    assert request.parent is None
    assert attempt.parent.span_id == request.context.span_id
    found = dict(request.attributes)
    costs = found.pop("mild.decision.expected_costs")
    assert costs == pytest.approx((0.11, 0.51))
    times = [found.pop(f"mild.{name}_ms") for name in ("overhead", "first_byte")]
    assert all(value >= 0 for value in times)
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mild",
        "gen_ai.request.model": "mild",
        "gen_ai.response.model": "small",
        "gen_ai.conversation.id": record.session,
        "gen_ai.usage.input_tokens": record.tokens_in,
        "gen_ai.usage.output_tokens": record.tokens_out,
        "http.response.status_code": 200,
        "mild.request.id": record.request_id,
        "mild.key": "anonymous",
        "mild.router": record.router,
        "mild.outcome": "ok",
        "mild.attempts": 1,
        "mild.streamed": False,
        "mild.decision.reason": "router",
        "mild.decision.expert": "small",
        "mild.decision.order": ("small", "large"),
        "mild.decision.experts": ("small", "large"),
        "mild.decision.propensity": 1.0,
    }
    assert dict(attempt.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small-model",
        "gen_ai.usage.input_tokens": record.tokens_in,
        "gen_ai.usage.output_tokens": record.tokens_out,
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": int(up.base_url.split(":")[2].split("/")[0]),
        "mild.expert": "small",
        "mild.attempt": 1,
    }
    assert request.start_time <= attempt.start_time < attempt.end_time <= request.end_time
    assert request.resource.attributes["service.name"] == "mild"


def test_texts_are_not_recorded():
    _, spans, _, _ = serve([{}], chat("a secret question", user="alice@example.com"))
    told = " ".join(span.to_json() for span in spans)
    for word in ("secret", "alice", "one two three"):
        assert word not in told


@pytest.mark.usefixtures("no_retry")
def test_every_attempt_has_its_span_and_the_failed_ones_their_error():
    _, (failed, won, request), _, _ = serve([{"script": ["500"]}, {}], chat())
    assert [span.attributes["mild.expert"] for span in (failed, won)] == ["small", "large"]
    assert [span.attributes["mild.attempt"] for span in (failed, won)] == [1, 2]
    assert failed.attributes["error.type"] == "server"
    assert failed.attributes["http.response.status_code"] == 500
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert won.status.status_code is trace.StatusCode.UNSET
    assert request.attributes["gen_ai.response.model"] == "large"
    assert request.attributes["mild.decision.expert"] == "small"
    assert "error.type" not in request.attributes


@pytest.mark.usefixtures("no_retry")
def test_a_request_that_nobody_answers_is_an_error():
    _, (*attempts, request), (record,), _ = serve([{"script": ["500"] * 2}], chat())
    assert len(attempts) == 2
    assert request.attributes["error.type"] == record.error == "expert_server"
    assert request.attributes["http.response.status_code"] == 502
    assert request.status.status_code is trace.StatusCode.ERROR
    assert "gen_ai.response.model" not in request.attributes


def test_a_stream_that_breaks_off_is_an_error_of_both_spans():
    _, (attempt, request), (record,), _ = serve([{"script": ["cut"]}], chat(stream=True))
    assert (record.outcome, request.attributes["mild.outcome"]) == ("cut", "cut")
    for span in (attempt, request):
        assert span.attributes["error.type"] == "cut"
        assert span.status.status_code is trace.StatusCode.ERROR


def test_a_refusal_is_not_an_error_of_the_gateway():
    _, (request,), (record,), _ = serve(
        [{}],
        chat(),
        access_settings=AccessSettings(budget_day=1e-9),
        expert_options={"price_in": 1.0, "price_out": 1.0},
    )
    assert request.attributes["mild.outcome"] == record.outcome == "refused"
    assert request.attributes["error.type"] == record.error
    assert request.status.status_code is trace.StatusCode.UNSET


@pytest.mark.parametrize(
    ("document", "options", "reason"),
    [
        (chat(model="large"), {}, "named"),
        (chat(), {"routing": {"explore": 1.0}, "seed": 3}, "explored"),
    ],
)
def test_the_reason_of_a_decision(document, options, reason):
    _, (*_, request), _, _ = serve([{}], document, **options)
    assert request.attributes["mild.decision.reason"] == reason


def test_a_pinned_session_is_the_reason():
    _, spans, records, _ = serve([{}], chat(user="a"), chat(user="a"))
    requests = [span for span in spans if span.kind is trace.SpanKind.SERVER]
    assert [span.attributes["mild.decision.reason"] for span in requests] == ["router", "session"]
    assert requests[1].attributes["gen_ai.conversation.id"] == records[0].session


def test_a_traceparent_is_followed_and_the_expert_is_told_the_attempt():
    _, (attempt, request), _, (up, _) = serve(
        [{}], chat(), headers={"traceparent": PARENT, "tracestate": "vendor=1"}
    )
    assert f"{request.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{request.parent.span_id:016x}" == PARENT.split("-")[2]
    ((_, sent),) = up.heads
    assert sent["traceparent"] == f"00-{PARENT.split('-')[1]}-{attempt.context.span_id:016x}-01"
    assert sent["tracestate"] == "vendor=1"


@pytest.mark.parametrize("given", ["", "nonsense", PARENT[:-3], "00-" + "0" * 32 + PARENT[35:]])
def test_a_malformed_traceparent_begins_a_trace(given):
    _, (_, request), _, _ = serve([{}], chat(), headers={"traceparent": given})
    assert request.parent is None


def test_a_trace_that_is_not_sampled_is_not_recorded_and_passed_on():
    answers, spans, _, (up, _) = serve(
        [{}], chat(), headers={"traceparent": PARENT[:-1] + "0", "tracestate": ""}
    )
    assert (answers[0].status, spans) == (200, ())
    assert up.heads[0][1]["traceparent"].split("-")[1::2] == [PARENT.split("-")[1], "00"]


def test_the_variables_of_opentelemetry_say_how_many_requests_are_traced(monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    _, spans, _, _ = serve([{}], chat())
    assert spans == ()


async def test_without_tracing_a_traceparent_is_passed_on_as_it_is():
    async with solo(name="small") as (up, g):
        assert g.app.tracing is None
        await ask(g.port, chat(), traceparent=PARENT)
        assert up.heads[0][1]["traceparent"] == PARENT


@pytest.mark.parametrize(
    ("settings", "environment", "enabled"),
    [
        ({}, {}, False),
        ({"endpoint": "http://127.0.0.1:4318/v1/traces"}, {}, True),
        ({"endpoint": "http://127.0.0.1:1/v1/traces"}, {"OTEL_SDK_DISABLED": "true"}, False),
        ({}, QUIET, True),
        ({}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({}, {"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({}, {**QUIET, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({}, {**QUIET, "OTEL_SDK_DISABLED": "TRUE"}, False),
    ],
)
def test_the_file_or_the_standard_variables_turn_it_on(settings, environment, enabled):
    assert is_enabled(TracingSettings(**settings), environment) is enabled


async def test_spans_are_sent_to_a_collector(monkeypatch):
    """OTLP over HTTP, to the address of the file; the rest is sent when the gateway stops."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat-gateway")
    async with FakeUpstream() as collector, FakeUpstream() as up:
        tracing = TracingSettings(endpoint=collector.base_url.replace("/v1", "/v1/traces"))
        async with gateway([expert("small", up)], tracing_settings=tracing) as g:
            await ask(g.port, chat())
        paths, bodies = [line.split()[1] for line, _ in collector.heads], collector.bodies
    assert set(paths) == {"/v1/traces"}
    for word in (b"chat mild", b"chat small-model", b"mild.decision.expert", b"chat-gateway"):
        assert word in b"".join(bodies)


@pytest.mark.slow
async def test_every_worker_sends_its_spans(tmp_path):
    async with FakeUpstream() as collector, FakeUpstream() as up:
        endpoint = collector.base_url.replace("/v1", "/v1/traces")
        extra = f'[tracing]\nendpoint = "{endpoint}"'
        write_files(tmp_path, [("small", up.base_url)], extra=extra, workers=2)
        async with served(tmp_path) as g:
            found = [await ask(g.port, chat()) for _ in range(6)]
            assert await g.stop() == 0
        answers, told = found, b"".join(collector.bodies)
    for answer in answers:
        assert answer.headers["x-mild-request-id"].encode() in told


async def test_a_collector_that_is_gone_delays_neither_answers_nor_the_end(monkeypatch):
    monkeypatch.setattr("mild_gateway.tracing.FLUSH_SECONDS", 0.2)
    has_given_up = threading.Event()
    may_give_up = threading.Event()
    shutdown = sdk.TracerProvider.shutdown

    def shut_down_slowly(spans):
        may_give_up.wait(PATIENCE)
        shutdown(spans)
        has_given_up.set()

    monkeypatch.setattr(sdk.TracerProvider, "shutdown", shut_down_slowly)
    tracing = TracingSettings(endpoint="http://127.0.0.1:1/v1/traces")
    async with solo(name="small", tracing_settings=tracing) as (_, g):
        answer = await ask(g.port, chat())
        await g.stop()
        is_over = has_given_up.is_set()
        may_give_up.set()
    assert answer.status == 200
    assert not is_over


@pytest.fixture
def without_exporter(monkeypatch):
    name = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setitem(sys.modules, name, None)


def test_a_file_that_asks_for_traces_needs_the_extra(without_exporter):
    with pytest.raises(MissingExtraError, match="otel"):
        open_tracing(TracingSettings(endpoint="http://127.0.0.1:1/v1/traces"))


def test_variables_alone_do_not_keep_the_gateway_from_starting(
    without_exporter, monkeypatch, caplog
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    with caplog.at_level(logging.WARNING, "mild_gateway"):
        assert open_tracing(TracingSettings()) is None
    assert "otel" in caplog.text


def test_the_calls_of_a_cascade_are_spans_of_their_own():
    router = cascade_router(("small", "small#2", "large"))
    _, spans, (record,), _ = serve([{"text": "4"}, {"text": "5"}], chat(), router=router)
    *attempts, request = spans
    assert [span.attributes["mild.expert"] for span in attempts] == ["small", "small"]
    for attempt in attempts:
        assert attempt.parent.span_id == request.context.span_id
        assert attempt.attributes["gen_ai.usage.output_tokens"] == 3
    assert request.attributes["mild.decision.expert"] == "cascade"
    assert request.attributes["gen_ai.usage.output_tokens"] == record.tokens_out == 6
