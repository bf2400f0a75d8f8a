"""Bodies that keep every byte but one value."""

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mild_gateway.experts.json_edit import parse_object, replace_model

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["model", "a", "stream", 'x"y', "\\"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    document=st.dictionaries(st.sampled_from(["a", "b", 'q"m', "messages"]), plain, max_size=4),
    place=st.integers(0, 4),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 2]),
)
def test_only_the_objects_own_model_changes(document, place, ascii_only, indent):
    items = list(document.items())
    items.insert(min(place, len(items)), ("model", "mild"))
    body = json.dumps(dict(items), ensure_ascii=ascii_only, indent=indent).encode(
        "utf-8", "surrogatepass"
    )
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return
    changed = replace_model(body, "new name")
    assert json.loads(changed) == {**dict(items), "model": "new name"}
    assert list(json.loads(changed)) == [key for key, _ in items]
    # Every other byte is as it was: putting the old name back gives the old body.
    assert replace_model(changed, "mild") == body


@pytest.mark.parametrize(
    "body",
    [
        b'{"n": 12345678901234567890123456789, "model": "m", "x": 1e400, "y": -0.0, "z": 1.10}',
        b'{ "model"\t:\n "m" , "seed":' + b"9" * 5000 + b"}",
        '{"a": "\\u00e9\\ud83d\\ude00 é", "model": "m"}'.encode(),
        b'{"messages": [{"model": "inner"}], "model": "m"}',
        b'{"text": "\\"model\\": \\"x\\"", "model": "m", "b": NaN}',
        b'{"text \\"model": "x", "model": "m"}',
    ],
)
def test_odd_bodies_keep_their_bytes(body):
    changed = replace_model(body, "other")
    assert changed == body[: body.rindex(b'"m"')] + b'"other"' + body[body.rindex(b'"m"') + 3 :]


def test_a_key_that_stands_twice_is_replaced_twice():
    body = b'{"model": "a", "mod\\u0065l": "b", "x": 1}'
    assert replace_model(body, "c") == b'{"model": "c", "mod\\u0065l": "c", "x": 1}'


def test_without_a_model_nothing_changes():
    for body in (b'{"a": {"model": "x"}}', b"{}", b"[1]", b"not json", b'{"model": '):
        assert replace_model(body, "c") == body


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"[1, 2]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        ("\ufeff{}".encode(), "not JSON"),
    ],
)
def test_what_is_no_object_is_named(body, why):
    with pytest.raises(ValueError, match=why):
        parse_object(body)


def test_numbers_of_any_length_are_read():
    document = parse_object(b'{"model": "m", "seed": ' + b"7" * 6000 + b"}")
    assert document["model"] == "m"


def test_replacing_the_model_takes_little_more_than_the_bytes():
    """One character beyond Latin-1 makes every character of a text take four bytes."""
    text = "\N{GRINNING FACE}".encode() + b"a" * 4_000_000
    numbers = b"[" + b"0.123456789," * 200_000 + b"1]"
    body = b'{"x": "' + text + b'", "y": ' + numbers + b', "model": "m"}'
    tracemalloc.start()
    try:
        changed = replace_model(body, "small")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert changed == body.replace(b'"m"', b'"small"')
    assert peak < 2.5 * len(body)
