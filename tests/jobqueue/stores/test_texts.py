"""Texts of every kind: long ones, all of Unicode, and what no database takes."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace

import pytest

from headgate.jobqueue import Changes, Happening, JobQuery, Store
from headgate.jobqueue.job import Lane
from headgate.jobqueue.stores.postgres import columns_of, texts
from headgate.jobqueue.stores.rows import storable, storable_text
from tests.jobqueue.stores.values import a_job, a_reply, a_server, changed, entry, submitted

ODD = [
    "",
    " ",
    "NULL",
    "{}",
    '{"',
    "\\",
    "\\\\N",
    "'; DROP TABLE jobs; --",
    "a,b",
    "\n\r\t\x01\x7f",
    "ẞ🦊\u202e\uffff",
    "%s :x",
]


def test_odd_texts_come_back_as_they_are(store: Store) -> None:
    jobs = [
        a_job(number)._replace(
            spec=replace(a_job(number).spec, job_id=f"{number}{text}", team=text, payload=text),
            last_error=text,
        )
        for number, text in enumerate(ODD)
    ]
    store.commit(submitted(*jobs))
    store.commit(changed(*(job._replace(worker=job.spec.team, result=job.spec.payload) for job in jobs)))
    for text, job in zip(ODD, jobs, strict=True):
        expected = job._replace(worker=text, result=text)
        assert store.pending(Lane(text, "p", "t"), None, 9) == [expected]
        assert store.jobs([job.job_id]) == {job.job_id: expected}


def test_texts_of_many_kilobytes_come_back(store: Store) -> None:
    payload = '{"x":"' + "ä\\" * 128_000 + '"}'
    job = a_job(0)._replace(spec=replace(a_job(0).spec, payload=payload), result=payload, last_error=payload)
    store.commit(submitted(job))
    store.commit(Changes(history=[entry(1, note=payload)], replies={"k": replace(a_reply("k"), body=payload)}))
    assert store.jobs(["job-0"]) == {"job-0": job}
    assert store.reply("k").body == payload
    with closing(store.reader()) as reader:
        assert reader.history(0, 1)[0].note == payload


def test_names_as_long_as_allowed_fit_into_the_indexes(store: Store) -> None:
    numbers = random.Random(1)  # nothing that a database could compress
    names = ["".join(chr(numbers.randint(0x20000, 0x2A6DF)) for _ in range(200)) for _ in range(4)]
    spec = replace(a_job(0).spec, job_id=names[0], team=names[1], pool=names[2], task=names[3])
    job = a_job(0)._replace(spec=spec)
    store.commit(submitted(job))
    assert store.pending(spec.lane, None, 1) == [job]


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800b"])
def test_what_no_database_takes_is_replaced_and_the_rest_is_kept(sql_store: Store, bad: str) -> None:
    sql_store.commit(submitted(a_job(0), a_job(1)))
    sql_store.commit(
        Changes(
            changed_jobs={"job-0": a_job(0)._replace(last_error=bad), "job-1": a_job(1)._replace(last_error="ä🦊")},
            resources={"p/0": replace(a_server(0), note=bad)},
            history=[entry(2, Happening.FAILED, "job-0", note=bad)],
            replies={"k": replace(a_reply("k"), body=bad)},
        )
    )
    assert [job.last_error for job in sql_store.jobs(["job-0", "job-1"]).values()] == ["a\ufffdb", "ä🦊"]
    assert [server.note for server in sql_store.load().resources] == ["a\ufffdb"]
    assert sql_store.reply("k").body == "a\ufffdb"
    with closing(sql_store.reader()) as reader:
        assert [one.note for one in reader.history(1, 9)] == ["a\ufffdb"]


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800b"])
def test_such_texts_can_be_asked_for(sql_store: Store, bad: str) -> None:
    assert sql_store.jobs([bad]) == {}
    assert sql_store.pending(Lane(bad, bad, bad), None, 1) == []
    assert sql_store.reply(bad) is None
    with closing(sql_store.reader()) as reader:
        assert reader.jobs(JobQuery(task=bad, teams=frozenset({bad}))) == []
        assert reader.history(-1, 1, job_id=bad) == []


def test_storable_texts_are_not_copied() -> None:
    rows = [("ä🦊", 1, 2.5), ("b", 2, 3.5)]
    assert storable(rows) is rows
    assert storable_text("\ud83e\udd8a \udd8a\0") == "🦊 \ufffd\ufffd"


def test_array_literals_keep_texts_and_numbers_apart() -> None:
    rows = [(1, 0.1, 'a"b', ""), (-(2**62), 1e300, "\\", "NULL")]
    assert columns_of(rows) == ["{1,-4611686018427387904}", "{0.1,1e+300}", '{"a\\"b","\\\\"}', '{"","NULL"}']
    assert columns_of([(1.5, "a,b", None)] * 2) == ["{1.5,1.5}", '{"a,b","a,b"}', "{NULL,NULL}"]
    assert texts([]) == "{}"
