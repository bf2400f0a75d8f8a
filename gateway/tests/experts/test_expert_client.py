import pytest

from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.expert_client import ExpertClient, in_asking_order


def clients(*names, **settings):
    """Experts whose clock stands still."""
    return [
        ExpertClient(Expert(name, "http://x/v1", "m", **settings), lambda: 0.0) for name in names
    ]


def fail(client, kind="server", key="anna"):
    for _ in range(3):
        client.failed(ExpertError(kind, "a test"), key)


def names(ordered):
    return [client.name for client in ordered]


def test_experts_that_fail_come_last_and_the_others_keep_their_order():
    experts = clients("a", "b", "c", "d")
    fail(experts[0])
    fail(experts[2])
    assert names(in_asking_order(experts, "anna")) == ["b", "d", "a", "c"]
    assert names(in_asking_order(experts, "ben")) == ["a", "b", "c", "d"]


def test_experts_that_cannot_be_reached_come_last_for_everybody():
    experts = clients("a", "b")
    fail(experts[0], "connect")
    assert names(in_asking_order(experts, "ben")) == ["b", "a"]
    assert [client.is_available() for client in experts] == [False, True]


def test_a_full_expert_is_not_available():
    (client,) = clients("a", max_in_flight=1)
    client.limiter.take()
    assert not client.is_available()
    client.limiter.release()
    assert client.is_available()


@pytest.mark.parametrize(
    ("kind", "key", "whose"),
    [
        ("server", "anna", "the key anna"),
        ("server", None, "requests without a key"),
        ("connect", "anna", "all requests"),
    ],
)
def test_a_line_says_for_whom_an_expert_is_asked_last(kind, key, whose, caplog):
    (client,) = clients("a")
    fail(client, kind, key)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(f"and is asked last for {whose}.")
