"""The figures can be drawn, and say what is missing when they cannot."""

from __future__ import annotations

import sys

from mild.evaluation.demo.figures import draw_overview, draw_pictures


def png_size(path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def test_figures_are_png_files_of_a_readable_size(small_results, tmp_path):
    draw_overview(small_results, tmp_path / "overview.png")
    draw_pictures(small_results, tmp_path / "pictures.png")
    for name in ("overview.png", "pictures.png"):
        width, height = png_size(tmp_path / name)
        assert 800 <= width <= 3000
        assert 700 <= height <= 3000


def test_drawing_leaves_matplotlib_s_global_state_alone(small_results, tmp_path):
    sys.modules.pop("matplotlib.pyplot", None)
    draw_pictures(small_results, tmp_path / "pictures.png")
    assert "matplotlib.pyplot" not in sys.modules
