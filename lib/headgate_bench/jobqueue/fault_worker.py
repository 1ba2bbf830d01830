"""A worker to be killed. It uses only the documented routes and the standard library, so that it starts fast.

Run it as a script with PORT NAME LOG JOB_S. It logs each answer as a line, and works until killed.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time


def answer(port: int, path: str, body: dict[str, object]) -> tuple[int, dict[str, object]]:
    """Return status and body; retries while the server is down."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            said = response.read()
            if response.status != http.client.SERVICE_UNAVAILABLE:
                return response.status, json.loads(said)
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.05)


def main(port: int, name: str, log: int, job_s: float) -> None:
    """Work until killed."""
    while True:
        _, found = answer(port, "/v1/claims", {"worker": name, "count": 4, "wait_s": 1.0, "lease_s": 10.0})
        for claimed in found["jobs"]:  # type: ignore[attr-defined]  # JSON of the server
            job, lease = claimed["job"]["id"], claimed["lease"]
            os.write(log, f"ran {job} {lease['epoch']}\n".encode())
            time.sleep(job_s)
            result = {"lease_id": lease["lease_id"], "epoch": lease["epoch"], "result": {"by": name}}
            status, _ = answer(port, f"/v1/jobs/{job}/complete", result)
            said = "done" if status == http.client.OK else "refused"
            os.write(log, f"{said} {job} {lease['epoch']} {lease['lease_id']}\n".encode())


if __name__ == "__main__":
    descriptor = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    main(int(sys.argv[1]), sys.argv[2], descriptor, float(sys.argv[4]))
