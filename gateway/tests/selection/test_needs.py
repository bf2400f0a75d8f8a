import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild_gateway.experts.expert import CAPABILITIES, Expert
from mild_gateway.selection.needs import Needs, missing_of, request_needs

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
CALL = {"role": "assistant", "tool_calls": [{"id": "1"}]}


def expert(**more):
    return Expert("small", "http://x/v1", "m", **more)


def turn(*parts):
    return {"role": "user", "content": list(parts)}


def chat(*messages, **more):
    return {"messages": [*messages, {"role": "user", "content": "Hello"}], **more}


@pytest.mark.parametrize(
    ("document", "flags"),
    [
        (chat(), set()),
        (chat({"role": "user", "content": [{"type": "text", "text": "a"}]}), set()),
        (chat({"role": "user", "content": [IMAGE]}), {"images"}),
        (chat({"role": "tool", "content": "4"}), {"tools"}),
        (chat(CALL), {"tools"}),
        (chat(tools=[TOOL]), {"tools"}),
        (chat(functions=[{"name": "f"}]), {"tools"}),
        (chat(tools=[]), set()),
        (chat(response_format={"type": "json_schema", "json_schema": {}}), {"json_schema"}),
        (chat(response_format={"type": "json_object"}), set()),
        (chat(reasoning_effort="low"), {"reasoning"}),
        (chat(reasoning_effort="none"), set()),
        (chat(reasoning_effort=None), set()),
        ({"prompt": "Hello"}, set()),
    ],
)
def test_each_need_is_seen_and_may_be_unsupported(document, flags):
    needs = request_needs(document, 0)
    assert needs.capabilities == flags
    for name in CAPABILITIES:
        assert bool(missing_of(expert(unsupported=[name]), needs)) == (name in flags)
    assert not missing_of(expert(), needs)


@pytest.mark.parametrize(
    ("limits", "needs", "served"),
    [
        ({"context": 100}, Needs(tokens_in=100), True),
        ({"context": 100}, Needs(tokens_in=101), False),
        ({"max_output": 100}, Needs(tokens_out=100), True),
        ({"max_output": 100}, Needs(tokens_out=101), False),
        ({"max_output": 100}, Needs(), True),
    ],
)
def test_lengths_are_compared_with_the_limits(limits, needs, served):
    assert (missing_of(expert(**limits), needs) == "") == served


def test_the_length_is_estimated_from_the_bytes_and_the_larger_limit_of_an_answer_counts():
    needs = request_needs(chat(max_tokens=5, max_completion_tokens=9), 4001)
    assert (needs.tokens_in, needs.tokens_out) == (1001, 9)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "image_url", "tool_calls"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["messages", "tools", "functions", "response_format", "reasoning_effort", "max_tokens"]
        ),
        anything,
    )
)
def test_any_document_has_needs(document):
    needs = request_needs(document, len(json.dumps(document)))
    limits = expert(unsupported=CAPABILITIES, context=1)
    assert isinstance(missing_of(limits, needs), str)


@pytest.mark.parametrize(
    ("document", "needs"),
    [
        ({"messages": [turn({"type": "image", "source": {}})]}, {"images"}),
        ({"input": [turn({"type": "input_image", "image_url": "https://x/y.png"})]}, {"images"}),
        ({"messages": [turn({"type": "tool_result", "content": "5"})]}, {"tools"}),
        ({"input": [{"type": "function_call_output", "output": "5"}]}, {"tools"}),
        ({"input": "Hi", "text": {"format": {"type": "json_schema"}}}, {"json_schema"}),
        ({"input": "Hi", "reasoning": {"effort": "low"}}, {"reasoning"}),
        ({"messages": [], "thinking": {"type": "enabled"}}, {"reasoning"}),
        ({"input": ["Hi", 3, {"type": ["x"]}], "text": 3, "reasoning": []}, set()),
    ],
)
def test_needs_of_the_other_apis(document, needs):
    assert request_needs(document, 0).capabilities == needs
