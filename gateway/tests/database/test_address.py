"""Addresses: what they must be, and that nothing shows their passwords."""

import copy
import pickle

import pytest

from mild_gateway.database import Address, AddressError, read_address

SECRET = "hush"


@pytest.mark.parametrize(
    ("text", "shown", "has_password"),
    [
        ("postgresql://db/mild", "postgresql://db/mild", False),
        ("postgres://me@db:5433/mild", "postgresql://me@db:5433/mild", False),
        ("postgresql://me:hush@db/mild?sslmode=require", "postgresql://me@db/mild", True),
        ("postgresql://me@db/mild?password=hush", "postgresql://me@db/mild", True),
        ("postgresql://me@db/mild?sslmode=x&sslpassword=hush", "postgresql://me@db/mild", True),
        ("postgresql:///mild?host=/run/postgresql", "postgresql:///mild", False),
        ("postgresql://me@%2Frun%2Fpostgresql/mild", "postgresql://me@%2Frun%2Fpostgresql/mild", False),
        ("postgresql://a:1,b:2/mild", "postgresql://a:1,b:2/mild", False),
        ("postgresql://me:hush@[::1]:5432/mild", "postgresql://me@[::1]:5432/mild", True),
        ("postgresql://", "postgresql://", False),
    ],
)  # fmt: skip
def test_an_address_is_shown_without_its_password(text, shown, has_password):
    address = read_address(text)
    assert address.value == text
    assert address.has_password == has_password
    assert (str(address), repr(address)) == (shown, f"Address({shown})")
    assert SECRET not in f"{address!r} {address} {[address]} { ({'store': address}) }"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("postgersql://me:hush@db/mild", "begin with postgresql://"),
        ("mysql://me:hush@db/mild", "begin with postgresql://"),
        ("postgresql:/me:hush@db/mild", "begin with postgresql://"),
        ("postgresql://me:hu@sh@db/mild", "written as %40"),
        ("postgresql://me:hu/sh@db/mild", "written as %40"),
        ("postgresql://me:hu#sh@db/mild", "written as %40"),
        ("postgresql://me:hush @db/mild", "written as %40"),
        ("postgresql://me:hush%@db/mild", "a % itself is written %25"),
        ("postgresql://me:hush@db:0/mild", "port from 1 to 65535"),
        ("postgresql://me:hush@db:54321x/mild", "port from 1 to 65535"),
        ("postgresql://me:hush@db:99999/mild", "port from 1 to 65535"),
    ],
)
def test_a_typo_is_told_by_its_rule_and_never_quoted(text, rule):
    with pytest.raises(AddressError) as caught:
        read_address(text)
    assert rule in str(caught.value)
    assert "hu" not in str(caught.value)


def test_an_address_is_not_pickled():
    address = read_address("postgresql://me:hush@db/mild")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(address)
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.copy(address)


def test_addresses_are_equal_when_all_of_them_is():
    one, same = (read_address("postgresql://me:a@db/mild") for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != read_address("postgresql://me:b@db/mild")
    assert one != Address("x", one.shown, True)
