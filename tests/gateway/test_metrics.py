import re

from mild.gateway.metrics import Metrics, metric_columns
from mild.gateway.shared import open_shared

EXPERTS = ["small", 'odd "name"\\']


def two_workers():
    cells = open_shared(2, metric_columns(EXPERTS), 0).cells
    return cells, [Metrics(cells, worker, EXPERTS) for worker in (0, 1)]


def test_any_worker_gives_the_totals_of_all():
    _, (one, two) = two_workers()
    one.add("mild_requests_total", "small", "ok")
    two.add("mild_requests_total", "small", "ok", by=2)
    two.put("mild_breaker_state", "small", value=2)
    one.put("mild_breaker_state", "small", value=1)
    for metrics in (one, two):
        page = metrics.render().decode()
        assert 'mild_requests_total{expert="small",outcome="ok"} 3\n' in page
        assert 'mild_breaker_state{expert="small"} 2\n' in page


def test_histograms_add_up():
    _, (one, two) = two_workers()
    for metrics, seconds in ((one, 0.004), (two, 0.005), (one, 0.3), (two, 500.0)):
        metrics.observe("mild_request_seconds", "small", seconds=seconds)
    page = one.render().decode()
    label = 'mild_request_seconds_bucket{expert="small",le="%s"} %d\n'
    for border, count in (("0.005", 2), ("0.01", 2), ("0.5", 3), ("120.0", 3), ("+Inf", 4)):
        assert label % (border, count) in page
    assert 'mild_request_seconds_count{expert="small"} 4\n' in page
    assert re.search(r'mild_request_seconds_sum\{expert="small"\} 500\.309\n', page)


def test_a_worker_in_a_dead_ones_place_keeps_the_counters_and_clears_the_gauges():
    cells, (one, _) = two_workers()
    one.add("mild_explored_total")
    one.add("mild_in_flight", by=5)
    again = Metrics(cells, 0, EXPERTS)
    assert again.value("mild_explored_total") == 1
    assert again.value("mild_in_flight") == 0


def test_every_line_is_one_that_prometheus_reads():
    _, (one, _) = two_workers()
    one.refused(418)
    line = re.compile(r'[a-z_]+(\{[a-z]+="(\\.|[^"\\])*"(,[a-z]+="(\\.|[^"\\])*")*\})? [\d.e+-]+')
    for text in one.render().decode().splitlines():
        assert text.startswith(("# HELP ", "# TYPE ")) or line.fullmatch(text), text
    assert 'mild_refused_total{status="other"} 1' in one.render().decode()
