import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild_gateway.selection.text import chat_text, request_text, text_bytes

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["messages", "role", "content", "text", "type", "prompt", "image_url"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(
    document=st.dictionaries(st.sampled_from(["messages", "prompt"]), anything),
    which=st.sampled_from(["last", "all"]),
)
def test_any_document_has_a_text(document, which):
    assert isinstance(chat_text(document, which), str)
    assert isinstance(request_text(document, which), str)
    assert text_bytes(document, json.dumps(document).encode() + b"data:") >= 0


def test_a_chat_without_user_turns_is_routed_by_its_last_text():
    turns = [{"role": "system", "content": "Be kind."}, {"role": "assistant", "content": None}]
    assert chat_text({"messages": turns}, "last") == "Be kind."


def test_user_turns_without_text_are_passed_over():
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    turns = [{"role": "user", "content": "What is this?"}, image]
    assert chat_text({"messages": turns}, "last") == "What is this?"


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_attachments_count_at_a_flat_rate(size):
    url = "data:image/png;base64," + "A" * size
    part = {"type": "image_url", "image_url": {"url": url}}
    document = {"messages": [{"role": "user", "content": [part]}]}
    body = json.dumps(document).encode()
    assert text_bytes(document, body) == len(body) - len(url) + 4500


IMAGE = "https://example.com/cat.png"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": IMAGE}},
        {"type": "input_image", "image_url": IMAGE},
        {"type": "image", "source": {"type": "url", "url": IMAGE}},
        {"type": "tool_result", "content": [{"type": "image", "source": {"url": IMAGE}}]},
    ],
)
def test_images_that_are_only_named_count_too(part):
    document = {"messages": [{"role": "user", "content": [part, {"type": "text", "text": "?"}]}]}
    body = json.dumps(document).encode()
    assert text_bytes(document, body) == len(body) + 4500
