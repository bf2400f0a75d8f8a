"""What the documentation shows is what the gateway reads."""

from __future__ import annotations

import re
from pathlib import Path

from mild.endpoints.translation import FIELDS
from mild.gateway.config import read_settings

PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"


def test_the_file_that_shows_everything_is_read(tmp_path):
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "mild.toml"
    file.write_text(block)
    settings = read_settings(file, {"SMALL_KEY": "secret"})
    assert [expert.name for expert in settings.experts] == ["small", "large"]
    assert settings.access.budget_month == 300
    assert settings.experts[0].breaker.failures == 5


def test_the_table_of_fields_is_that_of_the_code():
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = line.strip("|").split("|")
        path = re.match(r" `/v1(/[a-z/]+)`", cells[0])
        if path and len(cells) == 4:
            names = [re.findall(r"`([a-z_]+)`", cell) for cell in cells[1:]]
            found[path[1]] = dict(zip(("translated", "ignored", "refused"), names, strict=True))
    assert found == FIELDS
