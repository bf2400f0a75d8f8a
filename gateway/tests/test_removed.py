"""What was removed says what to use instead, and the migration page lists the same."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import mild_gateway
from mild.cli.app import build_app
from mild.errors import InvalidInputError, MildError
from mild_gateway.config import read_settings
from mild_gateway.removed_settings import REMOVED_SETTINGS

MIGRATION = Path(__file__).parents[2] / "docs" / "development" / "migration.md"


@pytest.mark.parametrize(("section", "setting"), REMOVED_SETTINGS)
def test_a_removed_setting_says_what_to_use(section, setting, tmp_path):
    file = tmp_path / "mild.toml"
    file.write_text(settings_with(setting, section), encoding="utf-8")
    with pytest.raises(MildError) as caught:
        read_settings(file)
    instead = REMOVED_SETTINGS[section, setting]
    assert str(caught.value).endswith(f": {setting} was removed in mild 0.10. {instead}")
    assert str(caught.value).startswith(f"{file}, line ")
    assert caught.value.code == "removed"


@pytest.mark.parametrize("option", ["--plan", "--responses"])
def test_a_removed_option_of_collect_says_what_to_use(option):
    done = CliRunner().invoke(build_app(), ["collect", "questions.csv", option], prog_name="mild")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: {option} was removed in mild 0.10. ")


@pytest.mark.parametrize("parameter", ["plan", "responses"])
def test_a_removed_parameter_of_collect_outcomes_says_what_to_use(parameter):
    with pytest.raises(InvalidInputError) as caught:
        mild_gateway.collect_outcomes(**{parameter: 1})
    assert str(caught.value).startswith(f"{parameter} was removed in mild 0.10. ")
    assert caught.value.code == "removed"


def test_other_problems_of_a_file_are_named_beside_a_removed_setting(monkeypatch, tmp_path):
    monkeypatch.setitem(REMOVED_SETTINGS, ("top level", "old_key"), "Use port.")
    file = tmp_path / "mild.toml"
    text = settings_with("old_key", "top level").replace("old_key", "prot = 1\nold_key")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(MildError) as caught:
        read_settings(file)
    assert "old_key was removed in mild 0.10. Use port." in str(caught.value)
    assert "prot is unknown; did you mean port?" in str(caught.value)
    assert caught.value.code == "invalid_data_file"


def test_the_migration_page_has_the_rows_of_the_table():
    lines = MIGRATION.read_text(encoding="utf-8").splitlines()
    start = lines.index("| removed setting | section | instead |")
    expected = []
    for (section, setting), instead in REMOVED_SETTINGS.items():
        expected.append(f"| `{setting}` | {section} | {instead} |")
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(line)
    assert rows == expected


def test_rows_are_sorted_and_end_as_sentences():
    assert list(REMOVED_SETTINGS) == sorted(REMOVED_SETTINGS)
    for instead in REMOVED_SETTINGS.values():
        assert instead.endswith(".")


def settings_with(name, section):
    """A configuration that is right but for one setting."""
    expert = '[experts.small]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
    if section == "top level":
        return f"{name} = 1\n{expert}"
    if section == "experts":
        return f"{expert}{name} = 1\n"
    if section == "grading":
        return f'{expert}[grading]\nmethod = "agreement"\nexpert = "small"\n{name} = 1\n'
    if section.startswith("experts."):
        section = section.replace("experts.", "experts.small.", 1)
    return f"{expert}[{section}]\n{name} = 1\n"
