from __future__ import annotations

import asyncio
import contextlib
import json
import signal

import httpx
import pytest

from headgate.core import Secret, errors
from headgate.telemetry import METRICS, monitor_app, new_registry, serve_monitor, status_document
from tests.telemetry.factories import START, model, request_status, status

TOKEN = Secret("a-token-of-this-test")


def asking(source, **options):
    """Return a client of the application itself: no server is started."""
    app = monitor_app(source, new_registry(source), **options)
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://127.0.0.1"
    )


@contextlib.asynccontextmanager
async def served(source, **options):
    async with (
        serve_monitor(source, new_registry(source), port=0, **options) as server,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client,
    ):
        yield client


@pytest.fixture
async def client():
    async with asking(status) as client:
        yield client


@pytest.fixture
async def guarded():
    async with asking(status, token=TOKEN) as client:
        yield client


async def body(client, path, code=200):
    response = await client.get(path)
    assert response.status_code == code, response.text
    return response.json()


async def test_the_root_lists_every_route_that_answers(client):
    card = await body(client, "/")
    for path in card["endpoints"]:
        filled = path.replace("{uid}", "1").replace("{env_name}", "affine:sat")
        assert (await client.get(filled)).status_code == 200, path


async def test_health_is_the_seeds(client):
    assert await body(client, "/health") == {"status": "healthy"}


async def test_status_is_the_whole_document(client):
    assert await body(client, "/status") == status_document(status())


async def test_summary_has_the_seeds_fields_with_counted_figures(client):
    document = await body(client, "/status/summary")
    assert document["timestamp"] == START + 90
    assert document["uptime_seconds"] == 90
    assert document["miners"] == {"total": 3, "active": 2, "paused": 1}
    assert document["queue"] == {
        "current_size": 1234,
        "max_size": 100_000,
        "is_paused": False,
        "is_warning": False,
        "enqueue_rate": 120,
        "dequeue_rate": 90,
    }
    assert document["workers"] == {"total": 20, "active": 19, "utilization": 0.95, "tasks_per_minute": 88}
    assert document["evaluation"] == {
        "total_samples_1h": 25,
        "total_samples_24h": 360,
        "total_errors_1h": 3,
        "models_with_errors": 1,
        "miners_with_errors": 1,
    }


async def test_a_miner_in_the_list_has_the_seeds_fields(client):
    document = await body(client, "/status/miners")
    assert document["total"] == 3
    assert document["miners"][2] == {
        "uid": 3,
        "hotkey": None,
        "model": "acme/model-3",
        "revision": "main",
        "status": "paused",
        "pause_reason": "3 consecutive service errors",
        "rate_multiplier": 3.0,
        "configured_daily_rate": 600.0,
        "effective_daily_rate": 288,
        "samples_1h": {"affine:sat": 5, "agentgym:babyai": 7},
        "total_samples_1h": 12,
        "total_samples_24h": 120,
        "consecutive_errors": 3,
        "last_error": "HTTP 503",
        "error_count_1h": 3,
    }


@pytest.mark.parametrize(
    ("query", "uids"),
    [
        ("status_filter=active", [1, 2]),
        ("status_filter=paused", [3]),
        ("min_samples_1h=2", [1, 3]),
        ("has_errors=true", [3]),
        ("has_errors=false", [1, 2]),
        ("has_errors=false&min_samples_1h=2", [1]),
    ],
)
async def test_models_are_filtered(client, query, uids):
    document = await body(client, f"/status/models?{query}")
    assert [model["uid"] for model in document["models"]] == uids
    assert document["total"] == len(uids)
    earlier = await body(client, f"/status/miners?{query}")
    assert earlier == {"total": len(uids), "miners": [{**model, "hotkey": None} for model in document["models"]]}


async def test_one_miner_adds_its_details_and_can_be_asked_by_key(client):
    document = await body(client, "/status/miners/3")
    assert document["pause_until"] == START + 900
    assert document["samples_24h"] == {"affine:sat": 50, "agentgym:babyai": 70}
    assert document["last_error_time"] == START + 80
    assert await body(client, "/status/miners/acme/model-3@main") == document


async def test_a_model_is_told_without_the_words_of_earlier_clients(client):
    told = json.dumps([await body(client, "/status/models"), await body(client, "/status/models/3")])
    assert "miner" not in told
    assert "hotkey" not in told
    response = await client.get("/status/models/999")
    assert response.json()["detail"] == "Model 999 not found"
    response = await client.get("/status/models/acme/model-3@checkpoint-step_1000.json")
    assert response.json()["detail"].endswith("not found; did you mean 'acme/model-3@main'?"), "another revision of it"


async def test_an_unknown_miner_is_a_problem_with_the_seeds_text(client):
    response = await client.get("/status/miners/999")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == {
        "type": "urn:headgate:error:not_found",
        "title": "Not Found",
        "status": 404,
        "detail": "Miner 999 not found",
        "code": "not_found",
        "next_step": "`headgate models` and `/status/models` list them.",
    }


async def test_a_uid_that_two_models_share_is_not_guessed():
    twins = status(models=(model(0), model(0, model="acme/other@main")))
    async with asking(lambda: twins) as client:
        document = await body(client, "/status/miners/0", 422)
        assert document["detail"] == "uid 0 belongs to 2 models"
        assert (await body(client, "/status/miners/acme/other@main"))["uid"] == 0


async def test_the_queue_breaks_down_what_is_queued(client):
    document = await body(client, "/status/queue")
    assert document["utilization"] == pytest.approx(0.01234)
    assert document["throughput"] == {"enqueue_rate": 120, "dequeue_rate": 90, "net_rate": 30}
    assert document["totals"] == {"enqueued": 12345, "dequeued": 12000}
    assert document["env_breakdown"] == {"affine:sat": 1000, "agentgym:babyai": 234}


async def test_workers_report_the_measured_utilisation(client):
    document = await body(client, "/status/workers")
    assert (document["total_workers"], document["active_workers"], document["idle_workers"]) == (20, 19, 1)
    assert document["utilization"] == 0.95
    assert document["avg_task_duration"] == 12.25
    assert document["efficiency"] == {
        "is_saturated": True,
        "has_capacity": False,
        "recommendation": "Consider increasing workers",
    }


async def test_the_admission_of_requests_is_shown_by_endpoint():
    requests = (request_status(1), request_status(2, pressure=None, waiters=0))
    async with asking(lambda: status(requests=requests)) as client:
        document = await body(client, "/status/requests")
        whole = await body(client, "/status")
    assert (document["in_flight"], document["waiters"], document["under_pressure"]) == (6, 2, 1)
    shown = document["requests"][0]
    assert (shown["provider"], shown["limit"], shown["cap"]) == ("http://provider-1/v1", 4, 8)
    assert shown["models"] == ["acme/model-1@main"]
    assert whole["requests"] == document["requests"]


async def test_an_environment_sums_over_its_models(client):
    document = await body(client, "/status/env/agentgym:babyai")
    assert document["env_name"] == "agentgym:babyai"
    assert document["total_samples_1h"] == 14
    assert document["total_samples_24h"] == 210
    assert document["queue_size"] == 234
    assert document["active_miners"] == 2
    assert document["projected_daily_samples"] == 14 * 24
    assert document["mean_score"] == pytest.approx(0.75)
    assert document["lag_seconds"] == 120
    assert document["miners"][1] == {"uid": 2, "model": "acme/model-2", "samples_1h": 0, "samples_24h": 70}


async def test_an_unknown_environment_names_those_there_are(client):
    document = await body(client, "/status/env/affine:nothing", 404)
    assert document["detail"] == "Environment affine:nothing not found; did you mean 'affine:sat'?"
    assert document["next_step"] == "Sampled now: affine:sat, agentgym:babyai."


async def test_metrics_are_in_the_prometheus_format(client):
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    assert "headgate_queue_tasks 1234.0" in response.text
    assert METRICS["headgate_queue_tasks"] in response.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_can_be_changed(client, method):
    response = await client.request(method, "/status")
    assert response.status_code == 405
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["allow"] == "GET"


async def test_a_wrong_filter_is_a_problem_that_names_it_and_not_its_value(client):
    response = await client.get("/status/miners?min_samples_1h=secretvalue")
    assert response.status_code == 422
    assert response.json()["errors"][0]["where"] == "query.min_samples_1h"
    assert "secretvalue" not in response.text


async def test_an_unknown_path_is_a_problem_too(client):
    document = await body(client, "/nowhere", 404)
    assert (document["title"], document["status"]) == ("Not Found", 404)


async def test_a_status_that_fails_is_a_500_without_its_message_and_the_server_goes_on(caplog):
    def failing():
        raise RuntimeError("secret detail")

    async with served(failing) as client:
        response = await client.get("/status")
        assert response.status_code == 500
        assert "secret detail" not in response.text
        assert (await client.get("/health")).status_code == 200
    assert "secret detail" in caplog.text


async def test_answers_are_not_cached_and_no_other_site_may_read_them(client):
    response = await client.get("/status", headers={"Origin": "http://evil.example"})
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert not [name for name in response.headers if name.startswith("access-control")]


async def test_without_a_token_a_foreign_host_name_is_not_served(client):
    response = await client.get("/status", headers={"Host": "rebound.example:8765"})
    assert response.status_code == 421
    for name in ("localhost:9", "127.0.0.1", "[::1]:8765"):
        assert (await client.get("/status", headers={"Host": name})).status_code == 200


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/status/miners/1", "/openapi.json", "/nowhere"])
async def test_with_a_token_every_route_but_health_asks_for_it(guarded, path):
    response = await guarded.get(path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["code"] == "unauthorized"


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("Bearer a-token-of-this-test", 200),
        ("bearer a-token-of-this-test", 200),
        ("Bearer a-token-of-this-tesT", 401),
        ("Basic a-token-of-this-test", 401),
        ("a-token-of-this-test", 401),
        ("Bearer", 401),
        ("", 401),
    ],
)
async def test_only_the_right_token_opens(guarded, header, code):
    assert (await guarded.get("/status", headers={"Authorization": header})).status_code == code


async def test_health_needs_no_token(guarded):
    assert (await guarded.get("/health")).json() == {"status": "healthy"}


async def test_with_a_token_any_host_name_is_served(guarded):
    headers = {"Host": "monitor.example", "Authorization": f"Bearer {TOKEN.reveal()}"}
    assert (await guarded.get("/status", headers=headers)).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "monitor.example"])
@pytest.mark.parametrize("token", [None, Secret("")])
async def test_other_machines_are_kept_out_without_a_token(host, token):
    with pytest.raises(errors.InvalidSettingError, match="without a token"):
        async with serve_monitor(status, new_registry(), host=host, port=0, token=token):
            pytest.fail("it was served")


async def test_with_a_token_it_may_listen_everywhere():
    async with served(status, host="0.0.0.0", token=TOKEN) as client:
        assert (await client.get("/health")).status_code == 200


async def test_a_port_in_use_is_a_setting_to_correct():
    async with serve_monitor(status, new_registry(), port=0) as server:
        with pytest.raises(errors.InvalidSettingError, match=f"port {server.port} of 127.0.0.1 is in use"):
            async with serve_monitor(status, new_registry(), port=server.port):
                pytest.fail("it was served twice")


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("127.0.0.1", 65_536, r"a port must be 0 to 65535 \(got 65536\)"),
        ("127.0.0.1", -1, r"a port must be 0 to 65535 \(got -1\)"),
        ("192.0.2.1", 0, "cannot listen on 192.0.2.1 port 0"),
    ],
)
async def test_an_address_that_cannot_be_bound_is_a_setting_to_correct(host, port, message):
    with pytest.raises(errors.InvalidSettingError, match=message):
        async with serve_monitor(status, new_registry(), host=host, port=port, token=TOKEN):
            pytest.fail("it was served")


async def test_leaving_the_context_frees_the_port_and_keeps_the_signal_handlers():
    handler = signal.getsignal(signal.SIGINT)
    async with serve_monitor(status, new_registry(), port=0) as server:
        async with httpx.AsyncClient(base_url=server.address) as client:
            await client.get("/health")
        assert signal.getsignal(signal.SIGINT) is handler
    async with serve_monitor(status, new_registry(), port=server.port) as again:
        assert again.port == server.port


async def test_leaving_does_not_wait_for_a_client_that_keeps_its_connection():
    async with httpx.AsyncClient() as client:
        async with asyncio.timeout(10):
            async with serve_monitor(status, new_registry(), port=0) as server:
                await client.get(f"{server.address}/health")


async def test_an_error_of_the_caller_leaves_the_context_as_it_is():
    with pytest.raises(KeyError, match="mine"):
        async with serve_monitor(status, new_registry(), port=0):
            raise KeyError("mine")
    assert [task for task in asyncio.all_tasks() if task.get_name() == "monitoring-api"] == []


async def test_a_cancelled_caller_stops_the_server():
    listening = asyncio.Event()
    ports = []

    async def serve():
        async with serve_monitor(status, new_registry(), port=0) as server:
            ports.append(server.port)
            listening.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await listening.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with serve_monitor(status, new_registry(), port=ports[0]):
        pass
