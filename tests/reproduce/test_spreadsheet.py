from __future__ import annotations

import csv
import io

import pytest

from mild.reproduce.spreadsheet import to_csv
from mild.reproduce.summary import summarise
from result_cases import three_seeds


def test_csv_holds_every_setting_and_number_in_full() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(summarise(three_seeds())))))
    assert len(rows) == 5 + 3
    row = rows[2]
    assert (row["table"], row["dataset"], row["setup"], row["cost"]) == (
        *("table1", "cifar10", "I", "error"),
    )
    assert (row["method_name"], row["method_rewards"], row["method_total"]) == (
        "mild",
        "others",
        "1",
    )
    assert (row["decision"], row["n_seeds"], row["seeds"]) == ("stationary", "3", "0 1 2")
    assert [float(loss) for loss in row["losses"].split()] == [0.04, 0.05, 0.031]
    assert float(row["mean"]) == pytest.approx((0.04 + 0.05 + 0.031) / 3, rel=1e-15)
    assert float(row["minus_tdef"]) == pytest.approx(-0.029 / 3, rel=1e-12)
    assert [float(part) for part in row["margins_used"].split()] == pytest.approx([0.5, 0.3, 0.2])
    assert row["recall"].split()[2] == "nan"
    assert (row["paper_loss"], row["paper_std"]) == ("0.0403", "0.0018")
    assert (row["protocol_epochs"], row["protocol_schedule"]) == ("16", "one-cycle")
    assert (row["holdout"], row["expert_seed"], row["data"]) == ("False", "", "00112233aabbccdd")
    assert row["verdict"] == "better than TDEF"
    assert rows[-1]["method_name"] == "oracle"
    assert rows[-1]["paper_loss"] == ""


def test_no_blocks_make_an_empty_file() -> None:
    assert to_csv([]).strip() == ""
