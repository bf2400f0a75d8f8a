"""``mild.evaluate`` and ``mild.compare``: figures, frames, plots and pages of a router."""

from __future__ import annotations

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import mild
from mild.data import Outcomes
from mild.datasets import load_outcomes
from mild.errors import InvalidInputError, MildError, MildWarning, OutputExistsError
from mild.evaluation.displays import FrontierDisplay
from mild.report import render
from mild.routers import LinearRouter
from outcome_cases import make_columns

mpl.use("Agg")


@pytest.fixture(scope="module")
def parts():
    return load_outcomes().split(test_size=0.3, random_state=0)


@pytest.fixture(scope="module")
def router(parts):
    return mild.fit(parts[0], "priced", price_weight=50)


@pytest.fixture(scope="module")
def judged(router, parts):
    return mild.evaluate(router, parts[1])


def test_figures_are_beside_constant_chance_and_oracle(judged, parts):
    frame = judged.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame["key"]) == ["router", "best_single", "fit_constant", "same_mix", "perfect"]
    losses = frame.set_index("key")["loss"]
    assert losses["perfect"] < losses["router"] < losses["best_single"]
    costs = parts[1].costs(price_weight=50)
    assert losses["router"] == pytest.approx(
        costs[np.arange(len(costs)), judged.judged.chosen].mean()
    )
    assert judged.verdict.pays is True
    assert repr(judged) == f"{judged.verdict.sentence}\nThe loss is error + 50 × dollars."
    assert judged.verdict.sentence in judged._repr_html_()


def test_a_router_under_new_prices_is_judged_by_the_new_loss(router, parts):
    _, test = parts
    dear = mild.evaluate(router.with_prices(price_weight=1000), test)
    costs = test.costs(price_weight=1000)
    losses = dear.to_frame().set_index("key")["loss"]
    assert losses["router"] == pytest.approx(
        costs[np.arange(len(costs)), dear.judged.chosen].mean()
    )
    assert "The loss is error + 1000 × dollars." in repr(dear)
    assert "The loss is error + 1000 × dollars." in dear._repr_html_()
    asked = mild.evaluate(router, test, price_weight=1000)
    assert dear.verdict.sentence == asked.verdict.sentence


def test_betas_of_some_experts_are_completed_as_in_a_fit(router, parts):
    dearest = parts[1].experts[0]
    judged = mild.evaluate(router, parts[1], beta={dearest: 0.5})
    assert judged.judged.router.info.cost.beta[dearest] == 0.5
    assert sum(judged.judged.router.info.cost.beta.values()) == 0.5


def overlapping(parts, seen, rows):
    """Rows of the test table, the first of them replaced by rows that were trained on."""
    train, test = parts
    both = [train[np.arange(seen)].to_frame(), test[np.arange(rows - seen)].to_frame()]
    return mild.read_outcomes(pd.concat(both, ignore_index=True))


@pytest.mark.parametrize("seen", [1, 9, 100, 197])
def test_rows_that_were_seen_in_training_are_judged_and_warned_of(router, parts, seen):
    table = overlapping(parts, seen, 200)
    with pytest.warns(MildWarning, match=f"^{seen} of 200 queries were in the training") as caught:
        judged = mild.evaluate(router, table)
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message) == judged.warning
    assert "mild tune has a holdout" in judged.warning
    assert judged.figures.summary["n_samples"] == 200
    assert judged.overlap == {
        "same_data_as_fit": False,
        "seen_in_fit": {"queries": seen, "checked": 200},
    }
    assert judged.notes == ()
    assert judged.as_dict()["seen_in_fit"] == judged.document()["seen_in_fit"]
    assert "in the training data" in repr(judged)
    assert "in the training data" in render(judged.document())


def test_the_training_table_itself_is_recognised(router, parts):
    with pytest.warns(MildWarning, match="fitted on these rows"):
        judged = mild.evaluate(router, parts[0])
    assert judged.overlap["same_data_as_fit"]


def test_a_router_that_does_not_know_its_queries_is_judged_by_all_rows(router, parts):
    old = replace(router, query_hashes=None)
    judged = mild.evaluate(old, overlapping(parts, 9, 200))
    assert judged.overlap == {"same_data_as_fit": False, "seen_in_fit": None}
    assert judged.figures.summary["n_samples"] == 200
    assert (judged.warning, judged.notes) == (None, ())


def test_of_a_sample_of_hashes_those_that_are_recognised_are_warned_of(router, parts):
    hashes = router.query_hashes[: len(router.query_hashes) // 2]
    sampled = replace(router, query_hashes=hashes, info=replace(router.info, hashes_complete=False))
    with pytest.warns(MildWarning, match="in the training data"):
        judged = mild.evaluate(sampled, overlapping(parts, 8, 200))
    seen = judged.overlap["seen_in_fit"]
    assert 0 < seen["queries"] < 8
    assert seen["queries"] < seen["checked"] < 200
    assert judged.figures.summary["n_samples"] == 200


def test_a_router_a_folder_and_a_file_are_the_same_to_it(judged, router, parts, tmp_path):
    folder = router.save(tmp_path / "r")
    file = tmp_path / "test.csv"
    parts[1].to_frame().to_csv(file, index=False)
    again = mild.evaluate(folder, file)
    assert again.verdict.estimate == pytest.approx(judged.verdict.estimate)
    assert again.figures.summary["shares"] == judged.figures.summary["shares"]


def test_the_cost_is_that_of_the_fit_unless_told_otherwise(judged, router, parts):
    assert judged.formula == "error + 50 × dollars"
    free = mild.evaluate(router, parts[1], price_weight=0)
    assert free.formula == "error"
    # A priced router decides by the new prices.
    assert (free.judged.chosen != judged.judged.chosen).any()
    linear = mild.fit(parts[0], price_weight=50)
    other = mild.evaluate(linear, parts[1], beta={"rules": 0.5})
    assert "fitted with another cost" in other.notes[0]


def test_other_experts_are_left_out_and_missing_ones_refused(router, parts):
    few = parts[1].select(["rules", "gemma3"])
    with pytest.raises(InvalidInputError, match="the table has no smollm2"):
        mild.evaluate(router, few)
    two = mild.fit(parts[0].select(["rules", "gemma3"]))
    found = mild.evaluate(two, parts[1])
    assert found.notes == ("left out because the router does not know them: smollm2.",)


def test_numbers_are_judged_with_their_costs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    costs = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0]).astype(float)
    router = mild.LinearRouter().fit(X[:100], costs[:100])
    table = Outcomes.from_arrays(X[100:], costs[100:])
    found = mild.evaluate(router, table)
    assert found.verdict.pays is True
    assert found.as_dict()["rows"] == 100
    assert found.as_dict()["cost"]["words"] == "given cost"
    assert [row["accuracy"] for row in found.figures.baselines] == [None] * 4
    with pytest.raises(InvalidInputError, match="beta needs a table with scores"):
        mild.evaluate(router, table, beta={})


def test_a_router_is_judged_on_what_it_reads(router, parts):
    numbers = Outcomes.from_arrays(np.eye(3), np.eye(3), experts=router.experts)
    with pytest.raises(InvalidInputError, match="must have queries"):
        mild.evaluate(router, numbers)
    with pytest.raises(InvalidInputError, match="must be a table of numbers"):
        mild.evaluate(mild.fit(numbers), parts[1])


def test_plots_are_displays_that_draw_on_given_axes(judged):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3)
    displays = [
        judged.plot_frontier(ax=axes[0]),
        judged.plot_calibration(ax=axes[1]),
        judged.plot_shares(ax=axes[2]),
    ]
    for display, ax in zip(displays, axes, strict=True):
        assert display.ax_ is ax
        assert display.figure_ is figure
        assert ax.get_xlabel()
    drawn = [text.get_text() for text in axes[0].texts]
    assert drawn == ["gemma3", "rules", "smollm2"]
    shares = [bar.get_width() for bar in axes[2].patches[:3]]
    assert shares == pytest.approx(judged.figures.summary["shares"])
    fresh = judged.plot_frontier()
    assert fresh.figure_ is not figure
    plt.close("all")


def test_the_report_is_written_whole(judged, tmp_path):
    page = judged.write_report(tmp_path / "report.html", title="A router & its page")
    assert "A router &amp; its page" in page.read_text(encoding="utf-8")
    with pytest.raises(OutputExistsError):
        judged.write_report(page)


@pytest.mark.filterwarnings("ignore:.*figures are optimistic")
def test_methods_are_compared_in_python_on_texts_and_on_vectors(parts):
    found = mild.compare(parts[0], price_weight=50, methods=["ce", "tdef"], n_splits=2)
    frame = found.to_frame()
    assert list(frame["method"]) == ["constant", "ce", "tdef"]
    assert found.verdict.sentence in repr(found)
    assert found.verdict.sentence in found._repr_html_()
    assert found.as_dict()["cost"]["price_weight"] == 50
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 2))
    costs = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0]).astype(float)
    columns = {"vector": X.tolist(), "pair": [f"p{row // 2}" for row in range(240)]}
    columns |= {"score__a": 1 - costs[:, 0], "score__b": 1 - costs[:, 1]}
    table = mild.read_outcomes(pa.table(columns))
    options = {"methods": ["ce"], "n_splits": 5}
    numbers = mild.compare(table, groups="pair", **options)
    assert numbers.row("ce").verdict == "better"
    assert numbers.row("ce").n_groups <= 120
    for bad in ({"price_weight": 1}, {"groups": "nowhere"}, {"methods": ["nothing"]}):
        with pytest.raises(MildError):
            mild.compare(table, **bad)


def test_groups_change_the_interval_only():
    columns = make_columns(240, 1, prices=True)
    table = mild.read_outcomes(pa.table(columns))
    router = mild.fit(table[np.arange(150)])
    new = table[np.arange(150, 240)]
    by_row, by_group = (
        mild.evaluate(router, new, groups=name).verdict for name in (None, "subject")
    )
    assert by_row.estimate == by_group.estimate
    assert (by_row.low, by_row.high) != (by_group.low, by_group.high)
    assert (by_group.n_rows, by_group.n_groups) == (90, 6)


@pytest.mark.parametrize("unpriced", ["poet", "cook"])
def test_an_expert_without_prices_leaves_the_dollars_of_a_router_unknown(unpriced):
    columns = make_columns(240, 1, prices=True)
    columns.pop(f"cost__{unpriced}")
    table = mild.read_outcomes(pa.table(columns))
    found = mild.evaluate(mild.fit(table[np.arange(150)]), table[np.arange(150, 240)])
    report = found.as_dict()
    assert min(report["summary"]["shares"]) > 0.1
    assert found.to_frame().to_pylist()[0]["dollars_per_1000"] is None
    assert report["dollars_per_1000"]["router"] is None
    assert report["verdict"]["dollars_per_1000"] is None


def test_means_over_different_rows_have_no_share_of_the_gain():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    costs = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0, np.full(200, 0.5)])
    router = mild.LinearRouter().fit(X, costs)
    costs[20:, 1] = np.nan
    found = mild.evaluate(router, Outcomes.from_arrays(X, costs))
    assert found.figures.left_out is not None
    assert found.as_dict()["summary"]["headroom_captured"] is None


def test_the_curve_beside_a_cascade_is_that_of_the_router_without_answers():
    plt = pytest.importorskip("matplotlib.pyplot")
    points = [
        {"kind": kind, "name": kind, "dollars": dollars, "quality": quality}
        for kind, dollars, quality in (
            ("operating", 1.0, 0.5),
            ("router", 2.0, 0.9),
            ("operating", 3.0, 0.7),
        )
    ]
    frontier = {"axis": "dollars", "label": "dollars", "points": points}
    ax = FrontierDisplay(frontier, cascade=True).plot().ax_
    assert list(ax.lines[0].get_xdata()) == [1.0, 3.0]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["router without answers", "cascade"]
    plt.close(ax.figure)


@pytest.mark.parametrize("size", [(6.4, 4.8), (4, 3)])
def test_the_legend_of_a_frontier_hides_neither_points_nor_names(size):
    plt = pytest.importorskip("matplotlib.pyplot")
    points = []
    for i, quality in enumerate(np.linspace(0.2, 0.9, 6)):
        for k, dollars in enumerate(np.linspace(0.0, 5.0, 6)):
            name = f"expert {i}{k}"
            points.append(
                {"kind": "constant", "name": name, "dollars": dollars, "quality": quality}
            )
    points.extend(
        {"kind": kind, "name": kind, "dollars": 2.0, "quality": 0.5}
        for kind in ("operating", "router", "oracle")
    )
    frontier = {"axis": "dollars", "label": "dollars", "points": points}
    frontier["target"] = {"quality": 0.85}
    figure, axes = plt.subplots(figsize=size)
    FrontierDisplay(frontier).plot(axes)
    figure.canvas.draw()
    box = axes.get_legend().get_window_extent()
    places = axes.transData.transform([(one["dollars"], one["quality"]) for one in points])
    assert not any(box.contains(*place) for place in places)
    assert not any(box.overlaps(text.get_window_extent()) for text in axes.texts)
    assert min(axes.get_yticks()) >= 0
    plt.close(figure)


@pytest.mark.filterwarnings("ignore:.*figures are optimistic")
def test_a_router_without_names_of_experts_is_refused_on_a_table_with_names():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    costs = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0]).astype(float)
    router = LinearRouter().fit(X, costs)
    named = Outcomes.from_arrays(X, costs, experts=["small", "large"])
    with pytest.raises(InvalidInputError, match="array of costs") as error:
        mild.evaluate(router, named)
    assert error.value.code == "invalid_router"
    unnamed = Outcomes.from_arrays(X, costs)
    assert mild.evaluate(router, unnamed).as_dict()["summary"]["loss"] < 0.1
