"""The screens that read the store, in a real browser: samples, leaderboard, scores; small, empty and hostile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import httpx
import orjson
import pytest
from anyio.from_thread import BlockingPortal

from headgate.console import serve_console
from headgate.core import Sample
from headgate.run import Rescored, rescore
from headgate.storage import SampleStore
from headgate.storage.objects import FolderObjects
from tests.console.conftest import PHONE, Serve, Visits, follow, is_accessible, rows_without_id, settings
from tests.storage.samples import START, sample

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m\x00 & 'quotes'"
LONG = "word " * 2_000_000  # 10 MB


def _said(question: str, answer: str) -> str:
    return orjson.dumps([("user", question), ("assistant", answer)]).decode()


def _samples() -> list[Sample]:
    made = []
    for number in range(240):
        model, index = f"lab/{'abc'[number % 3]}@step-{number // 80}", number // 3 % 20
        kind = "provider_timeout" if number % 40 == 7 else None
        score = None if kind else float((number * 7 + number % 3 * 40) % 100 > 50)
        made.append(
            sample(
                number, model=model, environment=f"e:{number % 2}", index=index, score=score, success=bool(score),
                error_kind=kind, error=kind and HOSTILE, why=HOSTILE, at=START + number * 900,
                latency_s=float(number % 11), conversation=_said(f"Task {index}", HOSTILE),
            )
        )  # fmt: skip
    said = _said("Say much", LONG)
    made[-1] = sample(900, model="lab/long@main", at=START + 1e6, conversation=said, finish_reason="length")
    return made


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """What is stored."""
    return _samples()


@pytest.fixture(scope="module")
def console(
    serve: Serve, portal: BlockingPortal, tmp_path_factory: pytest.TempPathFactory, samples: list[Sample]
) -> str:
    """The address of a console over a store."""
    folder = tmp_path_factory.mktemp("records")
    portal.call(SampleStore(FolderObjects(folder / "store")).put_batch, "b", samples)
    return str(serve(serve_console(settings(folder), port=0)))


PAGES = {
    "list": "/samples?model=lab/a@step-0",
    "text": "/samples?text=task 7",
    "nothing": "/samples?model=nobody",
    "two": "/leaderboard?model=lab/a@step-0,lab/b@step-0&against=lab/a@step-0",
    "scores": "/scores?model=lab/a,lab/b&environment=e:0",
    "beside": "/samples/{0}?beside={1}",
}


def test_every_screen_is_accessible_in_light_in_dark_and_on_a_phone(
    console: str, visits: Visits, samples: list[Sample]
) -> None:
    same = [one.task_id for one in samples if (one.environment, one.index) == ("e:0", 0)]
    for name, path in PAGES.items():
        with visits.page(dark=name in {"list", "beside", "scores"}) as page:
            page.goto(console + path.format(*same))
            page.wait_for_selector("text=being computed", state="detached")
            assert is_accessible(page) == [], name
            assert rows_without_id(page) == [], name
            page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"


def test_a_list_leads_to_a_sample_and_from_it_to_the_next_and_to_another_model_s(
    console: str, visits: Visits, samples: list[Sample]
) -> None:
    with visits.page() as page:
        page.goto(f"{console}/samples")
        page.fill("input[name=model]", "lab/a")
        page.select_option("select[name=order]", "longest")
        follow(page, "text=Show")
        longest = sorted(
            (one for one in samples if "lab/a@" in one.model), key=lambda one: (-one.latency_s, -one.finished_at)
        )
        shown = [link.get_attribute("href") or "" for link in page.query_selector_all("table.samples a")]
        assert [href.split("?")[0][9:] for href in shown] == [one.task_id for one in longest[:50]]
        follow(page, "text=Next")
        assert page.url.endswith(f"after={longest[49].task_id}")
        follow(page, "text=Previous")
        follow(page, "table.samples a")
        assert f"/samples/{longest[0].task_id}?model=lab%2Fa&order=longest" in page.url  # a link that can be sent
        follow(page, "text=Next")
        assert longest[1].task_id in page.url
        follow(page, "text=side by side >> nth=0")
        assert page.locator("article").count() == 2
        assert len({text.split(", task")[1] for text in page.locator("article > p.name").all_inner_texts()}) == 1


def test_what_was_cut_off_at_its_limit_of_tokens_is_listed(console: str, visits: Visits) -> None:
    with visits.page() as page:
        page.goto(f"{console}/samples")
        page.select_option("select[name=error]", "cut off")
        follow(page, "text=Show")
        assert page.inner_text("#found").split()[0] == "1"
        assert "lab/long@main" in page.inner_text("table.samples")


def test_the_leaderboard_says_which_neighbours_are_ranked(console: str, visits: Visits) -> None:
    with visits.page() as page:
        page.goto(f"{console}{PAGES['two']}")
        page.wait_for_selector("text=being computed", state="detached")
        first, verdict, following, *_ = page.locator("section[aria-labelledby=neighbours] td").all_inner_texts()
        assert {first, following} == {"lab/a@step-0", "lab/b@step-0"}
        assert verdict == "is not told from"
        assert "0 of 1 neighbours in the order are ranked" in page.inner_text("main")


def test_hostile_text_is_shown_as_text_and_a_long_answer_is_cut(
    console: str, visits: Visits, samples: list[Sample]
) -> None:
    with visits.page() as page:
        page.goto(f"{console}/samples/{samples[0].task_id}")
        said = page.inner_text("pre >> nth=1")
        assert said == "<script>alert(1)</script><img src=x onerror=alert(2)>\\u202e\\x1b[31m\\x00 & 'quotes'"
        assert page.locator("main script, main img").count() == 0
        page.goto(f"{console}/samples/{samples[-1].task_id}")
        assert len(page.content()) < 100_000
        assert "9,980,000 more characters" in page.inner_text("article")
    whole = httpx.get(f"{console}/samples/{samples[-1].task_id}/conversation.txt")
    assert whole.text == samples[-1].conversation
    assert (whole.headers["content-type"], whole.headers["x-content-type-options"]) == (
        "text/plain; charset=utf-8",
        "nosniff",
    )
    assert whole.headers["content-disposition"].startswith("attachment")


def test_a_list_is_invalidated_after_a_preview_and_counts_again(
    serve: Serve, portal: BlockingPortal, visits: Visits, tmp_path: Path
) -> None:
    store = SampleStore(FolderObjects(tmp_path / "store"))
    portal.call(store.put_batch, "b", _samples()[:60])
    console: Any = serve(serve_console(settings(tmp_path), port=0))
    with visits.page() as page:
        page.goto(f"{console}/samples?model=lab/b&max_score=0")
        count = int(page.inner_text("#found").split()[0])
        follow(page, "text=Invalidate…")
        assert f"{count} samples will count nowhere" in page.inner_text("form.invalidate")
        assert is_accessible(page) == []
        page.fill("input[name=reason]", "a broken scorer")
        portal.call(store.put_batch, "c", _samples()[60:80])  # what a campaign has sampled meanwhile is not meant
        httpx.get(f"{console}/samples?model=lab/c")
        follow(page, "form.invalidate button")
        assert f"{count} samples no longer count" in page.inner_text("[role=status].good")
        follow(page, "text=Show what is invalid")
        assert page.locator("tr.invalid").count() == count
        follow(page, "table.samples a")
        assert "it counts nowhere" in page.inner_text("article")
        assert "by local: a broken scorer" in page.inner_text("article")
        form = {"form_key": "wrong", "count": str(count), "reason": "x"}
        address = f"{console}/samples/invalidate?model=lab/b"
        assert httpx.post(address, data=form).status_code == 403
        assert httpx.post(address, data=form, headers={"Authorization": "Bearer x"}).status_code == 409  # others by now
        page.goto(f"{console}/samples?counts=no")
        follow(page, "text=Count them again…")
        page.fill("input[name=reason]", "it was right")
        follow(page, "form.invalidate button")
        follow(page, "text=go back to the list")
        assert "No sample fits" in page.inner_text("#live")


def test_one_list_is_scored_again_at_a_time_and_only_what_was_counted(
    serve: Serve, portal: BlockingPortal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end: asyncio.Event = portal.call(asyncio.Event)

    async def held(*given: Any, **more: Any) -> Rescored:
        done = await rescore(*given, **more)
        await may_end.wait()
        return done

    monkeypatch.setattr("headgate.console.corrections.rescore", held)
    portal.call(SampleStore(FolderObjects(tmp_path / "store")).put_batch, "b", _samples()[:9])
    console: Any = serve(serve_console(settings(tmp_path), port=0))
    with httpx.Client(base_url=console, headers={"Authorization": "Bearer x"}) as http:
        assert "9 samples</strong> of the list" in http.get("/samples/rescore").text

        def press(**form: str) -> tuple[int, str]:
            answer = http.post("/samples/rescore", data={"reason": "x", **form})
            return answer.status_code, answer.text

        assert press(verb="count")[0] == 200
        assert (press(verb="count")[0], "local is scoring samples already" in press(verb="score")[1]) == (409, True)
        portal.call(may_end.set)
        shown = http.get("/samples/rescore", headers={"HX-Request": "true"}).text
        assert "0 samples</strong> would be scored again" in shown
        assert "not scored: " in shown
        assert press(verb="score", started_at="1.0")[0] == 409


def test_a_text_that_too_many_samples_have_is_to_be_narrowed_before_they_are_invalidated(
    serve: Serve, portal: BlockingPortal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("headgate.storage.sample_index", "headgate.console.records"):
        monkeypatch.setattr(f"{module}.MOST_FOUND", 2)
    monkeypatch.setattr("headgate.storage.sample_index._STEP_PARTS", 1)
    store = SampleStore(FolderObjects(tmp_path / "store"))
    for batch in range(2):
        stored = [sample(4 * batch + n, environment="e:0", score=1.0, success=True, at=START + n) for n in range(4)]
        portal.call(store.put_batch, f"b{batch}", stored)
    console: Any = serve(serve_console(settings(tmp_path), port=0))
    answer = httpx.get(f"{console}/samples/invalidate?text=2+%2B+2", timeout=30)
    assert (answer.status_code, "Narrow the list" in answer.text) == (422, True), answer.text


def test_a_drop_of_the_scores_is_told_with_its_samples(
    serve: Serve, portal: BlockingPortal, visits: Visits, tmp_path: Path
) -> None:
    random = Random(1)
    samples = [
        sample(number, environment="e:0", score=float(random.random() < (0.9 if number < 900 else 0.3)), success=False,
               at=START + number * 600, served_model="gate-7b-0125", system_fingerprint="fp_44709d")
        for number in range(1_200)
    ]  # fmt: skip
    portal.call(SampleStore(FolderObjects(tmp_path / "store")).put_batch, "b", samples)
    console: Any = serve(serve_console(settings(tmp_path), port=0))
    with visits.page() as page:
        page.goto(f"{console}/scores?model=org/a@main")
        page.wait_for_selector("text=being computed", state="detached")
        assert "in e:0, most likely since" in page.inner_text("section:has(#drops-1)")
        follow(page, "section:has(#drops-1) >> text=Worst samples")
        follow(page, "table.samples a")
        assert "gate-7b-0125" in page.inner_text("article")
        assert "fp_44709d" in page.inner_text("article")


BAD: dict[str, tuple[int, str]] = {
    "/samples?min_score=NaN": (422, "min_score must be a number (got &#39;NaN&#39;)"),
    "/samples?max_latency_s=soon": (422, "max_latency_s must be a number"),
    "/samples?counts=perhaps": (422, "counts must be yes or no"),
    "/samples/invalidate?min_score=x": (422, "min_score must be a number"),
    "/samples?order=random": (422, "order must be one of newest, worst, best, longest"),
    "/samples?since=yesterday": (422, "since must be a date, a time, or an age such as 36h"),
    "/samples?text=found-nowhere": (200, "No sample fits"),
    "/samples/invalidate?text=found-nowhere": (200, "0 samples"),
    "/samples/t-none": (404, "the store has no sample"),
    "/samples/%3Cscript%3E": (404, "the store has no sample &#39;&lt;script&gt;&#39;"),
    "/leaderboard?model=lab/a@step-0&against=nobody": (422, "there is no scored model &#39;nobody&#39;"),
    "/scores": (200, "Name a model"),
    "/scores?model=a,b,c,d,e": (422, "at most 4 models"),
}


def test_what_cannot_be_shown_is_told_in_a_sentence(console: str) -> None:
    with httpx.Client(base_url=console) as client:
        for path, (status, sentence) in BAD.items():
            answer = client.get(path)
            assert (answer.status_code, sentence in answer.text) == (status, True), f"{path}: {answer.text}"


def test_a_console_without_a_store_says_so(serve: Serve, tmp_path: Path) -> None:
    console: Any = serve(serve_console(settings(tmp_path), port=0))
    for path in ("/samples", "/leaderboard", "/scores?model=a"):
        answer = httpx.get(console + path)
        assert answer.status_code == 200
        assert "there is no sample store at" in answer.text, path
