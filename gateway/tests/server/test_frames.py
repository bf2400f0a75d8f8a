"""How deep a request goes: our frames between the ASGI entry and the client of the experts."""

import asyncio
import sys
import traceback

import pytest

import mild_gateway
from fake_upstream import FakeUpstream
from gateway_cases import ask, cascade_router, chat, expert, gateway
from mild_gateway.experts.client import EndpointClient

OURS = mild_gateway.__path__[0]
MOST = 9


class NotedError(Exception):
    """Raised in the client."""


def our_frames():
    """Names of our functions on the stack, from the innermost one to the ASGI application."""
    names = []
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        if frame.f_code.co_filename.startswith(OURS):
            names.append(frame.f_code.co_qualname)
            if names[-1] == "RequestGuard.__call__":
                break
    return names


async def frames_of(monkeypatch, router, document):
    """Our frames when the client is asked to post, for each call of one request."""
    seen = []

    async def post(self, path, body, headers=None, **kind):
        seen.append(our_frames())
        raise NotedError

    names = ("small", "medium", "large")
    async with FakeUpstream() as up:
        async with gateway([expert(name, up) for name in names], router) as g:
            monkeypatch.setattr(EndpointClient, "post", post)
            found = await ask(g.port, document)
    assert found.status == 500
    return seen


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_request_goes_through_nine_of_our_functions_at_most(monkeypatch, streamed):
    (frames,) = await frames_of(monkeypatch, None, chat(stream=streamed))
    assert frames[-1] == "RequestGuard.__call__"
    assert frames[0] == "Calls._attempt"
    assert len(frames) <= MOST, frames


async def test_a_cascade_goes_through_nine_of_our_functions_at_most(monkeypatch):
    """The calls of a step run in tasks of their own: what waits for them counts, too."""
    waiting = []
    create_task = asyncio.TaskGroup.create_task

    def note(group, coroutine, **more):
        waiting.append(our_frames())
        return create_task(group, coroutine, **more)

    monkeypatch.setattr(asyncio.TaskGroup, "create_task", note)
    frames = await frames_of(monkeypatch, cascade_router(), chat())
    assert waiting[0][-1] == "RequestGuard.__call__"
    assert frames[0][0] == "Calls._attempt"
    assert len(waiting[0]) + len(frames[0]) <= MOST, (waiting[0], frames[0])


async def test_the_last_step_of_a_cascade_goes_through_nine_of_our_functions_at_most(monkeypatch):
    router = cascade_router(steps=((2,),))
    (frames, *_) = await frames_of(monkeypatch, router, chat())
    assert len(frames) <= MOST, frames
