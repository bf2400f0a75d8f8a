"""The figures: drawn, of a readable size, and not ruined by a reading that collapses."""

from __future__ import annotations

import sys

import pytest

from mild.exceptions import InvalidInputError, MissingExtraError
from mild.reproduce import figures
from mild.reproduce.figures import check_matplotlib, draw_table
from mild.reproduce.summary import summarise
from result_cases import LDAM, TDEF, THEORY, TUNED, UNIFORM, make_record


def png_size(image: bytes) -> tuple[int, int]:
    head = image[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def records(**cell):
    for seed in range(3):
        shift = 0.001 * seed
        yield make_record(TDEF, seed, 0.05 + shift, **cell)
        yield make_record(UNIFORM, seed, 0.048 + 2 * shift, **cell)
        yield make_record(THEORY, seed, {"argmax": 0.5 + shift, "stationary": 0.06}, **cell)
        yield make_record(LDAM, seed, 0.07, **cell)


@pytest.fixture(scope="module")
def blocks():
    cells = [{"setup": setup, "cost": cost} for setup in ("I", "II") for cost in ("error", "cost")]
    cells += [
        {"table": "severe", "setup": "severe", "experts": kind} for kind in ("real", "synthetic")
    ]
    return summarise([record for cell in cells for record in records(**cell)])


def texts(panel) -> list[str]:
    return [text.get_text() for text in panel.texts]


def panel_of(block):
    _, axes = figures._figure([2.0], 1, 1)
    figures._draw_panel(axes[0][0], block)
    return axes[0][0]


@pytest.mark.parametrize("table", ["table1", "severe"])
def test_a_table_is_a_png_of_a_readable_size(blocks, table) -> None:
    width, height = png_size(draw_table([block for block in blocks if block.table == table]))
    assert 700 <= width <= 3000
    assert 300 <= height <= 3000


def test_a_collapsed_reading_is_an_arrow_with_its_number_and_leaves_the_scale(blocks) -> None:
    panel = panel_of(blocks[0])
    low, high = panel.get_xlim()
    assert 0.02 < low < 0.0403 - 0.0018
    assert 0.07 < high < 0.12
    assert "0.501" in texts(panel)


def test_what_is_near_is_on_the_scale_and_the_rest_is_said_below(blocks) -> None:
    panel = panel_of(blocks[0])
    assert texts(panel) == ["0.501"]
    assert panel.get_xlabel() == "deferral loss (off the scale: oracle 0.010, best constant 0.270)"
    severe = panel_of(blocks[-1])
    assert {"oracle", "best constant"} <= set(texts(severe))
    assert severe.get_xlabel() == "deferral loss"


def test_hollow_diamonds_stand_at_the_paper_s_figures_in_the_row_s_colour(blocks) -> None:
    diamonds = [line for line in panel_of(blocks[0]).lines if line.get_marker() == "D"]
    places = [
        (round(float(line.get_xdata()[0]), 4), line.get_markeredgecolor()) for line in diamonds
    ]
    assert places == [
        (0.052, figures.BLACK),
        (0.0403, figures.GREEN),
        (0.0403, figures.ORANGE),
        (0.0403, figures.BLUE),
    ]
    assert {line.get_markerfacecolor() for line in diamonds} == {"white"}


def test_a_search_that_found_equal_margins_is_drawn_as_equal_margins() -> None:
    equal = [make_record(TUNED, seed, 0.05, margins=[1.0, 1.0, 1.0]) for seed in range(2)]
    apart = make_record({**TUNED, "rewards": "others"}, losses=0.05, margins=[0.9, 1.0, 1.1])
    rows = figures._methods(summarise([*equal, apart])[0])
    assert {row.method["rewards"]: figures._colour(row) for row in rows} == {
        "any": figures.GREEN,
        "others": figures.ORANGE,
    }


def test_setups_stand_side_by_side_and_other_settings_below_one_another(blocks) -> None:
    lines = figures._lines([block for block in blocks if block.table == "table1"])
    assert [[(b.cell["setup"], b.cell["cost"]) for b in line] for line in lines] == [
        [("I", "error"), ("II", "error")],
        [("I", "cost"), ("II", "cost")],
    ]
    assert len(figures._lines([block for block in blocks if block.table == "severe"])) == 1


def test_one_seed_without_tdef_or_the_paper_is_drawn() -> None:
    (block,) = summarise([make_record(UNIFORM, dataset="digits", losses=0.0)])
    assert png_size(draw_table([block]))[0] > 700


def test_blocks_of_two_tables_or_none_are_refused(blocks) -> None:
    with pytest.raises(InvalidInputError, match="of one table; got severe, table1"):
        draw_table(blocks)
    with pytest.raises(InvalidInputError, match="of one table; got none"):
        draw_table([])


def test_drawing_leaves_matplotlib_s_global_state_alone(blocks, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    draw_table(blocks[:1])
    assert "matplotlib.pyplot" not in sys.modules


def test_a_missing_matplotlib_is_one_sentence_with_the_remedy(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'mild-learn\[demo\]'"):
        check_matplotlib()


@pytest.mark.parametrize("far", [[0.5, 0.6, 0.7], [0.5, 0.9, 0.6, 0.7, 0.8]])
def test_less_than_half_of_the_rows_are_off_the_scale(far) -> None:
    readings = [{**UNIFORM, "total": str(k + 2)} for k in range(len(far))]
    records = [make_record(TDEF, 0, 0.05)]
    records += [make_record(method, 0, loss) for method, loss in zip(readings, far, strict=True)]
    block = summarise(records)[0]
    low, high = figures._limits(block)
    rows = figures._methods(block)
    off = [row.mean for row in rows if not low <= row.mean <= high]
    assert 0 < 2 * len(off) < len(rows)
    assert min(off) > max(row.mean for row in rows if row.mean not in off)
