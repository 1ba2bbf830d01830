"""Which answer a judge's reply prefers: read strictly, never guessed."""

from __future__ import annotations

import json
import re
from typing import Final

from headgate.environments.answers import without_thinking
from headgate.environments.judge_reply import WHY_CHARS
from headgate.environments.protocol import Judgement

_READ_CHARS: Final = 20_000
"""A verdict stands at the end of a reply; what comes before these last characters is not read."""

_OBJECT: Final = re.compile(r"\{[^{}]{1,4000}\}")
_ALONE: Final = re.compile(r"[\s*`\"'\[]{0,10}(a|b|tie)[\s*`\"'\].]{0,10}", re.IGNORECASE)
_NAMES: Final = ("better", "winner", "verdict")
_VALUES: Final = {"a": 1.0, "tie": 0.5, "b": 0.0}
_BLANKS: Final = re.compile(r"\s+")


def read_preference(reply: str) -> Judgement | None:
    """Return 1 where A is preferred, 0 where B is, 0.5 for a tie; None when the reply cannot be read.

    Read are JSON objects that name `A`, `B` or `tie` as better, which must agree if there are several, and a reply
    that is one of these words alone. A sentence about A and B is not read.
    """
    text = without_thinking(reply)[-_READ_CHARS:]
    found = [judgement for match in _OBJECT.finditer(text) if (judgement := _of_object(match[0])) is not None]
    if found:
        return found[-1] if len({judgement.value for judgement in found}) == 1 else None
    alone = _ALONE.fullmatch(text)
    return Judgement(_VALUES[alone[1].casefold()], "") if alone else None


def _of_object(text: str) -> Judgement | None:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    named = {str(name).strip().casefold(): value for name, value in fields.items()}
    better = next((named[name] for name in _NAMES if name in named), None)
    value = _VALUES.get(better.strip().casefold()) if isinstance(better, str) else None
    if value is None:
        return None
    reason = named.get("reason", "")
    line = _BLANKS.sub(" ", reason).strip() if isinstance(reason, str) else ""
    return Judgement(value, line if len(line) <= WHY_CHARS else line[: WHY_CHARS - 1] + "…")
