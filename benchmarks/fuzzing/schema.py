"""The endpoints' own schema, as strategies of hypothesis: bodies that must be served, and any other."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from benchmarks.fuzzing.bodies import ENDPOINTS

__all__ = ["any_body", "good_body"]

Body = tuple[str, dict[str, Any]]

# What JSON in UTF-8 can carry: no half of a surrogate pair.
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
whole = st.integers(-(2**53), 2**53)
scalars = st.none() | st.booleans() | whole | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
models = st.sampled_from(["mild", "small", "large"]) | st.floats(0, 1e12).map(
    "router-mild-{}".format
)
parts = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": words}),
    st.fixed_dictionaries(
        {"type": st.just("image_url"), "image_url": st.fixed_dictionaries({"url": words})}
    ),
)
turns = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool", "developer"]),
        "content": words | st.lists(parts, max_size=3) | st.none(),
    },
    optional={"name": words, "tool_call_id": words, "tool_calls": st.lists(values, max_size=2)},
)
options: dict[str, Any] = {
    "stream": st.booleans() | st.none(),
    "stream_options": st.none()
    | st.fixed_dictionaries({}, optional={"include_usage": st.booleans()}),
    "max_tokens": st.integers(1, 5000) | st.none(),
    "max_completion_tokens": st.integers(1, 5000),
    "n": st.integers(1, 4),
    "temperature": st.floats(0, 2),
    "user": words,
    "stop": words | st.lists(words, max_size=4),
    "tools": st.lists(values, max_size=2),
    "metadata": st.dictionaries(words, words, max_size=3),
    "response_format": values,
    "vendor_extension": values,
}


def _body(model: Any, more: dict[str, Any]) -> st.SearchStrategy[Body]:
    chats = st.fixed_dictionaries(
        {"model": model, "messages": st.lists(turns, min_size=1, max_size=4)}, optional=more
    )
    prompts = words | st.lists(words, min_size=1, max_size=3) | st.lists(whole, max_size=5)
    texts = st.fixed_dictionaries({"model": model, "prompt": prompts}, optional=more)
    return st.one_of(
        st.tuples(st.just("/v1/chat/completions"), chats),
        st.tuples(st.just("/v1/completions"), texts),
        st.tuples(st.just("/v1/route"), chats | texts),
    )


def good_body() -> st.SearchStrategy[Body]:
    """An endpoint, and a body that it must serve."""
    return _body(models, options)


def any_body() -> st.SearchStrategy[Body]:
    """An endpoint, and a body in which any field may be of any type, or missing."""
    fields: dict[str, Any] = {name: values | options[name] for name in options}
    wild = {"model": models | values, "messages": values | st.lists(turns | values, max_size=3)}
    wild |= {"prompt": values, "input": values | st.lists(turns | values, max_size=3)}
    document = st.fixed_dictionaries({}, optional={**fields, **wild})
    return st.tuples(
        st.sampled_from(ENDPOINTS), document | st.dictionaries(words, values, max_size=5)
    )
