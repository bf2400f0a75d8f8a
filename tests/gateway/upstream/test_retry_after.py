import time
from email.utils import formatdate

import pytest

from mild.gateway.upstream.retry_after import retry_after


def test_a_date_counts_from_now():
    seconds = retry_after({b"retry-after": formatdate(time.time() + 90, usegmt=True).encode()})
    assert 85 < seconds <= 90
    assert retry_after({b"retry-after": formatdate(0, usegmt=True).encode()}) == 0


@pytest.mark.parametrize("said", [b"-1", b"nan", b"inf", b"", b"Mon, 99 Foo 2020", b"\xff"])
def test_nonsense_is_no_wait(said):
    assert retry_after({b"retry-after": said}) is None


def test_an_hour_is_the_longest():
    assert retry_after({b"retry-after": b"999999999"}) == 3600
