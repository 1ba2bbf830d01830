"""What is known of the packages that are locked: the bill of materials, the look for vulnerabilities, the workflows."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
import yaml

from tests.house.tree import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def _make(target: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--no-print-directory", target, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False)


def _locked(*names: str) -> dict[str, tuple[str, set[str]]]:
    """Return package -> (version, hashes) of lock files."""
    found = {}
    for name in names:
        for block in re.split(r"\n(?=[A-Za-z0-9])", (ROOT / name).read_text())[1:]:
            package, version = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", block).groups()  # type: ignore[union-attr]
            found[package] = (version, set(re.findall(r"--hash=sha256:(\w+)", block)))
    return found


class _Vulnerabilities(BaseHTTPRequestHandler):
    """The OSV database, with one entry."""

    protocol_version = "HTTP/1.1"
    package: ClassVar[str] = "msgpack"
    asked: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        """Answer a query."""
        query = json.loads(self.rfile.read(int(self.headers["content-length"])))["package"]["name"]
        self.asked.add(query)
        versions = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.1"}]}
        entry = {
            "id": "OSV-2026-1",
            "modified": "2026-01-01T00:00:00Z",
            "affected": [{"package": {"name": self.package, "ecosystem": "PyPI"}, "ranges": [versions]}],
        }
        body = json.dumps({"vulns": [entry]} if query == self.package else {}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def database() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Vulnerabilities)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/query"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.long
def test_the_bill_of_materials_names_every_locked_file() -> None:
    result = _make("sbom")
    assert result.returncode == 0, result.stderr
    bill = json.loads((ROOT / "dist/headgate.cdx.json").read_text())
    assert bill["metadata"]["component"]["name"] == "headgate"
    listed = {
        component["name"]: (
            component["version"],
            {h["content"] for reference in component["externalReferences"] for h in reference.get("hashes", ())},
        )
        for component in bill["components"]
    }
    assert listed == _locked("requirements.lock", "requirements-model.lock")


@pytest.mark.long
def test_a_locked_package_that_is_known_to_be_vulnerable_fails_the_look_with_the_version_that_mends_it(
    database: str,
) -> None:
    result = _make("vulnerabilities", f"ARGS=--osv-url {database}")
    assert result.returncode != 0
    version = _locked("requirements.lock")["msgpack"][0]
    assert re.search(rf"^msgpack\s+{re.escape(version)}\s+OSV-2026-1\s+99\.1$", result.stdout, re.MULTILINE)
    assert len(_Vulnerabilities.asked) > 0.9 * len(_locked("requirements.lock")), "but for those of other platforms"


def test_a_database_that_cannot_be_reached_is_no_clean_bill() -> None:
    result = _make("vulnerabilities", "ARGS=--osv-url http://127.0.0.1:9/v1/query")
    assert result.returncode != 0
    assert "Connection refused" in result.stdout + result.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_our_own_commands_and_name_actions_by_commit(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]), step
            else:
                command = shlex.split(step["run"])
                assert command == ["bash", ".ci/run"] or (command[0] == "make" and command[1] in targets), step
