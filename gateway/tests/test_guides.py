"""The files that the guides show are read, and the settings and metrics that they name are there."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from mild_gateway.collect.prompts import Prompts
from mild_gateway.config import Settings, read_settings
from mild_gateway.metrics import Metrics
from scripts import reference

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
OTHERS = ("collect", "deployment", "learning", "security", "from-litellm", "from-routellm")
PAGES = [*sorted(GUIDES.glob("gateway/*.md")), *(GUIDES / f"{name}.md" for name in OTHERS)]
# Pages that name settings, but show no file.
MORE_PAGES = [
    GUIDES / "cascades.md",
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    ROOT / "gateway" / "README.md",
]
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_files_of_the_guides_are_read(tmp_path, block):
    if "[experts." not in block:
        block += '\n[experts.claude]\nbase_url = "http://127.0.0.1:8000/v1"\nmodel = "m"\n'
    file = tmp_path / "mild.toml"
    file.write_text(block)
    address = "postgresql://mild@127.0.0.1/gateway"
    names = re.findall(r'(?:\w+_env = "|"env:)(\w+)"', block)
    settings = read_settings(file, dict.fromkeys(names, address))
    assert settings.experts


@functools.cache
def settings_by_section():
    """Every setting of mild.toml and experts.toml: section -> names; the top level has an empty name."""
    sections = {
        "": {setting.name for setting in reference.settings_of(Settings)},
        "prompts": {setting.name for setting in reference.settings_of(Prompts)},
    }
    for section, field in Settings.__pydantic_fields__.items():
        table = reference.table_of(field.annotation)
        if table is None:
            continue
        sections[""].add(section)
        sections[section] = {setting.name for setting in reference.settings_of(table)}
        for name, inner in table.__pydantic_fields__.items():
            inner_table = reference.table_of(inner.annotation)
            if inner_table is not None:
                sections[section].add(name)
                sections[f"{section}.{name}"] = {
                    setting.name for setting in reference.settings_of(inner_table)
                }
    return sections


def code_of(page):
    """What a page writes as code within its sentences."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def unknown_settings(page, sections):
    """Settings that a page writes as `name = value` or `section.name` and that do not exist."""
    names = set().union(*sections.values())
    unknown = []
    for code in code_of(page):
        assignment = re.match(r"(?:\[([a-z.]+)\] )?([a-z_]+) = ", code)
        if assignment is not None:
            section, name = assignment.groups()
            known = names
            if section is not None:
                known = sections[section]
            if name not in known:
                unknown.append(code)
        # Not a file, such as experts.toml.
        dotted = re.fullmatch(r"([a-z]+)\.(?!toml$)([a-z_]+)", code)
        if dotted is not None and dotted[1] in sections and dotted[2] not in sections[dotted[1]]:
            unknown.append(code)
    return unknown


@pytest.mark.parametrize("page", [*PAGES, *MORE_PAGES], ids=lambda page: page.stem)
def test_the_pages_name_settings_that_there_are(page):
    assert unknown_settings(page, settings_by_section()) == []


def test_an_unknown_setting_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("`max_atempts = 1`, `limits.keep_alive`, `port = 1`, `limits.total_seconds`")
    unknown = unknown_settings(page, settings_by_section())
    assert unknown == ["max_atempts = 1", "limits.keep_alive"]


def test_the_guides_name_metrics_that_there_are():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = {name.removesuffix("_bucket") for name in re.findall(r"\bmild_[a-z_]+", text)}
    assert len(named) > 8
    line = {period: {"spent": 1.0, "budget": 2.0} for period in ("day", "month")}
    page = Metrics(["one"], lambda: {"all": line, "keys": {}}).render().decode()
    known = set(re.findall(r"# HELP (\w+)", page))
    # mild_plugin.py is a file of a recipe, and mild_gateway is the package.
    assert named - {"mild_plugin", "mild_gateway"} <= known
