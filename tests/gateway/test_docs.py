"""What the documentation shows is what the gateway reads."""

from __future__ import annotations

import re
from pathlib import Path

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
