from mild.endpoints.expert import BreakerSettings
from mild.gateway.upstream.breaker import Breaker

SETTINGS = BreakerSettings(failures=3, window_seconds=10, open_seconds=5)


def broken(at=0.0):
    breaker = Breaker(SETTINGS)
    for _ in range(3):
        breaker.failed(at)
    return breaker


def test_opens_after_enough_failures_and_lets_nothing_through():
    breaker = Breaker(SETTINGS)
    breaker.failed(0.0)
    breaker.failed(0.1)
    assert breaker.take(0.2)
    breaker.failed(0.3)
    assert breaker.state(0.4) == "open"
    assert not breaker.take(0.4)
    assert breaker.wait(1.3) == 4.0


def test_failures_that_are_few_among_many_calls_do_not_open():
    breaker = Breaker(SETTINGS)
    for step in range(1000):
        now = step * 0.01
        if step % 10 == 0:
            breaker.failed(now)
        else:
            breaker.succeeded(now)
    assert breaker.state(10.0) == "closed"


def test_old_failures_are_forgotten():
    breaker = Breaker(SETTINGS)
    breaker.failed(0.0)
    breaker.failed(0.0)
    breaker.failed(20.0)
    assert breaker.state(20.0) == "closed"


def test_half_open_lets_one_probe_through_whose_success_closes():
    breaker = broken()
    assert breaker.state(5.0) == "half-open"
    assert breaker.take(5.0)
    assert not breaker.take(5.0)
    breaker.succeeded(5.5)
    assert breaker.state(5.5) == "closed"
    assert breaker.take(5.5)
    assert breaker.take(5.5)


def test_a_probe_that_fails_opens_again_for_the_whole_time():
    breaker = broken()
    assert breaker.take(6.0)
    breaker.failed(7.0)
    assert breaker.state(11.9) == "open"
    assert breaker.take(12.0)


def test_a_probe_that_says_nothing_leaves_its_place_to_the_next():
    breaker = broken()
    assert breaker.take(6.0)
    breaker.released()
    assert breaker.take(6.0)


def test_what_began_before_the_opening_does_not_close():
    breaker = broken()
    breaker.succeeded(1.0)
    assert breaker.state(1.0) == "open"


def doubted(*witnesses):
    """The state after failures that these witnesses, (key, body), may have provoked."""
    breaker = Breaker(SETTINGS)
    for witness in witnesses:
        breaker.failed(0.0, witness)
    return breaker.state(0.0)


def test_what_one_client_provokes_with_the_same_requests_does_not_open():
    assert doubted(*[("anna", 1)] * 100) == "closed"
    assert doubted(*[("anna", 1), ("anna", 2)] * 100) == "closed"


def test_two_keys_or_three_bodies_open():
    assert doubted(("anna", 1), ("anna", 1), ("ben", 1)) == "open"
    assert doubted(("anna", 1), ("anna", 2), ("anna", 3)) == "open"
    # There are enough witnesses, but not enough failures.
    assert doubted(("anna", 1), ("ben", 2)) == "closed"


def test_failures_that_nobody_provokes_need_no_witness():
    breaker = Breaker(SETTINGS)
    for _ in range(2):
        breaker.failed(0.0)
        breaker.failed(0.0, ("anna", 1))
    assert breaker.state(0.0) == "closed"
    breaker.failed(0.0)
    assert breaker.state(0.0) == "open"


def test_witnesses_are_forgotten_with_their_window():
    breaker = Breaker(SETTINGS)
    for now in (0.0, 0.0, 20.0, 20.0):
        breaker.failed(now, (f"key {now}", 1))
    assert breaker.state(20.0) == "closed"
