"""What users get wrong is refused, in Python and by the commands alike, and nothing is written.

A bad input is an error with a class and a code, and one sentence; a command that is not one is a usage
error. Neither is a traceback, and no file is touched.
"""

from __future__ import annotations

import pickle
import shutil

import pandas as pd
import pytest

import mild
from journeys import adapter
from journeys.commands import mild_here, process
from journeys.world import log, take, without

pytestmark = pytest.mark.slow

TABLES = {
    "empty.csv": "",
    "header.csv": "query,correct__small,correct__large\n",
    "long.csv": "query,correct__small,correct__large\nWho wrote Faust?,1,1,0\n",
    "twice.csv": "query,correct__small,correct__small,correct__large\nWho wrote Faust?,1,0,1\n",
    "scoreless.csv": "query,small,large\nWho wrote Faust?,Goethe,Goethe\n",
    "two.csv": "query,correct__small,correct__large\nWho wrote Faust?,2,1\n",
    "words.csv": "query,correct__small,correct__large\nWho wrote Faust?,perhaps,1\n",
    "negative.csv": "query,correct__small,correct__large,cost__small\nWho wrote Faust?,0,1,-1\n",
    "priced.csv": "query,correct__small,correct__large,cost__huge\nWho wrote Faust?,0,1,1\n",
    "cut.jsonl": '{"query": "Who wrote Faust?", "correct__small": 1, "correct__large": 1}\n{"query',
    "text.parquet": "Who wrote Faust?",
    "mine.html": "<p>mine</p>",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a good table and a good router, and with all that is bad."""
    folder = tmp_path_factory.mktemp("refusals")
    for name, text in TABLES.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "table.pkl").write_bytes(pickle.dumps({"query": ["Who wrote Faust?"]}))
    columns = log(41, 200)
    pd.DataFrame(take(columns, range(120))).to_csv(folder / "log.csv", index=False)
    pd.DataFrame(take(columns, range(120, 200))).to_csv(folder / "test.csv", index=False)
    pd.DataFrame(without(columns, "cost__")).to_csv(folder / "free.csv", index=False)
    fewer = columns
    for prefix in ("correct__", "cost__", "latency_ms__"):
        fewer = without(fewer, f"{prefix}medium")
    pd.DataFrame(fewer).to_csv(folder / "fewer.csv", index=False)
    mild.fit(folder / "log.csv", "ridge").save(folder / "router")
    for name in ("damaged", "cut"):
        shutil.copytree(folder / "router", folder / name)
    (tensors,) = (folder / "damaged").glob("*.safetensors")
    content = bytearray(tensors.read_bytes())
    content[-2] ^= 255
    tensors.write_bytes(content)
    settings = folder / "cut" / "router.json"
    settings.write_text(settings.read_text(encoding="utf-8")[:200], encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def nothing_is_written(folder, monkeypatch):
    """Everything in the folder is as it was."""
    monkeypatch.chdir(folder)

    def content():
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {path: path.read_bytes() for path in files}, sorted(folder.rglob("*"))

    before = content()
    yield
    assert content() == before


# What is wrong: what is done in Python, and the command.
OUT = "new"
READ = {
    "no such file": "nothing.csv",
    "an empty file": "empty.csv",
    "a header alone": "header.csv",
    "a row that is too long": "long.csv",
    "a column twice": "twice.csv",
    "no scores": "scoreless.csv",
    "a score of 2": "two.csv",
    "a score in words": "words.csv",
    "a negative price": "negative.csv",
    "a price of an expert without scores": "priced.csv",
    "JSON that is cut off": "cut.jsonl",
    "no Parquet": "text.parquet",
    "a pickle": "table.pkl",
}
DONE = {
    wrong: (lambda file=file: mild.read_outcomes(file), adapter.describe(file))
    for wrong, file in READ.items()
} | {
    "no such column of queries": (
        lambda: mild.read_outcomes("log.csv", query="task"),
        adapter.describe("log.csv", adapter.QUERY, "task"),
    ),
    "a negative quality": (
        lambda: mild.tune("log.csv", keep_quality=-0.5),
        adapter.tune("log.csv", OUT, "--keep-quality", "-0.5"),
    ),
    "a target without prices": (
        lambda: mild.tune("free.csv", keep_quality=0.9),
        adapter.tune("free.csv", OUT, "--keep-quality", "0.9"),
    ),
    "a target and a weight": (
        lambda: mild.tune("log.csv", keep_quality=0.9, price_weight=3),
        adapter.tune("log.csv", OUT, "--keep-quality", "0.9", "--price-weight", "3"),
    ),
    "a guarantee of nothing": (
        lambda: mild.tune("log.csv", guarantee=0.9),
        adapter.tune("log.csv", OUT, "--guarantee", "0.9"),
    ),
    "a negative weight": (
        lambda: mild.fit("log.csv", price_weight=-1),
        adapter.fit("log.csv", OUT, "linear", "--price-weight", "-1"),
    ),
    "a weight of unknown prices": (
        lambda: mild.fit("free.csv", price_weight=1),
        adapter.fit("free.csv", OUT, "linear", "--price-weight", "1"),
    ),
    "a cost of an unknown expert": (
        lambda: mild.fit("log.csv", beta={"huge": 1}),
        adapter.fit("log.csv", OUT, "linear", *adapter.beta({"huge": 1})),
    ),
    "no such column of groups": (
        lambda: mild.tune("log.csv", groups="customer"),
        adapter.tune("log.csv", OUT, adapter.GROUPS, "customer"),
    ),
    "an unknown kind of router": (
        lambda: mild.fit("log.csv", "forest"),
        adapter.fit("log.csv", OUT, "forest"),
    ),
    "an unknown method": (
        lambda: mild.compare("log.csv", methods=["magic"]),
        adapter.compare("log.csv", ["magic"]),
    ),
    "no such router": (
        lambda: mild.evaluate("nowhere", "test.csv"),
        adapter.evaluate("nowhere", "test.csv"),
    ),
    "a damaged router": (lambda: mild.load("damaged"), adapter.route("damaged")),
    "a router that is cut off": (lambda: mild.load("cut"), adapter.explain("cut", "Why?")),
    "a table without an expert of the router": (
        lambda: mild.evaluate("router", "fewer.csv"),
        adapter.evaluate("router", "fewer.csv"),
    ),
    "a confidence of 2": (
        lambda: mild.evaluate("router", "test.csv", confidence=2),
        adapter.evaluate("router", "test.csv", "--confidence", "2"),
    ),
    "a router in place of another": (
        lambda: mild.load("router").save("router"),
        adapter.fit("log.csv", "router", "ridge"),
    ),
    "a report in place of a file": (
        lambda: mild.evaluate("router", "test.csv").write_report("mine.html"),
        adapter.report("router", "test.csv", "mine.html"),
    ),
    "a router below a file": (
        lambda: mild.load("router").save("mine.html/router"),
        adapter.fit("log.csv", "mine.html/router", "ridge"),
    ),
}


def complaints(err):
    """Lines of standard error that are no notes on the table."""
    return [line for line in err.splitlines() if line and not line.startswith("note: ")]


@pytest.mark.parametrize("wrong", DONE)
def test_a_bad_input_is_refused(wrong, folder):
    error, code = adapter.REFUSALS[wrong]
    in_python, words = DONE[wrong]
    with pytest.raises(error) as refusal:
        in_python()
    assert isinstance(refusal.value, mild.errors.MildError)
    assert refusal.value.code == code
    assert "\n" not in str(refusal.value)

    done = mild_here(folder, words)
    assert (done.code, done.out) == (1, "")
    assert len(complaints(done.err)) == 1
    done = mild_here(folder, [*words, "--json"])
    assert done.code == 1
    assert len(complaints(done.err)) == 1
    assert done.figures.keys() == adapter.KEYS["error"]
    assert done.figures["code"] == code


def test_all_refusals_are_tried():
    assert set(DONE) == set(adapter.REFUSALS)
    assert len(DONE) >= 20


def test_a_table_is_not_replaced(folder):
    done = mild_here(folder, adapter.convert("log.csv", "test.csv", "--json"))
    assert (done.code, done.figures["code"]) == (1, "output_exists")


def test_a_line_that_cannot_be_read_is_reported_and_the_others_are_routed(folder):
    good = '"Who wrote Faust?"\n'
    done = mild_here(folder, adapter.route("router"), stdin=good + '{"id": 7}\n' + good)
    assert done.code == 1
    first, bad, last = (adapter.read_route(line) for line in done.out.splitlines())
    assert first == last == mild.load("router").route(["Who wrote Faust?"])[0]
    assert bad is None


MISUSED = {
    "no command": [],
    "an unknown command": ["conjure", "log.csv"],
    "an unknown option": adapter.tune("log.csv", OUT, "--luck", "1"),
    "an option without a value": ["tune", "log.csv", "--out"],
    "a word where a number belongs": adapter.tune("log.csv", OUT, "--keep-quality", "much"),
    "a fraction where a whole number belongs": adapter.compare(
        "log.csv", ["ridge"], adapter.N_SPLITS, "1.5"
    ),
    "a value of a flag": adapter.fit("log.csv", OUT, "ridge", "--json=yes"),
    "a word too many": adapter.explain("router", "Why?", "How?"),
    "no table to describe": adapter.describe("log.csv")[:-1],
    "nothing to write to": adapter.convert("log.csv", "new.csv")[:-1],
    "no router to explain": ["explain"],
    "no router to route by": ["route"],
} | adapter.MISUSED


@pytest.mark.parametrize("words", MISUSED.values(), ids=MISUSED)
def test_a_command_that_is_none_is_a_usage_error(words, folder):
    done = mild_here(folder, words)
    assert (done.code, done.out) == (2, "")
    assert done.err
    assert "Traceback" not in done.err


def test_a_shell_sees_the_same(folder):
    """In a process of its own, as a script that calls mild sees it."""
    done = process(folder, ["-m", "mild", *adapter.tune("two.csv", OUT, "--json")])
    assert done.code == 1
    assert done.figures["code"] == adapter.REFUSALS["a score of 2"][1]
    assert len(complaints(done.err)) == 1
    assert process(folder, ["-m", "mild", "conjure"]).code == 2
