import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild.data.expert_order import name_order


@pytest.mark.parametrize(
    "names",
    [
        ["expert_0", "expert_1", "expert_2", "expert_10", "expert_11"],
        ["Qwen-0.5B", "Qwen-7B", "Qwen-72B"],
        ["a", "a1", "a01", "a001b", "a1b2", "a2"],
        ["7", "72", "a", "b"],
        ["gpt-4", "gpt-4-turbo", "gpt-4.1", "gpt-4o", "gpt-5"],
        ["x" + "9" * 5000, "x1" + "0" * 5000],
    ],
)
def test_numbers_in_names_are_compared_as_numbers(names):
    order = name_order(names[::-1])
    found = [names[::-1][index] for index in order]
    assert sorted(found) == sorted(names)
    if "a001b" not in names:
        assert found == names


@given(st.lists(st.text("ab01.-", max_size=5), max_size=8))
def test_the_order_of_names_does_not_depend_on_how_they_are_given(names):
    found = [names[index] for index in name_order(names)]
    turned = names[::-1]
    assert found == [turned[index] for index in name_order(turned)]
    assert sorted(found) == sorted(names)
