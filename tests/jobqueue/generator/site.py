"""A folder with everything that jobs are generated from, built file by file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.jobqueue.generator import (
    Generation,
    Rules,
    generated_from,
)


def server(host: str, port: int = 8000, **more: Any) -> dict[str, Any]:
    return {"host": host, "port": port, **more}


@dataclass(frozen=True)
class Site:
    root: Path

    @property
    def submissions(self) -> Path:
        return self.root / "challenge_submissions"

    @property
    def instances(self) -> Path:
        return self.root / "test_instances"

    @property
    def raw(self) -> Path:
        return self.root / "resources-raw.json"

    @property
    def results(self) -> Path:
        return self.root / "results"

    def submit(self, file: str, team: str, q_score: float, **tasks: float) -> None:
        self.write_submission(
            file, {"team": team, "overall_scores": {"q_score": q_score}, "per_task_scores": {"q_score": tasks}}
        )

    def write_submission(self, file: str, document: object) -> None:
        self.submissions.mkdir(exist_ok=True)
        (self.submissions / file).write_text(document if isinstance(document, str) else json.dumps(document))

    def add_instances(self, task: str, *numbers: int | str) -> None:
        (self.instances / task).mkdir(parents=True, exist_ok=True)
        for number in numbers:
            (self.instances / task / f"house_task_{task}_0_{number}_template-tro_state.json").write_text("{}")

    def serve(self, **servers: Sequence[Mapping[str, Any]]) -> None:
        self.raw.write_text(json.dumps(servers))

    def finish(self, slug: str, task: str, number: int, text: str = '{"q_score": {"final": 0.5}}') -> Path:
        path = self.results / slug / "metrics" / f"{task}_{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def generate(self, rules: Rules | None = None) -> Generation:
        results = self.results if self.results.exists() else None
        return generated_from(self.submissions, self.instances, self.raw, results, rules or Rules())
