"""The page as text: nothing from the data becomes markup, and nothing is fetched."""

import base64
import copy
import hashlib
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import mild
from mild.artifact.info import EstimatorInfo, RouterInfo
from mild.data import Outcomes
from mild.errors import InvalidInputError
from mild.report import render
from mild.report.page import clean
from mild.tuning.training_rows import optimism
from report_cases import NAMES, cost_router, document_of, larger_case, make_table

EVIL = [
    "<script>window.broken=1</script>",
    "</script><script>window.broken=1</script>",
    "\"><img src=x onerror=window.broken=1>",
    "' onfocus=window.broken=1 autofocus='",
    "</text></svg><iframe src=javascript:window.broken=1>",
    "]]><!--</style><svg onload=window.broken=1>",
    "{{7*7}}${7*7}&lt;b&gt;&#60;script&#62;",
    "javascript:window.broken=1",
    "\u202eevil\x00\ud800 end",
]  # fmt: skip


class Elements(HTMLParser):
    """Elements and attributes of a page, and what stands in its scripts."""

    def __init__(self, page):
        super().__init__()
        self.found, self.scripts, self.text, self.inside = [], [], [], None
        self.feed(page)

    def handle_starttag(self, name, attributes):
        self.found.append((name, dict(attributes)))
        self.inside = name

    def handle_endtag(self, name):
        self.inside = None

    def handle_data(self, data):
        (self.scripts if self.inside == "script" else self.text).append(data)


@pytest.mark.parametrize("certified", [None, True])
def test_the_frontier_marks_the_target_and_whether_it_is_certified(certified):
    note = {
        "target": {"max_quality_loss": 0.1}, "best_expert": NAMES[-1], "sentence": "Solved.",
        "certified": certified, "guarantee": 0.9 if certified else None,
    }  # fmt: skip
    router = cost_router(NAMES, RouterInfo.from_notes({"target": note}))
    page = Elements(render(document_of(router, *larger_case(120))))
    rings = [a["class"].split() for name, a in page.found if "ring" in a.get("class", "").split()]
    assert len(rings) == 3, "one in each drawing, and one in the legend"
    assert all(("certified" in ring) == bool(certified) for ring in rings)
    assert sum(a.get("class") == "limit" for _, a in page.found) == 3
    plain = Elements(render(document_of(cost_router(), *larger_case(120))))
    assert not any(a.get("class") in ("limit", "ring ") for _, a in plain.found)


def hostile_document():
    """Evil in every text that a user or a table may bring."""
    names = EVIL[:3]
    table, _, X = larger_case(120)
    queries = [EVIL[i % 8] + f" {i}" for i in range(120)]
    evil = make_table(
        table.scores.tolist(), names, prompt=queries, source=[EVIL[i % 4] for i in range(120)]
    )
    estimator = EstimatorInfo(EVIL[3], {"loss": "mild", "margins": EVIL[4]})
    info = RouterInfo(
        kind=EVIL[0], created=EVIL[1], mild_version=EVIL[2], estimator=estimator
    )  # fmt: skip
    document = document_of(
        cost_router(names, info), evil, evil.costs(), X,
        title=EVIL[8] + EVIL[1],
    )  # fmt: skip
    return document


def test_no_text_of_the_data_becomes_markup():
    quiet = document_of(cost_router(), *larger_case(120))
    known = {name for name, _ in Elements(render(quiet)).found} | {"strong", "table", "details"}
    page = Elements(render(hostile_document()))
    assert {name for name, _ in page.found} <= known
    assert [name for name, _ in page.found].count("script") == 1
    for _, attributes in page.found:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        assert not any(name in ("src", "srcdoc", "action", "formaction") for name in attributes)
        if "href" in attributes:
            assert re.fullmatch("#[a-z]+", attributes["href"])
    assert all("broken" not in script for script in page.scripts)
    # It is all there, as text.
    assert sum("<script>window.broken=1</script>" in text for text in page.text) > 5


def test_a_hostile_saved_evaluation_is_text_too():
    document = hostile_document()
    for key, value in (("made", EVIL[0]), ("kind", EVIL[1])):
        document[key] = value
    document["versions"] = {EVIL[0]: EVIL[1], "mild": EVIL[2]}
    document["verdict"]["sentence"] = EVIL[1]
    document["frontier"]["points"][0]["name"] = EVIL[3]
    page = Elements(render(document))
    assert [name for name, _ in page.found].count("script") == 1
    assert not any(name in ("img", "iframe") for name, _ in page.found)


@pytest.mark.parametrize("part", ["loss", "estimate"])
def test_text_in_place_of_a_number_is_refused_not_written(part):
    document = copy.deepcopy(hostile_document())
    document["figures" if part == "loss" else "verdict"][part] = EVIL[0]
    with pytest.raises(InvalidInputError, match="something is missing or wrong"):
        render(document)


def test_the_page_asks_for_nothing_and_allows_only_its_own_script():
    page = render(document_of(cost_router(), *larger_case(120)))
    found = Elements(page)
    assert not re.search(r"https?://|@import|url\(", page)
    (policy,) = [a["content"] for n, a in found.found if n == "meta" and "http-equiv" in a]
    assert policy.startswith("default-src 'none'; ")
    (script,) = found.scripts
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{checksum}'" in policy
    assert "unsafe" not in policy


def test_the_verdict_comes_first():
    document = document_of(cost_router(), *larger_case())
    page = render(document)
    assert page.index("<h1>Routing pays</h1>") < page.index('id="frontier"')
    assert 'class="verdict pays"' in page
    for pays, css in ((False, "no"), (None, "open")):
        document["verdict"]["pays"] = pays
        assert f'class="verdict {css}"' in render(document)


def test_a_verdict_on_training_rows_has_no_green_headline():
    document = document_of(cost_router(), *larger_case(120))
    for seen in ({"same_data_as_fit": True}, {"seen_in_fit": {"queries": 3, "checked": 120}}):
        page = render({**document, "warning": optimism({**document, **seen})})
        assert "<h1>On training rows: routing pays</h1>" in page
        assert 'class="verdict trained"' in page
        assert 'class="verdict pays"' not in page


def test_dollars_and_quality_have_their_own_lines():
    document = document_of(cost_router(), *larger_case(120))
    means = document["figures"]["means"]
    means["router"] |= {"quality": 0.75, "dollars": 1.0}
    means["constant"] |= {"quality": 0.8, "dollars": 4.0}
    page = render(document)
    lead, quality, dollars = (page.index(part) for part in ('class="lead"', "Quality:", "Dollars:"))
    assert lead < quality < dollars
    assert "5.0 points lower." in page
    assert "The router saves $3.00 (75\xa0%)." in page
    assert "In dollars" not in page[lead:quality]


def test_the_table_has_the_router_and_every_single_expert():
    document = document_of(cost_router(), *larger_case(120))
    rows = re.findall(r'<tr class="(\w+)"><th scope="row">([^<]*)', render(document))
    names = [f"always {name}" for name in NAMES]
    expected = ["router", *names, "the same mix at random", "perfect choice"]
    assert [name for _, name in rows] == expected


def test_twenty_thousand_rows_and_thirty_experts_stay_small():
    rng = np.random.default_rng(0)
    n, p = 20_000, 30
    names = [f"some-owner/a-model-with-a-long-name-{k}b-instruct" for k in range(p)]
    scores = (rng.random((n, p)) < np.linspace(0.3, 0.8, p)).astype(float)
    table = make_table(
        scores.tolist(), names, tuple(np.geomspace(1e-4, 1e-2, p)),
        prompt=[f"{i} " + "word " * 60 for i in range(n)], source=[f"s{i % 40}" for i in range(n)],
    )  # fmt: skip
    X = np.clip(0.5 - 0.2 * table.scores + 0.3 * rng.normal(size=(n, p)), 0, 1)
    page = render(document_of(cost_router(names), table, table.costs(), X))
    assert len(page.encode()) < 300_000


def test_a_broken_document_is_refused():
    document = document_of(cost_router(), *larger_case(60))
    for part in ("verdict", "figures", "experts", "versions"):
        broken = {key: value for key, value in document.items() if key != part}
        with pytest.raises(InvalidInputError, match="something is missing or wrong"):
            render(broken)


def test_missing_parts_are_left_out():
    document = document_of(cost_router(), *larger_case(60))
    page = render({**document, "groups": None, "calibration": None, "regrets": None})
    assert "#groups" not in page
    assert "Where routing helps" not in page
    assert 'id="shares"' in page


def test_a_page_without_queries_shows_none():
    table, costs, X = larger_case(60)
    page = render(document_of(cost_router(), table, costs, X, queries=0))
    assert "question number" not in page
    assert all(name in page for name in NAMES)


@pytest.mark.parametrize(
    ("name", "start"), [("the router", "The router costs"), ("kNN", "kNN costs")]
)
def test_a_sentence_begins_with_a_capital_unless_with_a_name(name, start):
    document = document_of(cost_router(), *larger_case(150))
    document["verdict"]["sentence"] = f"Routing pays: {name} costs 0.1 less."
    assert f'<p class="lead">{start} 0.1 less.</p>' in render(document)


@pytest.mark.parametrize("text", ["a\x00b", "a\x1bb", "a\ud800b", "a\x85b", "a\uffffb"])
def test_characters_that_html_forbids_are_replaced(text):
    assert clean({text: [text]}) == {"a�b": ["a�b"]}


def test_marks_that_change_the_reading_direction_are_dropped():
    assert clean("user\u202egnp.exe\u2066") == "usergnp.exe"
    assert clean("tab\tand\nline") == "tab\tand\nline"


def test_names_break_after_underscores_and_markup_in_them_is_text():
    document = document_of(cost_router(), *larger_case(150))
    document["regrets"]["rows"][0]["group"] = "world_<b>history"
    assert "<small>world_<wbr>&lt;b&gt;history</small>" in render(document)


@pytest.mark.filterwarnings("ignore:.*figures are optimistic")
def test_a_lower_loss_is_better_where_a_table_has_only_costs():
    X = np.random.default_rng(0).normal(size=(60, 2))
    costs = np.stack([X[:, 0] > 0, X[:, 0] < 0], axis=1).astype(float)
    table = Outcomes.from_arrays(X, costs, experts=["a", "b"])
    page = render(mild.evaluate(mild.fit(table), table).document())
    assert "to the left of the best single expert" in page
    assert "Mean loss of the router and of the experts" in page
