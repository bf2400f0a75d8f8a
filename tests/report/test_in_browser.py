"""The page as a browser lays it out and paints it."""

import re

import numpy as np
import pytest

from mild.report import render, write_report
from report_cases import cost_router, document_of, larger_case, make_table

# Long names without a place to break, and markup: the worst that a table brings.
LONG = ["owner/" + "model" * 14 + f"-{k}<b>&\"'" for k in range(3)]
PHONE = {"width": 390, "height": 844, "mobile": True}


@pytest.fixture(scope="module")
def document():
    return document_of(cost_router(), *larger_case(), title="A small report")


@pytest.fixture(scope="module")
def page(document, tmp_path_factory):
    return write_report(document, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def hard_page(tmp_path_factory):
    table, _, X = larger_case(200)
    evil = "<script>window.broken=1</script><img src=x onerror=window.broken=1>"
    hard = make_table(
        table.scores.tolist(), LONG, source=["x" * 150, "y" * 150] * 100,
        prompt=[f"{i}{evil}" + "w" * 500 for i in range(200)],
    )  # fmt: skip
    document = document_of(cost_router(LONG), hard, hard.costs(), X, title="t" * 300)
    return write_report(document, tmp_path_factory.mktemp("report") / "hard.html")


def luminance(rgb):
    """Relative luminance of an sRGB colour, as for contrast."""
    share = np.asarray(rgb, float)[..., :3] / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def near(pixels, colour, reach=12):
    """How many pixels have about this colour."""
    return int((np.abs(pixels.astype(int) - colour).max(axis=2) <= reach).sum())


def test_the_page_logs_nothing_and_fetches_nothing(browser, page):
    browser.open(page)
    assert browser.requests == [page.as_uri()]
    assert browser.errors == []


def test_the_verdict_is_read_first(browser, page, document):
    browser.open(page)
    assert browser.run("document.querySelector('h1').innerText") == "Routing pays"
    lead = browser.run("document.querySelector('.lead').innerText")
    assert f"{-document['verdict']['estimate']:.4f} lower than that of always" in lead
    top = browser.run("document.querySelector('h1').getBoundingClientRect().top")
    assert 0 < top < 250
    # The headline is green, on the screen, not only in the style sheet.
    pixels = browser.pixels()
    assert near(pixels, (0x11, 0x7A, 0x3E)) > 500


def test_every_point_has_one_mark_in_the_drawing_that_is_seen(browser, page, document):
    counted = "[...document.querySelectorAll('#frontier svg.chart [data-tip]')].filter(mark => mark.getBoundingClientRect().width > 0).length"  # noqa: E501
    points = len(document["frontier"]["points"])
    assert points > 5
    for width in (1200, 390):
        browser.open(page, width=width)
        assert browser.run(counted) == points
    shown = "getComputedStyle(document.querySelector('svg.chart.{}')).display"
    assert browser.run(shown.format("narrow")) == "block"
    assert browser.run(shown.format("wide")) == "none"


def test_better_points_are_higher_and_cheaper_ones_further_left(browser, page, document):
    browser.open(page)
    found = browser.run(
        "[...document.querySelectorAll('svg.wide [data-tip]')].map(mark => { const box = "
        "mark.querySelector('.dot').getBoundingClientRect(); return [mark.dataset.tip, "
        "box.left + box.width / 2, box.top + box.height / 2]; })"
    )
    places = {tip.split("\n")[0]: (x, y) for tip, x, y in found}
    points = {p["name"]: p for p in document["frontier"]["points"] if p["kind"] != "operating"}
    for one in points:
        for other in points:
            if points[one]["dollars"] < points[other]["dollars"] * 0.99:
                assert places[one][0] < places[other][0]
            if points[one]["quality"] > points[other]["quality"] + 0.01:
                assert places[one][1] < places[other][1]


def test_names_in_the_frontier_cover_neither_each_other_nor_a_mark(browser, page):
    for width, css in ((1200, "wide"), (390, "narrow")):
        browser.open(page, width=width)
        boxes = browser.run(
            f"[...document.querySelectorAll('svg.{css} text.name')].map(name => {{ const b = "
            "name.getBoundingClientRect(); return [name.textContent, b.left, b.top + 3, b.right, "
            "b.bottom - 3]; })"
        )
        assert {"router", "oracle"} <= {box[0] for box in boxes}
        for i, (_, *a) in enumerate(boxes):
            for _, *b in boxes[:i]:
                assert a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3]


def test_the_switch_changes_between_dark_and_light(browser, page):
    mean = {}
    for scheme in ("light", "dark"):
        browser.open(page, scheme=scheme)
        mean[scheme] = float(luminance(browser.pixels()).mean())
    assert mean["light"] > 0.8
    assert mean["dark"] < 0.05
    assert browser.run("document.getElementById('theme').textContent") == "Light"
    browser.run("document.getElementById('theme').click()")
    assert float(luminance(browser.pixels()).mean()) > 0.8
    assert browser.run("document.getElementById('theme').textContent") == "Dark"
    browser.reload()
    assert browser.run("document.documentElement.dataset.theme") == "light"


@pytest.mark.parametrize("width", [320, 390, 768, 1200])
@pytest.mark.parametrize("which", ["page", "hard_page"])
def test_the_page_never_scrolls_sideways(browser, request, which, width):
    browser.open(request.getfixturevalue(which), width=width, height=844, mobile=width < 700)
    browser.run("document.querySelectorAll('details').forEach(folded => { folded.open = true; })")
    assert browser.run("document.documentElement.scrollWidth") <= width
    sticking_out = browser.run(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, .whole, svg') && "
        f"e.getBoundingClientRect().right > {width} + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert sticking_out == []


def test_text_is_large_enough_to_read_on_a_phone(browser, page):
    browser.open(page, **PHONE)
    sizes = browser.run(
        "[...document.querySelectorAll('svg text')].filter(t => t.getBoundingClientRect().width > 0)"
        ".map(t => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a)"
    )
    assert min(sizes) >= 9.5
    assert (
        browser.run("parseFloat(getComputedStyle(document.querySelector('.intro')).fontSize)") >= 14
    )


def test_pointing_at_a_mark_shows_shares_and_dollars(browser, page):
    browser.open(page)
    box = browser.run(
        "(() => { const m = document.querySelector('svg.wide .dot.router'); m.scrollIntoView({block: "
        "'center'}); const b = m.getBoundingClientRect(); return [b.left + b.width / 2, b.top + "
        "b.height / 2]; })()"
    )
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert browser.run("document.getElementById('tip').hidden")
    browser.hover(*box)
    text = browser.run("document.getElementById('tip').innerText")
    assert not browser.run("document.getElementById('tip').hidden")
    assert text.startswith("router\n")
    assert re.search(r"\$\d+\.\d\d per 1,000 queries", text)
    assert re.search(r"asks \w+ \d+\s%", text)
    inside = browser.run(
        "(() => { const b = document.getElementById('tip').getBoundingClientRect(); return b.left >= 0 "
        "&& b.right <= innerWidth && b.top >= 0 && b.bottom <= innerHeight; })()"
    )
    assert inside
    browser.press("Escape")
    assert browser.run("document.getElementById('tip').hidden")


def test_marks_can_be_reached_by_the_keyboard(browser, page):
    browser.open(page)
    browser.run("document.querySelector('#frontier').scrollIntoView()")
    browser.run("document.querySelector('.beside').focus()")
    browser.press("Tab")
    assert browser.run("document.activeElement.dataset.tip.split('\\n').length") >= 3
    assert not browser.run("document.getElementById('tip').hidden")
    assert browser.run("document.activeElement.getAttribute('aria-label').length") > 20


def test_bars_are_as_long_as_the_shares_say(browser, page, document):
    browser.open(page)
    found = dict(
        browser.run(
            "[...document.querySelectorAll('#shares .line')].map(line => [line.querySelector('.who')"
            ".textContent, line.querySelector('.bar.router').getBoundingClientRect().width / "
            "line.querySelector('.picture svg').getBoundingClientRect().width])"
        )
    )
    figures = document["figures"]
    largest = max(figures["shares"] + figures["oracle_shares"])
    for name, share in zip(document["experts"], figures["shares"], strict=True):
        assert found[name] == pytest.approx(share / largest, abs=0.01)


def test_text_has_enough_contrast_in_both_schemes(browser, page):
    pairs = (
        ".lead", ".intro", ".tiles small", ".tiles .what", "figcaption", ".line .value",
        ".verdict h1", ".shares .own", ".shares .other", "nav a", ".line.better .value", "dt", "footer",
    )  # fmt: skip
    for scheme in ("light", "dark"):
        browser.open(page, scheme=scheme)
        for selector in pairs:
            ink, ground = browser.run(
                f"(() => {{ let e = document.querySelector('{selector}'); const ink = "
                "getComputedStyle(e).color; let g = 'rgba(0, 0, 0, 0)'; for (; e && g === "
                "'rgba(0, 0, 0, 0)'; e = e.parentElement) g = getComputedStyle(e).backgroundColor; "
                "return [ink, g]; })()"
            )
            tones = [luminance([int(v) for v in re.findall(r"\d+", c)[:3]]) for c in (ink, ground)]
            contrast = (max(tones) + 0.05) / (min(tones) + 0.05)
            assert contrast >= 4.5, (scheme, selector, ink, ground)


def test_no_text_of_the_data_is_run(browser, hard_page):
    browser.open(hard_page)
    assert browser.run("typeof window.broken") == "undefined"
    assert browser.run("document.images.length") == 0
    shown = browser.run("document.querySelector('.regrets .query').textContent")
    assert re.match("[0-9]+<script>window.broken=1</script><img", shown)


def test_an_injected_script_would_not_run(browser, page, tmp_path):
    broken = tmp_path / "broken.html"
    content = page.read_text(encoding="utf-8")
    broken.write_text(content.replace("</main>", "<script>window.broken=1</script></main>"))
    browser.open(broken)
    assert browser.run("typeof window.broken") == "undefined"
    assert any("Content Security Policy" in str(told) for told in browser.errors)


def test_a_printed_page_is_light_and_has_no_buttons(browser, page):
    browser.open(page, scheme="dark")
    browser.media(scheme="dark", kind="print")
    assert float(luminance(browser.pixels()).mean()) > 0.8
    assert browser.run("getComputedStyle(document.getElementById('theme')).display") == "none"
    browser.media()


@pytest.mark.parametrize(
    ("pays", "colour"),
    [(True, (0x11, 0x7A, 0x3E)), (None, (0x8F, 0x5B, 0x00)), (False, (0x56, 0x60, 0x70))],
)
def test_the_colour_of_the_verdict_is_green_amber_or_grey(
    browser, document, tmp_path, pays, colour
):
    changed = {**document, "verdict": {**document["verdict"], "pays": pays}}
    file = tmp_path / "report.html"
    file.write_text(render(changed), encoding="utf-8")
    browser.open(file)
    band = browser.pixels()[:300]
    # A band of six pixels across the card, and the headline.
    assert near(band, colour) > 6 * 900


def test_on_a_phone_no_word_of_a_button_label_or_axis_is_broken(browser, tmp_path):
    table, _, X = larger_case(200)
    subjects = ["high_school_government_and_politics", "professional_psychology"]
    rows = make_table(table.scores.tolist(), source=[subjects[i % 2] for i in range(200)])
    document = document_of(cost_router(), rows, rows.costs(), X, title="a-long-name-" * 12)
    page = write_report(document, tmp_path / "phone.html")
    browser.open(page, **PHONE)
    assert browser.run("document.querySelector('#theme').clientHeight") < 40
    assert browser.run("document.querySelector('#theme').scrollWidth") <= browser.run(
        "document.querySelector('#theme').offsetWidth"
    )
    small_print = "[...document.querySelectorAll('#groups .label small')]"
    assert browser.run(f"{small_print}.map(one => one.innerText)") == ["100 rows", "100 rows"]
    one_line = f"{small_print}.every(one => one.getBoundingClientRect().height < 30)"
    assert browser.run(one_line)
    apart = """(() => {
      const boxes = selector => [...document.querySelectorAll(selector)]
        .map(one => one.getBoundingClientRect()).filter(box => box.width > 0);
      const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
      const groups = [boxes('#groups .sides span'), boxes('#groups .ticks text'),
        ...[...document.querySelectorAll('#calibration svg, #frontier svg.narrow')].map(svg =>
          [...svg.querySelectorAll('.tick')].map(one => one.getBoundingClientRect()))];
      return groups.map(group => group.filter((a, i) => group.some((b, j) => i < j && meet(a, b))).length);
    })()"""
    found = browser.run(apart)
    assert len(found) > 3
    assert not any(found), found
