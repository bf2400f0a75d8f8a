import pytest

from mild_gateway.selection.sessions import (
    WAYS,
    Pin,
    Session,
    Sessions,
    content_session,
    hash_session,
    sent_before,
    table_bytes,
)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def make(count=64, seconds=10.0, workers=1):
    clock = Clock()
    memory = memoryview(bytearray(table_bytes(count)))
    found = [Sessions(memory, seconds, clock) for _ in range(workers)]
    for sessions in found:
        sessions.set_experts(["small", "large"])
    return clock, found


PIN = Pin("large", 0.25, b"0123456789ab")


def test_a_pin_is_seen_by_every_worker():
    _, (one, two) = make(workers=2)
    session = hash_session("alice", "chat 1")
    assert two.find(session) is None
    one.pin(session, PIN)
    assert two.find(session) == PIN
    assert two.find(hash_session("bob", "chat 1")) is None


def test_a_pin_ends_after_its_last_use():
    clock, (sessions,) = make()
    session = hash_session("alice", "chat 1")
    sessions.pin(session, PIN)
    clock.now += 9
    assert sessions.find(session) == PIN
    clock.now += 9
    assert sessions.find(session) == PIN
    clock.now += 11
    assert sessions.find(session) is None


def test_a_full_table_forgets_the_one_that_ends_first():
    clock, (sessions,) = make(count=WAYS)
    names = [hash_session("k", str(n)) for n in range(WAYS + 1)]
    for name in names:
        clock.now += 0.1
        sessions.pin(name, PIN)
    assert sessions.find(names[0]) is None
    assert all(sessions.find(name) == PIN for name in names[1:])


def test_an_expert_that_is_gone_ends_its_pins():
    _, (sessions,) = make()
    session = hash_session("alice", "chat 1")
    sessions.pin(session, PIN)
    sessions.set_experts(["small"])
    assert sessions.find(session) is None


def test_a_slot_written_by_two_at_once_counts_as_empty():
    _, (sessions,) = make(count=1)
    session = hash_session("alice", "chat 1")
    sessions.pin(session, PIN)
    for place in range(0, table_bytes(1), 3):
        sessions._memory[place] ^= 0xFF
    assert sessions.find(session) is None


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
    assert later == Session(first.hash, follows=True)
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


def test_a_pin_tells_how_long_the_session_was_idle():
    clock, (sessions,) = make()
    session = hash_session("alice", "chat 1")
    sessions.pin(session, PIN)
    clock.now += 4
    assert sessions.find(session).idle == 4
    clock.now += 1
    assert sessions.find(session).idle == 1
