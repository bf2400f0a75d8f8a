"""``mild reproduce``: options become requests, errors one sentence, an interrupt keeps what is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mild.cli.reproduce.settings import Settings
from mild.reproduce.results import append_record
from result_cases import TDEF, THEORY, make_record

pytest.importorskip("torch")

import mild.reproduce.run as run

TRAINING = ["table1", "table2", "severe", "readings", "people", "classifier"]
VERBS = ["fetch", *TRAINING, "show"]


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Requests that reach the library, which "runs" two trainings of Table 1 in no time."""
    monkeypatch.chdir(tmp_path)
    requests = []

    def fake(request, progress=None):
        requests.append(request)
        records = [make_record(TDEF, losses=0.05), make_record(THEORY, losses={"argmax": 0.04})]
        for record in records:
            append_record(request.results, record)
        return records

    monkeypatch.setattr(run, "reproduce", fake)
    return requests


def test_the_group_names_every_verb(mild):
    done = mild("reproduce", "--help")
    assert done.code == 0
    for verb in VERBS:
        assert f"\n  {verb} " in done.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example_and_takes_json(verb, mild):
    done = mild("reproduce", verb, "--help")
    assert done.code == 0
    assert f"Example:\n    mild reproduce {verb}" in done.out
    assert "--json" in done.out


@pytest.mark.parametrize("verb", ["", "table1"])
def test_help_opens_without_the_heavy_packages(verb):
    code = (
        "import sys\n"
        f"sys.argv = ['mild', 'reproduce', *{verb.split()!r}, '--help']\n"
        "from mild.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'sklearn', 'scipy', 'pyarrow', 'torch', 'rich', 'matplotlib'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"
    assert "Usage: mild reproduce" in done.stdout


def test_nothing_asked_for_is_the_paper_s_table_by_the_short_protocol(mild, asked):
    assert mild("reproduce", "table1").code == 0
    request = asked[0]
    assert request.table == "table1"
    assert request.datasets == ("cifar10",)
    assert [setup.name for setup in request.setups] == ["I", "II", "III"]
    assert request.experts == ("synthetic",)
    assert request.costs == ("error", "cost")
    assert [method.text.partition(":")[0] for method in request.methods] == ["tdef", "mild", "mild"]
    assert (request.seeds, request.protocol.name, request.device) == (5, "adamw", "auto")
    assert request.results == Path("results/table1.jsonl")
    assert request.data_dir == Path("data")
    assert request.checkpoint_dir == Path("results/table1-checkpoints")


@pytest.mark.parametrize(
    ("verb", "experts", "costs", "setups"),
    [
        ("table2", ("real",), ("error", "cost"), ["I", "II", "III"]),
        ("severe", ("synthetic", "real"), ("error",), ["severe"]),
    ],
)
def test_each_table_has_its_own_experts_and_costs(verb, experts, costs, setups, mild, asked):
    assert mild("reproduce", verb).code == 0
    request = asked[0]
    assert (request.table, request.experts, request.costs) == (verb, experts, costs)
    assert [setup.name for setup in request.setups] == setups
    assert request.results == Path(f"results/{verb}.jsonl")


def test_options_become_a_request(mild, asked, tmp_path):
    done = mild(
        *("reproduce", "table2", "--dataset", "digits", "--dataset", "svhn5000", "--setup", "III"),
        *("--cost", "cost", "--method", "tdef", "--method", "mild:rewards=contrast,total=mean3"),
        *("--seeds", 2, "--protocol", "paper", "--epochs", 3, "--batch-size", 64, "--lr", 0.01),
        *("--width", 8, "--no-augment", "--holdout", "--expert-seed", 4, "--expert-protocol"),
        *("fast", "--device", "cpu", "--data-dir", "d", "--cache-dir", "c", "--checkpoint-dir"),
        *("k", "--results", tmp_path / "mine.jsonl"),
    )
    assert done.code == 0, done.err
    request = asked[0]
    assert request.datasets == ("digits", "svhn5000")
    assert [setup.name for setup in request.setups] == ["III"]
    assert request.costs == ("cost",)
    assert request.methods[1].rewards == "contrast"
    assert request.seeds == 2
    protocol = request.protocol
    assert (protocol.name, protocol.epochs, protocol.batch_size) == ("paper, changed", 3, 64)
    assert (protocol.lr, protocol.width, protocol.augment) == (0.01, 8, False)
    assert (request.holdout, request.expert_seed, request.device) == (True, 4, "cpu")
    assert request.expert_protocol.name == "fast, changed"
    folders = (request.data_dir, request.cache_dir, request.checkpoint_dir)
    assert folders == (Path("d"), Path("c"), Path("k"))
    assert request.results == tmp_path / "mine.jsonl"


def test_another_split_by_coverage(mild, asked):
    assert mild("reproduce", "table1", "--coverage", "0.6,0.3,0.1").code == 0
    assert [setup.coverage for setup in asked[0].setups] == [(0.6, 0.3, 0.1)]


def test_the_readings_are_every_reading_on_one_cell(mild, asked):
    from mild.reproduce.methods import READINGS, ROBUSTNESS

    assert mild("reproduce", "readings").code == 0
    assert mild("reproduce", "readings", "--robustness", "--setup", "I").code == 0
    first, second = asked
    assert first.methods == READINGS
    assert second.methods == (*READINGS, *ROBUSTNESS)
    assert (first.datasets, first.costs, first.experts) == (
        ("cifar10",),
        ("error",),
        ("synthetic",),
    )
    assert ([setup.name for setup in first.setups], first.seeds) == (["I"], 3)


def test_people_name_their_file(mild, asked):
    done = mild("reproduce", "people", "--people", "p.npz", "--dataset", "cifar100")
    assert done.code == 0, done.err
    assert asked[0].people_file == Path("p.npz")
    assert asked[0].datasets == ("cifar100",)
    missing = mild("reproduce", "people")
    assert missing.code != 0
    assert "--people" in missing.err


def test_experts_are_kept_in_the_user_s_cache(mild, asked, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    mild("reproduce", "table2")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    mild("reproduce", "table2")
    assert asked[0].cache_dir == tmp_path / "xdg" / "mild"
    assert asked[1].cache_dir == tmp_path / "home" / ".cache" / "mild"


def test_the_table_is_printed_and_the_records_are_named(mild, asked):
    done = mild("reproduce", "table1")
    assert "CIFAR-10 · setup I (70-20-10)" in done.out
    assert "TDEF, the paper" in done.out
    assert "2 trainings in results/table1.jsonl" in done.out


def test_earlier_methods_of_the_same_cell_are_in_the_table_and_other_cells_are_not(
    mild, asked, tmp_path
):
    results = tmp_path / "results" / "table1.jsonl"
    append_record(results, make_record(TDEF, seed=1, losses=0.06))
    append_record(results, make_record(TDEF, setup="III"))
    report = mild("reproduce", "table1", "--json").json()
    assert [block["cell"]["setup"] for block in report["blocks"]] == ["I"]
    assert report["blocks"][0]["rows"][0]["losses"] == [0.05, 0.06]
    assert report["results"] == "results/table1.jsonl"


def test_an_interrupt_says_what_is_kept_and_how_to_go_on(mild, monkeypatch, tmp_path):
    def stop(request, progress=None):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "reproduce", stop)
    words = ["reproduce", "table1", "--results", "mine {1}.jsonl"]
    first = mild(*words)
    assert first.code == 130
    assert first.err == "interrupted: no cell is finished; run the same command again to go on.\n"
    append_record(Path("mine {1}.jsonl"), make_record(TDEF))
    done = mild(*words)
    assert done.code == 130
    assert done.err == (
        "interrupted: finished cells are in mine {1}.jsonl; run the same command again to go on.\n"
    )


@pytest.mark.parametrize("verb", TRAINING)
def test_without_torch_it_says_what_to_install(verb, mild, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    done = mild("reproduce", verb, *(["--people", "p.npz"] if verb == "people" else []))
    assert done.code == 1
    assert done.err == (
        "error: the image experiments need torch, which is not installed. "
        "Install it with: pip install 'mild-learn[images]'.\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--seeds", "0"], "error: --seeds must be an integer of at least 1; got 0."),
        (["--dataset", "cifar"], "error: --dataset must be one of"),
        (["--dataset", "cifar"], "Did you mean 'cifar10'?"),
        (["--setup", "severe"], "--setup must be I, II or III for table2; got severe"),
        (["--batch-size", "1"], "error: --batch-size must be an integer >= 2; got 1."),
        (["--lr", "-1"], "error: --lr must be positive and finite; got -1.0."),
        (["--setup", "IV"], "error: --setup must be one of 'I', 'II', 'III'; got 'IV'."),
        (["--method", "midl"], "error: --method must be one of 'mild', "),
        (["--method", "midl"], "Did you mean 'mild'?"),
        (["--protocol", "quick"], "--protocol must be one of 'adamw', 'paper', 'fast'; got 'quick'."),
        (["--expert-protocol", "quick"], "--expert-protocol must be one of 'adamw', 'paper', 'fast'"),
        (["--coverage", "0.6,0.3"], "error: --coverage must sum to 1; got 0.9"),
        (["--coverage", "0.9,0.1", "--setup", "I"], "--coverage must stand in place of --setup"),
        (["--cost", "money"], "error: --cost must be one of 'error', 'cost'; got 'money'."),
        (["--device", "tpu"], "error: --device must be one of 'auto', 'cpu', 'cuda'"),
        (["--epochs", "0"], "error: --epochs must be an integer >= 1; got 0."),
        (["--results", "."], "error: --results must be a file"),
        (["--expert-seed", "-1"], "error: --expert-seed must be an integer of at least 0; got -1."),
        (["--data-dir", "nowhere"], "mild reproduce fetch cifar10 --data-dir nowhere"),
    ],
)
def test_bad_input_is_one_sentence(words, sentence, mild, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = mild("reproduce", "table2", "--json", *words)
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert sentence in done.err
    assert json.loads(done.out) == {"error": done.err.removeprefix("error: ").strip()}


@pytest.mark.parametrize("verb", ["severe", "readings"])
def test_what_is_about_trained_experts_is_taken_where_some_are_trained(verb, mild, asked):
    words = ["--experts", "synthetic", "--experts", "real"] if verb == "severe" else []
    words = words or ["--experts", "real"]
    done = mild("reproduce", verb, *words, "--holdout", "--expert-seed", 3)
    assert done.code == 0, done.err
    assert (asked[0].holdout, asked[0].expert_seed) == (True, 3)


def test_results_that_cannot_be_written_are_refused_before_training(mild, tmp_path):
    (tmp_path / "file").write_text("x")
    done = mild(
        "reproduce", "table1", "--dataset", "digits", "--results", tmp_path / "file/r.jsonl"
    )
    assert done.code == 1
    assert "cannot" in done.err


def test_results_of_another_version_are_refused(mild, tmp_path):
    results = tmp_path / "r.jsonl"
    results.write_text('{"schema": 99}\n')
    done = mild("reproduce", "table1", "--dataset", "digits", "--results", results)
    assert done.code == 1
    assert "schema version 1; got 99" in done.err
    assert results.read_text() == '{"schema": 99}\n'


def test_margins_around_the_theory_are_those_of_setup_one(mild):
    for words, got in (
        (["--setup", "II"], "II, synthetic, error"),
        (["--coverage", "0.5,0.3,0.2"], "0.5,0.3,0.2, synthetic, error"),
        (["--cost", "cost"], "I, synthetic, cost"),
        (["--experts", "real"], "I, real, error"),
    ):
        done = mild("reproduce", "readings", "--robustness", *words)
        assert done.code == 1
        assert "--robustness must go with setup I" in done.err
        assert f"got {got}." in done.err


def test_settings_that_are_not_given_change_no_protocol():
    from mild.reproduce.images.protocol import PROTOCOLS

    assert Settings().changed("paper") == PROTOCOLS["paper"]
    assert Settings(width=8).changed("fast").name == "fast, changed"


def test_the_experts_protocol_takes_the_same_changes(mild, asked):
    words = ["--expert-protocol", "paper", "--epochs", "2", "--width", "8"]
    assert mild("reproduce", "table2", *words).code == 0
    protocol = asked[0].expert_protocol
    assert (protocol.name, protocol.epochs, protocol.width) == ("paper, changed", 2, 8)


def test_a_log_has_a_line_per_cell_that_was_trained(mild, asked, monkeypatch):
    told = run.reproduce

    def fake(request, progress):
        progress(0, 3, "there already")
        for done, title in ((1, "first"), (2, "second")):
            progress(done, 3, title)
            progress(done, 3, f"{title}: epoch 1 of 1")
        progress(3, 3, "done")
        return told(request)

    monkeypatch.setattr(run, "reproduce", fake)
    done = mild("reproduce", "table1")
    assert done.code == 0
    assert done.err == "2 of 3 done: first\n3 of 3 done: second\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_device_or_a_pipe_is_no_results_file(mild, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", os.devnull):
        done = mild("reproduce", "table1", "--dataset", "digits", "--results", place)
        assert done.code == 1
        assert "must be a regular file" in done.err
