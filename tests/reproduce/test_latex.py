from __future__ import annotations

from mild.reproduce.latex import to_latex
from mild.reproduce.summary import summarise
from result_cases import TDEF, make_record, three_seeds


def test_latex_is_escaped_balanced_and_in_booktabs_style() -> None:
    text = to_latex(summarise(three_seeds()))
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 2
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 2
    assert r"MILD others, theory (best), $\sum$$\rho$=1, stationary & 3 & 0.0403 $\pm$ " in text
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert all(line.count(" & ") == 8 for line in body if line.endswith(r"\\"))
    assert "%" not in "".join(body).replace(r"\%", "").replace("{!}{%", "")
    plain = "".join(body)
    assert plain.isascii()
    assert plain.count("{") == plain.count("}")


def test_latex_escapes_what_names_may_hold() -> None:
    text = to_latex(summarise([make_record({**TDEF, "name": "a_b & 5 % of {x} #1 ~ ^ \\ $"})]))
    assert (
        r"a\_b \& 5 \% of \{x\} \#1 \textasciitilde{} \textasciicircum{} \textbackslash{} \$"
        in text
    )


def test_no_blocks_make_no_table() -> None:
    assert r"\begin" not in to_latex([])
