"""Small facts of school books, asked for a word or with four options."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path


def _read() -> dict[str, tuple[int, str, dict[str, str]]]:
    content = tomllib.loads(Path(__file__).with_name("facts.toml").read_text(encoding="utf-8"))
    found = {}
    for task, fields in content.items():
        # A line break inside a pair is a blank.
        pairs = (pair.split("=") for pair in " ".join(fields["pairs"].split()).split(";"))
        answers = {left.strip(): right.strip() for left, right in pairs}
        found[task] = (fields["grade"], fields["question"], answers)
    return found


#: Task -> grade, question with ``{}`` for what is asked, and what is asked -> its answer.
FACTS: Mapping[str, tuple[int, str, dict[str, str]]] = _read()
