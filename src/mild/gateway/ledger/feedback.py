"""What is known about the quality of answers: scores of clients, of graders, and of imported files."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from mild.gateway.database.engine import metadata

#: Who judged an answer: the client that got it, a grader of the gateway, or a file that was imported.
SOURCES = ("client", "grader", "import")


@dataclass(frozen=True, slots=True)
class Feedback:
    """The score of one answer.

    >>> Feedback("r1", "small", "grader", 1.0, rate=0.05).is_sample
    True
    """

    request_id: str
    expert: str  # whose answer was judged
    source: str  # one of ``SOURCES``
    score: float  # in [0, 1]
    # Probability in (0, 1] with which this answer was picked to be judged; None if the judge picked it.
    rate: float | None = None
    time: float = 0.0  # when it was judged, in seconds since 1970
    comment: str | None = None

    @property
    def is_sample(self) -> bool:
        """Whether the answer was picked at random, with a known probability."""
        return self.rate is not None


def _column(name: str, annotation: str) -> sa.Column[Any]:
    kind: Any = sa.Double if annotation.startswith("float") else sa.Text
    key = name in ("request_id", "expert", "source")
    return sa.Column(name, kind, primary_key=key, nullable="None" in annotation)


feedback = sa.Table(
    "feedback",
    metadata,
    *(_column(field.name, str(field.type)) for field in fields(Feedback)),
    sa.Index("feedback_by_time", "time"),
)
