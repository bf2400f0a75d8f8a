"""Lines to queries."""

from __future__ import annotations

import pytest

from mild.data.queries import Recipe
from mild.distributed.streaming import BadLineError, LineFormat, Query, find_format
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


def test_a_named_field_is_the_only_one_that_counts():
    form = LineFormat("json", "ask")
    assert form.read(b'{"ask": "a", "prompt": "b"}').content == "a"
    with pytest.raises(BadLineError, match="no field 'ask'"):
        form.read(b'{"prompt": "b"}')


def test_vectors_are_lists_of_numbers():
    form = LineFormat("json", vectors=True)
    assert form.read(b"[1, 2.5]").content == [1, 2.5]
    assert form.read(b'{"embedding": [1]}').content == [1]
    for line in (b'{"embedding": "a"}', b'{"embedding": [true]}'):
        with pytest.raises(BadLineError, match="list of numbers"):
            form.read(line)


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
def test_the_first_line_tells_the_format(lines, kind):
    assert find_format(lines).kind == kind


def test_the_format_may_be_said():
    assert find_format([b'"a"'], "text").read(b'"a"').content == '"a"'
    with pytest.raises(OptionError, match="format must be one of"):
        find_format([], "xml")
    with pytest.raises(OptionError, match="takes vectors"):
        find_format([], "text", vectors=True)


def test_objects_are_read_by_the_recipe_of_the_router():
    form = LineFormat("json", recipe=Recipe(("question",), ("A", "B")))
    assert form.read(b'{"id": 1, "prompt": "p", "question": "q", "A": "x", "B": 2}') == Query(
        "q\nA. x\nB. 2", 1
    )
    assert form.read(b'{"prompt": "whole", "A": "x"}').content == "whole"
    assert form.read(b'"whole"').content == "whole"
    with pytest.raises(BadLineError, match="without its choices"):
        form.read(b'{"question": "q"}')


def test_a_part_of_the_recipe_is_not_a_whole_query():
    form = LineFormat("json", recipe=Recipe(("instruction", "input")))
    assert form.read(b'{"instruction": "a", "input": null}').content == "a\n"
    with pytest.raises(BadLineError, match="no field 'input', which is a part"):
        form.read(b'{"instruction": "a"}')
    with pytest.raises(BadLineError, match="no field 'instruction' or 'prompt'"):
        form.read(b'{"input": "b"}')


def test_a_named_field_goes_before_the_recipe():
    recipe = Recipe(("question",), ("A",))
    named = LineFormat("json", "text", recipe=recipe)
    assert named.read(b'{"question": "q", "A": "x", "text": "t"}').content == "t"
    same = LineFormat("json", "question", recipe=recipe)
    assert same.read(b'{"question": "q", "A": "x"}').content == "q\nA. x"


def test_vectors_may_have_a_field_of_their_own():
    form = LineFormat("json", vectors=True, recipe=Recipe((), (), "mine"))
    assert form.read(b'{"embedding": [1], "mine": [2]}').content == [2]
    assert form.read(b'{"embedding": [1]}').content == [1]
