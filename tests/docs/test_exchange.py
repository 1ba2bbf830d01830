"""The examples of the page on exchanging samples do what the page says, on a store that has what they name."""

from __future__ import annotations

import asyncio
import shlex
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from headgate.cli import main
from headgate.storage import EXPORT_FORMATS, open_store
from tests.docs.pages import DOCS, Block, blocks
from tests.storage.samples import many

_PAGE = "docs/how-to/exchange.md"
_TALK = '[["user","2 + 2?"],["assistant","4"]]'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a store of the models and environments that the page names."""
    monkeypatch.chdir(tmp_path)
    june = datetime(2026, 6, 15, tzinfo=UTC).timestamp()
    samples = [
        one
        for model in ("acme/small@main", "acme/large@v2")
        for environment in ("affine:sat", "agentgym:textcraft")
        for one in many(4, model=model, environment=environment, at=june, conversation=_TALK)
    ]
    asyncio.run(open_store(".headgate/samples").put_batch("one", samples))
    return tmp_path


def _is_exchange(block: Block) -> bool:
    return block.page == _PAGE and block.section == "Exchange samples with other tools"


def _commands() -> list[list[str]]:
    lines = [line for block in blocks("bash") if _is_exchange(block) for line in block.code.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("headgate ")]


def test_every_example_runs_and_says_what_it_wrote(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for words in _commands():
        if words[:2] == ["import", "shards"]:  # files of another program; ours have the same form
            (folder / "shards").mkdir()
            (folder / "results.json").rename(folder / "shards" / "results.json")
        status = main(["elsewhere" if word == "s3://bucket/prefix" else word for word in words])
        assert status == 0, capsys.readouterr().err
        said[" ".join(words[:2])] = capsys.readouterr().out
    assert said["export best.jsonl"] == "8 rows: best.jsonl\n"
    assert said["export june.jsonl"] == "16 rows: june.jsonl\n"
    assert said["import samples.parquet"] == "16 samples from samples.parquet\n"
    assert said["export train.jsonl"] == "4 rows: train.jsonl\n"
    first = orjson.loads((folder / "train.jsonl").read_bytes().splitlines()[0])
    (shown,) = [block.code for block in blocks("json") if block.page == _PAGE]
    assert first["messages"] == orjson.loads(shown)["messages"]
    assert first["metadata"].items() >= orjson.loads(shown)["metadata"].items()


def test_the_page_lists_every_format() -> None:
    text = (DOCS / "how-to" / "exchange.md").read_text()
    assert [form for form in EXPORT_FORMATS if f"\n| `{form}` |" not in text] == []
