"""The README of the gateway, which an index of packages shows without the files beside it."""

import re
from pathlib import Path

from typer.testing import CliRunner

from mild.cli.app import build_app
from mild_gateway.config import read_settings

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_it_links_to_no_file():
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert [target for target in targets if not target.startswith("https://")] == []


def test_its_configuration_is_read(tmp_path):
    (block,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    file = tmp_path / "mild.toml"
    file.write_text(block, encoding="utf-8")
    settings = read_settings(file, {"OPENAI_API_KEY": "secret"})
    assert [expert.name for expert in settings.experts] == ["small", "large"]
    assert settings.router == tmp_path / "router"


def test_its_commands_are_there():
    commands = set(re.findall(r"^mild (\w+)", README, re.MULTILINE))
    assert {"serve", "check", "tune"} <= commands
    for command in commands:
        assert CliRunner().invoke(build_app(), [command, "--help"]).exit_code == 0
