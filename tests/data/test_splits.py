import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild.data.splits import folds, joined_groups, random_splits, time_splits
from mild.errors import InvalidInputError

labels = st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=40)


@given(labels, st.integers(0, 3))
def test_no_text_is_on_both_sides(texts, seed):
    if len(set(texts)) < 2:
        texts = [*texts, "z"]
    for split in random_splits(joined_groups(texts), 3, 0.4, seed):
        train, test = ({texts[i] for i in rows} for rows in (split.train, split.test))
        assert not train & test
        assert len(split.train) + len(split.test) == len(texts)
        assert len(split.train) >= 1
        assert len(split.test) >= 1


def test_rows_hang_together_through_others():
    # 0 and 1 share a text, 1 and 2 a group, 2 and 3 a text.
    found = joined_groups(["a", "a", "b", "b", "c"], ["x", "y", "y", "z", "w"])
    assert found.tolist() == [0, 0, 0, 0, 1]


def test_rows_without_a_label_are_alone():
    assert joined_groups([None, None, "a", "a"]).tolist() == [0, 1, 2, 2]


def test_a_test_has_about_its_share():
    found = random_splits(np.arange(1000), 4, 0.3, 0)
    assert all(abs(len(split.test) - 300) <= 1 for split in found)
    assert len({tuple(split.test.tolist()) for split in found}) == 4


def test_a_split_does_not_depend_on_how_many_are_asked_for():
    few, many = (random_splits(np.arange(50), n, seed=7) for n in (1, 3))
    assert few[0].test.tolist() == many[0].test.tolist()
    other = random_splits(np.arange(50), 1, seed=8)
    assert other[0].test.tolist() != few[0].test.tolist()


def test_a_bundle_larger_than_the_share_leaves_something_to_train_on():
    split = random_splits([0] * 99 + [1], 20, 0.3, 0)
    assert {len(one.test) for one in split} <= {1, 99}


def test_the_past_trains_and_windows_follow_one_another():
    times = np.array([5, 1, 4, 2, 3, 6, 8, 7])
    found = time_splits(times, np.arange(8), n_splits=2, test_share=0.5)
    assert [sorted(times[split.train]) for split in found] == [[1, 2, 3, 4], [1, 2, 3, 4, 5, 6]]
    assert [sorted(times[split.test]) for split in found] == [[5, 6], [7, 8]]


def test_a_text_that_was_seen_is_left_out_of_the_future():
    split = time_splits([1, 2, 3, 4], [0, 1, 0, 2], test_share=0.5)[0]
    assert split.test.tolist() == [3]
    assert split.dropped == 1


def test_rows_of_one_moment_are_not_divided():
    split = time_splits([1, 2, 2, 2, 3], np.arange(5), test_share=0.5)[0]
    assert split.train.tolist() == [0]
    assert split.test.tolist() == [1, 2, 3, 4]


def test_dates_are_times():
    days = np.array(["2026-01-03", "2026-01-01", "2026-01-02"], "datetime64[D]")
    assert time_splits(days, np.arange(3))[0].test.tolist() == [0]
    days[0] = np.datetime64("NaT")
    with pytest.raises(InvalidInputError, match="1 are missing"):
        time_splits(days, np.arange(3))


@given(labels, st.integers(2, 4))
def test_folds_hold_every_row_once_and_no_text_twice(texts, n):
    found = joined_groups(texts)
    if found.max() == 0:
        with pytest.raises(InvalidInputError, match="the same query or belong to the same group"):
            folds(found, n)
        return
    parts = folds(found, n)
    assert len(parts) == min(n, found.max() + 1)
    assert sorted(np.concatenate([held for _, held in parts]).tolist()) == list(range(len(texts)))
    for fitted, held in parts:
        assert not {texts[i] for i in fitted} & {texts[i] for i in held}


def test_folds_of_equal_bundles_are_of_equal_size():
    assert {len(held) for _, held in folds(np.arange(100), 5)} == {20}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: joined_groups(), "at least one kind"),
        (lambda: joined_groups("ab", "abc"), "same length"),
        (lambda: random_splits([0, 0]), "the same query or belong to the same group"),
        (lambda: random_splits([0, 1], 0), "n_splits"),
        (lambda: random_splits([0, 1], 1, 1.0), "test_size"),
        (lambda: random_splits([0.5, 1.5]), "one number per row"),
        (lambda: folds([0, 1], 1), "n_folds"),
        (lambda: time_splits([1, 1], [0, 1]), "rows before each window"),
        (lambda: time_splits([1, 2, 3], [0, 1]), "one time per row"),
    ],
)
def test_the_error_says_why_rows_cannot_be_split(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
