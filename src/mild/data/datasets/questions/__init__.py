"""Questions of our own with exact answers: graded arithmetic, word problems, string and date tasks, facts.

>>> rows = make_questions(n_questions=1500, seed=0)
>>> len(rows), rows == make_questions(n_questions=1500, seed=0)
(1500, True)
>>> sorted({row["source"].split("/")[0] for row in rows})
['arithmetic', 'dates', 'facts', 'strings', 'words']
"""

from mild.data.datasets.questions.mixture import SHARES, make_questions

__all__ = ["SHARES", "make_questions"]
