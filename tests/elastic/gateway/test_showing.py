"""What a gateway shows: health, metrics, and where it is watched."""

from __future__ import annotations

from tests.elastic.gateway.door import opened


async def test_health_needs_no_token_and_all_else_does() -> None:
    async with opened(tokens_env="TOKEN", environ={"TOKEN": "a-token-of-ours"}) as door:
        for path, status in (("/health", 200), ("/metrics", 401), ("/", 200), ("/elastic/v1/status", 401)):
            async with door.http.get(path) as answer:
                assert answer.status == status, path
                challenges = ["Bearer", 'Basic realm="headgate elastic pool"'] if status == 401 else []
                assert answer.headers.getall("WWW-Authenticate", []) == challenges, "browsers read one a header"


async def test_metrics_are_those_of_the_pool_and_of_its_admission() -> None:
    async with opened() as door:
        await door.ask()
        async with door.http.get("/metrics") as answer:
            text = await answer.text()

    assert 'headgate_elastic_requests_total{outcome="served",pool="tests"} 1.0' in text
    assert 'headgate_request_limit{domain="chat",model="m",provider="tests"} 8.0' in text
    assert "process_cpu_seconds_total" in text


async def test_the_address_itself_says_how_to_watch_the_pool() -> None:
    async with opened() as door, door.http.get("/") as answer:
        assert f"headgate console --elastic {door.gateway.url}\n" in await answer.text()
