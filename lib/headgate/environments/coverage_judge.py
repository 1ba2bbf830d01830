"""The judge baseline: a rule that looks for the rubric's words. No language model, and its replies say so."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from headgate.core import Message
from headgate.environments.judge_question import read_question

NO_QUESTION: Final = (
    "This is a Headgate baseline, not a language model. It judges only what headgate's judge_question asks."
)

_SENTENCE: Final = re.compile(r"[.!?;](?=\s|$)|\n+")
_TERM: Final = re.compile(r'"([^"]{1,200})"')


def coverage_judge(conversation: Sequence[Message]) -> str:
    """Return the reply of the rule-based judge: the share of the rubric's points that the answer meets.

    A point is met when one sentence of the answer holds all words that the point has in double quotes, in any case
    of letters. So it is fair to answers in the rubric's words, and blind to any others.
    """
    asked = read_question(conversation)
    if asked is None or not asked.points:
        return NO_QUESTION
    sentences = [" ".join(part.split()).casefold() for part in _SENTENCE.split(asked.answer)]
    met = sum(_is_met(point, sentences) for point in asked.points)
    reason = f"{met} of {len(asked.points)} points, by a Headgate baseline that looks for words, not a language model"
    return json.dumps({"score": round(met / len(asked.points), 4), "reason": reason})


def _is_met(point: str, sentences: Sequence[str]) -> bool:
    terms = [term.casefold() for term in _TERM.findall(point)]
    return bool(terms) and any(all(term in sentence for term in terms) for sentence in sentences)
