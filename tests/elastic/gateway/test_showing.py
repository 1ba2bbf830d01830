"""What a gateway shows: health, metrics, and the page."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

from headgate.elastic.gateway import GatewayStatus
from headgate.elastic.gateway.server import page_html
from tests.elastic.gateway.door import opened


async def test_health_needs_no_token_and_all_else_does() -> None:
    async with opened(tokens_env="TOKEN", environ={"TOKEN": "a-token-of-ours"}) as door:
        for path, status in (("/health", 200), ("/metrics", 401), ("/", 401), ("/elastic/v1/status", 401)):
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


async def test_the_page_needs_nothing_else_and_allows_nothing_else() -> None:
    async with opened() as door, door.http.get("/") as answer:
        page, policy = await answer.text(), answer.headers["Content-Security-Policy"]

    assert (answer.status, answer.content_type) == (200, "text/html")
    assert not re.search(r"(src|href)=", page)
    assert "default-src 'none'" in policy
    for tag in ("style", "script"):
        inline = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        assert base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode() in policy


async def test_the_page_shows_the_pool_before_it_asks() -> None:
    async with opened() as door, door.http.get("/") as answer:
        page = await answer.text()

    first = page.partition('id="first">')[2].partition("</script>")[0]
    assert GatewayStatus.from_json(first.encode()).pool.workers[0].worker_id == door.engine.url


async def test_no_text_of_an_engine_ends_the_script_that_it_stands_in() -> None:
    async with opened() as door:
        status = door.gateway.status()
    worker = replace(status.pool.workers[0], last_error="</script><script>")
    status = replace(status, pool=replace(status.pool, workers=(worker,)))

    assert page_html(status).count(b"</script>") == 2
