"""The cascade of the demo: both models are asked, and the calculator where they disagree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mild.artifact import Router
from mild.policies import AgreementTable, CascadePolicy

STEPS = (("smollm2", "gemma3"), ("rules",))
# Probability of being right from which an answer is accepted.
THRESHOLD = 0.6
# Of the 1,500 questions of the table that comes with mild, how many each group of experts answers rightly,
# in the order of the steps. Right answers agree, and wrong ones are taken to differ.
RIGHT_ANSWERS = {
    (True, True, True): 9,
    (True, True, False): 168,
    (True, False, True): 34,
    (True, False, False): 82,
    (False, True, True): 37,
    (False, True, False): 137,
    (False, False, True): 496,
    (False, False, False): 537,
}


def with_cascade(router: Router) -> Router:
    """The router of the demo with a cascade beside it."""
    codes = []
    for is_right in RIGHT_ANSWERS:
        # A right answer has the code 0, each wrong one a code of its own.
        row_codes = np.arange(1, len(is_right) + 1)
        row_codes[np.array(is_right)] = 0
        codes.append(row_codes)
    table = AgreementTable.of_rows(
        np.array(codes),
        np.array(list(RIGHT_ANSWERS), float),
        np.array(list(RIGHT_ANSWERS.values()), float),
    )
    steps = [[router.experts.index(name) for name in names] for names in STEPS]
    policy = CascadePolicy("free_text", steps, THRESHOLD, table, router.policy)
    return replace(router, policy=policy)
