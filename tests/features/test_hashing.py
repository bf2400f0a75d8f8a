"""Hashing features: what they learn, what they keep, and that odd texts do no harm."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from mild.errors import InvalidInputError
from mild.features import HashingFeatures, make_features
from mild.features import hashing as module
from mild.features.hashing import frequent_terms
from mild.features.terms import NUMBER_NAMES, count_known, index_of, lay_out
from text_cases import ODD_TEXTS, make_texts

WIDTH = len(NUMBER_NAMES)


@pytest.fixture(scope="module")
def fitted():
    return HashingFeatures(n_components=16).fit(make_texts(300))


def dense_weights(texts, terms, weights, bits, limits):
    """Weighted rows of norm 1, by loops over texts."""
    rows = np.zeros((len(texts), terms.size))
    for place, text in enumerate(texts):
        counts = count_known(lay_out([text], *limits), bits, index_of(terms, bits), terms.size)
        rows[place, counts.columns] = (1 + np.log(counts.counts)) * weights[counts.columns]
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def test_the_projection_is_that_of_an_exact_decomposition():
    texts, limits = make_texts(120), (6144, 2048)
    step = HashingFeatures(n_components=6, bits=14)
    frequencies = step.count(texts).frequencies
    terms = frequent_terms(frequencies, 2, 500)
    weights = np.log(121 / (1 + frequencies[terms])) + 1
    found = step._directions(texts, terms, weights)
    rows = dense_weights(texts, terms, weights, 14, limits)
    _, _, exact = np.linalg.svd(rows, full_matrices=False)
    np.testing.assert_allclose(found.T @ found, np.eye(6), atol=1e-3)
    # The leading directions agree up to sign; all six span what explains as much.
    np.testing.assert_allclose(np.abs(np.sum(found[:, :3] * exact[:3].T, axis=0)), 1, atol=1e-2)
    explained = np.linalg.norm(rows @ found) / np.linalg.norm(rows @ exact[:6].T)
    assert explained > 0.995


def test_features_are_the_projected_weights_of_norm_one_and_the_numbers(fitted):
    text = "what is the capital of France, France?"
    _, tensors = fitted.state()
    terms = tensors["terms"]
    counts = count_known(lay_out([text], 6144, 2048), 20, index_of(terms, 20), terms.size)
    total = np.zeros(16)
    for column, count in zip(counts.columns, counts.counts, strict=True):
        weight = (1 + np.log(count)) * tensors["weights"][column]
        total += weight * tensors["projection"][column].astype(float)
    raw = total / np.linalg.norm(total)
    expected = (raw - tensors["centre"][:16]) / tensors["scale"][:16]
    np.testing.assert_allclose(fitted.transform_one(text)[:16], expected, atol=1e-4)


def test_frequencies_count_texts_not_occurrences():
    frequencies = HashingFeatures(bits=16).count(["a a a", "a b", "c"]).frequencies
    assert frequencies.max() == 2
    assert (frequencies == 2).sum() == 1


def test_the_projection_is_learned_from_a_sample_of_very_many_texts():
    step = HashingFeatures(n_components=8)
    assert step.sample_rows(150) is None
    assert len(step.sample_rows(20_000)) == module.PROJECTION_TEXTS


def test_the_commonest_terms_are_kept_in_ascending_order():
    frequencies = np.array([5, 0, 3, 9, 3, 1])
    assert frequent_terms(frequencies, 1, 3).tolist() == [0, 2, 3]
    assert frequent_terms(frequencies, 4, 9).tolist() == [0, 3]
    assert frequent_terms(frequencies, 10, 9).size == 0


def test_texts_on_one_subject_lie_nearer_than_others(fitted):
    a, b, c = fitted.transform(
        ["what is the capital of Norway?", "what is the capital of Brasil?", "compute 12 * 3 = ?"]
    )[:, :16]
    assert np.linalg.norm(a - b) < np.linalg.norm(a - c)


def test_case_does_not_matter_to_the_projected_features(fitted):
    upper, lower = fitted.transform(
        ["WHAT IS THE CAPITAL OF ΕΛΛΆΔΑ", "what is the capital of ελλάδα"]
    )
    np.testing.assert_array_equal(upper[:16], lower[:16])
    assert not np.array_equal(upper[16:], lower[16:])


def test_odd_texts_have_finite_features_alone_and_together(fitted):
    together = fitted.transform(ODD_TEXTS)
    assert np.isfinite(together).all()
    for text, row in zip(ODD_TEXTS, together, strict=True):
        np.testing.assert_allclose(fitted.transform_one(text), row, atol=1e-5)


def test_only_odd_texts_can_be_learned_from():
    features = HashingFeatures(n_components=4).fit(ODD_TEXTS)
    assert np.isfinite(features.transform(ODD_TEXTS)).all()


@pytest.mark.parametrize("texts", [["", "", ""], [""], ["one text"]])
def test_texts_without_a_term_or_without_a_second_text_still_fit(texts):
    features = HashingFeatures().fit(texts)
    rows = features.transform([*texts, "another"])
    assert rows.shape == (len(texts) + 1, features.n_features_)
    assert features.n_features_ >= WIDTH
    assert np.isfinite(rows).all()


def test_rare_terms_are_left_out_of_many_texts_and_kept_from_few():
    many = HashingFeatures(min_df=3).fit([*make_texts(300), "unheard zyx"])
    few = HashingFeatures(min_df=3).fit([*make_texts(50), "unheard zyx"])
    names = ("unheard", "zyx")
    assert not set(names) & set(many.explain("unheard zyx")[0])
    assert set(names) <= set(few.explain("unheard zyx")[0])


def test_the_projection_is_learned_on_a_sample_of_many_texts(monkeypatch):
    monkeypatch.setattr(module, "PROJECTION_TEXTS", 100)
    texts = make_texts(300)
    first = HashingFeatures(n_components=8).fit(texts)
    second = HashingFeatures(n_components=8).fit(texts)
    np.testing.assert_array_equal(first.transform(texts), second.transform(texts))


def test_the_explanation_of_a_text_sums_to_its_features(fitted):
    for text in ("what is 3 + 4?", "", "unknown wörds", "x" * 9000):
        names, parts = fitted.explain(text)
        assert len(names) == len(parts)
        np.testing.assert_allclose(parts.sum(axis=0), fitted.transform_one(text), atol=1e-4)


def test_threads_change_nothing(fitted, monkeypatch):
    texts = make_texts(1500, seed=2)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    alone = fitted.transform(texts)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    np.testing.assert_array_equal(fitted.transform(texts), alone)


def test_a_text_of_ten_million_characters_is_read_at_its_ends_alone(fitted):
    text = "what is 3 + 4? " * 700_000
    fitted.transform_one(text)
    tracemalloc.start()
    row = fitted.transform_one(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Whoever reads all of it makes something of every character.
    assert peak < len(text) / 4
    ends = fitted.transform_one(text[:6144] + " " + text[-2048:])
    np.testing.assert_allclose(row[:16], ends[:16], atol=1e-6)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("n_components", 0),
        ("bits", 7),
        ("bits", 25),
        ("first", 0),
        ("last", -1),
        ("n_features", 2.5),
        ("min_df", True),
        ("random_state", -1),
    ],
)
def test_an_option_out_of_range_is_refused(option, value):
    with pytest.raises(InvalidInputError, match="must be an integer in") as caught:
        HashingFeatures(**{option: value}).fit(["a text"])
    assert caught.value.code == f"invalid_{option}"
    with pytest.raises(InvalidInputError):
        make_features("hashing", **{option: value})


def test_transforming_needs_numpy_alone(fitted, tmp_path):
    settings, tensors = fitted.state()
    np.savez(tmp_path / "state.npz", **tensors)
    code = (
        "import sys, numpy as np\n"
        "from mild.features import HashingFeatures\n"
        f"tensors = dict(np.load({str(tmp_path / 'state.npz')!r}))\n"
        f"features = HashingFeatures.from_state({settings!r}, tensors)\n"
        "features.transform(['one', 'two']), features.transform_one('three')\n"
        "heavy = {'scipy', 'sklearn', 'torch', 'tokenizers'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


FEW = ["Add 2 and 3.", "Who wrote Faust?", "def f(x):\n    return x", "Where is Rome?"]


def test_numbers_stay_in_the_range_of_training():
    features = HashingFeatures(n_components=2).fit(FEW)
    known = features.transform(FEW)[:, -WIDTH:]
    far = features.transform(["x" * 1_000_000, "?\n" * 500, "{}" * 90, ""])[:, -WIDTH:]
    assert (far >= known.min(axis=0) - 1e-5).all()
    assert (far <= known.max(axis=0) + 1e-5).all()


def test_the_limits_of_the_numbers_are_a_part_of_the_state():
    features = HashingFeatures(n_components=2).fit(FEW)
    settings, tensors = features.state()
    same = HashingFeatures.from_state(settings, tensors)
    np.testing.assert_array_equal(same.transform(["x" * 999]), features.transform(["x" * 999]))
    wide = HashingFeatures.from_state(settings, tensors | {"limits": tensors["limits"] * 1000})
    assert wide.transform_one("x" * 10**6).max() > features.transform_one("x" * 10**6).max()
