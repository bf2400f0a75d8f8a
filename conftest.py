"""The examples of the README and of the documentation write into a folder of their own."""

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
# Their examples use objects that docs/reference/python.md makes.
EXAMPLES_OF_THE_REFERENCE = (
    "artifact/reading.py",
    "artifact/router.py",
    "data/outcome_table.py",
    "evaluation/evaluate.py",
    "tuning/result.py",
    "tuning/tune.py",
)
USERS = [ROOT / "src" / "mild" / name for name in EXAMPLES_OF_THE_REFERENCE]


@pytest.fixture(autouse=True)
def _examples_in_a_folder_of_their_own(request, monkeypatch):
    if request.path.suffix == ".md":
        monkeypatch.chdir(request.getfixturevalue("tmp_path"))


@pytest.fixture(scope="session")
def reference_objects():
    """``table``, ``found``, ``router`` and ``judged`` of the reference."""
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    names = {}
    for example in doctest.DocTestParser().get_examples(page):
        exec(example.source, names)
    return {name: names[name] for name in ("table", "found", "router", "judged")}


@pytest.fixture(autouse=True)
def _examples_of_the_reference(request):
    if request.path not in USERS:
        yield
        return
    names = request.getfixturevalue("reference_objects")
    space = request.getfixturevalue("doctest_namespace")
    space.update(names)
    yield
    for name in names:
        del space[name]
