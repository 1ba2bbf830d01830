"""LiteLLM's real router in front of the simulated provider, if `LITELLM_COMMAND` names its program.

It runs under the Python of its own environment, on a simulated clock (`litellm_script`), and is not a dependency of
Headgate. Each waiting request is a call of the router, with its default retries; a call that finally fails is repeated
after the same pauses as under the other rules.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from headgate.core.rates import RateLimits
from headgate_bench.rated_provider import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    REFUSAL_S,
    Asked,
    RatedCase,
    RatedProvider,
    RatedRecord,
)

VARIABLE: Final = "LITELLM_COMMAND"
ABSENT: Final = f"not run; set {VARIABLE} to the program litellm of an environment of its own"

_SCRIPT: Final = Path(__file__).with_name("litellm_script.py")
_LAST_WORDS: Final = 200
"""Maximum number of characters quoted from the output of a failed router."""


class RouterFailedError(Exception):
    """The router did not run; the scenario goes on without it."""


@dataclass(frozen=True, slots=True)
class RouterSetup:
    """One of LiteLLM's ways to respect limits per minute.

    Attributes:
        name: name in tables.
        settings: settings of the router.
        limits: returns the limits of its deployment, given the provider's.
    """

    name: str
    settings: Mapping[str, Any]
    limits: Callable[[RateLimits], dict[str, int]]


def _by_usage(limits: RateLimits) -> dict[str, int]:
    """Return limits on requests and on all tokens; without the latter, the sum of the limits on input and output."""
    rpm, prompt, reply, both = limits
    tpm = both if both is not None else None if prompt is None or reply is None else prompt + reply
    return _stated(rpm=rpm, tpm=tpm)


def _enforced(limits: RateLimits) -> dict[str, int]:
    rpm, prompt, reply, both = limits
    return _stated(rpm=rpm, tpm=both, itpm=prompt, otpm=reply)


def _stated(**limits: float | None) -> dict[str, int]:
    return {name: int(limit) for name, limit in limits.items() if limit is not None}


SETUPS: Final = (
    RouterSetup(
        "LiteLLM's router by usage",
        {"routing_strategy": "usage-based-routing-v2", "enable_pre_call_checks": True},
        _by_usage,
    ),
    RouterSetup(
        "LiteLLM's router with enforced limits",
        {"optional_pre_call_checks": ["enforce_model_rate_limits"], "enable_pre_call_checks": True},
        _enforced,
    ),
)
"""The strategy that counts usage, and the check that LiteLLM documents as enforcing limits."""


def python_of_litellm() -> Path | None:
    """Return the Python of the LiteLLM that the environment variable names, or None if it names none."""
    program = os.environ.get(VARIABLE)
    found = shutil.which(program) if program else None
    # The Python itself is not resolved: it is a link that leads out of its environment.
    python = Path(found).resolve().parent / "python" if found else None
    return python if python is not None and python.exists() else None


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a router on a case."""

    record: RatedRecord
    given_up: int  # calls that the router failed, by itself or after its retries


@dataclass(slots=True)
class LiteLLM:
    """A process with LiteLLM, which plays one case after another. Owned by `litellm_process`."""

    process: subprocess.Popen[bytes]
    said: Any  # the file of its standard error
    version: str = ""

    def play(self, setup: RouterSetup, case: RatedCase, *, seed: int, waiting: int = 64) -> Played:
        """Return the result of a router at the provider of a case.

        Raises:
            RouterFailedError: if it ends prematurely.
        """
        self._tell(
            {
                "router": setup.settings,
                "limits": setup.limits(case.limits[0][1]),
                "groups": [group.name for group in case.groups],
                "waiting": waiting,
                "seconds": case.seconds,
                "seed": seed,
                "first_pause_s": FIRST_PAUSE_S,
                "longest_pause_s": LONGEST_PAUSE_S,
            }
        )
        dialogue = _Dialogue(RatedProvider(case, seed))
        while (question := self.hear())[0] != "end":
            self._tell(dialogue.answer(*question))
        if question[1]:
            raise RouterFailedError(self._last_words())
        return Played(dialogue.provider.record, dialogue.given_up)

    def hear(self) -> tuple[str, Any, float]:
        """Return its next question: its kind, the request or group that it is about, and the time.

        Raises:
            RouterFailedError: if the process has ended.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RouterFailedError(self._last_words())
        what, about, now = orjson.loads(line)
        return what, about, now

    def _tell(self, document: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(orjson.dumps(document) + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise RouterFailedError(self._last_words()) from None

    def _last_words(self) -> str:
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").split("\n")
        return next((line.strip()[:_LAST_WORDS] for line in reversed(lines) if line.strip()), "it ended without a word")


@dataclass(slots=True)
class _Dialogue:
    """Answers the script's questions about the provider."""

    provider: RatedProvider
    open: dict[int, Asked] = field(default_factory=dict)
    waits: dict[int, float] = field(default_factory=dict)
    """Refused request -> seconds until there is room for it."""
    begun: int = 0
    given_up: int = 0

    def answer(self, what: str, about: Any, now: float) -> dict[str, Any]:
        self.provider.follow(now)
        match what:
            case "begin":
                self.begun += 1
                request = self.open[self.begun] = self.provider.begin(about)
                return {"number": self.begun, "prompt": request.prompt}
            case "take":
                request = self.open[about]
                wait_s = self.provider.take(request, now)
                if wait_s is None:
                    return {"s": self.provider.service_s(request)}
                self.waits[about] = wait_s
                return {"s": REFUSAL_S}
            case "told":
                return self._told(about, now)
            case _:  # the router has given up; the same request is sent again
                self.given_up += 1
                return {}

    def _told(self, number: int, now: float) -> dict[str, Any]:
        wait_s = self.waits.pop(number, None)
        if wait_s is not None:
            self.provider.refused()
            headers = self.provider.headers(now)
            if headers:
                headers["retry-after"] = str(math.ceil(wait_s))
            return {"refused": True, "headers": headers}
        request = self.open.pop(number)
        self.provider.answered(request, now)
        headers = self.provider.headers(now)
        return {"refused": False, "headers": headers, "prompt": request.prompt, "reply": request.reply}


@contextmanager
def litellm_process(python: Path) -> Iterator[LiteLLM]:
    """Yield a process that has imported LiteLLM; it ends with the context.

    Raises:
        RouterFailedError: if LiteLLM cannot be imported.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(  # noqa: S603 - the user names the program
            [python, _SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=environ
        )
        try:
            litellm = LiteLLM(process, said)
            litellm.version = litellm.hear()[1]
            yield litellm
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(BrokenPipeError):
                    pipe.close()  # type: ignore[union-attr]
