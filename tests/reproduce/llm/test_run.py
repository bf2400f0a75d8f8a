import json

import pytest

from llm_cases import make_outcomes
from mild.exceptions import InvalidInputError
from mild.reproduce.diverged import DivergedError
from mild.reproduce.formats import to_markdown
from mild.reproduce.llm import run
from mild.reproduce.llm.costs import Noise
from mild.reproduce.llm.linear import Fitted
from mild.reproduce.llm.requests import LLMRequest
from mild.reproduce.llm.run import reproduce_llm
from mild.reproduce.methods import Method
from mild.reproduce.records import record_problem
from mild.reproduce.results import read_records
from mild.reproduce.summary import summarise

TWO = ("tdef", "mild")


@pytest.fixture
def make(tmp_path):
    """A small request; keywords change it."""

    def request(experiment="llm", methods=TWO, **fields):
        usual = {"seeds": 2, "alphas": (0.01,), "results": tmp_path / "r.jsonl"}
        fields = {**usual, **fields}
        fields.setdefault("table", make_outcomes())
        asked = tuple(Method.parse(text) for text in methods)
        return LLMRequest(experiment, name="made up", methods=asked, **fields)

    return request


@pytest.fixture
def fits(monkeypatch):
    """Trainings that are really run."""
    kept = []
    usual = run.fit_linear

    def count(method, *args):
        kept.append(method.text)
        return usual(method, *args)

    monkeypatch.setattr(run, "fit_linear", count)
    return kept


def test_records_are_complete_and_in_the_file(make):
    request = make(methods=("tdef", "mild", "ce", "cwce", "ldam"), seeds=1)
    records = reproduce_llm(request)
    assert len(records) == 2 * 5
    assert [record_problem(record) for record in records] == [None] * 10
    assert read_records(request.results) == records
    for record in records:
        assert record["rows"] == {"train": 120, "test": 60}
        assert record["note"].startswith("180 queries")
        assert "torch" not in record["versions"]
        for outcome in record["outcomes"].values():
            assert outcome["loss"] >= record["reference"]["oracle"]
            assert outcome["control"] >= record["reference"]["constant"] - 1e-9
        both = record["cell"]["method"]["margins"] == "theory"
        assert set(record["outcomes"]) == ({"argmax", "stationary"} if both else {"argmax"})


def test_where_queries_tell_who_is_right_routers_beat_the_best_constant(make):
    for record in reproduce_llm(make(seeds=1, table=make_outcomes(600))):
        stationary = record["outcomes"].get("stationary", record["outcomes"]["argmax"])
        assert stationary["loss"] < record["reference"]["constant"] - 0.03


def test_a_finished_cell_is_not_run_again_and_new_ones_are(make, fits):
    first = reproduce_llm(make())
    assert reproduce_llm(make()) == first
    assert len(fits) == 8
    more = reproduce_llm(make(seeds=3))
    assert len(fits) == 12
    assert more[:8] == first
    reproduce_llm(make(alphas=(0.1,)))
    assert len(fits) == 20


def test_tables_share_the_cells_that_they_have_in_common(make, fits):
    llm = reproduce_llm(make())
    noise = reproduce_llm(make("noise"))
    # The clean half of the noise is the second setting of the first table.
    assert len(fits) == 8 + 4
    clean = [record for record in noise if record["cell"]["noise"] is None]
    cost = [record for record in llm if record["cell"]["cost"] == "cost"]
    assert [record["outcomes"] for record in clean] == [record["outcomes"] for record in cost]
    assert {record["key"] for record in clean}.isdisjoint(record["key"] for record in cost)
    assert len({record["key"] for record in read_records(make().results)}) == 16


def test_an_interrupt_leaves_what_is_finished(make, fits, monkeypatch):
    def stop(done, total, message):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce_llm(make(), stop)
    assert len(read_records(make().results)) == 3
    assert len(reproduce_llm(make())) == 8
    assert len(fits) == 8


def test_all_experiments_stand_beside_the_paper_s_figures(make):
    for experiment in ("llm", "ablation", "noise", "extreme"):
        methods = ("tdef", "uniform:total=1", "mild") if experiment == "ablation" else TWO
        reproduce_llm(make(experiment, methods=methods))
    blocks = {}
    for block in summarise(read_records(make().results)):
        key = block.table, block.cell["cost"], bool(block.cell["noise"])
        blocks[key] = {row.label: row for row in block.rows}
    assert len(blocks) == 6
    argmax = "MILD others, theory (reward), Σρ=1, argmax"
    paper = {key: rows[argmax].paper.loss for key, rows in blocks.items()}
    assert paper == {
        ("llm", "error", False): 0.425,
        ("llm", "cost", False): 0.813,
        ("ablation", "cost", False): 0.822,
        ("noise", "cost", False): 0.813,
        ("noise", "cost", True): 0.826,
        ("extreme", "cost", False): 0.885,
    }
    rows = blocks["ablation", "cost", False]
    assert rows["MILD others, uniform, Σρ=1"].paper.loss == 0.884
    assert rows["TDEF"].paper.loss == 0.928
    assert blocks["noise", "cost", True]["TDEF"].paper.loss == 1.054
    assert blocks["llm", "error", False]["oracle"].paper.shares == (82.2, 12.8, 5.0)
    # Its prices are not printed: the shares can be compared, the level cannot.
    extreme = blocks["extreme", "cost", False]
    assert extreme["TDEF"].from_paper is None
    assert extreme["TDEF"].paper.shares == (100.0, 0.0)
    assert blocks["llm", "cost", False]["TDEF"].from_paper is not None


def test_other_experts_or_prices_have_no_figure_of_the_paper(make):
    other = make_outcomes(names=("a-7B", "a-2B", "a-1B"))
    for fields in ({"table": other}, {"beta": (1.0, 0.5, 0.1), "costs": ("cost",)}):
        reproduce_llm(make(**fields, seeds=1))
    for block in summarise(read_records(make().results)):
        assert all(row.paper is None for row in block.rows)


def test_intervals_over_splits_are_wider_than_over_independent_seeds(make):
    records = reproduce_llm(make(seeds=3, costs=("error",)))
    block = summarise(records)[0]
    assert block.overlap == pytest.approx(0.5)
    row = next(row for row in block.rows if row.against_tdef and row.against_tdef.low != 0)
    alone = [{k: v for k, v in record.items() if k != "rows"} for record in records]
    plain = next(r for r in _rows(alone) if r.label == row.label).against_tdef
    width = row.against_tdef.high - row.against_tdef.low
    assert width == pytest.approx((plain.high - plain.low) * (1 + 3 * 0.5) ** 0.5)


def _rows(records):
    from mild.reproduce.rows import method_row
    from mild.reproduce.summary import _judged

    cell = {k: v for k, v in records[0]["cell"].items() if k not in ("method", "seed")}
    tdef, mild = (
        [r for r in records if r["cell"]["method"]["name"] == name] for name in ("tdef", "mild")
    )
    base = method_row(cell, tdef, "argmax")
    return [
        _judged(method_row(cell, mild, rule), base, 0.95, 0.0) for rule in ("argmax", "stationary")
    ]


def test_markdown_shows_the_control_and_how_the_paper_was_read(make):
    reproduce_llm(make("noise", noise=Noise("relative")))
    reproduce_llm(make("extreme"))
    text = to_markdown(summarise(read_records(make().results)))
    assert "## Noisy costs of language models" in text
    assert "Qwen2.5 7B, 1.5B, 0.5B Instruct (accuracy" in text
    assert "| shuffled |" in text
    assert "relative noise 0.2 · linear on hashing features, strength 0.01" in text
    assert "read as max(0, c (1 + s z)) with s = 0.2" in text
    assert "the smaller models' are raised by" in text
    assert "skewed to 95 %" in text
    assert "corrected for their overlap" in text
    assert "on other MMLU questions" in text
    assert "Shuffled: what the same shares dealt at random would cost" in text


def test_a_transformer_that_diverges_is_a_diverged_cell(make, monkeypatch):
    protocol = {"name": "transformer", "features": {"kind": "transformer", "model": "m"}}
    protocol |= {"epochs": 5, "lr": 5e-5, "batch_size": 16, "weight_decay": 0.01}
    monkeypatch.setattr(run, "transformer_protocol", lambda model, options: protocol)
    monkeypatch.setattr(run, "versions", lambda torch: {"python": "3"})

    def fit(method, train, costs, test, largest, seed, model, options, tell):
        assert len(train) == len(costs) == 120
        if method.name == "mild":
            raise InvalidInputError("training diverged in epoch 1.")
        import numpy as np

        return [Fitted("argmax", np.eye(3)[np.zeros(len(test), int)], (1.0, 1.0, 1.0), {})]

    monkeypatch.setattr(run, "fit_transformer", fit)
    request = make(features="transformer", seeds=1, costs=("error",), transformer={"device": "cpu"})
    with pytest.raises(DivergedError, match="1 cell of 2 diverged"):
        reproduce_llm(request)
    (record,) = read_records(request.results)
    assert record["outcomes"]["argmax"]["shares"] == [1.0, 0.0, 0.0]
    title = summarise([record])[0].title
    assert title.endswith("m fine-tuned (5 epochs, learning rate 5e-05)")


def test_results_are_lines_of_plain_json(make):
    request = make(seeds=1)
    reproduce_llm(request)
    for line in request.results.read_text(encoding="utf-8").splitlines():
        assert json.loads(line)["cell"]["experts"] == "language models"
