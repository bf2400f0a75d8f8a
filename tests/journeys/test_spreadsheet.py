"""A log in a spreadsheet becomes a router: in Python, and with the commands, which say the same.

The user tunes to a quality, evaluates on other rows, writes the report, routes new questions, and takes
the router to a machine with NumPy alone.
"""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser

import numpy as np
import openpyxl
import pytest

import mild
from journeys import adapter
from journeys.commands import mild as run_mild
from journeys.commands import mild_here, process
from journeys.world import EXPERTS, by_name, chosen_cells, flat, log, matrix, take, without

pytestmark = pytest.mark.slow

KEEP = 0.95
PROBABILITY = 0.8
N_TRAIN, N_TEST, N_NEW = 500, 400, 60

# What a machine that only routes need not have.
ROUTE_ALONE = """
import json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"sklearn", "scipy", "pandas", "polars", "pyarrow"}:
            raise ModuleNotFoundError(f"there is no {name}", name=name)

sys.meta_path.insert(0, Missing())
import mild
router = mild.load(sys.argv[1])
print(json.dumps(router.route(json.load(sys.stdin))))
"""
# Elements of HTML and SVG that have no end.
VOID = {"meta", "br", "hr", "img", "input", "link", "col", "wbr", "source"}
# Attributes that make a browser load something; an address in a link is only shown.
LOADING = {"src", "srcset", "data", "poster", "background", "action", "formaction", "xlink:href"}


def as_in_a_sheet(columns):
    """Cells as a spreadsheet saves them: TRUE and FALSE."""
    return {
        name: [("FALSE", "TRUE")[cell] for cell in cells] if "correct__" in name else cells
        for name, cells in columns.items()
    }


def save_csv(path, columns):
    """Save a sheet as "CSV UTF-8" of a spreadsheet: a byte order mark, CRLF, quotes where they must be."""
    sheet = as_in_a_sheet(columns)
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, dialect="excel")
        writer.writerow(sheet)
        writer.writerows(zip(*sheet.values(), strict=True))


def save_xlsx(path, columns):
    book = openpyxl.Workbook()
    book.active.append(list(columns))
    for row in zip(*columns.values(), strict=True):
        book.active.append(row)
    book.save(path)


class Page(HTMLParser):
    """A page: what it would load, whether its elements are closed in order, its tables and lists."""

    def __init__(self, text):
        super().__init__()
        self.open, self.loaded = [], []
        self.rows, self.items = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "li":
            self.items.append("")
        self.loaded += [value for name, value in attributes.items() if name in LOADING]
        if tag in ("link", "use", "image"):
            self.loaded.append(attributes["href"])

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["style"]:
            self.loaded += re.findall(r"url\(([^)]*)\)|@import", data)
        elif "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data
        elif "li" in self.open:
            self.items[-1] += data


def check_figures(page, judged, target):
    """A page shows the figures of an evaluation, rounded."""
    shown = adapter.read_page(page.rows, page.items)
    for name, (figure, unit) in adapter.shown_figures(judged, target).items():
        assert shown[name] == pytest.approx(figure, abs=0.51 * unit), name


@pytest.fixture(scope="module")
def rows():
    """The columns of the log, and of what is kept for the test."""
    columns = without(log(3, N_TRAIN + N_TEST + N_NEW), "latency_ms__")
    parts = np.split(np.arange(N_TRAIN + N_TEST + N_NEW), [N_TRAIN, N_TRAIN + N_TEST])
    return [take(columns, part) for part in parts]


@pytest.fixture(scope="module")
def folder(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sheet")
    train, test, new = rows
    save_csv(folder / "log.csv", train)
    save_csv(folder / "test.csv", test)
    (folder / "new.json").write_text(json.dumps(new["query"]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def found(folder):
    """What ``mild.tune`` finds."""
    table = mild.read_outcomes(folder / "log.csv")
    return mild.tune(table, keep_quality=KEEP, target_probability=PROBABILITY)


@pytest.fixture(scope="module")
def judged(folder, found):
    return mild.evaluate(found.router, folder / "test.csv")


def test_the_sheet_is_read_cell_by_cell(folder, rows):
    train, test, _ = rows
    save_xlsx(folder / "log.xlsx", as_in_a_sheet(train))
    for file, columns in (("log.csv", train), ("log.xlsx", train), ("test.csv", test)):
        table = mild.read_outcomes(folder / file)
        assert adapter.texts(table) == columns["query"]
        assert sorted(table.experts) == sorted(EXPERTS)
        np.testing.assert_array_equal(by_name(table, table.scores), matrix(columns, "correct__"))
        np.testing.assert_array_equal(by_name(table, table.prices), matrix(columns, "cost__"))
        assert table.latencies is None
        assert adapter.column(table, "kind") == columns["kind"]


def test_the_figures_are_those_of_the_raw_columns(rows, found, judged):
    test = rows[1]
    chosen = found.router.route(test["query"])
    scores, dollars = matrix(test, "correct__"), matrix(test, "cost__")
    figures = adapter.read_judged(judged.as_dict())
    assert figures.rows == N_TEST
    quality = chosen_cells(test, "correct__", chosen).mean()
    paid = 1000 * chosen_cells(test, "cost__", chosen).mean()
    assert figures.quality[None] == pytest.approx(quality)
    assert figures.cost[None] == pytest.approx(1 - quality)
    assert figures.dollars[None] == pytest.approx(paid)
    assert figures.quality["perfect"] == pytest.approx(scores.max(axis=1).mean())
    for column, name in enumerate(EXPERTS):
        assert figures.cost[name] == pytest.approx(1 - scores[:, column].mean())
        assert figures.dollars[name] == pytest.approx(1000 * dollars[:, column].mean())
        assert figures.shares[name] == pytest.approx(chosen.count(name) / N_TEST)

    target = adapter.read_target(judged.as_dict())
    assert target.reference == "large"
    best, price = scores[:, 0].mean(), 1000 * dollars[:, 0].mean()
    assert target.kept[0] == pytest.approx(quality / best)
    assert target.lost[0] == pytest.approx(best - quality)
    assert target.saved[0] == pytest.approx(1 - paid / price)
    assert target.dollars[0] == pytest.approx(paid)
    assert target.met == (quality / best >= KEEP)
    for estimate, low, high in (target.kept, target.lost, target.saved, target.dollars):
        assert low < estimate < high
    # Half of the questions are sums, which cost little: there is something to save, and it is saved.
    assert target.saved[0] > 0.5

    # What was promised: in this world it cannot be far off.
    promised = adapter.read_target(found.as_dict())
    assert promised.met
    assert promised.kept[0] >= KEEP
    for promise, truth in ((promised.kept, target.kept), (promised.saved, target.saved)):
        assert abs(promise[0] - truth[0]) <= promise[2] - promise[1]


def test_the_report_is_one_page_that_shows_these_figures(folder, judged):
    path = judged.write_report(folder / "report.html")
    page = Page(path.read_text(encoding="utf-8"))
    assert page.open == []
    assert [address for address in page.loaded if not address.startswith(("#", "data:"))] == []
    check_figures(
        page, adapter.read_judged(judged.as_dict()), adapter.read_target(judged.as_dict())
    )


def test_the_saved_router_decides_the_same_on_a_machine_with_numpy_alone(folder, rows, found):
    new = rows[2]["query"]
    saved = found.router.save(folder / "saved")
    chosen = found.router.route(new)
    assert set(chosen) <= set(EXPERTS)
    assert len(set(chosen)) > 1
    assert mild.load(saved).route(new) == chosen
    done = process(folder, ["-c", ROUTE_ALONE, str(saved)], stdin=json.dumps(new))
    assert done.code == 0, done.err
    assert json.loads(done.out) == chosen


def test_the_commands_do_the_same(folder, rows, found, judged):
    words = ["--keep-quality", str(KEEP), "--target-probability", str(PROBABILITY), "--json"]
    tuned = run_mild(folder, adapter.tune("log.csv", "router", *words)).figures
    assert flat(adapter.read_target(tuned)) == pytest.approx(
        flat(adapter.read_target(found.as_dict()))
    )

    evaluated = run_mild(folder, adapter.evaluate("router", "test.csv", "--json")).figures
    figures, target = adapter.read_judged(evaluated), adapter.read_target(evaluated)
    assert flat(figures) == pytest.approx(flat(adapter.read_judged(judged.as_dict())))
    assert flat(target) == pytest.approx(flat(adapter.read_target(judged.as_dict())))

    assert mild_here(folder, adapter.report("router", "test.csv", "page.html")).code == 0
    page = Page((folder / "page.html").read_text(encoding="utf-8"))
    assert page.open == []
    check_figures(page, figures, target)

    queries = rows[1]["query"] + rows[2]["query"]
    lines = "".join(json.dumps(query) + "\n" for query in queries)
    routed = run_mild(folder, adapter.route("router"), stdin=lines)
    assert adapter.read_routes(routed.out) == found.router.route(queries)
    assert mild.load(folder / "router").route(queries) == found.router.route(queries)
