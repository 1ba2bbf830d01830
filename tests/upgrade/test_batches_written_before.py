"""Batches that an earlier version left at their provider are followed to their end by this one."""

from __future__ import annotations

import json
import sqlite3
import tarfile
import time
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web

from tests.run.batch_provider import Handler, provider
from tests.run.test_batch_lane import TASKS, Site

ARCHIVE = Path(__file__).with_name("batches_2026_11.tar.xz")
"""A journal as it was left by a kill: two batches of 5 under way, one of 2 of which only the file was uploaded."""


def _result(custom_id: str, number: int) -> bytes:
    message = {"role": "assistant", "content": f"answer to question {number}"}
    body = {"choices": [{"message": message}], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
    return json.dumps({"custom_id": custom_id, "response": {"status_code": 200, "body": body}}).encode()


@pytest.mark.slow
async def test_batches_of_an_earlier_version_are_followed_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    with sqlite3.connect(tmp_path / "journal" / "main" / "journal.db") as db:
        db.execute("UPDATE request_batches SET made_at = ?", (time.time() - 60.0,))  # they are forgotten after a week
        found = db.execute(
            "SELECT batch_id, task_id || '.' || number FROM batched_requests "
            "JOIN request_batches ON key = batch ORDER BY batched_requests.rowid"
        ).fetchall()
    db.close()
    assert Counter(batch for batch, _ in found) == {found[0][0]: 5, found[5][0]: 5, "": 2}
    answers = {batch: [_result(key, n) for n, (of, key) in enumerate(found) if of == batch] for batch, _ in found}

    async def earlier(http: web.Request, _: Handler) -> web.StreamResponse | None:
        """Knows the batches that were created with it, and the file that was uploaded."""
        name = http.path.removesuffix("/content").rpartition("/")[2]
        if name in answers:
            if http.path.endswith("/content"):
                return web.Response(body=b"\n".join(answers[name]))
            return web.json_response({"id": name, "status": "completed", "output_file_id": name})
        if (http.method, http.path) == ("POST", "/v1/batches"):
            answers["batch_3"] = answers[""]
            return web.json_response({"id": "batch_3", "status": "validating"})
        return None

    async with provider() as served:
        served.wrong = earlier
        site = Site(tmp_path, served)
        result = await site.run()
        assert (result.scored, await site.scores()) == (TASKS, [(n, 1.0) for n in range(TASKS)])
        assert +served.now == {}
        assert served.calls["POST files"] == 0
        assert served.calls["POST batches"] == 1
