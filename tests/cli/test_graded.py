"""A mean of graded scores is a mean score; only of right and wrong answers it is an accuracy."""

from __future__ import annotations

import numpy as np
import pytest

from mild import compare, evaluate, fit, read_outcomes
from outcome_cases import EXPERTS, make_columns, write_outcomes


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """One with graded scores, one with the same rounded to 0 and 1."""
    folder = tmp_path_factory.mktemp("graded")
    soft, plain = (make_columns(150, prices=True) for _ in range(2))
    rng = np.random.default_rng(0)
    for name in EXPERTS:
        scores = np.array(soft.pop(f"correct__{name}"), float)
        soft[f"score__{name}"] = np.clip(0.8 * scores + 0.2 * rng.uniform(size=150), 0, 1)
    files = folder / "graded.csv", folder / "plain.csv"
    return [write_outcomes(*pair) for pair in zip((soft, plain), files, strict=True)]


@pytest.mark.parametrize("which", [0, 1])
def test_tables_and_pages_use_the_word(mild, graded, tmp_path, which):
    table = graded[which]
    word, other = ("accuracy", "mean score") if which else ("mean score", "accuracy")
    folder, page = tmp_path / "router", tmp_path / "report.html"
    texts = [
        mild("describe", table).out,
        mild("fit", table, "--out", folder, "--router", "ridge").out,
        mild("evaluate", folder, table, "--report", page).out,
        mild("compare", table, "--methods", "tdef", "--n-splits", 2).out,
    ]
    for text in texts:
        # Headers of a narrow table are broken into words.
        assert all(part in text for part in word.split())
        assert other not in text.replace("higher mean score", "")
    content = page.read_text()
    assert word in content
    assert ("answers are right" in content) == bool(which)
    shown = mild("explain", folder, "boil salt please").out
    assert ("P(right)" in shown) == bool(which)
    assert ("expected score" in shown) != bool(which)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.filterwarnings("ignore:.*figures are optimistic")
def test_results_name_their_quality(graded, which):
    table = read_outcomes(graded[which])
    word = ("mean score", "accuracy")[which]
    router = fit(table, "ridge")
    assert evaluate(router, table).as_dict()["quality_name"] == word
    assert compare(table, methods=["tdef"], n_splits=2).quality_name == word
    assert router.explain("boil").graded == (which == 0)
