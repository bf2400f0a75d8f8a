"""Commands of other distributions: loaded when they are needed, and refused if they are broken."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoints, distributions
from textwrap import dedent

import pytest

from mild.cli import extensions
from mild.cli.extensions import GATEWAY_COMMANDS
from mild.errors import install_hint

WEATHER = """
    from mild.cli import AsJson, CommandGroup, emit, print_sentence
    from mild.errors import InvalidInputError

    def weather(city: str, as_json: AsJson = False) -> None:
        \"\"\"Tell the weather of a city.\"\"\"
        if city == "atlantis":
            raise InvalidInputError("city must be above water; got atlantis.", parameter="city")
        emit({"city": city}, as_json, lambda: print_sentence(f"{city}: rain"))

    def stations() -> None:
        \"\"\"Manage weather stations.\"\"\"

    def add(name: str) -> None:
        \"\"\"Add a station.\"\"\"
        print_sentence(f"added {name}")

    STATIONS = CommandGroup(stations, {"add": add})
    NUMBER = 3
    GROUP_OF_NUMBERS = CommandGroup(stations, {"add": 3})

    def odd(city: "Nowhere") -> None:
        pass
"""
WRONG_VERSION = """
    from mild.errors import MildError

    raise MildError(
        "mild-gateway 0.9.0 needs mild-learn 0.9.0; this is mild-learn 0.10.0. Run: pip install X.",
        code="version_mismatch",
    )
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """``install("acme-tools", {"weather": "acme_tools:weather"}, SOURCE)``; nothing else is installed.

    The source is that of the module, which is called ``acme_tools`` unless another name is given.
    """
    monkeypatch.syspath_prepend(str(tmp_path))

    def entry_points(**selection):
        entries = []
        for distribution in distributions(path=[str(tmp_path)]):
            entries.extend(distribution.entry_points)
        return EntryPoints(entries).select(**selection)

    monkeypatch.setattr(extensions, "entry_points", entry_points)
    modules = []

    def write(distribution, commands, source=WEATHER, module=None):
        module = module or distribution.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(dedent(source))
        modules.append(module)
        folder = tmp_path / f"{distribution}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {distribution}\nVersion: 1.0\n")
        lines = [f"{name} = {target}" for name, target in commands.items()]
        text = "\n".join(["[mild.commands]", *lines])
        (folder / "entry_points.txt").write_text(text)

    yield write
    for module in modules:
        sys.modules.pop(module, None)


def listed_commands(shown):
    """Names of the commands that ``mild --help`` lists."""
    assert shown.code == 0, shown.err
    section = shown.out.partition("\nCommands:\n")[2]
    return [line.split()[0] for line in section.splitlines() if line[2:3] != " "]


def assert_refused(mild, words, code, message):
    """The command ends with this error; with --json it is also an object on stdout."""
    plain = mild(*words)
    assert (plain.code, plain.out, plain.err) == (1, "", f"error: {message}\n")
    as_json = mild(*words, "--json")
    assert (as_json.code, as_json.err) == (1, f"error: {message}\n")
    assert as_json.json() == {"error": message, "code": code}


def test_a_command_of_another_distribution_works_like_a_built_in_one(mild, install):
    install("acme-tools", {"weather": "acme_tools:weather"})
    assert mild("weather", "Oslo").out == "Oslo: rain\n"
    assert mild("weather", "Oslo", "--json").json() == {"city": "Oslo"}
    assert "Tell the weather of a city." in mild("weather", "--help").out
    refused = mild("weather", "atlantis", "--json")
    assert refused.code == 1
    assert refused.json()["code"] == "invalid_city"
    assert mild("weather").code == 2, "CITY is missing"


def test_a_group_of_another_distribution_has_the_name_of_its_entry_point(mild, install):
    install("acme-tools", {"posts": "acme_tools:STATIONS"})
    assert mild("posts", "add", "north").out == "added north\n"
    shown = mild("posts", "--help")
    assert "Usage: mild posts" in shown.out
    assert "Manage weather stations." in shown.out
    assert mild("posts", "remove").code == 2


def test_the_help_lists_extensions_after_built_in_commands(mild, install):
    install("acme-tools", {"weather": "acme_tools:weather", "stations": "acme_tools:STATIONS"})
    shown = mild("--help")
    names = listed_commands(shown)
    assert names[0] == "fit"
    assert sorted(names[-2:]) == ["stations", "weather"]
    assert shown.err == ""


@pytest.mark.parametrize("words", [["tune", "--help"], ["--version"], ["describe", "x.csv"]])
def test_built_in_commands_do_not_look_for_extensions(mild, monkeypatch, words):
    def refuse(**selection):
        raise AssertionError("looked for entry points")

    monkeypatch.setattr(extensions, "entry_points", refuse)
    mild(*words)


def test_an_extension_is_imported_only_when_it_runs(mild, install):
    install("acme-tools", {"weather": "acme_tools:weather"})
    install("slow-tools", {"dawdle": "slow_tools:weather"})
    assert mild("weather", "Oslo").code == 0
    assert "acme_tools" in sys.modules
    assert "slow_tools" not in sys.modules


def test_running_an_extension_does_not_import_the_commands_of_mild():
    code = (
        "import sys\n"
        "from mild.cli import AsJson, CommandGroup, emit\n"
        "print([name for name in sys.modules if name in ('mild.cli.app', 'mild.cli.tune', 'numpy')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


BROKEN = {
    "no such module": (
        "nowhere:weather",
        WEATHER,
        "ModuleNotFoundError: No module named 'nowhere'",
    ),
    "no such name": (
        "acme_tools:climate",
        WEATHER,
        "AttributeError: module 'acme_tools' has no attribute 'climate'",
    ),
    "exception": ("acme_tools:weather", "1 / 0", "ZeroDivisionError: division by zero"),
    "two lines": ("acme_tools:weather", "raise OSError('no\\ndisk')", "OSError: no disk"),
    "exit": ("acme_tools:weather", "import sys; sys.exit('stop')", "SystemExit: stop"),
    "no function": (
        "acme_tools:NUMBER",
        WEATHER,
        "TypeError: expected a function or a CommandGroup, got an object of type int",
    ),
    "module": (
        "acme_tools",
        WEATHER,
        "TypeError: expected a function or a CommandGroup, got an object of type module",
    ),
    "no function in a group": (
        "acme_tools:GROUP_OF_NUMBERS",
        WEATHER,
        "TypeError: expected a function or a CommandGroup, got an object of type int",
    ),
    "unknown type": (
        "acme_tools:odd",
        WEATHER,
        "NameError: name 'Nowhere' is not defined",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_command_is_named_and_the_others_work(mild, install, case):
    target, source, reason = BROKEN[case]
    install("acme-tools", {"weather": target}, source)
    install("good-tools", {"forecast": "good_tools:weather"})
    message = (
        f"the command weather of acme-tools cannot be loaded ({reason}); "
        "update or reinstall acme-tools."
    )
    assert_refused(mild, ["weather", "Oslo", "--wind"], "broken_command", message)
    shown = mild("--help")
    assert "forecast" in listed_commands(shown)
    assert "weather" not in listed_commands(shown)
    assert shown.err == f"warning: {message}\n"
    assert mild("forecast", "Oslo").out == "Oslo: rain\n"
    assert mild("tune", "--help").code == 0


def test_an_extension_cannot_take_the_name_of_a_built_in_command(mild, install):
    install("acme-tools", {"demo": "acme_tools:weather", "describe": "acme_tools:STATIONS"})
    assert "Show what mild does" in mild("demo", "--help").out
    assert "Describe a table of outcomes" in mild("describe", "--help").out
    shown = mild("--help")
    assert listed_commands(shown).count("demo") == 1
    assert sorted(shown.err.splitlines()) == [
        "warning: the command demo of acme-tools is ignored, because mild has a command of that name.",
        "warning: the command describe of acme-tools is ignored, because mild has a command of that name.",
    ]


def test_an_extension_cannot_take_the_name_of_a_command_of_the_gateway(mild, install):
    install("acme-tools", {"serve": "acme_tools:weather"})
    assert mild("serve", "Oslo", "--json").json()["code"] == "missing_extra"
    shown = mild("--help")
    assert "serve" not in listed_commands(shown)
    assert shown.err == (
        "warning: the command serve of acme-tools is ignored, because mild-gateway has a command of "
        "that name.\n"
    )


def test_a_command_of_the_gateway_wins_over_another_of_the_same_name(mild, install):
    install("acme-tools", {"serve": "acme_tools:weather"})
    source = "def serve() -> None:\n    print('serving')"
    install("mild-gateway", {"serve": "other_gateway:serve"}, source, module="other_gateway")
    assert mild("serve").out == "serving\n"
    assert "serve" in listed_commands(mild("--help"))


def test_a_name_that_two_distributions_use_is_refused(mild, install):
    install("acme-tools", {"weather": "acme_tools:weather", "stations": "acme_tools:STATIONS"})
    install("other-tools", {"weather": "other_tools:weather"})
    message = "the command weather is defined by acme-tools and other-tools; uninstall all but one of them."
    assert_refused(mild, ["weather", "Oslo"], "broken_command", message)
    shown = mild("--help")
    assert "weather" not in listed_commands(shown)
    assert shown.err == f"warning: {message}\n"
    assert mild("stations", "add", "north").out == "added north\n"


def test_a_gateway_of_another_version_says_so_in_one_sentence(mild, install):
    commands = {name: f"old_gateway:{name.replace('-', '_')}" for name in GATEWAY_COMMANDS}
    install("mild-gateway", commands, WRONG_VERSION, module="old_gateway")
    message = (
        "mild-gateway 0.9.0 needs mild-learn 0.9.0; this is mild-learn 0.10.0. Run: pip install X."
    )
    for name in GATEWAY_COMMANDS:
        assert_refused(mild, [name], "version_mismatch", message)
    shown = mild("--help")
    assert not set(GATEWAY_COMMANDS) & set(listed_commands(shown))
    assert shown.err == f"warning: {message}\n", "once, not once per command"


@pytest.mark.parametrize("name", GATEWAY_COMMANDS)
def test_without_the_gateway_its_commands_say_what_to_install(mild, install, name):
    message = (
        f"mild {name} is part of mild-gateway, which is not installed; run: "
        f"{install_hint('gateway')}."
    )
    assert_refused(mild, [name], "missing_extra", message)
    assert_refused(mild, [name, "list", "--help"], "missing_extra", message)


def test_without_the_gateway_the_help_lists_no_command_of_it(mild, install):
    shown = mild("--help")
    assert not set(GATEWAY_COMMANDS) & set(listed_commands(shown))
    assert shown.err == ""


def test_an_unknown_command_is_a_usage_error(mild, install):
    install("acme-tools", {"weather": "acme_tools:weather"})
    install("bad-tools", {"storm": "bad_tools:storm"}, "1 / 0")
    done = mild("frobnicate")
    assert done.code == 2
    assert done.err.endswith("No such command 'frobnicate'.\n")
    assert "storm" not in done.err
    assert "Did you mean 'weather'?" in mild("wether").err
