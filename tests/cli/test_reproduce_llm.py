"""``mild reproduce llm | ablation | noise | extreme``: a table in, ours beside the paper's out."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from llm_cases import make_columns, write_outcomes

VERBS = ["llm", "ablation", "noise", "extreme"]


@pytest.fixture
def table(tmp_path):
    return write_outcomes(tmp_path / "outcomes.parquet", n=120)


@pytest.fixture
def run(mild, table, tmp_path):
    """Run a verb quickly: one split, one strength, two methods."""

    def call(verb, *words):
        usual = ["--seeds", "1", "--alpha", "0.01", "--method", "tdef", "--method", "mild"]
        return mild(*("reproduce", verb, table, *usual, "--results", tmp_path / "r.jsonl", *words))

    return call


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example(verb, mild):
    done = mild("reproduce", verb, "--help")
    assert done.code == 0
    assert f"Example:\n    mild reproduce {verb} " in done.out
    assert "--json" in done.out
    assert f"\n  {verb} " in mild("reproduce", "--help").out


def test_help_opens_without_the_heavy_packages():
    code = (
        "import sys\n"
        "sys.argv = ['mild', 'reproduce', 'llm', '--help']\n"
        "from mild.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'sklearn', 'scipy', 'pyarrow', 'torch', 'rich', 'matplotlib'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("verb", "blocks"), [("llm", 2), ("ablation", 1), ("noise", 2), ("extreme", 1)]
)
def test_each_experiment_is_run_and_shown_beside_the_paper(verb, blocks, run, tmp_path, mild):
    done = run(verb)
    assert done.code == 0, done.err
    assert "TDEF, the paper" in done.out
    assert "read as wide: 3 experts, 120 queries" in done.err
    report = run(verb, "--json").json()
    assert len(report["blocks"]) == blocks
    names = [row["label"] for row in report["blocks"][0]["rows"]]
    assert names[0] == "TDEF"
    assert names[-2:] == ["best constant", "oracle"]
    for form in ("markdown", "latex", "csv"):
        shown = mild("reproduce", "show", tmp_path / "r.jsonl", "--table", verb, "--format", form)
        assert shown.code == 0, shown.err
        assert "outcomes" in shown.out
    assert "shuffled" in mild("reproduce", "show", tmp_path / "r.jsonl", "--format", "markdown").out


def test_a_figure_is_drawn_of_the_same_records(run, mild, tmp_path):
    pytest.importorskip("matplotlib")
    run("llm")
    file = tmp_path / "llm.png"
    assert mild("reproduce", "show", tmp_path / "r.jsonl", "--figure", file).code == 0
    assert file.read_bytes().startswith(b"\x89PNG")


def test_nothing_is_run_twice(run, tmp_path):
    run("llm")
    held = (tmp_path / "r.jsonl").read_bytes()
    again = run("llm")
    assert "done:" not in again.err
    assert (tmp_path / "r.jsonl").read_bytes() == held


def test_vectors_come_from_a_file_and_a_name_from_the_command_line(run, tmp_path):
    file = tmp_path / "minilm.npy"
    np.save(file, np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32))
    words = ["--features", "vectors", "--vectors", file, "--name", "My queries", "--cost", "error"]
    done = run("llm", *words)
    assert done.code == 0, done.err
    report = run("llm", *words, "--json").json()
    cell = report["blocks"][0]["cell"]
    assert cell["dataset"] == "My queries"
    assert cell["protocol"]["features"]["model"] == "minilm"
    assert len(report["blocks"]) == 1


def test_other_experts_are_named_from_strong_to_tiny(mild, tmp_path):
    names = ("large", "medium", "small")
    table = write_outcomes(tmp_path / "o.parquet", n=90, names=names)
    words = ["--results", tmp_path / "r.jsonl", "--seeds", "1", "--alpha", "0.1"]
    words += ["--method", "tdef", "--json"]
    refused = mild("reproduce", "llm", table, *words)
    assert "must tell their sizes" in refused.err
    asked = [*words, "--experts", "large,medium,small", "--beta", "small=0.1,large=0.9"]
    report = mild("reproduce", "llm", table, *asked).json()
    cost = report["blocks"][1]["cell"]
    assert (cost["models"], cost["beta"]) == (list(names), [0.9, 0.0, 0.1])
    assert all(row["paper"] is None for row in report["blocks"][1]["rows"])


def test_noise_and_skew_are_what_was_asked_for(run):
    noise = run("noise", "--noise", "relative", "--noise-std", "0.5", "--json").json()
    cells = [block["cell"]["noise"] for block in noise["blocks"]]
    assert {"kind": "relative", "std": 0.5} in cells
    assert None in cells
    extreme = run("extreme", "--share", "0.9", "--json").json()
    assert extreme["blocks"][0]["cell"]["skew"]["share"] == 0.9


@pytest.mark.parametrize(
    ("verb", "words", "sentence"),
    [
        ("llm", ["--experts", "7B,1.5B"], "need three experts, from strong to tiny; got 2"),
        ("llm", ["--experts", "7B,1.5B,9B"], "'9B' is none of the experts"),
        (
            "llm",
            ["--beta", "1,0.6"],
            "error: --beta must be one number per expert, 3 of them; got 2",
        ),
        ("llm", ["--beta", "1,0.6,-1"], "error: --beta must be finite and not negative"),
        ("llm", ["--seeds", "0"], "error: --seeds must be an integer of at least 1; got 0."),
        ("llm", ["--features", "hasing"], "error: --features must be one of"),
        ("llm", ["--features", "vectors"], "need vectors"),
        ("llm", ["--cost", "money"], "error: --cost must be one of 'error', 'cost'"),
        ("llm", ["--test-share", "2"], "error: --test-share must lie between 0 and 1"),
        ("llm", ["--method", "midl"], "Did you mean 'mild'?"),
        ("llm", ["--alpha", "0"], "error: --alpha must be positive and finite"),
        ("llm", ["--epochs", "3"], "--epochs is for --features transformer"),
        ("llm", ["--features", "transformer"], "--alpha is for linear routers"),
        ("llm", ["--vectors", "none.npy", "--features", "vectors"], "must be a .npy file"),
        ("llm", ["--results", "."], "error: --results must be a file"),
        ("noise", ["--noise", "white"], "error: --noise must be one of 'additive', 'relative'"),
        ("noise", ["--noise-std", "-1"], "error: --noise-std must be finite and not negative"),
        ("extreme", ["--share", "1"], "error: --share must lie between 0 and 1"),
    ],
)
def test_bad_input_is_one_sentence(verb, words, sentence, run):
    done = run(verb, "--json", *words)
    assert done.code == 1
    assert sentence in done.err
    assert done.err.strip().splitlines()[-1].startswith("error: ")
    assert list(json.loads(done.out)) == ["error"]


def test_missing_scores_are_counted(mild, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    columns = make_columns(40)
    columns["correct__Qwen2.5-7B-Instruct"][3] = None
    parquet.write_table(pa.table(columns), tmp_path / "holes.parquet")
    done = mild("reproduce", "llm", tmp_path / "holes.parquet")
    assert done.code == 1
    assert "1 of 120 are missing, such as Qwen2.5-7B-Instruct's in row 3" in done.err


def test_an_interrupt_says_what_is_kept(run, monkeypatch, tmp_path):
    import mild.reproduce.llm.run as module

    def stop(request, progress=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "reproduce_llm", stop)
    assert "interrupted: no cell is finished; run" in run("llm").err
    (tmp_path / "r.jsonl").write_text("")
    done = run("llm")
    assert done.code == 130
    assert "interrupted: finished cells are in" in done.err
