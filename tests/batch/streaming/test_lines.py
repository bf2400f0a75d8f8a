"""Lines to queries."""

from __future__ import annotations

import pytest

from mild.batch.streaming import BadLineError, LineFormat, Query, find_format
from mild.data.queries import Recipe
from mild.errors import OptionError


@pytest.mark.parametrize(
    ("line", "query"),
    [
        (b'{"query": "a"}', Query("a")),
        (b'{"id": "x", "text": "a", "other": 1}', Query("a", "x")),
        (b'"a"', Query("a")),
        (b'\xef\xbb\xbf{"prompt": "a"}\r', Query("a")),
        ('{"prompt": "größer"}'.encode(), Query("größer")),
        (b'{"prompt": "\\ud800"}', Query("\ud800")),
        (b"  ", None),
        (b"", None),
    ],
)
def test_json_lines_are_read(line, query):
    assert LineFormat("json").read(line) == query


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a": 1}', "no field 'prompt' or"),
        (b'{"prompt": 1}', "must be a string; got a number"),
        (b'{"prompt": null}', "got null"),
        (b'["a"]', "must be a string; got a list"),
        (b'{"prompt": "\xff"}', "not UTF-8"),
        (b"1" * 5000, "a number too long"),
        (None, "longer than"),
    ],
)
def test_bad_lines_say_why(line, reason):
    with pytest.raises(BadLineError, match=reason):
        LineFormat("json").read(line)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([b'{"query": "a"}'], "json"),
        ([b"", b' "a"'], "json"),
        ([b'"To be" is from?', b"b"], "text"),
        ([b"{x} is a set"], "text"),
        ([b"What?"], "text"),
        ([], "text"),
    ],
)
def test_the_format_is_found_from_the_first_line(lines, kind):
    assert find_format(lines).kind == kind


def test_the_format_may_be_given():
    assert find_format([b'"a"'], "text").read(b'"a"').content == '"a"'
    with pytest.raises(OptionError, match="format must be one of"):
        find_format([], "xml")
    with pytest.raises(OptionError, match="takes vectors"):
        find_format([], "text", vectors=True)


CHOICES = Recipe(("question",), ("A", "B"))
JOINED = Recipe(("instruction", "input"))


@pytest.mark.parametrize(
    ("form", "line", "content"),
    [
        (LineFormat("json", "ask"), b'{"ask": "a", "prompt": "b"}', "a"),
        (
            LineFormat("json", recipe=CHOICES),
            b'{"question": "q", "A": "x", "B": 2}',
            "q\nA. x\nB. 2",
        ),
        (LineFormat("json", recipe=CHOICES), b'{"prompt": "whole", "A": "x"}', "whole"),
        (LineFormat("json", recipe=CHOICES), b'"whole"', "whole"),
        (LineFormat("json", recipe=JOINED), b'{"instruction": "a", "input": null}', "a\n"),
        (LineFormat("json", "text", recipe=CHOICES), b'{"question": "q", "text": "t"}', "t"),
        (LineFormat("json", "question", recipe=CHOICES), b'{"question": "q", "A": "x"}', "q\nA. x"),
        (LineFormat("json", vectors=True), b"[1, 2.5]", [1, 2.5]),
        (LineFormat("json", vectors=True), b'{"embedding": [1]}', [1]),
        (
            LineFormat("json", vectors=True, recipe=Recipe((), (), "mine")),
            b'{"embedding": [1], "mine": [2]}',
            [2],
        ),
    ],
)
def test_a_query_is_found_by_its_field_or_the_recipe_of_the_router(form, line, content):
    assert form.read(line).content == content


@pytest.mark.parametrize(
    ("form", "line", "reason"),
    [
        (LineFormat("json", "ask"), b'{"prompt": "b"}', "no field 'ask'"),
        (LineFormat("json", recipe=CHOICES), b'{"question": "q"}', "without its choices"),
        (LineFormat("json", recipe=JOINED), b'{"instruction": "a"}', "no field 'input', which is"),
        (
            LineFormat("json", recipe=JOINED),
            b'{"input": "b"}',
            "no field 'instruction' or 'prompt'",
        ),
        (LineFormat("json", vectors=True), b'{"embedding": "a"}', "list of numbers"),
        (LineFormat("json", vectors=True), b'{"embedding": [true]}', "list of numbers"),
    ],
)
def test_a_line_without_a_query_is_refused_with_the_reason(form, line, reason):
    with pytest.raises(BadLineError, match=reason):
        form.read(line)
