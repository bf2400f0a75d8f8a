"""``mild demo``: the main job on the table that comes with mild."""

import pytest

from mild.artifact import load
from mild.cli import demo as module
from mild.errors import MildError, install_hint

# A search of a second in place of one of half a minute.
QUICK = ("--price-weight", "0.1", "--families", "ridge")


@pytest.fixture
def quick(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "GOAL", QUICK)


def test_every_step_is_a_command_whose_result_is_kept(mild, quick, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    done = mild("demo", "--json")
    assert done.code == 0
    found = done.json()
    commands = [step["command"].split()[1] for step in found["steps"]]
    assert commands == ["describe", "tune", "evaluate", "explain", "explain", "explain"]
    assert done.err.splitlines()[-1] == (
        "note: mild-gateway, which serves routers as chat models, is not installed; to see it in the "
        f"demo, run: {install_hint('gateway')}."
    )
    results = [step["result"] for step in found["steps"]]
    assert results[0]["rows"] == 1000
    assert results[2]["summary"]["n_known"] == 500
    assert results[2]["seen_in_fit"]["queries"] == 0, "judged by rows that were learned from"
    assert results[2]["verdict"]["pays"] is True
    assert [results[k]["expert"] for k in (3, 4)] == ["rules", "gemma3"]
    assert (tmp_path / found["report"]).read_text().startswith("<!DOCTYPE html>")
    assert load(tmp_path / "mild-demo" / "router").experts == ["gemma3", "rules", "smollm2"]


def test_a_gateway_that_does_not_start_is_an_error_with_its_reason(monkeypatch):
    monkeypatch.setattr(module, "SERVE", ("mild", "frobnicate"))
    steps = module._Steps(None, quiet=True)
    steps.begin("ask")
    with pytest.raises(MildError) as caught:
        module._ask_gateway(steps)
    message = str(caught.value)
    assert message.startswith("the gateway of the demo did not start: Usage: mild")
    assert message.endswith("No such command 'frobnicate'.")


def test_a_folder_with_other_files_is_refused_before_any_work(mild, quick, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    done = mild("demo", "--out", tmp_path, "--json")
    assert done.code == 1
    assert done.json()["code"] == "output_exists"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_it_prints_commands_figures_and_an_answer_through_the_gateway(mild, quick, tmp_path):
    if module.find_spec("mild_gateway") is None:
        pytest.skip("mild-gateway is not installed")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "report.html").write_text("of an earlier demo")
    done = mild("demo", "--out", tmp_path / "here")
    assert done.code == 0, done.err
    for part in (
        "$ mild tune",
        "$ mild evaluate",
        "$ mild explain",
        "perfect choice",
        "rules is asked",
    ):
        assert part in done.out
    assert "rules answers: 391" in done.out
    assert str(tmp_path / "here" / "report.html") in done.out
