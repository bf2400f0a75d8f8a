"""The page as a browser shows it, live."""

import pytest

from dashboard_cases import NAMES, make_document, make_records, make_router, serving
from mild_gateway.dashboard import page_bytes
from waiting import wait_until

PHONE = {"width": 390, "height": 844, "mobile": True}
EVIL = "<script>window.broken=1</script><img src=x onerror=window.broken=1>"
COLOURS = """
(() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = rgb => rgb.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  const under = node => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const worst = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
    if (!own || !node.getClientRects().length || node.closest("svg, script, style")) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(under(node))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) worst.push([node.className, node.textContent.slice(0, 30), contrast]);
  }
  return worst;
})()
"""


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    return make_document(tmp_path_factory.mktemp("calm") / "l.db", make_records())


@pytest.fixture(scope="module")
def drifted(tmp_path_factory):
    records = make_records(shares=(0.2, 0.35, 0.45))
    return make_document(tmp_path_factory.mktemp("drift") / "l.db", records)


def until(browser, expression):
    """Wait until something is true in the page."""
    return wait_until(lambda: browser.run(expression))


def shown(browser, served, **how):
    browser.open(served.page, **how)
    assert until(browser, "document.querySelectorAll('#shares li').length > 0")
    return browser.run("document.body.innerText").replace("\u00a0", " ")


def test_the_page_is_one_document_that_asks_for_its_status_alone(browser, calm):
    assert b"http" not in page_bytes().replace(b"http://www.w3.org/2000/svg", b"")
    with serving(calm) as served:
        shown(browser, served)
        asked = {address for address in browser.requests if not address.startswith("data:")}
        assert asked == {served.address, served.address + "status.json"}
        assert browser.errors == []


def test_figures_stand_on_the_page_as_text(browser, calm):
    with serving(calm) as served:
        text = shown(browser, served)
    for line in calm["shares"]["experts"]:
        assert f"{100 * line['live']:.1f} %" in text
        assert f"trained {100 * line['usual']:.1f} %" in text
    for words in (
        "700", "in its band", "All shares of the last 500 decisions are within their bands.", "asked last",
        "reachable",
        "$6.23 of $10.00", "used up", "nearly used up", "2 of 50", "Last decisions", "of 99 %",
    ):  # fmt: skip
        assert words in text
    assert "Shares are outside their bands" not in text


def test_drift_is_said_in_words_and_goes_when_it_is_over(browser, calm, drifted):
    with serving(drifted) as served:
        text = shown(browser, served)
        assert "Shares are outside their bands" in text
        assert "outside its band" in text
        assert (
            browser.run("document.querySelector('#notices').getAttribute('aria-live')") == "polite"
        )
        served.document = calm
        assert until(browser, "!document.getElementById('drift')")


def test_the_page_lives_and_says_when_the_gateway_is_gone(browser, calm):
    with serving(calm) as served:
        shown(browser, served)
        assert browser.run("document.querySelector('#tiles strong').innerText") == "700"
        served.document = {**calm, "traffic": {**calm["traffic"], "requests": 701}}
        assert until(browser, "document.querySelector('#tiles strong').innerText === '701'")
        served.document = None
        gone = "document.getElementById('pulse').innerText === 'no answer'"
        assert until(browser, gone)
        assert "The gateway does not answer" in browser.run("document.body.innerText")
        # What was known stays.
        assert browser.run("document.querySelector('#tiles strong').innerText") == "701"
        served.document = calm
        assert until(browser, "document.getElementById('pulse').innerText.startsWith('live')")
        assert "does not answer" not in browser.run("document.body.innerText")
    # The server itself is gone: no connection at all.
    assert until(browser, gone)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("how", [{"width": 1200}, PHONE], ids=["wide", "phone"])
def test_it_fits_and_can_be_read_in_both_colours(browser, drifted, scheme, how):
    with serving(drifted) as served:
        shown(browser, served, scheme=scheme, **how)
        width = browser.run("document.documentElement.scrollWidth")
        assert width <= how["width"]
        assert browser.run(COLOURS) == []
        page = browser.pixels()[0, 0].tolist()
        assert (sum(page) > 600) == (scheme == "light")


def test_every_figure_of_an_expert_is_in_sight_on_a_phone(browser, calm):
    with serving(calm) as served:
        shown(browser, served, **PHONE)
        assert browser.run(
            "(n => n.scrollWidth <= n.clientWidth)(document.querySelector('.scroll'))"
        )
        named = (
            "getComputedStyle(document.querySelector('#experts td:last-child'), '::before').content"
        )
        assert browser.run(named) == '"spent, 1 h"'


def test_the_colours_can_be_changed_by_hand(browser, calm):
    with serving(calm) as served:
        shown(browser, served, scheme="light")
        browser.run("document.getElementById('theme').click()")
        assert browser.run("document.documentElement.dataset.theme") == "dark"
        assert sum(browser.pixels()[0, 0].tolist()) < 200
        assert browser.run("document.getElementById('theme').innerText") == "Light"


def test_names_and_queries_never_become_markup(browser, tmp_path):
    names = [EVIL + str(k) + "x" * 60 for k in range(3)]
    records = make_records(60, names=names, text=EVIL * 3)
    for entry in records:
        entry.key = entry.asked = EVIL
    router = make_router(names, dict(zip(names, (0.45, 0.35, 0.2), strict=True)))
    document = make_document(tmp_path / "l.db", records, router=router, keep_text=True)
    document["troubles"].append(EVIL)
    with serving(document) as served:
        for how in ({"width": 1200}, PHONE):
            text = shown(browser, served, **how)
            assert EVIL in text
            assert browser.run("window.broken === undefined")
            assert browser.run("document.documentElement.scrollWidth") <= how["width"]
        assert browser.errors == []


def test_a_gateway_that_has_done_nothing_has_a_page(browser):
    document = make_document(None, spend=None, document=None)
    with serving(document) as served:
        text = shown(browser, served)
        assert "No decisions yet." in text
        assert "No ledger is configured" in text
        assert "NaN" not in text
        assert "undefined" not in text
        assert browser.errors == []


def test_bands_are_explained_where_there_are_bands(browser, calm, tmp_path):
    words = "expected band"
    with serving(calm) as served:
        assert words in shown(browser, served)
    silent = make_document(tmp_path / "l.db", make_records(60), router=make_router(NAMES, None))
    with serving(silent) as served:
        assert words not in shown(browser, served)


def test_bars_have_words_for_those_who_do_not_see_them(browser, calm):
    with serving(calm) as served:
        shown(browser, served)
        assert "700 requests in the last hour" in browser.run(
            "document.querySelector('#traffic svg').getAttribute('aria-label')"
        )
        assert browser.run("document.querySelectorAll('.meter:not([aria-hidden])').length") == 0
        assert browser.run("document.querySelectorAll('#experts th[scope=row]').length") == len(
            NAMES
        )
        assert browser.run("document.documentElement.lang") == "en"
        # Only the button, the wide table and the link take the focus.
        focusable = "[...document.querySelectorAll('button, a[href], [tabindex]')]"
        assert browser.run(f"{focusable}.filter(e => e.offsetParent !== null).length") == 3


def type_key(browser, key):
    browser.run(f"document.getElementById('key').value = {key!r}")
    browser.run("document.querySelector('#key-form button').click()")


@pytest.mark.parametrize("how", [{"width": 1200}, PHONE], ids=["wide", "phone"])
def test_the_page_asks_for_a_key_and_sends_it_in_the_header_alone(browser, calm, how):
    with serving(calm) as served:
        served.key = "sk-mild-admin"
        browser.open(served.page, **how)
        asked = "!document.getElementById('key-card').hidden"
        assert until(browser, asked)
        assert browser.run("document.getElementById('main').hidden")
        type_key(browser, "sk-mild-wrong")
        assert until(
            browser, "document.getElementById('key-problem').innerText.includes('not know')"
        )
        type_key(browser, served.key)
        assert until(browser, "document.querySelectorAll('#shares li').length > 0")
        assert browser.run("document.getElementById('key-card').hidden")
        assert "Bearer sk-mild-admin" in served.keys
        assert (
            browser.run("[document.cookie, localStorage.length, sessionStorage.length].join()")
            == ",0,0"
        )
        assert not any("sk-mild" in address for address in browser.requests)
        # A key that was revoked sees nothing from then on.
        served.key = "another"
        assert until(browser, asked)
        assert browser.run("document.getElementById('main').hidden")


def test_a_cascade_has_its_steps_and_a_row(browser, calm):
    steps = [
        {"step": 1, "experts": ["atlas", "atlas#2"], "requests": 15, "share": 0.75},
        {"step": 2, "experts": ["scholar"], "requests": 5, "share": 0.25},
    ]
    figures = {"requests": 20, "failures": 0, "steps": steps, "escalated": 0.25, "calls": 2.25}
    figures |= {"p50": 19.0, "p95": 29.0, "dollars": 0.4}
    with serving(calm) as served:
        text = shown(browser, served)
        assert "Where the cascade stops" not in text
        served.document = {**calm, "cascade": figures}
        assert until(browser, "!document.getElementById('cascade-card').hidden")
        text = browser.run("document.body.innerText").replace("\u00a0", " ")
    for words in ("25.0 % were escalated", "Step 1", "atlas, atlas#2", "75.0 %", "25 % escalated"):
        assert words in text
