"""What the documentation shows is what the gateway reads."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import mild.endpoints
import mild.gateway
from mild.endpoints.errors import FAILURES
from mild.endpoints.translation.fields import FIELDS
from mild.gateway.config import read_settings
from mild.gateway.metrics import Metrics
from mild.gateway.upstream.json_edit import MAX_DEPTH, REQUEST_LIMITS

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
LISTS = GUIDES / "gateway-lists.md"
FILES = re.compile(r"```toml\n(.*?)```", re.DOTALL)
PAGES = [*sorted(GUIDES.glob("gateway/*.md"))]
PAGES += [
    GUIDES / f"{name}.md"
    for name in ("learning", "security", "machines", "from-litellm", "from-routellm")
]
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(FILES.findall(page.read_text(encoding="utf-8")))
]


def test_the_file_that_shows_everything_is_read(tmp_path):
    (block,) = FILES.findall(LISTS.read_text(encoding="utf-8"))
    file = tmp_path / "mild.toml"
    file.write_text(block)
    settings = read_settings(file, {"SMALL_KEY": "secret"})
    assert [expert.name for expert in settings.experts] == ["small", "large"]
    assert settings.access.budget_month == 300
    assert settings.experts[0].breaker.failures == 5


@pytest.mark.parametrize("block", BLOCKS)
def test_the_files_of_the_guides_are_read(tmp_path, block):
    model = {"model_name": "small", "litellm_params": {"model": "openai/small", "api_key": "none"}}
    # JSON is YAML.
    (tmp_path / "config.yaml").write_text(json.dumps({"model_list": [model]}))
    if "[experts." not in block:
        block += '\n[experts.claude]\nbase_url = "http://127.0.0.1:8000/v1"\nmodel = "m"\n'
    file = tmp_path / "mild.toml"
    file.write_text(block)
    address = "postgresql://mild@127.0.0.1/gateway"
    names = re.findall(r'\w+_env = "(\w+)"', block)
    settings = read_settings(file, dict.fromkeys(names, address))
    assert settings.experts


def metric_names():
    line = {period: {"spent": 1.0, "budget": 2.0} for period in ("day", "month")}
    page = Metrics(["one"], lambda: {"all": line, "keys": {}}).render().decode()
    return set(re.findall(r"# HELP (\w+)", page))


def test_the_guides_name_metrics_that_there_are():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = {name.removesuffix("_bucket") for name in re.findall(r"\bmild_[a-z_]+", text)}
    assert len(named) > 8
    # mild_plugin.py is a file of a recipe.
    assert named - {"mild_plugin"} <= metric_names()


def translation_codes():
    """Codes of the errors in the source of the translation."""
    folder = Path(mild.endpoints.__file__).parent / "translation"
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    return set(re.findall(r'code="(\w+)"', text))


def raised_codes():
    """Status and code of every refusal in the source; codes made of an expert's failure are written out."""
    found = set()
    for path in Path(mild.gateway.__file__).parent.rglob("*.py"):
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
    text = LISTS.read_text(encoding="utf-8").split("\n## Errors\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| `(\w+)` \| .+ \|$", text, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) == raised_codes()


def test_every_metric_is_in_the_table():
    text = LISTS.read_text(encoding="utf-8").split("\n**Metrics** at")[1].split("\n## ")[0]
    rows = "".join(line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `"))
    families = metric_names()
    assert len(families) > 20
    assert families <= set(re.findall(r"`(mild_\w+)`", rows))


def test_the_table_names_the_bounds_that_are_used():
    text = LISTS.read_text(encoding="utf-8")
    lists, values = REQUEST_LIMITS
    for bound in (f"{lists:,} lists", f"{values:,} values", f"{MAX_DEPTH} levels"):
        assert bound in text


def test_the_table_of_fields_is_that_of_the_code():
    found = {}
    for line in (GUIDES / "gateway" / "clients.md").read_text(encoding="utf-8").splitlines():
        cells = line.strip("|").split("|")
        path = re.match(r" `/v1(/[a-z/]+)`", cells[0])
        if path and len(cells) == 4:
            names = [re.findall(r"`([a-z_]+)`", cell) for cell in cells[1:]]
            found[path[1]] = dict(zip(("translated", "ignored", "refused"), names, strict=True))
    assert found == FIELDS
