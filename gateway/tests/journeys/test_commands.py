"""Configurations are checked, outcomes collected, words mistyped: what commands say and leave behind."""

from __future__ import annotations

import copy
import json
import shutil
import signal
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from journeys import adapter
from journeys.accounts import DOLLARS, TOKENS, experts_of, spent_by_models
from journeys.processes import LONGEST, MILD, environment, mild, served
from model_server import ModelServer
from waiting import wait_until

pytestmark = pytest.mark.slow


@contextmanager
def nothing_written(*folders):
    """No file is new, gone or changed at the end; a database is tidied up by whoever opens it."""

    def contents():
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        return {(path, path.read_bytes()) for path in files if ".sqlite" not in path.name}

    before = contents()
    yield
    assert {path.name for path, _ in before ^ contents()} == set()


def check_refused(folder, words, code=1):
    """A command is refused in one sentence, and as JSON where it is asked for."""
    done = mild(folder, words, codes=(code,))
    errors = [line for line in done.err.splitlines() if line.lower().startswith("error: ")]
    assert len(errors) == 1, done.err
    if code == 1 and "--json" in words:
        assert set(done.figures) == {"error", "code"}
        assert done.figures["code"]


def run_all(function, arguments):
    """Call a function with each of the arguments, two at a time; what it returns."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda given: function(*given), arguments))


def changed(given, path, value):
    """Settings of which one, such as ``experts.small.price_in``, is another; None takes it away."""
    given = copy.deepcopy(given)
    *tables, name = path.split(".")
    table = given
    for part in tables:
        table = table.setdefault(part, {})
    if value is None:
        del table[name]
    else:
        table[name] = value
    return given


EXPERTS = {
    name: adapter.limited_expert("http://127.0.0.1:9/v1", f"{name}-model", (1.0, 2.0), 100)
    for name in ("small", "large")
}
GOOD = adapter.settings(
    EXPERTS, routing={"explore": 0.1}, access={"budget_day": 5.0}, ledger={"keep_days": 7}
)
BAD = {
    "an unknown setting": changed(GOOD, "access.budget_dya", 5.0),
    "a negative budget": changed(GOOD, "access.budget_day", -1),
    "a negative price": changed(GOOD, "experts.small.price_in", -1.0),
    "an expert without a model": changed(GOOD, "experts.small.model", None),
    "an address that is none": changed(GOOD, "experts.small.base_url", "127.0.0.1"),
    "no expert": {**GOOD, "experts": {}},
    "a router that is not there": changed(GOOD, "router", "nowhere"),
    "experts that the router does not know": {**GOOD, "experts": {"other": EXPERTS["small"]}},
    "an expert for the unknown that is unknown": changed(GOOD, "routing.on_novel", "nobody"),
    "a key that is not set": {
        **GOOD,
        "experts": {"small": EXPERTS["small"] | adapter.key_from_variable("MILD_NO_SUCH_KEY")},
    },
}


def test_check_accepts_what_can_be_served_and_refuses_what_cannot(router, tmp_path):
    folders = {name: tmp_path / name.replace(" ", "-") for name in ("good", *BAD)}
    for name, folder in folders.items():
        shutil.copytree(router, folder / adapter.ROUTER)
        adapter.write_settings(folder, BAD.get(name, GOOD))
    good = folders.pop("good")
    garbled = tmp_path / "garbled"
    garbled.mkdir()
    (garbled / adapter.CONFIG).write_text("[access\nbudget_day = 5\n")
    commands = [(folder, adapter.check()) for folder in (*folders.values(), garbled)]
    # Nor is it served.
    stranger = folders["experts that the router does not know"]
    commands.append((stranger, adapter.serve()))
    with nothing_written(tmp_path):
        run_all(check_refused, commands)
        assert isinstance(mild(good, [*adapter.check(), "--json"]).figures, dict)


def test_what_cannot_be_done_is_said_in_one_sentence_and_an_empty_ledger_is_none_of_it(
    router, tmp_path
):
    shutil.copytree(router, tmp_path / adapter.ROUTER)
    adapter.write_settings(tmp_path, GOOD)
    with served(tmp_path) as gateway:
        # Two of them cannot have one port.
        port = gateway.address.rpartition(":")[2]
        check_refused(tmp_path, [*adapter.serve(), "--port", port])
        assert gateway.stop() == 0
    # Nobody has asked anything yet.
    (tmp_path / "scores.csv").write_text(adapter.scores_file([("mild-000", 1.0)]))
    commands = [
        adapter.show_ledger(),
        adapter.export_ledger("empty.csv"),
        adapter.export_ledger("empty.parquet"),
        adapter.replay(adapter.ROUTER),
        adapter.import_scores("scores.csv"),
    ]
    done = run_all(mild, [(tmp_path, words) for words in commands])
    shown, csv_export, parquet_export, replayed, imported = [one.figures for one in done]
    assert adapter.read_shown(shown) == adapter.Shown(0, 0.0, {}, {})
    assert (csv_export["rows"], parquet_export["rows"]) == (0, 0)
    for file in ("empty.csv", "empty.parquet"):
        assert adapter.read_rows(tmp_path / file) == []
    assert adapter.read_replayed_rows(replayed) == 0
    assert adapter.read_imported(imported) == (0, 1)

    (tmp_path / "words.csv").write_text(adapter.scores_file([("mild-000", 17.0)]))

    def elsewhere(words):
        """A command with another configuration, which is not there."""
        return ["nowhere.toml" if word == adapter.CONFIG else word for word in words]

    refused = [
        elsewhere(adapter.show_ledger()),
        elsewhere([*adapter.check(), "--json"]),
        [*adapter.show_ledger(), "--since", "once upon a time"],
        adapter.export_ledger("empty.csv"),
        adapter.export_ledger("nowhere/rows.jsonl"),
        adapter.replay("nowhere"),
        adapter.import_scores("words.csv"),
        adapter.change_key("nobody", budget_day=1),
        adapter.add_key("alice", budget_day=-1),
        adapter.collect("none.jsonl", "table.parquet"),
    ]
    wrong_usage = [[*adapter.show_ledger(), "--no-such-option"], ["keys", "nothing"]]
    with nothing_written(tmp_path):
        run_all(check_refused, [(tmp_path, words, 1) for words in refused])
        run_all(check_refused, [(tmp_path, words, 2) for words in wrong_usage])
    assert adapter.read_keys(mild(tmp_path, adapter.list_keys()).figures) == {}


# What each expert says to a sum, and to a question about a river.
SUMS = {f"What is {a} plus {a + 7}?": str(2 * a + 7) for a in range(101, 131)}
RIVERS = {f"How many miles long is river {n}?": str(n * 10) for n in range(201, 231)}
LATER = {f"What is {a} plus {a + 9}?": str(2 * a + 9) for a in range(301, 306)}
WRONG = "1"


def write_questions(path, asked):
    lines = [
        json.dumps({adapter.QUERY: question, "answer": answer})
        for question, answer in asked.items()
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def says(name, question, answer):
    """What an expert says: ``small`` knows no rivers."""
    return WRONG if name == "small" and question in RIVERS else answer


def set_models(models, asked, **rule):
    for name, tokens in TOKENS.items():
        # A prompt has more than the question.
        rules = [
            {"contains": question, "text": says(name, question, answer), "tokens": tokens, **rule}
            for question, answer in asked.items()
        ]
        models.set_rules(f"{name}-model", *rules)


def check_collected(folder, collected, asked):
    """The table and the summary agree with what the models say."""
    table = adapter.read_collected_table(folder / "table.parquet")
    assert set(table) == set(asked)
    for question, answer in asked.items():
        for name, cells in table[question].items():
            said = says(name, question, answer)
            assert cells == (float(said == answer), pytest.approx(DOLLARS[name]), said)
    n_right = {"small": len(asked) - len(RIVERS), "large": len(asked)}
    for name, told in collected.items():
        assert told.answered == len(asked)
        assert told.score == pytest.approx(n_right[name] / len(asked))
        assert told.dollars == pytest.approx(told.asked * DOLLARS[name])
    return {name: told.asked for name, told in collected.items()}


def test_outcomes_are_collected_with_an_interruption_and_a_router_is_tuned_on_them(tmp_path):
    asked = SUMS | RIVERS
    questions = tmp_path / "questions.jsonl"
    write_questions(questions, asked)
    words = adapter.collect(questions.name, "table.parquet")
    with ModelServer() as models:
        adapter.write_collected_experts(tmp_path, experts_of(models))

        def times_asked():
            """How often each model got each prompt."""
            return Counter((request["model"], request["text"]) for request in models.received())

        # What it would be is told before anything is asked or written.
        with nothing_written(tmp_path):
            plan = mild(tmp_path, [*words, "--dry-run"]).figures
        assert adapter.read_to_ask(plan) == {"small": len(asked), "large": len(asked)}
        assert models.received() == []

        # Ctrl-C in the middle: what is there is in the table.
        set_models(models, asked, delay=3)
        process = subprocess.Popen(
            [MILD, *words],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        wait_until(lambda: len(models.received()) > 10)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LONGEST)
        assert process.returncode == 130
        assert b"Traceback" not in said
        n_asked = times_asked()
        assert 10 < len(n_asked) < 2 * len(asked)
        table = adapter.read_collected_table(tmp_path / "table.parquet")
        known = [
            score for row in table.values() for score, _, _ in row.values() if score is not None
        ]
        assert len(known) == len(n_asked)

        # It goes on where it was, and asks nothing twice.
        set_models(models, asked)
        collected = adapter.read_collected(mild(tmp_path, words).figures)
        n_left = check_collected(tmp_path, collected, asked)
        assert sum(n_left.values()) == 2 * len(asked) - len(n_asked)
        assert set(times_asked().values()) == {1}

        # More questions, and less money than they all cost.
        max_spend = sum((len(asked) + 3) * dollars for dollars in DOLLARS.values())
        n_before = len(models.received())
        asked |= LATER
        write_questions(questions, asked)
        set_models(models, asked)
        mild(tmp_path, adapter.collect(questions.name, "table.parquet", max_spend=max_spend))
        assert 0 < len(models.received()) - n_before < 2 * len(LATER)
        assert spent_by_models(models) <= max_spend
        assert set(times_asked().values()) == {1}

    # What has no answer is no obstacle. A wrong answer is dearer than both experts, so that rivers are
    # for the one who knows them.
    mild(tmp_path, adapter.tune("table.parquet", adapter.ROUTER, price_weight=50))
    (tmp_path / "new.txt").write_text(
        "\n".join(["What is 555 plus 556?", "How many miles long is river 555?"])
    )
    routes = adapter.read_routes(mild(tmp_path, adapter.route(adapter.ROUTER, "new.txt")).out)
    assert routes == ["small", "large"]
