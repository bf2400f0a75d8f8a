"""Texts of every sort, for the tests of features and of routers that read text."""

from __future__ import annotations

import numpy as np

SUBJECTS = {
    "sum": ["add {a} and {b}", "what is {a} + {b}?", "compute {a} * {b} = ?"],
    "place": ["what is the capital of {c}?", "where does {c} lie?", "name a river in {c}"],
    "code": ["def f(x):\n    return x[{a}] + {b};", "print({a}) # and {b}", "for i in range({a}):"],
}
COUNTRIES = ["France", "Norway", "Brasil", "中国", "Ελλάδα", "Ägypten"]


def make_texts(count, seed=0):
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        forms = SUBJECTS[rng.choice(list(SUBJECTS))]
        a, b = rng.integers(1, 100, 2)
        texts.append(rng.choice(forms).format(a=a, b=b, c=rng.choice(COUNTRIES)))
    return texts


ODD_TEXTS = [
    "",
    " ",
    "\n\t\0",
    "a",
    "?",
    "word",
    "ÉCOLE École école",
    "日本語のテキスト",
    "🙂🙃 emoji",
    "\ud800 lone surrogate",
    "İstanbul",
    "x" * 9000,
    "tab\tnew\nline\r\nend",
    "A" * 5 + "!" * 5,
]
