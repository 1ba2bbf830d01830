"""The judge baseline: a rule that looks for the rubric's words, not a language model, as its replies state."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from headgate.core import Message
from headgate.environments.judge_questions import read_question
from headgate.environments.pairwise import AskedPair, read_pair

NO_QUESTION: Final = "This is a Headgate baseline, not a language model. It judges only by a rubric with quoted words."

_BY: Final = "by a Headgate baseline that looks for words, not a language model"
_SENTENCE: Final = re.compile(r"[.!?;](?=\s|$)|\n+")
_TERM: Final = re.compile(r'"([^"]{1,200})"')


def coverage_judge(conversation: Sequence[Message]) -> str:
    """Return the reply of the rule-based judge: the share of the rubric's points that the answer meets.

    Of two answers, the one that meets more points is better. A point is met when one sentence of the answer contains
    all words that the point has in double quotes, ignoring case. So it recognises answers in the rubric's words, and
    no others.
    """
    pair = read_pair(conversation)
    if pair is not None and pair.points:
        return _preference(pair)
    asked = read_question(conversation)
    if asked is None or not asked.points:
        return _grade(conversation) or NO_QUESTION
    met = _met(asked.points, asked.answer)
    earned = sum(weight for weight, is_met in zip(asked.weights, met, strict=True) if is_met)
    reason = f"{sum(met)} of {len(asked.points)} points, {_BY}"
    return json.dumps({"score": round(earned / sum(asked.weights), 4), "reason": reason})


def _grade(conversation: Sequence[Message]) -> str:
    """Return the grade that an Inspect grader is asked for: correct if the answer contains the reference."""
    asked = conversation[-1].content if conversation else ""
    reference, answer = (_section(asked, *names) for names in (("Criterion", "Expert"), ("Submission",)))
    if not reference or "GRADE:" not in asked:
        return ""
    return f"GRADE: {'C' if reference.casefold() in answer.casefold() else 'I'}, {_BY}"


def _section(asked: str, *names: str) -> str:
    found = next((f"[{name}]: " for name in names if f"[{name}]: " in asked), "")
    return asked.partition(found)[2].partition("\n***")[0].strip() if found else ""


def _preference(pair: AskedPair) -> str:
    first, second = sum(_met(pair.points, pair.first)), sum(_met(pair.points, pair.second))
    better = "tie" if first == second else "A" if first > second else "B"
    reason = f"A meets {first} and B {second} of {len(pair.points)} points, {_BY}"
    return json.dumps({"better": better, "reason": reason})


def _met(points: Sequence[str], answer: str) -> list[bool]:
    sentences = [" ".join(part.split()).casefold() for part in _SENTENCE.split(answer)]
    return [_is_met(point, sentences) for point in points]


def _is_met(point: str, sentences: Sequence[str]) -> bool:
    terms = [term.casefold() for term in _TERM.findall(point)]
    return bool(terms) and any(all(term in sentence for term in terms) for sentence in sentences)
