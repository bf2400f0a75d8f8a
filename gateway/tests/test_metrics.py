import json
import os
import re
import subprocess
import sys

from mild_gateway.metrics import Metrics

EXPERTS = ["small", 'odd "name"\\']
LINE = {
    window: {"spent": 0.5, "held": 0.0, "lost": 0.0, "budget": budget}
    for window, budget in (("day", 2.0), ("month", None))
}


def spend():
    return {"all": LINE, "keys": {"alice": LINE}}


def lines_of(metrics):
    return metrics.render().decode().splitlines()


def test_histograms_add_up():
    metrics = Metrics(EXPERTS, spend)
    for seconds in (0.004, 0.005, 0.3, 500.0):
        metrics.observe("mild_request_seconds", "small", seconds=seconds)
    page = lines_of(metrics)
    label = 'mild_request_seconds_bucket{expert="small",le="%s"} %.1f'
    for border, count in (("0.005", 2), ("0.01", 2), ("0.5", 3), ("120.0", 3), ("+Inf", 4)):
        assert label % (border, count) in page
    assert 'mild_request_seconds_count{expert="small"} 4.0' in page
    assert metrics.value("mild_request_seconds_sum", expert="small") == 500.309


def test_series_are_there_from_the_start_and_spend_is_as_it_is_now():
    page = lines_of(Metrics(EXPERTS, spend))
    assert 'mild_requests_total{expert="small",outcome="ok"} 0.0' in page
    assert 'mild_reloads_total{result="failed"} 0.0' in page
    assert 'mild_spent_dollars{key="alice",period="month"} 0.5' in page
    assert 'mild_budget_dollars{key="all",period="day"} 2.0' in page
    assert not any(
        line.startswith('mild_budget_dollars{key="all",period="month"}') for line in page
    )
    assert not any("_created" in line for line in page)


def test_every_line_is_one_that_prometheus_reads():
    metrics = Metrics(EXPERTS, spend)
    metrics.refused(418)
    line = re.compile(r'[a-z_]+(\{[a-z]+="(\\.|[^"\\])*"(,[a-z]+="(\\.|[^"\\])*")*\})? [\d.e+-]+')
    for text in lines_of(metrics):
        assert text.startswith(("# HELP ", "# TYPE ")) or line.fullmatch(text), text
    assert 'mild_refused_total{status="other"} 1.0' in lines_of(metrics)


WORKERS = """
import json, os, signal
from mild_gateway.metrics import Metrics
from prometheus_client.multiprocess import mark_process_dead

spend = lambda: {"all": {w: {"spent": 0.0, "budget": None} for w in ("day", "month")}, "keys": {}}
pids = []
for worker in range(2):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        metrics = Metrics(["small"], spend)
        metrics.add("mild_requests_total", "small", "ok", by=1 + worker)
        metrics.put("mild_expert_asked_last", "small", value=1 - worker)
        metrics.add("mild_in_flight", by=5)
        os.write(write, b"x")
        signal.pause()
    os.read(read, 1)
    pids.append(pid)
pages = [Metrics(["small"], spend).render().decode()]
os.kill(pids[0], signal.SIGKILL)
os.waitpid(pids[0], 0)
mark_process_dead(pids[0])
pages.append(Metrics(["small"], spend).render().decode())
os.kill(pids[1], signal.SIGKILL)
os.waitpid(pids[1], 0)
print(json.dumps(pages))
"""


def test_any_process_gives_the_totals_and_a_dead_one_keeps_its_counters_alone(tmp_path):
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    command = [sys.executable, "-c", WORKERS]
    found = subprocess.run(command, env=environment, capture_output=True, check=True)
    both, one = json.loads(found.stdout)
    for page in (both, one):
        assert 'mild_requests_total{expert="small",outcome="ok"} 3.0\n' in page
    assert 'mild_expert_asked_last{expert="small"} 1.0\n' in both
    assert "mild_in_flight 10.0\n" in both
    assert 'mild_expert_asked_last{expert="small"} 0.0\n' in one
    assert "mild_in_flight 5.0\n" in one
