"""Logs of inspect_ai: ours open in its own readers, and its own become samples.

Its blocking functions are called in threads: within a running loop it would change `asyncio.run` of the whole process.
They are imported where they are used: the package takes two seconds, which only the process of these tests is to spend.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.core import Sample, errors
from headgate.statistics import clustered_mean
from headgate.storage import Chosen, SampleStore, export_samples, import_samples, open_store
from tests.house.tree import ROOT
from tests.storage.samples import START, failed, many, sample

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample

pytestmark = (
    pytest.mark.long
)  # to import inspect takes longer than most tests; its form is among those of `test_exchange_files`

_TALK = '[["system","Be brief."],["user","2 + 2?"],["assistant","5"],["user","No."],["assistant","4"],["user","Yes."]]'


async def _stored(store: SampleStore) -> list[Sample]:
    rows = (await store.scan()).frame.sort("index", "sequence").iter_rows(named=True)
    return [Sample(**row) for row in rows]


@pytest.fixture
async def store(tmp_path: Path) -> SampleStore:
    """Ten samples of seven tasks, one that failed, and another model."""
    opened = open_store(str(tmp_path / "store"))
    rows = [
        *many(10, conversation=_TALK),
        failed(12, conversation=_TALK),
        sample(0, model="org/b@r", environment="x/y"),
    ]
    await opened.put_batch("one", rows)
    return opened


async def test_there_is_one_log_per_model_and_environment(store: SampleStore, tmp_path: Path) -> None:
    from inspect_ai.analysis import evals_df

    assert await export_samples(store, tmp_path / "logs", "inspect", now=START) == 12
    found = await asyncio.to_thread(evals_df, str(tmp_path / "logs"))
    assert sorted(zip(found["task_display_name"], found["model"], found["status"], strict=True)) == [
        ("affine:sat", "org/a@main", "success"),
        ("x/y", "org/b@r", "success"),
    ]


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # inspect_ai, of pandas
async def test_every_sample_is_a_row_of_inspect_s_data_frame(store: SampleStore, tmp_path: Path) -> None:
    from inspect_ai.analysis import samples_df

    await export_samples(store, tmp_path / "logs", "inspect", now=START, chosen=Chosen(models=frozenset({"org/a"})))
    found = (await asyncio.to_thread(samples_df, str(tmp_path / "logs"), quiet=True)).sort_values(["id", "epoch"])
    assert list(zip(found["id"].astype(int), found["epoch"], strict=True)) == [
        (0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (4, 1), (5, 1), (5, 2), (6, 1),
    ]  # fmt: skip
    assert sorted(found["metadata_sequence"].astype(int)) == [*range(10), 12]
    assert found["total_tokens"].astype(int).to_list() == [13] * 11
    assert [said for said in found["error"] if said] == ["provider_failure: HTTP 503"]


async def _log(store: SampleStore, output: Path) -> EvalLog:
    from inspect_ai.log import read_eval_log

    await export_samples(store, output, "inspect", now=START, chosen=Chosen(environments=frozenset({"affine:sat"})))
    return await asyncio.to_thread(read_eval_log, str(output))


@pytest.mark.parametrize("name", ["one.eval", "one.json"])
async def test_an_output_with_the_suffix_of_a_log_is_one_log(store: SampleStore, tmp_path: Path, name: str) -> None:
    from inspect_ai.model import ModelUsage

    log = await _log(store, tmp_path / name)
    assert len(log.samples or ()) == 11
    assert (log.eval.dataset.samples, log.eval.dataset.sample_ids) == (7, [*range(7)])
    assert log.stats.model_usage == {
        "org/a@main": ModelUsage(input_tokens=110, output_tokens=33, total_tokens=143),
    }


async def test_a_sample_has_its_opening_as_input_and_its_last_answer_as_output(
    store: SampleStore, tmp_path: Path
) -> None:
    found = next(s for s in (await _log(store, tmp_path / "one.eval")).samples or () if s.metadata["sequence"] == 3)
    assert isinstance(found.input, list)
    assert [(m.role, m.text) for m in found.input] == [("system", "Be brief."), ("user", "2 + 2?")]
    assert [m.role for m in found.messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert (found.output.model, found.output.completion) == ("org/a@main", "4")
    assert found.scores is not None
    score = found.scores["headgate"]
    assert (score.value, score.answer, score.explanation) == (1.0, "4", "because")
    assert [event.event for event in found.events] == ["score"]
    assert (found.total_time, found.started_at) == (2.5, "2026-01-01T00:00:00.500000+00:00")
    shown = {key: found.metadata[key] for key in ("campaign", "seed", "stage", "trace_id", "task_id")}
    assert shown == {
        "campaign": "main", "seed": 11, "stage": "sample", "trace_id": f"{3:032x}", "task_id": sample(3).task_id,
    }  # fmt: skip


async def test_what_failed_is_an_error_without_a_score(store: SampleStore, tmp_path: Path) -> None:
    log = await _log(store, tmp_path / "one.eval")
    (bad,) = [s for s in log.samples or () if s.error]
    assert bad.error is not None
    assert (bad.scores, bad.error.message) == (None, "provider_failure: HTTP 503")
    assert [event.event for event in bad.events] == ["error"]
    assert log.results is not None
    assert (log.results.total_samples, log.results.completed_samples) == (11, 10)


async def test_the_metrics_are_inspect_s_own_and_ours_beside_them(store: SampleStore, tmp_path: Path) -> None:
    log = await _log(store, tmp_path / "one.eval")
    assert log.results is not None
    metrics = {name: metric.value for name, metric in log.results.scores[0].metrics.items()}
    scored = [s for s in await _stored(store) if s.environment == "affine:sat" and s.is_scored]
    ours = clustered_mean([s.score or 0.0 for s in scored], [s.index for s in scored])
    assert ours is not None
    # inspect_ai takes the mean of each task over its epochs first: tasks 0 to 2 were 0 and 1, of the others two 1.
    assert metrics["mean"] == pytest.approx((3 * 0.5 + 2) / 7)
    assert (metrics["mean_of_samples"], metrics["low_95"], metrics["high_95"]) == (ours.mean, ours.low, ours.high)
    assert metrics["stderr"] > 0


async def test_one_log_cannot_hold_two_models(store: SampleStore, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInputError, match="is one log, but these samples make"):
        await export_samples(store, tmp_path / "one.eval", "inspect", now=START)
    assert not (tmp_path / "one.eval").exists()


async def test_many_samples_make_a_log_for_each_span_of_days(tmp_path: Path) -> None:
    from inspect_ai.analysis import evals_df

    store, target = open_store(str(tmp_path / "a")), open_store(str(tmp_path / "b"))
    rows = [sample(n, at=START + 86_400.0 * (n // 4) + n) for n in range(12)]
    await store.put_batch("one", rows)
    await export_samples(store, tmp_path / "logs", "inspect", now=START, rows_at_once=5)
    found = await asyncio.to_thread(evals_df, str(tmp_path / "logs"))
    assert sorted(found["total_samples"]) == [4, 4, 4]
    assert (await import_samples(target, tmp_path / "logs", "inspect")).rows == 12


def _shown(folder: Path) -> dict[str, tuple[str, str]]:
    """Return task id -> environment and model of the logs that a list of inspect_ai shows: the newest of each task."""
    from inspect_ai._eval.evalset import latest_completed_task_eval_logs, list_all_eval_logs
    from inspect_ai.log import list_eval_logs

    newest = latest_completed_task_eval_logs(list_all_eval_logs(str(folder)))
    found = {log.header.eval.task_id: (log.header.eval.task, log.header.eval.model) for log in newest}
    # the list takes ids from the files' names at first, and from the logs when these have been read
    assert {info.task_id for info in list_eval_logs(str(folder))} == found.keys()
    return found


async def test_inspect_lists_every_model_in_every_environment(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    pairs = [(f"game:{e}", f"org/{m}@main") for e in range(8) for m in range(3)]
    rows = [sample(n, environment=environment, model=model) for environment, model in pairs for n in range(2)]
    await store.put_batch("one", rows)
    await export_samples(store, tmp_path / "logs", "inspect", now=START)
    assert sorted((await asyncio.to_thread(_shown, tmp_path / "logs")).values()) == pairs


async def test_ids_stay_from_one_export_to_the_next_and_tell_selections_apart(
    store: SampleStore, tmp_path: Path
) -> None:
    wins = Chosen(environments=frozenset({"affine:sat"}), successes=True)
    for name, chosen in (("first", Chosen()), ("second", Chosen()), ("wins", wins)):
        await export_samples(store, tmp_path / name, "inspect", now=START, chosen=chosen)
    first, second, some = [await asyncio.to_thread(_shown, tmp_path / name) for name in ("first", "second", "wins")]
    assert first == second
    assert first.keys().isdisjoint(some)
    assert (await import_samples(store, tmp_path / "second", "inspect")).rows == 0


async def test_without_the_package_the_extra_is_named(
    store: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("inspect_logs", "inspect_samples"):
        monkeypatch.delitem(sys.modules, f"headgate.storage.exchange.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    (tmp_path / "one.eval").touch()
    with pytest.raises(errors.MissingExtraError, match="'inspect'"):
        await export_samples(store, tmp_path / "logs", "inspect", now=START)
    with pytest.raises(errors.MissingExtraError, match="'inspect'"):
        await import_samples(store, tmp_path / "one.eval", "inspect")
    assert not (tmp_path / "logs").exists()


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> EvalLog:
    """A log that inspect_ai wrote of a task of its own; in a process where its warnings are no errors."""
    from inspect_ai.log import read_eval_log

    folder = tmp_path_factory.mktemp("foreign")
    subprocess.run([sys.executable, "-m", "tests.storage.inspect_task", str(folder)], cwd=ROOT, check=True)
    (file,) = folder.iterdir()
    return read_eval_log(str(file))


@pytest.mark.parametrize("suffix", ["eval", "json"])
async def test_a_scored_sample_of_a_log_becomes_a_sample(tmp_path: Path, foreign: EvalLog, suffix: str) -> None:
    from inspect_ai.log import read_eval_log, write_eval_log

    store, file = open_store(str(tmp_path / "a")), tmp_path / f"log.{suffix}"
    await asyncio.to_thread(lambda: write_eval_log(read_eval_log(foreign.location), str(file)))
    assert (await import_samples(store, file, "inspect", campaign="old")).rows == 8
    found = await _stored(store)
    assert [(s.index, s.score, s.success, s.error_kind) for s in found] == [
        (0, 1.0, True, None), (0, 1.0, True, None), (1, 0.5, False, None), (1, 0.5, False, None),
        (2, 0.25, False, None), (2, 0.25, False, None),
        (3, None, False, "provider_failure"), (3, None, False, "provider_failure"),
    ]  # fmt: skip
    first = found[0]
    assert (first.environment, first.model, first.campaign) == ("inspect:adding", "mockllm/model@main", "old")
    assert (first.prompt_tokens, first.completion_tokens, first.turns) == (8, 2, 1)
    assert (first.conversation, first.why) == ('[["user","2 + 2?"],["assistant","4"]]', "graded by rule")
    assert first.stage == f"inspect:{foreign.eval.eval_id}"
    assert first.started_at <= first.finished_at
    assert "sk-abcdefgh12345678" not in str(found[-1].error)


async def test_what_inspect_could_not_score_as_we_do_is_told_and_left_out(tmp_path: Path, foreign: EvalLog) -> None:
    store = open_store(str(tmp_path / "a"))
    told = (await import_samples(store, Path(foreign.location), "inspect")).problems
    assert len(told) == 6
    said = {p.path.rpartition("sample ")[2].partition(",")[0]: p.reason for p in told}
    assert said["ten"] == "its score by 'graded' must be in [0, 1] (got 7)"
    assert "is neither a number" in said["parts"]
    assert "is neither a number nor one of C, I, P, N, yes, no (got 'good')" in said["odd"]


async def test_a_log_that_is_imported_again_stays_single(tmp_path: Path, foreign: EvalLog) -> None:
    store = open_store(str(tmp_path / "a"))
    folder = Path(foreign.location).parent
    assert (await import_samples(store, folder, "inspect")).rows == 8
    assert (await import_samples(store, Path(foreign.location), "inspect")).rows == 0


async def test_a_part_of_a_log_has_the_tasks_and_indices_of_the_whole(tmp_path: Path, foreign: EvalLog) -> None:
    from inspect_ai.log import read_eval_log, write_eval_log

    store, part = open_store(str(tmp_path / "a")), await asyncio.to_thread(read_eval_log, foreign.location)
    kept: list[EvalSample] = [s for s in part.samples or () if s.id == "number"]
    part.samples = kept
    await asyncio.to_thread(write_eval_log, part, str(tmp_path / "part.eval"))
    assert (await import_samples(store, tmp_path / "part.eval", "inspect")).rows == 2
    assert (await import_samples(store, Path(foreign.location), "inspect")).rows == 6
    assert [s.index for s in await _stored(store)] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("name", ["log.eval", "log.json"])
@pytest.mark.parametrize("content", [b"", b"junk", b"{}", b"PK\x03\x04 cut off"])
async def test_what_is_no_log_is_refused_by_name(tmp_path: Path, name: str, content: bytes) -> None:
    store = open_store(str(tmp_path / "a"))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(errors.InvalidInputError, match=r"log\.(eval|json) is not a log of inspect_ai, or is cut off"):
        await import_samples(store, tmp_path / name, "inspect")


def _cut(whole: Path, file: Path) -> None:
    content = whole.read_bytes()
    file.write_bytes(content[: len(content) // 2])


async def test_a_log_that_is_cut_off_stores_nothing(tmp_path: Path, foreign: EvalLog) -> None:
    store, file = open_store(str(tmp_path / "a")), tmp_path / "log.eval"
    _cut(Path(foreign.location), file)
    with pytest.raises(errors.InvalidInputError, match="is cut off"):
        await import_samples(store, file, "inspect")
    assert (await store.scan()).frame.height == 0


async def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInputError, match=r"holds no file that ends in \.eval or \.json"):
        await import_samples(open_store(str(tmp_path / "a")), tmp_path, "inspect")
