"""Grades that judges give in letters, `GRADE: C`, as the graders of packages ask for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from headgate.environments.judge_questions import mean_verdict, one_line, read_judgement, verdict_text
from headgate.environments.protocol import Judgement, Score

_GRADE: Final = re.compile(r"\bgrade[\s*_]{0,9}:[\s*_]{0,9}(correct|partial|incorrect|[cpi])\b", re.IGNORECASE)
_VALUES: Final = {"c": 1.0, "p": 0.5, "i": 0.0}

_MAJORITY: Final = 0.51


class ReadsGrades:
    """Reads judges' replies, as a `JudgedEnvironment` does: C, P and I are 1, 0.5 and 0, and the last grade counts.

    A success is what more than half of the judgements call correct. Holds nothing, so that it reads in any process: an
    environment that is played in another one may need a judge if it has this.
    """

    def judgement(self, reply: str) -> Judgement | None:
        """Return the grade in a judge's reply, or what it says in the form that judges are reminded of."""
        text = verdict_text(reply)
        grades = _GRADE.findall(text)
        return Judgement(_VALUES[grades[-1][0].lower()], one_line(text[-600:])) if grades else read_judgement(reply)

    def verdict(self, judgements: Sequence[Judgement]) -> Score:
        """Return the mean of the grades."""
        return mean_verdict(judgements, pass_mark=_MAJORITY)
