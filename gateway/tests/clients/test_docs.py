"""The recipes of the documentation, against the demo."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "gateway" / "clients.md"
BLOCKS = re.findall(r"```python\n(from ([\w.]+) import .*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize(("code", "package"), BLOCKS, ids=[name for _, name in BLOCKS])
def test_the_recipe_runs(code, package, gateway, capsys):
    pytest.importorskip(package)
    # The demo has no keys, and an unknown one is refused.
    code = code.replace("http://localhost:6060", gateway.url).replace("mild-...", "none")
    exec(code, {"__name__": "recipe"})
    said = capsys.readouterr().out
    # The recipes print who answered, the last one only the answer.
    assert "rules" in said or said == "391391\n"


def test_the_recipes_are_found():
    assert [name for _, name in BLOCKS] == [
        "openai",
        "anthropic",
        "langchain_openai",
        "llama_index.llms.openai_like",
        "instructor",
        "openai",
    ]
