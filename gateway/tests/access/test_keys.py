"""Keys are random, kept as hashes under the store's own value, and told apart by a hint."""

from __future__ import annotations

import pytest

from mild.errors import InvalidInputError
from mild_gateway.access.keys import PREFIX, check_key_name, digest_of, hint_of, new_key


def test_keys_are_long_and_never_the_same():
    keys = {new_key() for _ in range(1000)}
    assert len(keys) == 1000
    assert all(key.startswith(PREFIX) and len(key) == len(PREFIX) + 43 for key in keys)


def test_the_digest_depends_on_key_and_store_and_holds_neither():
    salt, other = b"s" * 32, b"t" * 32
    key = new_key()
    digest = digest_of(key, salt)
    assert digest == digest_of(key, salt)
    assert len({digest, digest_of(key, other), digest_of(new_key(), salt)}) == 3
    assert key.encode() not in digest
    assert len(digest) == 32


def test_the_hint_leaves_the_key_unknown():
    key = new_key()
    assert hint_of(key) == f"{key[:9]}…"


@pytest.mark.parametrize("name", ["a", "alice@example.com", "team-1_x.y", "9" * 64])
def test_good_names(name):
    assert check_key_name(name) == name


@pytest.mark.parametrize(
    "name", ["", " a", "a b", "-a", "a" * 65, "a\n", "*", "ключ", "a/b", 'a"b']
)
def test_names_that_would_hurt_logs_and_metrics_are_refused(name):
    with pytest.raises(InvalidInputError, match="name of a key must be"):
        check_key_name(name)


@pytest.mark.parametrize("name", ["all", "anonymous"])
def test_names_of_the_gateway_itself_are_reserved(name):
    with pytest.raises(InvalidInputError) as caught:
        check_key_name(name)
    assert caught.value.code == "reserved_key_name"
