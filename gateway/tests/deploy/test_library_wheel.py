"""`make test-gateway` runs these tests with the library's wheel, not with the sources of the checkout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mild

LIBRARY = os.environ.get("MILD_TESTS_USE")
PROGRAM = "import mild.artifact; print(mild.artifact.__file__)"


@pytest.mark.skipif(LIBRARY is None, reason="run by make test-gateway with the library's wheel")
def test_the_library_comes_from_the_wheel_here_and_in_new_processes():
    child = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    files = [mild.__file__, child.stdout.strip()]
    for name, module in list(sys.modules.items()):
        if name.startswith("mild.") and getattr(module, "__file__", None):
            files.append(module.__file__)
    assert len(files) > 5
    outside = [file for file in files if not Path(file).is_relative_to(LIBRARY)]
    assert outside == [], child.stderr
