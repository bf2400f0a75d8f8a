import pytest

from mild_gateway.experts.breaker import MAX_KEYS, MAX_PROBES, Breaker
from mild_gateway.experts.expert import BreakerSettings

SETTINGS = BreakerSettings(failures=3, window_seconds=10, open_seconds=5)


def fail(breaker, now=0.0, key=None, times=1, probes=(), provoked=True):
    for _ in range(times):
        breaker.failed(now, key, list(probes), provoked=provoked)


def sole():
    """The breaker of a gateway with one caller."""
    return Breaker(SETTINGS, has_one_caller=lambda: True)


def broken(key=None, **more):
    breaker = sole() if key is None else Breaker(SETTINGS)
    fail(breaker, key=key, times=3, **more)
    return breaker


def test_opens_after_enough_failures_and_lets_nothing_through():
    breaker = sole()
    fail(breaker, 0.0, times=2)
    assert breaker.allows(0.2, None)
    fail(breaker, 0.3)
    assert breaker.state(0.4) == "open"
    assert not breaker.allows(0.4, None)
    assert breaker.wait(1.3, None) == 4.0


def test_failures_that_are_few_among_many_calls_do_not_open():
    breaker = Breaker(SETTINGS)
    for step in range(1000):
        now = step * 0.01
        if step % 10 == 0:
            fail(breaker, now)
        else:
            breaker.succeeded(now, None, [])
    assert breaker.state(10.0) == "closed"


def test_old_failures_are_forgotten():
    breaker = Breaker(SETTINGS)
    fail(breaker, 0.0, times=2)
    fail(breaker, 20.0)
    assert breaker.state(20.0) == "closed"


@pytest.mark.parametrize("provoked", [False, True])
def test_half_open_lets_a_few_probes_through_and_one_success_closes(provoked):
    breaker = broken(provoked=provoked)
    assert breaker.state(5.0) == "half-open"
    probes = []
    while breaker.allows(5.0, None):
        probes.append(breaker.take(None))
    assert len(probes) == MAX_PROBES
    breaker.succeeded(5.5, None, probes[0])
    assert breaker.state(5.5) == "closed"
    # The others are no probes any more: one that fails is a single failure.
    fail(breaker, 6.0, probes=probes[1], provoked=provoked)
    breaker.released(None, probes[2])
    assert breaker.state(6.0) == "closed"


@pytest.mark.parametrize("provoked", [False, True])
def test_a_probe_that_fails_opens_again_for_the_whole_time(provoked):
    breaker = broken(provoked=provoked)
    first, second = breaker.take(None), breaker.take(None)
    fail(breaker, 7.0, probes=first, provoked=provoked)
    breaker.succeeded(7.1, None, second)
    assert breaker.state(11.9) == "open"
    assert breaker.allows(12.0, None)


def test_a_probe_that_says_nothing_leaves_its_place_to_the_next():
    breaker = broken()
    for _ in range(MAX_PROBES + 1):
        assert breaker.allows(6.0, None)
        breaker.released(None, breaker.take(None))


def test_no_key_can_take_the_probes_of_the_others():
    breaker = broken(provoked=False)
    while breaker.allows(6.0, "anna"):
        breaker.take("anna")
    assert breaker.allows(6.0, "ben")


def test_what_began_before_the_opening_does_not_close():
    breaker = broken()
    breaker.succeeded(1.0, None, [])
    assert breaker.state(1.0) == "open"


def test_an_answer_that_breaks_off_counts_as_one_failure_and_not_as_a_success():
    breaker = sole()
    for now in (0.0, 1.0, 2.0):
        breaker.succeeded(now, None, [])
    for now in (0.0, 1.0, 2.0):
        assert breaker.state(3.0) == "closed"
        breaker.failed(3.0, None, [], provoked=True, began=now)
    assert breaker.state(3.0) == "open"


def test_what_one_key_may_have_provoked_counts_for_that_key():
    breaker = broken("anna", provoked=True)
    fail(breaker, key="anna", times=100)
    assert not breaker.allows(0.0, "anna")
    assert breaker.allows(0.0, "ben")
    assert (breaker.state(0.0), breaker.open_keys(0.0)) == ("closed", 1)


def test_two_of_two_keys_open_for_everybody():
    breaker = Breaker(SETTINGS)
    fail(breaker, key="anna", times=2)
    fail(breaker, key="ben")
    assert (breaker.state(0.0), breaker.open_keys(0.0)) == ("open", 0)
    assert not breaker.allows(0.0, "carla")


def test_one_key_brings_half_of_the_failures_at_most():
    breaker = Breaker(BreakerSettings(failures=5))
    fail(breaker, key="anna", times=100)
    fail(breaker, key="ben")
    assert breaker.state(0.0) == "closed"
    fail(breaker, key="ben")
    assert breaker.state(0.0) == "open"


@pytest.mark.parametrize(("good", "state"), [(1, "open"), (2, "closed"), (3, "closed")])
def test_more_than_half_of_the_keys_that_called_must_see_failures(good, state):
    breaker = Breaker(SETTINGS)
    for k in range(good):
        breaker.succeeded(0.0, f"good {k}", [])
    fail(breaker, key="anna", times=3)
    fail(breaker, key="ben", times=3)
    assert breaker.state(0.0) == state


def test_keys_that_see_mostly_good_answers_or_called_long_ago_say_nothing():
    breaker = Breaker(SETTINGS)
    for _ in range(3):
        breaker.succeeded(0.0, "ben", [])
    fail(breaker, key="ben", times=3)
    fail(breaker, key="anna", times=3)
    assert breaker.state(0.0) == "closed"
    fail(breaker, 20.0, key="carla", times=3)
    assert breaker.state(20.0) == "closed"


def test_failures_that_nobody_provokes_count_for_everybody():
    breaker = Breaker(SETTINGS)
    fail(breaker, key="anna", times=2, provoked=False)
    assert breaker.allows(0.0, "ben")
    fail(breaker, key="anna", provoked=False)
    assert breaker.state(0.0) == "open"
    assert not breaker.allows(0.0, "ben")


def test_one_key_cannot_keep_a_breaker_open_that_opened_for_everybody():
    breaker = broken(provoked=False)
    fail(breaker, 6.0, key="anna", probes=breaker.take("anna"))
    assert breaker.state(6.0) == "half-open"
    breaker.succeeded(6.1, "ben", breaker.take("ben"))
    assert breaker.state(6.1) == "closed"


def test_a_probe_that_fails_where_every_key_does_opens_for_everybody_again():
    breaker = Breaker(SETTINGS)
    fail(breaker, key="anna", times=2)
    fail(breaker, key="ben", times=2)
    fail(breaker, 6.0, key="anna", probes=breaker.take("anna"))
    assert breaker.state(6.0) == "open"
    breaker.succeeded(11.5, "ben", breaker.take("ben"))
    # An expert that is back is back for every key.
    assert breaker.allows(11.5, "anna")


def test_no_more_than_so_many_keys_are_remembered():
    breaker = broken("first")
    for k in range(MAX_KEYS):
        assert breaker.open_keys(0.0) == 1
        breaker.succeeded(0.0, f"key {k}", [])
    assert breaker.open_keys(0.0) == 0


def test_changes_are_reported_once():
    said = []
    breaker = Breaker(SETTINGS, said.append)
    fail(breaker, key="anna", times=10)
    fail(breaker, 6.0, key="anna", probes=breaker.take("anna"))
    breaker.succeeded(12.0, "anna", breaker.take("anna"))
    fail(breaker, 30.0, key="ben", times=10, provoked=False)
    assert [" ".join(line.split()[:2]) for line in said] == ["failed 3", "is asked", "failed 3"]
    assert ["anna" in line for line in said] == [True, True, False]


@pytest.mark.parametrize("key", [None, "anna"])
def test_the_only_caller_is_everybody(key):
    for alone in (True, False):
        breaker = Breaker(SETTINGS, has_one_caller=lambda: alone)  # noqa: B023
        fail(breaker, key=key, times=9)
        assert breaker.state(0.0) == ("open" if alone else "closed")
        assert not breaker.allows(0.0, key)
        assert breaker.allows(0.0, "ben")
