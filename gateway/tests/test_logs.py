"""Log lines: few, in the format that was asked for, and without what they must not hold."""

import asyncio
import json
import logging
import signal
import socket

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import ask, chat, solo
from gateway_cases import expert as make_expert
from mild_gateway.experts.redaction import Redactor
from mild_gateway.experts.secrets import Secret
from mild_gateway.logs import EventLog, LogFormatter
from process_cases import served, write_files
from waiting import until

PROMPT = "a very private question"


def messages(caplog):
    return [entry.getMessage() for entry in caplog.records if entry.name == "mild_gateway"]


def test_the_first_event_is_written_at_once_and_many_more_in_one_line(caplog):
    now = [0.0]
    log = EventLog(lambda: now[0])
    for _ in range(38):
        log.note(("cheap", "server"), "It failed.", expert="cheap")
    log.note(("large", "server"), "The other failed.")
    log.write()
    assert messages(caplog) == ["It failed.", "The other failed."]
    now[0] = 60.0
    log.write()
    log.write()
    assert messages(caplog)[2:] == ["It failed. (37 more in 60 s)"]
    assert (caplog.records[-1].expert, caplog.records[-1].count) == ("cheap", 37)
    # After a quiet minute the next one is a first one.
    now[0] = 121.0
    log.write()
    log.note(("cheap", "server"), "It failed.")
    assert messages(caplog)[3:] == ["It failed."]


def test_what_is_left_is_written_at_the_end(caplog):
    log = EventLog(lambda: 5.0)
    log.note(("a",), "Full.")
    log.note(("a",), "Full.")
    log.write(min_seconds=0.0)
    assert messages(caplog) == ["Full.", "Full. (1 more in 0 s)"]


def test_a_json_line_has_the_fields_of_its_event_and_no_secret():
    secret = "sk-0123456789abcdef"
    redact = Redactor([make_expert("one", "http://x/v1", secret=Secret(secret, "a test"))])
    record = logging.LogRecord("mild_gateway", logging.WARNING, "f", 1, "bad %s", (secret,), None)
    record.expert, record.created, record.msecs = "one", 0.0, 7.0
    line = json.loads(LogFormatter(as_json=True, redact=redact).format(record))
    assert line.pop("pid")
    assert line == {
        "time": "1970-01-01T00:00:00.007Z",
        "level": "warning",
        "logger": "mild_gateway",
        "message": "bad [secret]",
        "expert": "one",
    }
    assert LogFormatter(False, redact).format(record) == "warning: bad [secret]"


def test_an_error_is_written_without_its_message():
    try:
        int(PROMPT)
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("mild_gateway", logging.ERROR, "f", 1, "It failed.", (), info)
    line = json.loads(LogFormatter(as_json=True).format(record))["message"]
    assert line.startswith("It failed.\n")
    assert line.endswith("ValueError")
    assert "int(PROMPT)" in line
    assert PROMPT not in line


async def test_a_storm_of_failures_is_one_line_for_each_class(caplog):
    once = {"max_attempts": 1}
    script = ["500"] * 6 + ["garbage"] * 3
    async with solo(FakeUpstream(script=script), routing=once) as (_, g):
        for _ in script:
            assert (await ask(g.port, chat(PROMPT))).status == 502
        first = messages(caplog)
    first = [line for line in first if "is asked last" not in line]
    assert len(first) == 2
    assert "expert one" in first[0]
    assert "status 500" in first[0]
    assert {entry.kind for entry in caplog.records if hasattr(entry, "kind")} == {
        "server", "garbled",
    }  # fmt: skip
    # The rest is written when the gateway stops.
    counted = [entry for entry in caplog.records if hasattr(entry, "count")]
    assert [entry.count for entry in counted if hasattr(entry, "kind")] == [5, 2]
    assert PROMPT not in caplog.text


async def test_a_cut_stream_is_logged_and_counted(caplog):
    async with solo(FakeUpstream(script=["cut"])) as (_, g):
        await ask(g.port, chat(PROMPT, stream=True))
        page = (await ask(g.port, None, "/metrics", "GET")).body.decode()
    assert 'mild_streams_cut_total{expert="one"} 1.0\n' in page
    assert 'mild_attempts_total{expert="one",result="ok"} 1.0\n' in page
    (line,) = messages(caplog)
    assert "expert one" in line


async def test_shed_requests_are_one_line(caplog):
    async with solo(FakeUpstream(held=True), limits={"max_in_flight": 1}) as (up, g):
        asked = [asyncio.create_task(ask(g.port, chat(PROMPT))) for _ in range(6)]
        await until(lambda: sum(task.done() for task in asked) == 5)
        up.held = False
        found = await asyncio.gather(*asked)
        first = messages(caplog)
    assert sorted(answer.status for answer in found) == [200] + [429] * 5
    assert len(first) == 1
    assert "overloaded" in first[0]
    assert [entry.count for entry in caplog.records if hasattr(entry, "count")] == [4]
    assert PROMPT not in caplog.text


async def test_log_lines_of_a_gateway_are_json_where_the_file_says_so(tmp_path):
    async with FakeUpstream(script=["500", "500"]) as up:
        extra = '[server]\nlog_format = "json"\n[routing]\nmax_attempts = 1'
        write_files(tmp_path, [("one", up.base_url)], extra=extra)
        async with served(tmp_path) as g:
            await ask(g.port, chat(PROMPT))
            await ask(g.port, chat(PROMPT))
            g.process.send_signal(signal.SIGTERM)
            said = (await g.process.stderr.read()).decode()
    lines = [json.loads(line) for line in said.splitlines()]
    ours = [line for line in lines if line.get("kind") == "server"]
    assert [(line["level"], line["expert"], line.get("count")) for line in ours] == [
        ("warning", "one", None),
        ("warning", "one", 1),
    ]
    assert PROMPT not in said


@pytest.mark.parametrize("level", ["warning", "error"])
async def test_the_level_of_the_command_line_is_that_of_the_log(tmp_path, level):
    async with FakeUpstream(script=["500"]) as up:
        write_files(tmp_path, [("one", up.base_url)])
        async with served(tmp_path, logs={"log_level": level}) as g:
            await ask(g.port, chat())
            g.process.send_signal(signal.SIGTERM)
            said = (await g.process.stderr.read()).decode()
    assert said.startswith("warning: The expert one") == (level == "warning")


@pytest.mark.parametrize("fault", ["port", "config"])
async def test_a_refused_start_is_one_line_in_the_format_of_the_log(tmp_path, fault):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        extra = 'prot = 1\n[server]\nlog_format = "json"' if fault == "config" else ""
        write_files(tmp_path, [("one", "http://127.0.0.1:9/v1")], extra=extra, port=port)
        with pytest.raises(RuntimeError) as caught:
            async with served(tmp_path, logs={"log_format": "json"}):
                pass
    (line,) = str(caught.value).partition(": ")[2].splitlines()
    found = json.loads(line)
    assert (found["level"], found["logger"]) == ("error", "mild_gateway")
    assert (str(port) if fault == "port" else "prot") in found["message"]


async def test_an_expert_that_is_asked_last_again_and_again_is_few_lines(caplog):
    now = [0.0]
    up = FakeUpstream(script=["500"] * 6)
    once = {"max_attempts": 1}
    async with solo(up, routing=once, clock=lambda: now[0]) as (_, g):
        for _ in range(2):
            for _ in range(3):
                assert (await ask(g.port, chat(PROMPT))).status == 502
            # It is in its place again, and a minute has not passed.
            now[0] += 31.0
        lines = [line for line in messages(caplog) if "is asked last" in line]
    assert len(lines) == 1
