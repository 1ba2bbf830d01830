"""From folders of files to jobs and servers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator import (
    Generation,
    Reason,
    ResultFolder,
    Rules,
    Skipped,
    imported_jobs,
    json_bytes,
    resources_of,
    team_slug,
)
from tests.house.tree import ROOT
from tests.jobqueue.generator.site import Site, server

_SEED = Rules(legacy_groups=True)


def test_jobs_have_the_form_of_the_seed(site: Site) -> None:
    assert site.generate().jobs_document() == [
        {
            "id": number,
            "payload": {
                "team": "Alpha",
                "team_slug": "alpha",
                "task": "radio",
                "instance_basename": f"house_task_radio_0_{number + 1}_template-tro_state.json",
            },
            "resource_type": "alpha",
            "status": "pending",
            "attempts": 0,
        }
        for number in range(2)
    ]


def test_instances_are_in_order_of_their_numbers(site: Site) -> None:
    site.add_instances("radio", 10, 3, 21)
    assert [job.job_id for job in site.generate().jobs] == [f"alpha.radio.{n}" for n in (1, 2, 3, 10, 21)]


def test_the_same_files_give_the_same_bytes_whatever_the_hash_seed(site: Site) -> None:
    for team in "abcdefgh":
        site.submit(f"standard.{team}.json", f"Team {team}", 0.5, radio=0.5, tidy=0.2)
        site.submit(f"privileged.{team}.json", f"Other {team}", 0.5, radio=0.5)
    site.add_instances("tidy", 1, 2, 3)
    servers = [server("h", 8000, compatible_task=["tidy", "radio", "x", "y"]), server("h", 8001)]
    site.serve(**{team_slug(f"{kind} {team}"): servers for team in "abcdefgh" for kind in ("Team", "Other")})
    program = """
import sys
from pathlib import Path
from headgate.jobqueue.generator import Rules, json_bytes
from tests.jobqueue.generator.site import Site
for seeded in (False, True):
    made = Site(Path(sys.argv[1])).generate(Rules(legacy_groups=seeded))
    sys.stdout.buffer.write(json_bytes(made.jobs_document()) + json_bytes(made.resources_document()))
"""
    outputs = set()
    for seed in ("0", "4242"):
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'lib'}"}
        done = subprocess.run(
            [sys.executable, "-c", program, str(site.root)], env=environ, capture_output=True, check=True
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert outputs.pop().count(b'"resource_type"') > 50


def test_a_task_without_test_instances_is_reported_and_stops_nothing(site: Site) -> None:
    site.submit("standard.alpha.json", "Alpha", 0.5, aaa=0.5, radio=0.5)
    generation = site.generate()
    assert len(generation.jobs) == 2
    assert generation.skipped == (Skipped("alpha", "aaa", Reason.NO_INSTANCES, 0),)


def test_what_has_a_result_is_skipped(site: Site) -> None:
    site.finish("alpha", "radio", 1)
    generation = site.generate()
    assert [job.job_id for job in generation.jobs] == ["alpha.radio.2"]
    assert generation.skipped == (Skipped("alpha", "radio", Reason.HAS_RESULT, 1),)


@pytest.mark.parametrize("text", ["", '{"q_score": {"fin', "[]", "null", "\udcff"])
def test_a_result_that_was_not_written_to_its_end_is_none(site: Site, text: str) -> None:
    path = site.finish("alpha", "radio", 1, "")
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert len(site.generate().jobs) == 2
    results = ResultFolder(site.results)
    assert not results.has_result("alpha", "radio", 1)
    assert list(results.unreadable) == [str(path)]


def test_results_may_hold_infinity(site: Site) -> None:
    site.finish("alpha", "radio", 1, '{"normalized_agent_distance": {"base": Infinity}}')
    assert len(site.generate().jobs) == 1


def test_a_missing_folder_of_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidJobError, match=r"folder of results .*nowhere does not exist"):
        ResultFolder(tmp_path / "nowhere")


# Pools: one per team, matched by constraint when a server is asked for.


def test_each_team_has_one_pool_whose_servers_keep_their_constraints(site: Site) -> None:
    entries = [
        server("any"),
        server("radio-only", compatible_task="radio"),
        server("no-tidy", not_compatible_task=["tidy"]),
    ]
    site.serve(alpha=entries)
    generation = site.generate()
    assert {job.resource_type for job in generation.jobs} == {"alpha"}
    assert generation.resources_document() == {"alpha": entries}
    assert [spec.serves("tidy") for spec in generation.resource_specs()] == [True, False, False]


def test_no_server_stands_idle_because_a_job_was_bound_to_another_group(site: Site) -> None:
    site.serve(alpha=[server("any"), server("radio-only", compatible_task=["radio"])])
    (pool,) = site.generate().servers.values()
    assert all(spec.serves("radio") for spec in pool)
    seeded = site.generate(_SEED)
    assert sorted(job.resource_type for job in seeded.jobs) == ["alpha_1", "alpha_2"]


def test_jobs_are_spread_over_groups_by_their_servers() -> None:
    from headgate.jobqueue.generator.legacy_files import bound_evenly

    (a, b) = (
        servers_for("a", server("1"), server("2"), server("3")),
        servers_for("b", server("4")),
    )
    jobs = [(n, ("a", "b")) for n in range(8)]
    bound = list(bound_evenly(jobs, {"a": a, "b": b}).values())
    assert (bound.count("a"), bound.count("b")) == (6, 2)


def servers_for(name: str, *entries: dict[str, object]) -> tuple:  # type: ignore[type-arg]
    from headgate.jobqueue.generator import servers_of

    return servers_of({name: list(entries)}, "here")[name]


def test_jobs_that_fit_one_group_alone_are_bound_before_those_that_can_choose(site: Site) -> None:
    site.submit("standard.alpha.json", "Alpha", 0.5, radio=0.5, tidy=0.5)
    site.add_instances("tidy", 1, 2)
    site.serve(alpha=[server("any"), server("radio-only", compatible_task=["radio"])])
    jobs = site.generate(_SEED).jobs
    assert [(job.task, job.resource_type) for job in jobs] == [
        ("radio", "alpha_2"), ("radio", "alpha_2"), ("tidy", "alpha_1"), ("tidy", "alpha_1"),
    ]  # fmt: skip


def test_groups_are_named_and_split_as_in_the_seed(site: Site) -> None:
    first, second, third = (
        server("1", compatible_task=["b", "a"]),
        server("2"),
        server("3", compatible_task=["a", "b", "a"], note={"kept": [1]}),
    )
    site.serve(alpha=[first, second, third])
    assert site.generate(_SEED).resources_document() == {"alpha_1": [first, third], "alpha_2": [second]}


def test_a_team_gets_no_server_of_a_team_whose_slug_begins_alike(site: Site) -> None:
    site.submit("standard.a.json", "a", 0.9, radio=0.5)
    site.submit("standard.ab.json", "a b", 0.8, radio=0.5)
    site.submit("standard.alpha.json", "a 1", 0.7, radio=0.5)
    site.serve(a_b=[server("ab")], a_1=[server("a1")], a=[server("a")])
    for rules in (_SEED, Rules()):
        generation = site.generate(rules)
        hosts = {job.team: {spec.host for spec in generation.servers[job.resource_type]} for job in generation.jobs}
        assert hosts == {"a": {"a"}, "a_b": {"ab"}, "a_1": {"a1"}}


def test_jobs_of_a_team_without_servers_are_reported(site: Site) -> None:
    site.submit("standard.a_b.json", "alpha b", 0.9, radio=0.5)
    generation = site.generate()
    assert {job.team for job in generation.jobs} == {"alpha"}
    assert generation.skipped == (Skipped("alpha_b", "radio", Reason.NO_SERVERS, 2),)


def test_jobs_that_no_server_takes_are_reported_or_generated_when_asked_for(site: Site) -> None:
    site.serve(alpha=[server("a", not_compatible_task="radio")])
    assert site.generate().jobs == ()
    assert site.generate().skipped == (Skipped("alpha", "radio", Reason.NOT_SERVED, 2),)
    assert site.generate(_SEED).jobs == ()
    generation = site.generate(Rules(unserved_too=True))
    assert ([job.resource_type for job in generation.jobs], generation.skipped) == (["alpha"] * 2, ())
    with pytest.raises(InvalidInputError, match="--unserved-too cannot be combined with --legacy-groups"):
        Rules(unserved_too=True, legacy_groups=True)


def test_sending_again_names_the_same_jobs(site: Site) -> None:
    first = site.generate().job_specs()
    site.finish("alpha", "radio", 1)
    second = site.generate().job_specs()
    assert [spec.job_id for spec in first] == ["alpha.radio.1", "alpha.radio.2"]
    assert second == first[1:]
    assert (first[0].team, first[0].pool, first[0].task) == ("alpha", "alpha", "radio")


def test_a_job_whose_name_would_be_too_long_is_refused(site: Site) -> None:
    task = "t" * 198
    site.submit("standard.alpha.json", "Alpha", 0.5, **{task: 0.5})
    (site.instances / task).mkdir(parents=True)
    (site.instances / task / "a_1_template-tro_state.json").write_text("{}")
    generation = site.generate()
    assert len(generation.jobs_document()) == 1
    with pytest.raises(InvalidJobError, match="must have 1 to 200 characters"):
        generation.job_specs()


def _sent(generation: Generation) -> list[tuple[str, str, str, str, str]]:
    return [(s.team, s.task, s.instance, s.pool, s.payload) for s in generation.job_specs()]


@pytest.mark.parametrize("rules", [Rules(), _SEED], ids=["pools", "seed groups"])
def test_files_and_sending_say_the_same(site: Site, rules: Rules) -> None:
    site.submit("privileged.b.json", "Beta 2", 0.5, radio=0.5)
    site.serve(alpha=[server("1"), server("2", compatible_task="radio")], beta_2=[server("3")])
    generation = site.generate(rules)
    read = [job.spec for job in imported_jobs(generation.jobs_document())]
    assert [(s.team, s.task, s.instance, s.pool, s.payload) for s in read] == _sent(generation)
    servers = resources_of(generation.resources_document(), read)
    assert servers == generation.resource_specs()
    assert {server.pool for server in servers} == {job.pool for job in read}
    assert json_bytes(generation.jobs_document()).endswith(b"]\n")
