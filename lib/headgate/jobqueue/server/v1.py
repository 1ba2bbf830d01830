"""The table of all routes of `/v1`, and of those about the server itself."""

from __future__ import annotations

from typing import Final

from headgate.jobqueue.server import meta, v1_claims, v1_jobs, v1_servers
from headgate.jobqueue.server.bodies import ORDINARY_BYTES
from headgate.jobqueue.server.route import Route
from headgate.net.tokens import Scope

_NAMES: Final = 4 * 1024**2
"""10 000 leases or ids with the longest names."""

_BATCH: Final = 1024**3
"""Jobs, servers and results have as much as the settings allow."""

_LEASE: Final = {"lease_id": "0f" * 16, "epoch": 1}
_SERVER: Final = {"pool": "team_a", "host": "server1.example.com", "port": 8080, "not_compatible_task": ["task_c"]}

ROUTES: Final = (
    Route(
        "POST", "/v1/jobs", v1_jobs.submit, Scope.SUBMIT, "Submit jobs, all or none",
        most_bytes=_BATCH, errors=(409,),
        example={"jobs": [{"id": "17", "team": "team_a", "task": "turning_on_radio", "pool": "team_a"}]},
    ),
    Route("GET", "/v1/jobs", v1_jobs.list_jobs, Scope.READ, "List jobs"),
    Route("GET", "/v1/jobs/{job_id}", v1_jobs.show, Scope.READ, "Show a job", errors=(404,)),
    Route(
        "GET", "/v1/jobs/{job_id}/history", v1_jobs.job_history, Scope.READ, "Show what happened to a job",
        errors=(404,),
    ),
    Route(
        "POST", "/v1/claims", v1_claims.claim, Scope.CLAIM, "Claim jobs, waiting for them with `wait_s`",
        tag="claims", example={"worker": "alice-4711", "count": 1, "wait_s": 30, "lease_s": 90},
    ),
    Route(
        "POST", "/v1/leases/renew", v1_claims.renew, Scope.CLAIM, "Renew claims",
        most_bytes=_NAMES, tag="claims", example={"leases": [{"job_id": "17", **_LEASE}]},
    ),
    Route(
        "POST", "/v1/jobs/{job_id}/complete", v1_claims.complete, Scope.COMPLETE, "Hand in a result",
        most_bytes=ORDINARY_BYTES, errors=(404, 409), tag="claims",
        example={**_LEASE, "result": {"q_score": 0.75}},
    ),
    Route(
        "POST", "/v1/completions", v1_claims.complete_many, Scope.COMPLETE, "Hand in many results",
        most_bytes=_BATCH, tag="claims",
        example={"completions": [{"job_id": "17", **_LEASE, "result": {"q_score": 0.75}}]},
    ),
    Route(
        "POST", "/v1/jobs/{job_id}/fail", v1_claims.fail, Scope.COMPLETE, "Report that an attempt failed",
        most_bytes=ORDINARY_BYTES, errors=(404, 409), tag="claims",
        example={**_LEASE, "error": "the simulator crashed", "retry": True},
    ),
    Route(
        "POST", "/v1/jobs/{job_id}/give-back", v1_claims.give_back, Scope.CLAIM, "Give a job back uncharged",
        errors=(404, 409), tag="claims", example={**_LEASE, "reason": "preempted"},
    ),
    Route(
        "POST", "/v1/reservations", v1_servers.reserve, Scope.CLAIM, "Reserve a policy server for a claimed job",
        errors=(404, 409), tag="servers", example={"job_id": "17", **_LEASE, "wait_s": 60},
    ),
    Route(
        "POST", "/v1/reservations/release", v1_servers.release, Scope.CLAIM, "Release a policy server",
        errors=(409,), tag="servers", example={"resource_id": "team_a/0", **_LEASE},
    ),
    Route("GET", "/v1/dead-jobs", v1_jobs.list_dead, Scope.READ, "List dead jobs"),
    Route(
        "POST", "/v1/dead-jobs/requeue", v1_jobs.requeue, Scope.SUBMIT, "Make dead jobs pending again",
        most_bytes=_NAMES, errors=(404, 409), example={"job_ids": ["17"]},
    ),
    Route(
        "POST", "/v1/jobs/{job_id}/withdraw", v1_jobs.withdraw, Scope.SUBMIT, "Make a job dead",
        errors=(404, 409), example={"reason": "the team has withdrawn"},
    ),
    Route("GET", "/v1/results", v1_jobs.results, Scope.READ, "Collect completed jobs"),
    Route("GET", "/v1/history", v1_jobs.history, Scope.READ, "Show what happened"),
    Route("GET", "/v1/statistics", v1_servers.statistics, Scope.READ, "Count jobs and servers"),
    Route("GET", "/v1/resources", v1_servers.list_resources, Scope.READ, "List policy servers", tag="servers"),
    Route(
        "POST", "/v1/resources", v1_servers.register, Scope.ADMIN, "Register policy servers",
        most_bytes=_BATCH, is_of_all_teams=True, tag="servers", example={"resources": [_SERVER]},
    ),
    Route(
        "POST", "/v1/resources/{pool:path}/{index}/drain", v1_servers.drain, Scope.ADMIN, "Stop assigning a server",
        is_of_all_teams=True, errors=(404,), tag="servers", example={"reason": "maintenance"},
    ),
    Route(
        "POST", "/v1/resources/{pool:path}/{index}/open", v1_servers.open_, Scope.ADMIN, "Assign a server again",
        is_of_all_teams=True, errors=(404,), tag="servers", example={"reason": ""},
    ),
    Route(
        "DELETE", "/v1/resources/{pool:path}/{index}", v1_servers.remove, Scope.ADMIN, "Remove a server",
        is_of_all_teams=True, errors=(404, 409), tag="servers",
    ),
    Route("GET", "/", meta.overview, Scope.READ, "Web page of the queue", media_type="text/html", tag="server"),
    Route("GET", "/health", meta.health, None, "Report the server's health", errors=(503,), tag="server"),
    Route(
        "GET", "/metrics", meta.metrics, Scope.READ, "Metrics for Prometheus",
        is_of_all_teams=True, media_type="text/plain", tag="server",
    ),
    Route("GET", "/openapi.json", meta.openapi, Scope.READ, "This description", tag="server"),
)  # fmt: skip
"""Every route but those of the legacy protocol; documentation, authorisation and metrics go by it."""
