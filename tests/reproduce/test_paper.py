"""The paper's figures, against sums taken from its source by another reading than made the file."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from importlib.resources import files

import pytest

from mild.exceptions import OptionError
from mild.reproduce import formats
from mild.reproduce.paper import PAPER_TABLES, PaperFigure, lookup, paper_figures

# Counted and summed over the tables' lines in units of 1e-4, in the order of the source: rows,
# losses, standard deviations, both again weighted by the row's number, shares per expert.
SUMS = {
    "table1": (48, 200341, 1279, 6092717, 32235, (24835700, 10012100, 8073600, 3756700, 1322000)),
    "table2": (36, 133825, 1074, 2918785, 20093, (13087900, 7311200, 8558500, 5020600, 2022000)),
    "severe": (6, 2876, 140, 8897, 459, (5660300, 339700)),
    # Below the table's six rows: CE, CWCE and LDAM, which the text gives.
    "llm": (9, 54460, 3480, 343350, 17310, (3142000, 439000, 2418000)),
    "ablation": (3, 25190, 1370, 49670, 2590, ()),
    "noise": (2, 18800, 860, 27060, 1270, ()),
    "extreme": (3, 18350, 620, 45550, 1560, (2896000, 104000)),
}
# As printed: rounding leaves these rows a last digit away from 100.
NOT_100 = {
    ("table1", "svhn", "II", "error", "tdef"): 100.01,
    ("table2", "cifar100", "I", "cost", "mild"): 100.01,
    ("table2", "cifar10", "II", "cost", "tdef"): 100.01,
    ("llm", "mmlu", "qwen2.5", "error", "mild"): 99.9,
}
N_EXPERTS = {"I": 3, "II": 4, "III": 5, "severe": 2, "qwen2.5": 3}


def place(figure: PaperFigure) -> tuple[str, ...]:
    return figure.table, figure.dataset, figure.setup, figure.cost, figure.method


def units(value: float | None) -> int:
    return round(1e4 * (value or 0))


@pytest.mark.parametrize("table", PAPER_TABLES)
def test_rows_and_sums_are_those_of_the_paper_s_source(table: str) -> None:
    figures = paper_figures(table)
    rows, losses, stds, weighted_losses, weighted_stds, shares = SUMS[table]
    assert len(figures) == rows
    assert sum(units(figure.loss) for figure in figures) == losses
    assert sum(units(figure.std) for figure in figures) == stds
    assert sum(n * units(figure.loss) for n, figure in enumerate(figures, 1)) == weighted_losses
    assert sum(n * units(figure.std) for n, figure in enumerate(figures, 1)) == weighted_stds
    for k, total in enumerate(shares):
        column = [figure.shares[k] for figure in figures if len(figure.shares) > k]
        assert sum(map(units, column)) == total
    assert max(len(figure.shares) for figure in figures) == len(shares)


def test_shares_sum_to_100_but_for_four_rows_a_last_digit_off() -> None:
    off = {
        place(figure): round(math.fsum(figure.shares), 2)
        for figure in paper_figures()
        if figure.shares and round(math.fsum(figure.shares), 2) != 100
    }
    assert off == NOT_100


def test_every_setup_has_a_share_for_each_of_its_experts() -> None:
    for figure in paper_figures():
        # The text says how many go to the 7B model and how many to the others together, or nothing.
        told = {"extreme": 2, "ablation": 0, "noise": 0}.get(figure.table, N_EXPERTS[figure.setup])
        assert len(figure.shares) == (0 if figure.method in ("ce", "cwce", "ldam") else told)


def test_every_cell_is_there_once_for_both_methods() -> None:
    places = [place(figure) for figure in paper_figures()]
    assert len(set(places)) == len(places) == 107
    for table, datasets, costs in (
        ("table1", ("cifar10", "cifar100", "svhn", "tiny-imagenet"), ("error", "cost")),
        ("table2", ("cifar10", "cifar100", "svhn"), ("error", "cost")),
    ):
        expected = {
            (table, dataset, setup, cost, method)
            for dataset in datasets
            for setup in ("I", "II", "III")
            for cost in costs
            for method in ("tdef", "mild")
        }
        assert {entry for entry in places if entry[0] == table} == expected


def test_mild_is_below_tdef_in_every_cell_of_the_paper() -> None:
    for figure in paper_figures(method="mild"):
        tdef = lookup(figure.table, figure.dataset, figure.setup, figure.cost, "tdef")
        assert tdef is not None
        assert figure.loss < tdef.loss


@pytest.mark.parametrize(
    ("where", "loss", "std", "shares"),
    [
        (("table1", "cifar10", "I", "error", "tdef"), 0.0520, 0.0022, (71.31, 19.18, 9.51)),
        (("table1", "tiny-imagenet", "I", "error", "tdef"), 0.3488, 0.0028, (71.80, 28.16, 0.04)),
        (
            ("table1", "tiny-imagenet", "III", "cost", "mild"),
            *(0.8167, 0.0031, (17.22, 10.02, 15.48, 35.43, 21.85)),
        ),
        (("table2", "svhn", "II", "cost", "mild"), 0.2802, 0.0027, (9.88, 12.26, 11.40, 66.46)),
        (("severe", "svhn", "severe", "error", "mild"), 0.0086, 0.0012, (90.05, 9.95)),
        (("llm", "mmlu", "qwen2.5", "cost", "optimal"), None, None, (31.2, 12.0, 56.8)),
    ],
)
def test_single_rows_read_as_printed(where, loss, std, shares) -> None:
    assert lookup(*where) == PaperFigure(*where, loss, std, shares)


def test_filters_narrow_and_an_unknown_table_suggests_one() -> None:
    assert len(paper_figures(dataset="svhn", cost="cost", method="mild")) == 6
    assert paper_figures(dataset="digits") == ()
    with pytest.raises(OptionError, match="Did you mean 'table1'"):
        paper_figures("tabel1")


def test_what_the_paper_has_not_is_none() -> None:
    assert lookup("table2", "tiny-imagenet", "I", "error", "mild") is None
    assert lookup("table1", "cifar10", "I", "error", "ldam") is None


def test_the_data_file_says_where_it_comes_from_and_repeats_nothing_of_the_code() -> None:
    entry = json.loads((files("mild.reproduce") / "paper.json").read_text(encoding="utf-8"))
    assert "Optimized Deferral for Imbalanced Settings" in entry["source"]
    assert set(entry) == {"source", "figures"}
    assert list(dict.fromkeys(figure["table"] for figure in entry["figures"])) == list(PAPER_TABLES)


def test_how_many_runs_the_paper_had_is_said_from_one_place(monkeypatch) -> None:
    monkeypatch.setattr(formats, "PAPER_RUNS", 7)
    said = " ".join(formats.how_to_read([]))
    assert "over 7 runs as printed" in said
    assert "plus s²/7 of the paper's" in said


def test_tables_and_their_statistics_are_read_without_torch_or_matplotlib() -> None:
    script = (
        "import sys, mild.reproduce.formats, mild.reproduce.figures, mild.reproduce.results\n"
        "print({'torch', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
