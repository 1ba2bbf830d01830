"""A worker that speaks with the server as the worker of seed 003 does: same requests, same order, same patience."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx


@dataclass
class OldWorker:
    """Runs one job as one process of the seed does; `evaluate` stands for the simulator.

    Its own sleeps are shortened; everything else is the seed's: heartbeats in a thread from before it has a job, a GET
    for the job, `acquire` again and again on any error, `done` whose errors are only noted, and `release` at the end.
    """

    url: str
    name: str
    retry_s: float = 0.02
    heartbeat_s: float = 0.05
    served: list[tuple[str, int]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def run(self) -> str | None:
        """Return the id of the job that was done, or None when there was none."""
        stop = threading.Event()
        parts = urlsplit(self.url)
        auth = (parts.username or "", parts.password or "") if parts.username or parts.password else None
        base = f"{parts.scheme}://{parts.hostname}:{parts.port}"
        with httpx.Client(base_url=base, auth=auth, timeout=None) as http:
            heart = threading.Thread(target=self._beat, args=(base, auth, stop))
            heart.start()
            try:
                return self._one(http)
            finally:
                stop.set()
                heart.join()

    def _one(self, http: httpx.Client) -> str | None:
        answer = http.get("/job", params={"worker": self.name})
        answer.raise_for_status()
        job = answer.json()["job"]
        if job is None:
            return None
        kind, job_id = job["resource_type"], job["id"]
        got = self._acquired(http, kind, job_id)
        try:
            self.served.append((job_id, got["resource"]["port"]))
            done = http.post(f"/done/{job_id}", params={"worker": self.name})
            if done.is_error:
                self.errors.append(done.text)
        finally:
            named = {"worker": self.name, "job_id": job_id, "resource_idx": got["index"]}
            http.post(f"/resource/{kind}/release", params=named).raise_for_status()
        return str(job_id)

    def _acquired(self, http: httpx.Client, kind: str, job_id: str) -> dict[str, object]:
        while True:
            answer = http.post(f"/resource/{kind}/acquire", params={"worker": self.name, "job_id": job_id})
            if answer.status_code == 200:
                return answer.json()  # type: ignore[no-any-return]
            self.errors.append(answer.text)
            threading.Event().wait(self.retry_s)

    def _beat(self, base: str, auth: tuple[str, str] | None, stop: threading.Event) -> None:
        with httpx.Client(base_url=base, auth=auth) as http:
            while True:
                http.post("/heartbeat", params={"worker": self.name}).raise_for_status()
                if stop.wait(self.heartbeat_s):
                    return
