"""What is asked through LiteLLM, and what the models then receive."""

from __future__ import annotations

from contextlib import contextmanager

# What says little without the question before.
FOLLOW_UP = "Yes"
# A picture of one pixel.
IMAGE = {
    "type": "image_url",
    "image_url": {
        "url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="  # noqa: E501
    },
}


def user(content):
    """A message of the user."""
    return {"role": "user", "content": content}


def part(text):
    """A message may be made of such parts."""
    return {"type": "text", "text": text}


def conversations(text, other):
    """Conversations in which the user asks ``text`` last; ``other`` is what would be routed elsewhere."""
    call = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    found = {"role": "tool", "tool_call_id": "call_1", "content": other}
    answered = {"role": "assistant", "content": other}
    return {
        "a system message": [{"role": "system", "content": other}, user(text)],
        "several turns": [user(other), answered, user(text)],
        "parts": [user([part(text)])],
        "an image": [user([IMAGE, part(text)])],
        "an image before": [user([IMAGE, part(other)]), answered, user([part(text)])],
        "a tool's answer": [user(other), answered, user(text), calling, found],
    }


@contextmanager
def models_asked(models):
    """A list that in the end holds what the models were asked meanwhile: text and model, oldest first."""
    n_before = len(models.received())
    asked = []
    yield asked
    asked.extend((request["text"], request["model"]) for request in models.received()[n_before:])
