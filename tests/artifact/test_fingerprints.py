"""Fingerprints tell data apart, and only data."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from mild.artifact import features_tag, fingerprint
from mild.artifact import fingerprints as module
from mild.errors import InvalidInputError
from mild.features import HashingFeatures
from mild.policies import MixPolicy
from world_cases import KINDS, make_router, texts_of


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(30, 5)), rng.uniform(size=(30, 3))


def test_the_same_numbers_have_the_same_fingerprint(data):
    X, costs = data
    mark = fingerprint(X, costs)
    assert len(mark) == 64
    assert fingerprint(X.copy(), costs.copy()) == mark
    assert fingerprint(np.asfortranarray(X), costs) == mark
    assert fingerprint(X.astype(">f8"), costs) == mark
    assert fingerprint(X.tolist(), costs.tolist()) == mark


def test_any_change_changes_the_fingerprint(data):
    X, costs = data
    other = X.copy()
    other[3, 2] = np.nextafter(other[3, 2], np.inf)
    variants = [
        (X, costs),
        (other, costs),
        (X, other),
        (X[::-1], costs[::-1]),
        (X[:-1], costs[:-1]),
        (X.astype(np.float32), costs),
        (X.reshape(15, 10), costs),
        (costs, X),
        (sp.csr_matrix(X), costs),
    ]
    assert len({fingerprint(*variant) for variant in variants}) == len(variants)


def test_sparse_matrices_with_the_same_entries_agree(data):
    X, costs = data
    X = np.where(np.abs(X) > 1, X, 0)
    tidy = sp.csr_matrix(X)
    untidy = tidy.copy()
    for row in range(untidy.shape[0]):
        part = slice(untidy.indptr[row], untidy.indptr[row + 1])
        untidy.indices[part] = untidy.indices[part][::-1]
        untidy.data[part] = untidy.data[part][::-1]
    untidy.has_sorted_indices = False
    mark = fingerprint(tidy, costs)
    assert fingerprint(untidy, costs) == mark
    assert not untidy.has_sorted_indices, "the caller's matrix was changed"
    assert fingerprint(sp.coo_array(X), costs) == mark
    assert fingerprint(tidy * 2, costs) != mark


def test_blocks_do_not_change_the_fingerprint(data, monkeypatch):
    mark = fingerprint(*data)
    monkeypatch.setattr(module, "BLOCK", 7)
    assert fingerprint(*data) == mark


def test_text_has_no_fingerprint(data):
    with pytest.raises(InvalidInputError, match="X must hold numbers to have a fingerprint"):
        fingerprint([["a"], ["b"]], data[1][:2])


def test_the_tag_of_a_text_step_is_that_of_its_settings_and_of_what_it_learned():
    texts = texts_of(KINDS * 10, np.random.default_rng(0))
    tag = features_tag(HashingFeatures(n_components=8).fit(texts))
    assert len(tag) == 12
    assert features_tag(HashingFeatures(n_components=8).fit(texts)) == tag
    assert features_tag(HashingFeatures(n_components=4).fit(texts)) != tag
    assert features_tag(HashingFeatures(n_components=8).fit(texts[::-2])) != tag


def test_the_tag_of_features_with_draws_names_the_salt():
    step = HashingFeatures(n_components=8).fit(["what is 2 plus 3", "which city lies near"])
    policy = make_router().policy
    tags = [features_tag(step, MixPolicy(policy, policy, 0.1, salt)) for salt in ("x", "y")]
    assert tags[0] != tags[1]
    for tag in tags:
        assert tag.startswith(f"{features_tag(step)}+")
