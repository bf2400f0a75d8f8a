import asyncio

import pytest

from mild_gateway.config import Settings
from mild_gateway.database import read_address
from mild_gateway.selection.sessions import (
    SESSION_SECONDS,
    SESSIONS_PER_KEY,
    MemorySessions,
    Pin,
    Session,
    StoreSessions,
    content_session,
    hash_session,
    named_session,
    open_sessions,
    sent_before,
)


class Clock:
    now = 1_000_000.0

    def __call__(self):
        return self.now


PIN = Pin("large", 0.25, b"0123456789ab")
CHAT = named_session("alice", "chat 1")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "store"])
async def sessions(request, tmp_path, clock):
    if request.param == "memory":
        opened = MemorySessions(clock)
    else:
        opened = StoreSessions(str(tmp_path / "mild.sqlite"), clock)
    yield opened
    await opened.close()


async def test_a_pin_belongs_to_its_key_and_session(sessions):
    assert await sessions.find(CHAT) is None
    sessions.pin(CHAT, PIN)
    assert await sessions.find(CHAT) == PIN
    assert await sessions.find(named_session("bob", "chat 1")) is None
    assert await sessions.find(named_session("alice", "chat 2")) is None


async def test_a_new_pin_replaces_the_old_one(sessions):
    sessions.pin(CHAT, PIN)
    sessions.pin(CHAT, Pin("small", 0.5, b"ba9876543210"))
    assert (await sessions.find(CHAT)).expert == "small"


async def test_a_pin_ends_an_hour_after_its_last_use(sessions, clock):
    sessions.pin(CHAT, PIN)
    for _ in range(2):
        clock.now += SESSION_SECONDS - 1
        assert await sessions.find(CHAT) == PIN
    clock.now += SESSION_SECONDS + 1
    assert await sessions.find(CHAT) is None


async def test_a_pin_tells_how_long_the_session_was_idle(sessions, clock):
    sessions.pin(CHAT, PIN)
    clock.now += 4
    assert (await sessions.find(CHAT)).idle == 4
    clock.now += 1
    assert (await sessions.find(CHAT)).idle == 1


async def test_a_key_pushes_out_its_own_sessions_and_nobody_elses(sessions, clock, monkeypatch):
    monkeypatch.setattr("mild_gateway.selection.sessions.SESSIONS_PER_KEY", 20)
    bobs = named_session("bob", "chat 1")
    sessions.pin(bobs, PIN)
    chats = [named_session("alice", str(number)) for number in range(50)]
    for chat in chats:
        clock.now += 1
        sessions.pin(chat, PIN)
    assert await sessions.find(bobs) == PIN
    kept = [await sessions.find(chat) is not None for chat in chats]
    assert kept == [False] * 30 + [True] * 20


async def test_ten_thousand_sessions_of_one_key_push_out_no_other_pin():
    sessions = MemorySessions()
    sessions.pin(CHAT, PIN)
    for number in range(10_100):
        sessions.pin(named_session("bob", str(number)), PIN)
    assert await sessions.find(CHAT) == PIN
    assert SESSIONS_PER_KEY == 1000
    assert len(sessions._pins["bob"]) == SESSIONS_PER_KEY


async def test_workers_share_the_pins_of_a_store(store_place):
    first, second = StoreSessions(store_place), StoreSessions(store_place)
    first.pin(CHAT, PIN)
    # The pin is written before this is answered.
    assert await first.find(CHAT) == PIN
    assert await second.find(CHAT) == PIN
    second.pin(CHAT, Pin("small", 0.5, b"ba9876543210"))
    await second.close()
    assert (await first.find(CHAT)).expert == "small"
    await first.close()


async def test_a_store_that_cannot_be_used_has_no_pins(tmp_path):
    sessions = StoreSessions(str(tmp_path / "nowhere" / "mild.sqlite"))
    sessions.pin(CHAT, PIN)
    assert await sessions.find(CHAT) is None
    (tmp_path / "nowhere").mkdir()
    sessions.pin(CHAT, PIN)
    assert await sessions.find(CHAT) == PIN
    await sessions.close()


def test_pins_are_in_the_store_where_several_processes_serve(tmp_path):
    address = read_address("postgresql://me@db/mild")
    path = str(tmp_path / "mild.sqlite")
    kinds = {
        MemorySessions: [Settings(), Settings(store=path), Settings(workers=4)],
        StoreSessions: [Settings(store=path, workers=2), Settings(store=address)],
    }
    for kind, settings in kinds.items():
        for one in settings:
            sessions = open_sessions(one)
            assert type(sessions) is kind
            asyncio.run(sessions.close())


def test_hashes_tell_key_and_session_apart():
    assert hash_session("a", "bc") != hash_session("ab", "c")
    assert hash_session("a", "\ud800") != hash_session("a", "?")


def turns(*texts, system="Be kind."):
    """A chat: the system prompt, then user and assistant in turn."""
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"messages": [{"role": "system", "content": system}, *said]}


def test_a_conversation_is_known_by_its_beginning():
    first = content_session("alice", turns("Hello"))
    assert not first.follows
    later = content_session("alice", turns("Hello", "Yes?", "2 + 2?"))
    assert later == Session("alice", first.hash, follows=True)
    others = [
        content_session("bob", turns("Hello")),
        content_session("alice", turns("Hello!")),
        content_session("alice", turns("Hello", system="Give this chat a title.")),
        content_session("alice", {"messages": [{"role": "user", "content": "Hello"}]}),
        content_session("alice", turns([{"type": "text", "text": "Hello"}])),
    ]
    assert len({one.hash for one in (first, *others)}) == 6


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"messages": 5},
        {"messages": []},
        {"messages": ["Hello", None]},
        {"prompt": "Hello"},
        {"messages": [{"role": "system", "content": "Be kind."}]},
    ],
)
def test_what_has_no_user_message_has_no_session(document):
    assert content_session("alice", document) is None
    assert sent_before(document) == 0


def test_what_was_sent_before_ends_with_the_last_answer():
    begun = turns("Hello", "Yes?", "2 + 2?")
    assert sent_before(turns("Hello")) == 0
    short, long = sent_before(begun), sent_before(turns("Hello", "Yes?", "2 + 2?", "4", "x" * 1000))
    assert 0 < short < long < 300
    assert sent_before({**begun, "tools": [{"name": "f" * 100}]}) > short + 100
    # Half characters have no bytes in UTF-8.
    assert sent_before(turns("\ud800", "Yes?", "x")) > 0
