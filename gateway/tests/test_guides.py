"""The files that the guides show are read, and the metrics that they name are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mild_gateway.config import read_settings
from mild_gateway.metrics import Metrics

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
OTHERS = ("learning", "security", "from-litellm", "from-routellm")
PAGES = [*sorted(GUIDES.glob("gateway/*.md")), *(GUIDES / f"{name}.md" for name in OTHERS)]
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
]


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


def test_the_guides_name_metrics_that_there_are():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = {name.removesuffix("_bucket") for name in re.findall(r"\bmild_[a-z_]+", text)}
    assert len(named) > 8
    line = {period: {"spent": 1.0, "budget": 2.0} for period in ("day", "month")}
    page = Metrics(["one"], lambda: {"all": line, "keys": {}}).render().decode()
    known = set(re.findall(r"# HELP (\w+)", page))
    # mild_plugin.py is a file of a recipe, and mild_gateway is the package.
    assert named - {"mild_plugin", "mild_gateway"} <= known
