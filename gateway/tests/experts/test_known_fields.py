"""Which fields of a request have a price that is known."""

import pytest

from mild_gateway.experts.known_fields import unknown_fields

FETCHED = {
    "type": "web_fetch_tool_result",
    "tool_use_id": "a",
    "content": {
        "type": "web_fetch_result",
        "url": "http://x",
        "retrieved_at": "2026-01-01",
        "content": {"type": "document", "source": {"type": "text", "data": "x"}, "title": "x"},
    },
}
FOUND = {
    "type": "tool_search_tool_result",
    "tool_use_id": "b",
    "content": {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "look"}],
    },
}


@pytest.mark.parametrize("part", [FETCHED, FOUND])
def test_what_a_free_tool_has_given_may_be_sent_back(part):
    document = {"model": "m", "messages": [{"role": "assistant", "content": [part]}]}
    assert unknown_fields("/messages", document) == {}
    part = {**part, "file_ids": ["x"]}
    document["messages"][0]["content"] = [part]
    assert unknown_fields("/messages", document) == {"file_ids": "messages[0].content[0].file_ids"}


def test_tools_that_the_client_runs_are_free():
    tools = [{"type": "shell"}, {"type": "apply_patch"}, {"type": "web_search"}]
    document = {"model": "m", "input": "x", "tools": tools}
    assert unknown_fields("/responses", document) == {"web_search": "tools[2].type"}
