"""The examples of the documentation write into a folder of their own."""

import pytest


@pytest.fixture(autouse=True)
def _examples_in_a_folder_of_their_own(request, monkeypatch):
    if request.path.suffix == ".md":
        monkeypatch.chdir(request.getfixturevalue("tmp_path"))
