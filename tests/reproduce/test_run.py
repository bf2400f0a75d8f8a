import functools
import json
import os

import numpy as np
import pytest

pytest.importorskip("torch")

from mild.exceptions import DataFileError, InvalidInputError
from mild.margins import MarginGrid
from mild.reproduce import routing, tuning, turns
from mild.reproduce.images.training import train_network
from mild.reproduce.records import record_problem
from mild.reproduce.results import append_record, read_records
from mild.reproduce.run import choose_device, reproduce
from mild.reproduce.summary import summarise

TWO = ("tdef", "mild")


def numbers(records):
    """What must not depend on how often a run was broken."""
    return [
        (r["key"], r["margins"], r["outcomes"], r["reference"], r["training"]["final_loss"])
        for r in records
    ]


def test_records_are_complete_and_in_the_file(make_request, trainings):
    request = make_request(methods=("tdef", "mild", "ce", "cwce", "ldam"))
    records = reproduce(request)
    assert len(records) == len(trainings) == 3 * 5
    assert [record_problem(record) for record in records] == [None] * 15
    assert read_records(request.results) == records
    assert [json.loads(line) for line in request.results.read_text().splitlines()] == records


def test_records_can_be_summarised(make_request, trainings):
    blocks = summarise(reproduce(make_request(methods=TWO, seeds=2)))
    assert len(blocks) == 3
    assert all(block.named("tdef").n == 2 for block in blocks)


def test_routers_learn_what_their_method_says(make_request, trainings):
    records = reproduce(make_request(methods=("tdef", "uniform", "mild:counts=best"), setups=None))
    for record in records:
        assert record["outcomes"]["argmax"]["loss"] >= record["reference"]["oracle"]
        if record["cell"]["setup"] == "I" and record["cell"]["method"]["margins"] != "theory":
            assert record["outcomes"]["argmax"]["loss"] < record["reference"]["constant"]
        both = record["cell"]["method"]["margins"] == "theory"
        assert set(record["outcomes"]) == ({"argmax", "stationary"} if both else {"argmax"})
        assert sum(record["margins"]) == pytest.approx(1 if both else len(record["margins"]))


def test_a_finished_cell_is_not_run_again(make_request, trainings):
    request = make_request(methods=TWO)
    first = reproduce(request)
    assert reproduce(request) == first
    assert len(trainings) == 6
    more = reproduce(make_request(methods=(*TWO, "ce")))
    assert len(trainings) == 9
    assert [r for r in more if r["cell"]["method"]["name"] != "ce"] == first


def test_the_same_network_under_another_name_is_not_trained_again(make_request, trainings):
    records = reproduce(make_request(methods=("tdef", "uniform:rewards=complement", "uniform")))
    assert len(trainings) == 6
    for tdef, twin, other in zip(records[::3], records[1::3], records[2::3], strict=True):
        assert twin["outcomes"] == tdef["outcomes"]
        assert twin["cell"]["method"]["rewards"] == "complement"
        assert twin["key"] != tdef["key"]
        assert other["twin"] != tdef["twin"]
    reproduce(make_request(methods=("tdef",), costs=("cost",)))
    assert len(trainings) == 9


def test_other_protocols_data_and_seeds_are_other_cells(make_request, trainings):
    request = make_request(methods=("tdef",))
    reproduce(request)
    reproduce(make_request(methods=("tdef",), protocol=request.protocol.changed(epochs=3)))
    assert len(trainings) == 6
    reproduce(make_request(methods=("tdef",), seeds=2))
    assert len(trainings) == 9


@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_run_broken_between_cells_goes_on_with_the_same_numbers(
    make_request, trainings, tmp_path, at
):
    unbroken = reproduce(make_request(methods=TWO, results=tmp_path / "unbroken.jsonl"))
    trainings.clear()
    trainings.fail_at = at
    request = make_request(methods=TWO)
    with pytest.raises(KeyboardInterrupt):
        reproduce(request)
    assert len(trainings) == at
    assert request.results.exists() == (at > 0)
    assert numbers(reproduce(request)) == numbers(unbroken)
    assert len(trainings) == 6


def test_a_training_killed_half_way_goes_on_with_the_same_numbers(
    make_request, tmp_path, monkeypatch
):
    often = functools.partial(train_network, checkpoint_seconds=0.0)
    monkeypatch.setattr(routing, "train_network", often)
    protocol = make_request().protocol.changed(epochs=3, batch_size=256)
    asked = {"methods": ("mild",), "setups": make_request().setups[:1], "protocol": protocol}
    unbroken = reproduce(make_request(**asked, results=tmp_path / "unbroken.jsonl"))
    said = []

    def kill(done, total, message):
        said.append(message)
        if "epoch 2 of 3" in message:
            raise KeyboardInterrupt

    request = make_request(**asked)
    with pytest.raises(KeyboardInterrupt):
        reproduce(request, kill)
    assert len(os.listdir(request.checkpoint_dir)) == 1
    resumed = []
    records = reproduce(request, lambda done, total, message: resumed.append(message))
    assert not any("epoch 1 of 3" in message for message in resumed)
    assert any("epoch 1 of 3" in message for message in said)
    assert numbers(records) == numbers(unbroken)
    assert not request.checkpoint_dir.exists()


def test_a_checkpoint_that_a_kill_left_behind_is_removed(make_request, trainings):
    request = make_request(methods=("tdef",))
    key = reproduce(request)[0]["key"]
    request.checkpoint_dir.mkdir(exist_ok=True)
    left = request.checkpoint_dir / f"{key}.safetensors"
    left.write_bytes(b"")
    reproduce(request)
    assert not left.exists()


def test_tuning_is_done_once_for_all_seeds(make_request, trainings):
    request = make_request(methods=("tuned",), seeds=3, setups=make_request().setups[:1])
    records = reproduce(request)
    assert len(trainings) == 1 + 3
    assert len({tuple(record["margins"]) for record in records}) == 1
    assert records[0]["chosen"] == records[2]["chosen"]
    assert records[0]["margins"] == pytest.approx(records[0]["chosen"]["margins"])
    assert len(list(request.tuning_dir.glob("*.json"))) == 1


def test_tuning_takes_the_answers_of_seed_zero_whichever_cell_comes_first(
    make_request, trainings, tmp_path
):
    request = make_request(methods=("tuned",), seeds=2, setups=make_request().setups[:1])
    both = reproduce(request)
    file = next(request.tuning_dir.glob("*.json"))
    before = json.loads(file.read_text())["found"]
    file.unlink()
    # Seed 0 is finished; seed 1 has to search again.
    request.results.write_text(json.dumps(both[0]) + "\n")
    again = reproduce(request)
    after = json.loads(file.read_text())["found"]
    assert {**after, "seconds": 0} == {**before, "seconds": 0}
    assert numbers(again) == numbers(both)


def test_the_grid_is_a_method_like_any_other(make_request, trainings, monkeypatch):
    def tiny(center):
        return MarginGrid((tuple(center), tuple(np.asarray(center) + 1)), dropped=2)

    monkeypatch.setattr(tuning, "paper_grid", tiny)
    request = make_request(methods=("grid",), seeds=2, setups=make_request().setups[:1])
    records = reproduce(request)
    assert len(trainings) == 2 + 2
    chosen = records[0]["chosen"]
    assert records[1]["margins"] == chosen["margins"]
    assert chosen["points"] == 2
    assert set(records[0]["outcomes"]) == {"argmax", "stationary"}


def test_holdout_keeps_the_router_from_the_experts_rows(make_request, trainings):
    request = make_request(
        "severe", experts=("real",), methods=("tdef",), holdout=True, expert_seed=2
    )
    record = reproduce(request)[0]
    assert trainings[-1]["rows"] == 449
    assert record["cell"]["holdout"] is True
    assert record["cell"]["expert_seed"] == 2
    assert len(record["experts"]["notes"]["experts"]) == 2


def test_trained_experts_are_shared_by_methods_and_costs(make_request, trainings, tmp_path):
    request = make_request(
        "table2",
        methods=TWO,
        costs=("error", "cost"),
        setups=make_request().setups[:1],
        cache_dir=tmp_path / "cache",
        seeds=2,
    )
    reproduce(request)
    assert len(trainings) == 3 + 2 * 2 * 2


def test_progress_counts_cells_and_says_what_is_done(make_request, trainings):
    told = []
    reproduce(make_request(methods=TWO), lambda *said: told.append(said))
    assert {total for _, total, _ in told} == {6}
    done = [entry[0] for entry in told]
    assert done == sorted(done)
    assert told[-1] == (6, 6, "done")
    assert any("digits I, synthetic experts, error, TDEF, seed 0: epoch 1" in m for *_, m in told)


def test_a_diverged_cell_does_not_keep_the_others_from_being_run(make_request, trainings):
    trainings.diverge_at = (1, 4)
    request = make_request(methods=TWO)
    told = []
    with pytest.raises(InvalidInputError) as caught:
        reproduce(request, lambda *said: told.append(said))
    assert str(caught.value) == (
        f"2 cells of 6 diverged, and the others are in {request.results}: "
        "digits I, synthetic experts, error, MILD others, theory (reward), Σρ=1, seed 0 "
        "(training diverged in epoch 1); "
        "digits III, synthetic experts, error, TDEF, seed 0 (training diverged in epoch 1)."
    )
    assert told[-1] == (6, 6, "done")
    assert len(read_records(request.results)) == 4
    assert len(reproduce(request)) == 6
    assert len(trainings) == 6


def test_scores_that_are_not_finite_are_a_diverged_cell(make_request, trainings):
    trainings.broken = True
    with pytest.raises(InvalidInputError, match=r"^3 cells of 3 diverged.*scores must be finite"):
        reproduce(make_request(methods=("tdef",)))
    assert len(trainings) == 3


def test_a_search_that_diverged_is_not_repeated_for_every_seed(make_request, trainings):
    trainings.diverge_at = (0,)
    request = make_request(methods=("tuned", "tdef"), seeds=3, setups=make_request().setups[:1])
    with pytest.raises(InvalidInputError, match=r"^3 cells of 6 diverged"):
        reproduce(request)
    # One search, and TDEF with each seed.
    assert trainings.tried == 1 + 3


def test_experts_that_diverged_are_not_trained_for_every_cell(make_request, trainings):
    # Four cells with synthetic experts come first.
    trainings.diverge_at = (4,)
    request = make_request("severe", methods=TWO, seeds=2)
    with pytest.raises(InvalidInputError, match=r"^4 cells of 8 diverged"):
        reproduce(request)
    assert trainings.tried == 5
    assert {record["cell"]["experts"] for record in read_records(request.results)} == {"synthetic"}


def test_results_that_cannot_be_written_stop_before_the_first_training(
    make_request, trainings, tmp_path
):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFileError, match="folder that can be made"):
        reproduce(make_request(results=tmp_path / "file" / "r.jsonl"))
    assert trainings == []


def test_results_of_another_version_stop_before_the_first_training(make_request, trainings):
    request = make_request(methods=("tdef",))
    request.results.write_text(json.dumps({"schema": 99}) + "\n")
    with pytest.raises(DataFileError, match="schema version"):
        reproduce(request)
    assert trainings == []


def test_a_full_disk_keeps_the_checkpoint_and_the_old_records(make_request, trainings, monkeypatch):
    request = make_request(methods=("tdef",))
    first = reproduce(request)
    before = request.results.read_bytes()

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataFileError, match="No space left"):
        reproduce(make_request(methods=TWO))
    assert request.results.read_bytes() == before
    monkeypatch.undo()
    assert read_records(request.results) == first


def test_a_record_that_could_not_be_added_costs_no_second_training(
    make_request, tmp_path, monkeypatch
):
    epochs = []

    def train(*args, progress, **more):
        def count(done, total, message):
            epochs.append(done)

        return train_network(*args, progress=count, checkpoint_seconds=0.0, **more)

    monkeypatch.setattr(routing, "train_network", train)
    request = make_request(
        methods=("tdef",),
        setups=make_request().setups[:1],
        protocol=make_request().protocol.changed(epochs=2, batch_size=256),
    )

    def full(path, record):
        raise DataFileError("No space left on device")

    monkeypatch.setattr(turns, "append_record", full)
    with pytest.raises(DataFileError, match="No space left"):
        reproduce(request)
    assert epochs == [1, 2]
    monkeypatch.setattr(turns, "append_record", append_record)
    assert len(reproduce(request)) == 1
    assert epochs == [1, 2]
    assert not request.checkpoint_dir.exists()


def test_a_gpu_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr("mild.reproduce.run.best_device", lambda: "cpu")
    assert choose_device("auto") == "cpu"
    with pytest.raises(InvalidInputError, match="torch finds no GPU"):
        choose_device("cuda")


def test_what_can_be_known_at_once_stops_before_the_first_training(
    make_request, trainings, tmp_path
):
    (tmp_path / "file").write_text("")
    blocked = tmp_path / "file" / "cache"
    with pytest.raises(DataFileError, match="cifar10"):
        reproduce(make_request(datasets=("digits", "cifar10"), data_dir=tmp_path / "none"))
    with pytest.raises(DataFileError, match=r"^cache_dir must be a folder .*tuning, .* no folder"):
        reproduce(make_request(methods=("tdef", "tuned"), cache_dir=blocked))
    (tmp_path / "r-tuning").write_text("")
    with pytest.raises(DataFileError, match=r"tuning finds, beside the results, must be a folder"):
        reproduce(make_request(methods=("tdef", "tuned")))
    with pytest.raises(DataFileError, match="cache_dir must be a folder"):
        reproduce(make_request("table2", methods=("tdef",), cache_dir=blocked))
    with pytest.raises(DataFileError, match="checkpoint_dir must be a folder"):
        reproduce(make_request(methods=("tdef",), checkpoint_dir=blocked))
    assert trainings == []


def test_cells_that_another_process_finished_meanwhile_are_not_run(
    make_request, trainings, tmp_path
):
    other = make_request(methods=TWO, results=tmp_path / "other.jsonl")
    theirs = reproduce(other)
    request = make_request(methods=TWO)
    del trainings[:]

    def finish(done, total, message):
        if done == 1 and not message.count(":"):
            for record in theirs[1:]:
                append_record(request.results, record)

    assert numbers(reproduce(request, finish)) == numbers(theirs)
    assert len(trainings) == 1


def test_cells_of_another_recipe_are_not_finished_and_no_twins(
    make_request, trainings, monkeypatch
):
    request = make_request(methods=("tdef",), setups=make_request().setups[:1])
    (old,) = reproduce(request)
    monkeypatch.setattr("mild.reproduce.images.protocol.RECIPE", 2)
    (new,) = reproduce(request)
    assert len(trainings) == 2
    assert new["key"] != old["key"]
    assert new["twin"] != old["twin"]
    assert record_problem(new) is None
    assert reproduce(request) == [new]
    assert read_records(request.results) == [old, new]
    assert len(summarise([old, new])) == 2
