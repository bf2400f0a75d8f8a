"""Tables as users have them: of every layout, as frames and arrays, with holes, and with groups.

The same outcomes are the same table, however they are written down, and its figures are those of the cells.
"""

from __future__ import annotations

import csv
import gzip
import io
import json

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import mild
from journeys import adapter
from journeys.commands import mild_here
from journeys.world import EXPERTS, by_name, chosen_cells, log, matrix, take, without
from mild import metrics

pytestmark = pytest.mark.slow

N = 40
# What is known of an answer -> the beginning of the names of its columns.
PREFIXES = {
    "score": "correct__",
    "dollars": "cost__",
    "ms": "latency_ms__",
    "answer": "answer__",
}
EVERYTHING = frozenset(PREFIXES)


@pytest.fixture(scope="module")
def outcomes():
    """A table of all that a table can have; every fifth answer is missing."""
    columns = log(11, N)
    for number, name in enumerate(EXPERTS):
        # Scores may be shares.
        columns[f"correct__{name}"] = [0.75 * score for score in columns[f"correct__{name}"]]
        columns[f"answer__{name}"] = [f"{name} says {row}" for row in range(N)]
        for row in range(number, N, 5):
            for prefix in PREFIXES.values():
                columns[prefix + name][row] = None
    return columns


# The same table in every layout, as a list of objects.


def wide(outcomes):
    return [
        dict(zip(outcomes, cells, strict=True)) for cells in zip(*outcomes.values(), strict=True)
    ]


def endings(outcomes):
    renamed = {"query": outcomes["query"], "kind": outcomes["kind"]}
    for expert in EXPERTS:
        for what, ending in (("score", "correct"), ("dollars", "cost"), ("ms", "latency_ms")):
            renamed[f"{expert}_{ending}"] = outcomes[PREFIXES[what] + expert]
    return wide(renamed)


def routerbench(outcomes):
    renamed = {"prompt": outcomes["query"], "kind": outcomes["kind"]}
    for expert in EXPERTS:
        renamed[expert] = outcomes[f"correct__{expert}"]
        renamed[f"{expert}|total_cost"] = outcomes[f"cost__{expert}"]
    return wide(renamed)


def answered(outcomes, **names):
    """For each query, its own columns, and of each expert that answered what is known by these names."""
    for row, (query, kind) in enumerate(zip(outcomes["query"], outcomes["kind"], strict=True)):
        by_expert = {}
        for expert in EXPERTS:
            if outcomes[f"correct__{expert}"][row] is not None:
                by_expert[expert] = {
                    name: outcomes[PREFIXES[what] + expert][row] for what, name in names.items()
                }
        yield {"query": query, "kind": kind}, by_expert


USUAL = {"score": "score", "dollars": "cost", "ms": "latency_ms", "answer": "response"}


def long(outcomes):
    rows = []
    for own, by_expert in answered(outcomes, **USUAL):
        rows += [{**own, "model": expert, **known} for expert, known in by_expert.items()]
    return rows


def llmrouter(outcomes):
    rows = []
    names = {**USUAL, "score": "performance"}
    for own, by_expert in answered(outcomes, **names):
        for expert, known in by_expert.items():
            seconds = known.pop("latency_ms") / 1000
            rows.append({**own, "model_name": expert, **known, "response_time": seconds})
    return rows


def records(outcomes):
    rows = []
    for own, by_expert in answered(outcomes, **USUAL):
        responses = [{"model": expert, **known} for expert, known in by_expert.items()]
        rows.append({**own, "responses": responses})
    return rows


def records_by_model(outcomes):
    return [{**own, "models": by_expert} for own, by_expert in answered(outcomes, **USUAL)]


def nested(outcomes):
    rows = []
    for own, by_expert in answered(outcomes, score="scores", dollars="costs", answer="answers"):
        for name in ("scores", "costs", "answers"):
            own[name] = {expert: known[name] for expert, known in by_expert.items()}
        rows.append(own)
    return rows


def lists(outcomes):
    rows = []
    for own, by_expert in answered(outcomes, score="score"):
        scores = [known["score"] for known in by_expert.values()]
        rows.append({**own, "llm_name_list": list(by_expert), "perf_list": scores})
    return rows


# Names of files -> their layouts, and what these hold.
LAYOUTS = {
    "wide.csv": (wide, EVERYTHING),
    "wide.csv.gz": (wide, EVERYTHING),
    "wide.jsonl": (wide, EVERYTHING),
    "wide.xlsx": (wide, EVERYTHING),
    "wide.parquet": (wide, EVERYTHING),
    "wide.feather": (wide, EVERYTHING),
    "endings.csv": (endings, EVERYTHING - {"answer"}),
    "long.csv": (long, EVERYTHING),
    "long.jsonl": (long, EVERYTHING),
    "responses.jsonl": (records, EVERYTHING),
    "models.json": (records_by_model, EVERYTHING),
    "nested.json": (nested, EVERYTHING - {"ms"}),
    "lists.json": (lists, {"score"}),
    "routerbench.csv": (routerbench, {"score", "dollars"}),
    "llmrouter.jsonl": (llmrouter, EVERYTHING),
}


def write(path, rows):
    """Write rows in the format that the name of the file says."""
    if ".csv" in path.suffixes:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        content = text.getvalue().encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        book.active.append(list(rows[0]))
        for row in rows:
            book.active.append(list(row.values()))
        book.save(path)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        feather.write_feather(pa.Table.from_pylist(rows), path)


def check_table(table, outcomes, holds):
    """A table has the cells of these columns."""
    assert adapter.texts(table) == outcomes["query"]
    assert sorted(table.experts) == sorted(EXPERTS)
    scores = matrix(outcomes, "correct__")
    np.testing.assert_array_equal(by_name(table, table.asked), ~np.isnan(scores))
    np.testing.assert_allclose(by_name(table, table.scores), scores, rtol=1e-12)
    assert (table.prices is not None) == ("dollars" in holds)
    if "dollars" in holds:
        np.testing.assert_allclose(
            by_name(table, table.prices), matrix(outcomes, "cost__"), rtol=1e-12
        )
    assert (table.latencies is not None) == ("ms" in holds)
    if "ms" in holds:
        seconds = matrix(outcomes, "latency_ms__") / 1000
        np.testing.assert_allclose(by_name(table, table.latencies), seconds, rtol=1e-9)
    if "answer" in holds:
        for name in EXPERTS:
            said = adapter.answers(table, name)
            assert [cell or None for cell in said] == outcomes[f"answer__{name}"]
    assert adapter.column(table, "kind") == outcomes["kind"]


def check_described(described, outcomes, holds):
    """Figures of a table are those of its cells."""
    scores, dollars = matrix(outcomes, "correct__"), matrix(outcomes, "cost__")
    complete = scores[~np.isnan(scores).any(axis=1)]
    assert described.rows == N
    assert described.best_quality == pytest.approx(complete.mean(axis=0).max())
    assert described.oracle_quality == pytest.approx(complete.max(axis=1).mean())
    for column, name in enumerate(EXPERTS):
        assert described.asked[name] == np.sum(~np.isnan(scores[:, column]))
        assert described.quality[name] == pytest.approx(np.nanmean(scores[:, column]))
        if "dollars" in holds:
            assert described.dollars[name] == pytest.approx(np.nanmean(dollars[:, column]))
        else:
            assert described.dollars[name] is None


def test_every_layout_holds_the_same_outcomes(outcomes, tmp_path):
    for name, (layout, _) in LAYOUTS.items():
        write(tmp_path / name, layout(outcomes))
    # A folder of files is one table.
    (tmp_path / "parts").mkdir()
    for part, rows in enumerate((range(N // 2), range(N // 2, N))):
        write(tmp_path / "parts" / f"{part}.parquet", wide(take(outcomes, rows)))
    for name, (_, holds) in {**LAYOUTS, "parts": (wide, EVERYTHING)}.items():
        table = mild.read_outcomes(tmp_path / name)
        check_table(table, outcomes, holds)
        described = adapter.read_described(table.describe().as_dict())
        check_described(described, outcomes, holds)

        # The commands read the same, and write it in a layout that they all read.
        done = mild_here(tmp_path, adapter.describe(name, "--json"))
        assert done.code == 0, done.err
        assert adapter.read_described(done.figures) == described
        done = mild_here(tmp_path, adapter.convert(name, "converted.parquet", "--overwrite"))
        assert done.code == 0, done.err
        check_table(mild.read_outcomes(tmp_path / "converted.parquet"), outcomes, holds)
    stdin = (tmp_path / "wide.csv").read_text(encoding="utf-8")
    piped = mild_here(tmp_path, adapter.describe("-", "--json"), stdin=stdin).figures
    check_described(adapter.read_described(piped), outcomes, EVERYTHING)

    # Files that hold the same are told to be the same, and another one is not.
    prints = [
        mild.read_outcomes(tmp_path / name).fingerprint()
        for name in ("wide.csv", "wide.parquet", "lists.json")
    ]
    assert prints[0] == prints[1] != prints[2]


def test_frames_of_every_library_are_tables(outcomes):
    for frame in (pd.DataFrame(outcomes), pl.DataFrame(outcomes), pa.table(outcomes)):
        table = mild.read_outcomes(frame)
        check_table(table, outcomes, EVERYTHING)
        assert mild.read_outcomes(table) is table
        # A table gives a frame that is read as the same table.
        check_table(mild.read_outcomes(table.to_frame()), outcomes, EVERYTHING)
    # Rows, experts and costs of a table are those of its columns.
    rows = [3, 1, 17]
    picked = table[rows]
    assert len(picked) == 3
    check_table(picked, take(outcomes, rows), EVERYTHING)
    fewer = table.select(["small", "large"])
    assert sorted(fewer.experts) == ["large", "small"]
    np.testing.assert_array_equal(
        by_name(fewer, fewer.scores, ["small"]),
        by_name(table, table.scores, ["small"])[table.asked[:, [0, 2]].any(axis=1)],
    )
    costs = by_name(table, table.costs(beta={"large": 0.25}, price_weight=20, latency_weight=0.01))
    expected = (
        1
        - matrix(outcomes, "correct__")
        + [0.25, 0, 0]
        + 20 * matrix(outcomes, "cost__")
        + 0.01 * matrix(outcomes, "latency_ms__") / 1000
    )
    np.testing.assert_allclose(costs, expected, rtol=1e-9)


def test_arrays_dense_and_sparse_make_routers():
    rng = np.random.default_rng(12)
    X = rng.normal(size=(600, 4)) * (rng.random((600, 4)) < 0.6)
    # No input occurs twice.
    X[:, 3] = rng.normal(size=600)
    names = ["left", "right", "both"]
    costs = np.column_stack([X[:, 0] > 0.3, X[:, 0] <= 0.3, np.full(600, 0.4)]).astype(float)
    train, test = slice(400), slice(400, 600)
    table = mild.Outcomes.from_arrays(X[train], costs[train], experts=names)
    np.testing.assert_array_equal(by_name(table, table.costs(), names), costs[train])

    found = mild.tune(table, **adapter.fast())
    held_out = mild.Outcomes.from_arrays(X[test], costs[test], experts=names)
    judged = adapter.read_judged(mild.evaluate(found.router, held_out).as_dict())
    chosen = [found.router.experts[index] for index in found.router.predict(X[test])]
    paid = costs[test][np.arange(200), [names.index(name) for name in chosen]]
    assert judged.cost[None] == pytest.approx(paid.mean())
    assert judged.cost["perfect"] == pytest.approx(costs[test].min(axis=1).mean())
    for column, name in enumerate(names):
        assert judged.cost[name] == pytest.approx(costs[test][:, column].mean())
        assert judged.shares[name] == pytest.approx(chosen.count(name) / 200)
    # No single expert costs less than 0.4.
    assert judged.cost[None] < 0.2

    for estimator in (mild.LinearRouter, mild.RidgeRouter):
        dense = estimator().fit(X[train], costs[train])
        sparse = estimator().fit(sp.csr_array(X[train]), costs[train])
        for held in (X[test], sp.csr_array(X[test])):
            np.testing.assert_allclose(
                sparse.decision_function(held), dense.decision_function(X[test]), atol=1e-3
            )
        choices = dense.predict(X[test])
        assert np.mean(sparse.predict(sp.csr_array(X[test])) != choices) <= 0.02
        expected = costs[test][np.arange(200), choices].mean()
        assert metrics.deferral_loss(costs[test], choices) == pytest.approx(expected)
        assert expected < 0.25


def test_a_table_with_holes_says_nothing_of_experts_that_were_not_asked(tmp_path):
    columns = without(log(13, 600), "latency_ms__")
    # medium was rarely asked: it is no worse for that.
    rng = np.random.default_rng(14)
    for row in np.flatnonzero(rng.random(600) < 0.6):
        columns["correct__medium"][row] = columns["cost__medium"][row] = None
    train, test = take(columns, range(400)), take(columns, range(400, 600))
    write(tmp_path / "log.csv", wide(train))
    table = mild.read_outcomes(tmp_path / "log.csv")
    scores = matrix(train, "correct__")
    np.testing.assert_array_equal(by_name(table, table.asked), ~np.isnan(scores))
    assert np.isnan(by_name(table, table.costs(price_weight=20))[np.isnan(scores)]).all()

    router = mild.fit(table, "ridge", price_weight=20)
    novels = [
        text for text, kind in zip(test["query"], test["kind"], strict=True) if kind == "novel"
    ]
    assert router.route(novels).count("medium") > 0.8 * len(novels)

    # It is judged by the rows in which all experts were asked.
    complete = np.flatnonzero(~np.isnan(matrix(test, "correct__")).any(axis=1))
    known = take(test, complete)
    chosen = router.route(known["query"])
    judged = mild.evaluate(router, pd.DataFrame(test))
    figures = adapter.read_judged(judged.as_dict())
    assert judged.verdict.n_rows == figures.rows == len(complete)
    assert figures.quality[None] == pytest.approx(chosen_cells(known, "correct__", chosen).mean())
    assert figures.dollars[None] == pytest.approx(
        1000 * chosen_cells(known, "cost__", chosen).mean()
    )
    assert figures.shares["medium"] == pytest.approx(chosen.count("medium") / len(complete))


def test_groups_stay_together_and_count_once():
    # Every customer asks one question eight times, in other words.
    once = log(15, 60)
    rows = [row for row in range(60) for _ in range(8)]
    columns = take(once, rows)
    columns["customer"] = rows
    columns["query"] = [f"{text} ({n})" for n, text in enumerate(columns["query"])]
    table = mild.read_outcomes(pd.DataFrame(columns))
    for random_state in range(3):
        parts = table.split(test_size=0.3, groups="customer", random_state=random_state)
        customers = [set(adapter.column(part, "customer")) for part in parts]
        assert customers[0] | customers[1] == set(range(60))
        assert not customers[0] & customers[1]
        assert sum(map(len, parts)) == len(table)

    train = mild.read_outcomes(pd.DataFrame(log(16, 300)))
    router = mild.fit(train, "ridge", price_weight=20)
    alone = mild.evaluate(router, table)
    grouped = mild.evaluate(router, table, groups="customer")
    assert (alone.verdict.n_rows, grouped.verdict.n_rows) == (480, 480)
    assert (alone.verdict.n_groups, grouped.verdict.n_groups) == (480, 60)
    intervals = []
    for judged in (alone, grouped):
        estimate, low, high = adapter.read_judged(judged.as_dict()).difference
        intervals.append((estimate, high - low))
    assert intervals[0][0] == pytest.approx(intervals[1][0])
    # Eight answers of a customer say what one says.
    assert intervals[1][1] == pytest.approx(np.sqrt(8) * intervals[0][1], rel=0.25)

    # Equal questions are a group without being told.
    repeated = take(once, rows)
    judged = mild.evaluate(router, pd.DataFrame(repeated))
    assert judged.verdict.n_groups == 60
    first, second = mild.read_outcomes(pd.DataFrame(repeated)).split(random_state=1)
    assert not set(adapter.texts(first)) & set(adapter.texts(second))
    assert len(first) + len(second) == 480
