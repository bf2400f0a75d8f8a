"""``mild report``"""

from __future__ import annotations

import json

import pyarrow.parquet as parquet
import pytest

from report_cases import larger_case


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """A table of outcomes in which the text tells who is right, with a column that splits it."""
    import pyarrow as pa

    table, _, _ = larger_case(300)
    source = table.column("source")
    content = {
        "prompt": [f"a question on {name}, number {i}" for i, name in enumerate(source)],
        "source": source,
        "part": ["old" if i < 200 else "new" for i in range(300)],
    }
    for k, name in enumerate(table.experts):
        content[f"score__{name}"] = table.scores[:, k]
        content[f"cost__{name}"] = table.prices[:, k]
    whole = pa.table(content)
    folder = tmp_path_factory.mktemp("outcomes")
    parquet.write_table(whole.slice(0, 200), folder / "old.parquet")
    parquet.write_table(whole, folder / "all.parquet")
    parquet.write_table(
        whole.drop_columns(["score__little", "cost__little"]), folder / "two.parquet"
    )
    return folder


@pytest.fixture
def router(mild, outcomes, tmp_path):
    done = mild("fit", outcomes / "old.parquet", "--out", tmp_path / "router", "--price-weight", 5)
    assert done.code == 0, done.err
    return tmp_path / "router"


def test_a_router_and_a_table_become_a_page(mild, router, outcomes, tmp_path):
    page = tmp_path / "report.html"
    done = mild(
        "report", router, "--table", outcomes / "all.parquet", "--where", "part=new", "--out", page
    )
    assert done.code == 0, done.err
    assert done.out.startswith("Routing pays: the mean loss of the router is")
    content = page.read_text(encoding="utf-8")
    assert "<h1>Routing pays</h1>" in content
    assert "100 rows, 3 experts" in content
    assert "part=new" in content
    assert "error + 5 × dollars" in content
    assert "optimistic" not in content + done.err


def test_the_figures_are_those_of_mild_evaluate(mild, router, outcomes, tmp_path):
    told = mild("evaluate", router, outcomes / "all.parquet", "--json").json()
    done = mild(
        "report",
        router,
        "--table",
        outcomes / "all.parquet",
        "--out",
        tmp_path / "a.html",
        "--json",
    )
    found = done.json()
    assert found["verdict"]["sentence"] == told["verdict"]["sentence"]
    seen = {"queries": 200, "checked": 300, "left_out": 0}
    assert found["seen_in_fit"] == told["seen_in_fit"] == seen
    assert "200 of 300 queries were in the training data" in done.err
    assert json.loads(json.dumps(found))["report"].endswith("a.html")


def test_few_rows_that_were_seen_are_left_out_unless_they_are_kept(
    mild, router, outcomes, tmp_path
):
    table = parquet.read_table(outcomes / "all.parquet")
    parquet.write_table(table.take([0, 1, *range(200, 300)]), tmp_path / "few.parquet")
    told = mild("evaluate", router, tmp_path / "few.parquet")
    assert "note: 2 rows (2 %) are left out" in told.err
    assert "warning" not in told.err
    assert "on 100 rows" in told.out
    page = ("report", router, "--table", tmp_path / "few.parquet", "--overwrite", "--json", "--out")
    found = mild(*page, tmp_path / "a.html")
    assert found.json()["seen_in_fit"] == {"queries": 2, "checked": 102, "left_out": 2}
    assert found.json()["rows"] == 100
    assert "note: 2 rows (2 %) are left out" in found.err
    kept = mild(*page, tmp_path / "a.html", "--keep-seen")
    assert kept.json()["rows"] == 102
    assert "2 of 102 queries were in the training data" in kept.err
    assert "optimistic" in (tmp_path / "a.html").read_text(encoding="utf-8")
    for option in (["--keep-seen"], ["--queries", 3], ["--confidence", 0.9], ["--random-state", 1]):
        without = mild("report", router, *option, "--out", tmp_path / "b.html")
        assert without.code == 1
        assert f"{option[0]} needs a table" in without.err


def test_a_saved_evaluation_is_rendered(mild, router, outcomes, tmp_path):
    lacking = mild("report", router, "--out", tmp_path / "a.html")
    assert lacking.code == 1
    assert "no saved evaluation" in lacking.err
    assert "--table" in lacking.err
    saved = mild("evaluate", router, outcomes / "all.parquet", "--save")
    assert saved.code == 0, saved.err
    done = mild("report", router, "--out", tmp_path / "a.html", "--title", "Ours")
    assert done.code == 0, done.err
    assert "<title>Ours</title>" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_a_comparison_is_rendered_alone_or_beside(mild, router, outcomes, tmp_path):
    results = tmp_path / "results.json"
    done = mild(
        "compare", outcomes / "all.parquet", "--price-weight", 5, "--methods", "ce", "--n-splits", 2,
        "--out", results,
    )  # fmt: skip
    assert done.code == 0, done.err
    alone = mild("report", results, "--out", tmp_path / "a.html")
    assert alone.code == 0, alone.err
    assert "All methods on the same splits" in (tmp_path / "a.html").read_text(encoding="utf-8")
    beside = mild(
        "report", router, "--table", outcomes / "all.parquet", "--comparison", results,
        "--out", tmp_path / "b.html", "--json",
    )  # fmt: skip
    assert beside.code == 0, beside.err
    kinds = [point["kind"] for point in beside.json()["frontier"]["points"]]
    assert kinds.count("method") == 1


def test_a_router_of_numbers_has_a_report_on_a_table_of_numbers(mild, fitted, tables):
    page = tables.folder / "report.html"
    done = mild("report", fitted, "--table", tables.new, "--out", page, "--json")
    assert done.code == 0, done.err
    assert done.json()["rows"] == 160
    same = mild("report", fitted, "--table", tables.log, "--out", page, "--overwrite")
    assert "fitted on these rows" in same.err
    refused = mild("report", fitted, "--table", tables.new, "--where", "a=b", "--out", page,
                   "--overwrite")  # fmt: skip
    assert "there must be a column 'a'" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--where", "part"], "where must be COLUMN=VALUE"),
        (["--where", "part=future"], "no row has 'part=future'; column 'part' holds new, old."),
        (["--where", "nowhere=1"], "there must be a column 'nowhere'"),
        (["--groups", "nowhere"], "there is no column 'nowhere'"),
        (["--out", "report.txt"], "must end in .html"),
        (["--comparison", "missing.json"], "cannot read missing.json"),
    ],
)
def test_invalid_options_are_reported(mild, router, outcomes, tmp_path, words, said):
    first = [] if "--out" in words else ["--out", tmp_path / "a.html"]
    done = mild("report", router, "--table", outcomes / "all.parquet", *first, *words)
    assert done.code == 1
    assert said in done.err


def test_options_about_a_table_need_a_table(mild, router, tmp_path):
    for words in (["--where", "a=b"], ["--groups", "a"], ["--beta", "little=1"]):
        done = mild("report", router, "--out", tmp_path / "a.html", *words)
        assert done.code == 1
        assert "--table" in done.err


def test_a_page_is_replaced_only_on_request(mild, router, outcomes, tmp_path):
    page = tmp_path / "a.html"
    page.write_text("mine")
    words = ["report", router, "--table", outcomes / "all.parquet", "--out", page]
    assert "exists" in mild(*words).err
    assert page.read_text() == "mine"
    assert mild(*words, "--overwrite").code == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_without_queries_the_page_shows_none(mild, router, outcomes, tmp_path):
    page = tmp_path / "a.html"
    mild("report", router, "--table", outcomes / "all.parquet", "--queries", 0, "--out", page)
    assert "a question on" not in page.read_text(encoding="utf-8")
