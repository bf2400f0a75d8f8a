"""One name for equal content, another for any other."""

from __future__ import annotations

import pytest

from mild.exceptions import InvalidInputError
from mild.reproduce.keys import canonical_json, content_key


def test_canonical_json_refuses_what_is_no_json() -> None:
    assert canonical_json({"b": 1, "a": [1.0, None]}) == '{"a":[1.0,null],"b":1}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("inf")})


def test_a_key_is_the_same_in_years_to_come() -> None:
    # printf '{"a":[1,2]}' | sha256sum
    expected = "01530d164d479cf08e26d3b1ad9bdba927120d97e2d057a6d792db778780d720"
    assert content_key({"a": (1, 2)}) == expected


def test_content_that_is_no_json_has_no_key() -> None:
    with pytest.raises(InvalidInputError, match=r"an expert must be plain JSON; .*serializable"):
        content_key({"seed": object()}, "an expert")
