import pytest

from mild_gateway.experts.errors import ExpertError, status_error
from mild_gateway.experts.health import MAX_KEYS, ExpertHealth


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def failing(kind, times=3, key="anna", clock=None):
    """The health of an expert that failed so often for one key."""
    health = ExpertHealth(clock or Clock())
    for _ in range(times):
        health.failed(ExpertError(kind, "a test"), key)
    return health


@pytest.mark.parametrize("kind", ["server", "timeout", "cut", "garbled"])
def test_three_failures_of_a_key_count_for_that_key(kind):
    assert not failing(kind, times=2).is_last("anna")
    health = failing(kind)
    assert health.is_last("anna")
    assert not health.is_last("ben")
    assert not health.is_last(None)
    assert not health.is_last_for_everybody()


def test_three_failures_to_connect_count_for_everybody():
    assert not failing("connect", times=2).is_last_for_everybody()
    health = failing("connect")
    assert health.is_last_for_everybody()
    assert health.is_last("ben")
    assert health.is_last(None)


def test_failures_to_connect_of_several_keys_are_added():
    health = ExpertHealth(Clock())
    for key in ("anna", "ben", None):
        health.failed(ExpertError("connect", "a test"), key)
    assert health.is_last_for_everybody()


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 422])
def test_errors_of_the_request_or_of_the_credentials_do_not_count(status):
    health = ExpertHealth(Clock())
    for _ in range(9):
        health.failed(status_error(status, "a test", {}), "anna")
    assert not health.is_last("anna")


def test_after_30_seconds_it_is_in_its_place_and_the_count_starts_anew():
    clock = Clock()
    health = failing("server", clock=clock)
    clock.now += 29.9
    assert health.is_last("anna")
    clock.now += 0.2
    assert not health.is_last("anna")
    for _ in range(2):
        health.failed(ExpertError("server", "a test"), "anna")
    assert not health.is_last("anna")
    health.failed(ExpertError("server", "a test"), "anna")
    assert health.is_last("anna")


def test_an_answer_resets_the_key_and_everybody():
    health = failing("server", times=2)
    health.answered("anna")
    health.failed(ExpertError("server", "a test"), "anna")
    assert not health.is_last("anna")
    health = failing("connect")
    health.answered("ben")
    assert not health.is_last_for_everybody()


def test_an_answer_to_one_key_says_nothing_about_another():
    health = failing("server")
    health.answered("ben")
    assert health.is_last("anna")


@pytest.mark.parametrize(("retry_after", "seconds"), [("7", 7), ("3600", 30)])
def test_a_rate_limit_counts_as_long_as_the_expert_says(retry_after, seconds):
    clock = Clock()
    health = ExpertHealth(clock)
    health.failed(status_error(429, "a test", {"Retry-After": retry_after}), "anna")
    assert not health.is_last("ben")
    clock.now += seconds - 0.1
    assert health.is_last("anna")
    clock.now += 0.2
    assert not health.is_last("anna")


def test_a_rate_limit_without_a_time_is_not_remembered():
    health = ExpertHealth(Clock())
    for _ in range(9):
        health.failed(status_error(429, "a test", {}), "anna")
    assert not health.is_last("anna")


def test_the_key_that_failed_least_recently_is_forgotten():
    health = failing("server", key="first")
    for _ in range(3):
        health.failed(ExpertError("server", "a test"), "second")
    for k in range(MAX_KEYS - 1):
        health.failed(ExpertError("server", "a test"), f"key {k}")
    assert not health.is_last("first")
    assert health.is_last("second")
