from mild.gateway.selection.sessions import WAYS, Pin, Sessions, hash_session, table_bytes


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
