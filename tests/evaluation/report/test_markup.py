import pytest

from mild.evaluation.report.markup import Markup, clean, join, tag


def test_text_is_escaped_wherever_it_stands():
    evil = "<script>alert('x')</script>&\""
    for made in (tag("p", evil), tag("p", [evil]), join(evil), tag("p", title=evil)):
        assert "<script" not in made
        assert "&lt;script&gt;" in made
    assert tag("p", title='a"b') == '<p title="a&quot;b"></p>'


def test_markup_is_kept_and_plain_text_made_of_it_is_not_trusted():
    inner = tag("b", "x")
    assert tag("p", inner) == "<p><b>x</b></p>"
    assert tag("p", inner + "<i>") == "<p>&lt;b&gt;x&lt;/b&gt;&lt;i&gt;</p>"
    assert tag("p", f"{inner}") == "<p>&lt;b&gt;x&lt;/b&gt;</p>"
    assert not isinstance(str.__add__(inner, "x"), Markup)


def test_attributes_are_left_out_shortened_or_bare():
    assert tag("a", href=None, hidden=False) == "<a></a>"
    assert tag("br") == "<br>"
    assert tag("g", x=1.23456, y=2.0, z=0.0, w=-0.001) == '<g x="1.23" y="2" z="0" w="-0"></g>'
    assert tag("button", disabled=True, class_="a", data_x="1") == (
        '<button disabled class="a" data-x="1"></button>'
    )


@pytest.mark.parametrize("text", ["a\x00b", "a\x1bb", "a\ud800b", "a\x85b", "a\uffffb"])
def test_what_html_forbids_is_replaced(text):
    assert clean(text) == "a�b"
    tag("p", text).encode()


def test_marks_that_turn_the_text_around_are_dropped():
    assert clean("user\u202egnp.exe\u2066") == "usergnp.exe"
    assert clean("tab\tand\nline") == "tab\tand\nline"
