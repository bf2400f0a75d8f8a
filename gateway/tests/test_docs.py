"""What the reference says of the gateway is made from the code, and leaves nothing out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import mild_gateway
import mild_gateway.experts
from mild_gateway.config import Settings, read_settings
from mild_gateway.error_codes import ERROR_CODES
from mild_gateway.experts.errors import FAILURES
from mild_gateway.experts.translation.fields import FIELDS
from mild_gateway.metrics import Metrics
from scripts import reference

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def test_every_command_is_there_with_a_text_an_example_and_help_for_every_option():
    commands = reference.commands(reference.GATEWAY)
    assert {"mild serve", "mild check", "mild collect", "mild learn", "mild keys add"} < set(
        commands
    )
    assert not set(commands) & set(reference.commands(reference.LIBRARY))
    for name, command in commands.items():
        page = reference.command_help(name, command)
        assert page.text, name
        assert name in page.example, name
        options = [record for records in page.options.values() for record in records]
        assert [option for option, text in options if not text] == [], name


def test_text_of_a_command_is_not_read_as_markup():
    page = reference.command_line(reference.GATEWAY)
    outside_code = re.sub(r"```.*?```|`[^`\n]*`", "", page, flags=re.DOTALL)
    assert "<" not in outside_code
    assert not re.search(r"(?<!\\)[*_]", outside_code)


def test_every_public_name_is_on_the_page():
    page = reference.gateway_names()
    public_names = set(mild_gateway.__all__) - {"__version__"}
    assert set(re.findall(r"^::: mild_gateway\.(\w+)$", page, re.MULTILINE)) == public_names


def test_the_file_on_the_page_of_settings_is_read(tmp_path):
    text = (PAGES / "config.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "mild.toml"
    file.write_text(block)
    settings = read_settings(file, {"SMALL_KEY": "secret"})
    assert [expert.name for expert in settings.experts] == ["small", "large"]
    assert settings.access.budget_month == 300


def test_every_setting_has_a_meaning_and_a_rule():
    text = reference.gateway_settings() + reference.prompt_settings()
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|(.*)\|(.*)\|$", text, re.MULTILINE)
    assert len(rows) > 60
    assert [
        name for name, rule, _, meaning in rows if not rule.strip() or not meaning.strip()
    ] == []
    headings = re.findall(r"^#+ `\[([\w.]+)\]`", text, re.MULTILINE)
    tables = {name for name, field in Settings.__pydantic_fields__.items()
              if reference.table_of(field.annotation)}  # fmt: skip
    assert tables == {heading.split(".")[0] for heading in headings}
    assert "routing.target" in headings


def test_a_rule_is_that_of_the_message_for_a_bad_value():
    rows = {one.name: one for one in reference.settings_of(Settings)}
    assert (rows["port"].rule, rows["port"].default) == ("a whole number from 0 to 65535", "`6060`")
    assert rows["page"].rule == 'true, false or "public"'


def test_every_metric_is_in_the_table_with_its_labels():
    line = {period: {"spent": 1.0, "budget": 2.0} for period in ("day", "month")}
    page = Metrics(["one"], lambda: {"all": line, "keys": {}}).render().decode()
    families = set(re.findall(r"# HELP (\w+)", page))
    table = reference.metrics()
    assert len(families) > 20
    assert families == set(re.findall(r"^\| `(mild_\w+)`", table, re.MULTILINE))
    assert "`outcome`: ok, cut, cancelled, refused, failed" in table


def test_every_column_of_the_ledger_has_a_meaning():
    tables = reference.ledger_columns()
    names = {"decisions", "feedback", "routers", "minutes", "workers", "key_bytes"}
    assert names == set(tables)
    assert [
        (table, column)
        for table, columns in tables.items()
        for column, (_, meaning) in columns.items()
        if not meaning
    ] == []


def translation_codes():
    """Codes of the errors in the source of the translation."""
    folder = Path(mild_gateway.experts.__file__).parent / "translation"
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    return set(re.findall(r'code="(\w+)"', text))


def raised_codes():
    """Status and code of every refusal in the source; codes made of an expert's failure are written out."""
    found = set()
    for path in Path(mild_gateway.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", None) != "Refusal":
                continue
            (code,) = [word.value for word in node.keywords if word.arg == "code"] or [None]
            assert code is not None, f"{path}:{node.lineno} has no code"
            first = node.args[0]
            status = str(first.value) if isinstance(first, ast.Constant) else "4xx"
            if isinstance(code, ast.JoinedStr):
                statuses = {"rate": "429", "timeout": "504"}
                # What a request is refused for is passed on and has no code of this kind.
                kinds = FAILURES.keys() - {"client_error"}
                found |= {(statuses.get(kind, "502"), f"expert_{kind}") for kind in kinds}
            elif isinstance(code, ast.Attribute | ast.Subscript):
                # Codes of a translation that fails.
                found |= {(status, name) for name in translation_codes()}
            else:
                found.add((status, code.value))
    return found


def test_the_table_of_errors_is_complete():
    rows = [(one.status, one.code) for one in ERROR_CODES]
    assert len(rows) == len(set(rows))
    assert set(rows) == raised_codes()
    assert all(one.cause and one.remedy for one in ERROR_CODES)


def test_the_table_of_fields_has_every_field():
    table = reference.translated_fields()
    for path, groups in FIELDS.items():
        (row,) = [line for line in table.splitlines() if line.startswith(f"| `/v1{path}`")]
        assert set(re.findall(r"`([a-z_]+)`", row)) == {
            n for names in groups.values() for n in names
        }
