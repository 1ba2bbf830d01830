"""The points of the rubric that an environment itself gives its judge for a task."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.environments.judge_question import read_question
from headgate.environments.protocol import Continue, Environment, ForJudge


async def points_of_task(environment: Environment, index: int, seed: int, replies: Sequence[str]) -> tuple[str, ...]:
    """Return the points that count in task `index` for `replies`; none where its judge is asked another way.

    The environment is asked what it would ask a judge about these replies. None is found where it scores them itself.
    """
    episode = await environment.open(index, seed)
    try:
        for reply in replies:
            end = await episode.answer(reply)
            if isinstance(end, ForJudge):
                asked = read_question(end.questions[0])
                return asked.points if asked is not None else ()
            if not isinstance(end, Continue):
                return ()
        return ()
    finally:
        await episode.close()
