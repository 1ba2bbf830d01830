#!/usr/bin/env bash
# Runs the tests marked `slurm` against a real SLURM: one node on this machine, made for them and gone after them.
# Arguments go to pytest; with `-- COMMAND…` that command runs in place of pytest, with sbatch, squeue and scancel at hand.
# On Debian and Ubuntu, root gets the packages that are missing; nothing else of the machine changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'slurm: %s\n' "$*"; }
stop() { printf 'slurm: %s\n' "$*" >&2; exit 1; }

PACKAGES="slurm-wlm munge"
NEEDED="munged slurmctld slurmd sbatch scancel squeue scontrol sinfo"
PATH=$PATH:/usr/sbin:/sbin
# Everything that runs below inherits this mark: daemons and jobs leave every process group, and are found by it.
export SLURM_TEST_MARK="headgate-slurm-$$-$RANDOM"
folder=""
daemons="" # process ids, in the order in which they are stopped
status_of_tests=1

missing() {
  local program
  for program in $NEEDED; do
    command -v "$program" >/dev/null || { printf '%s\n' "$program"; return; }
  done
}

need_slurm() {
  local absent log
  absent=$(missing)
  [ -n "$absent" ] || return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    stop "$absent is missing: install SLURM and munge (Debian, Ubuntu: apt install $PACKAGES) and run this again"
  fi
  say "installing the Debian packages $PACKAGES"
  log=$(mktemp)
  install_packages >"$log" 2>&1 || { apt-get update -q >"$log" 2>&1 && install_packages >"$log" 2>&1; } ||
    { tail -5 "$log" >&2; rm -f "$log"; stop "$PACKAGES could not be installed"; }
  rm -f "$log"
  absent=$(missing)
  [ -z "$absent" ] || stop "$absent is still missing after the installation of $PACKAGES"
}

# shellcheck disable=SC2086 # the packages are words
install_packages() { DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $PACKAGES; }

free_ports() { # free_ports COUNT: ports of this machine that nobody listens on
  .venv/bin/python - "$1" <<'PYTHON'
import socket, sys
probes = [socket.socket() for _ in range(int(sys.argv[1]))]
for probe in probes:
    probe.bind(("", 0))
print(*(probe.getsockname()[1] for probe in probes))
PYTHON
}

configure() {
  local me host control node
  me=$(id -un)
  host=$(hostname -s)
  read -r control node < <(free_ports 2)
  mkdir "$folder/state" "$folder/spool" "$folder/log" "$folder/munge"
  head -c 128 /dev/urandom >"$folder/munge/key"
  chmod 600 "$folder/munge/key"
  # SLURM can bind to more than loopback; its own key keeps everybody out who cannot read this folder.
  cat >"$folder/slurm.conf" <<CONF
ClusterName=headgate-test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$control
SlurmdPort=$node
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld
SlurmdLogFile=$folder/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# A large node whatever this machine has: tests wait far more than they compute, and scripts may ask for what they need.
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=64 RealMemory=1000000 State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
KillWait=10
ReturnToService=2
CONF
  # From 23.11 on, SLURM wants to be told that it is not to touch control groups; before, it does not know the word.
  case $(slurmd -V | grep -oE '[0-9]+\.[0-9]+' | head -1) in
    2[01].* | 22.* | 23.0* | 23.1 | 23.10) ;;
    *) echo "CgroupPlugin=disabled" >"$folder/cgroup.conf" ;;
  esac
  export SLURM_CONF="$folder/slurm.conf"
}

start_slurm() {
  # `--force`: munged would rather not run as root or in a folder of /tmp; this key guards tests only.
  munged --foreground --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
    --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed" --log-file="$folder/log/munged" \
    --num-threads=2 >"$folder/log/munged.out" 2>&1 &
  daemons=$!
  within 10 test -S "$folder/munge/socket" || { show_logs; stop "munged did not come up"; }
  slurmctld -D >"$folder/log/slurmctld.out" 2>&1 &
  daemons="$! $daemons"
  slurmd -D >"$folder/log/slurmd.out" 2>&1 &
  daemons="$! $daemons"
  within 60 node_is_idle || { show_logs; stop "the node did not become idle"; }
}

node_is_idle() { sinfo --noheader --format=%t 2>/dev/null | grep -qx idle; }

within() { # within SECONDS COMMAND…: whether it holds before they are over
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.2
  done
}

show_logs() { tail -n 12 "$folder"/log/*.out >&2; }

# By the mark, or by an open file of the folder: slurmstepd writes over its environment. The look's own programs have neither.
ours() (
  export -n SLURM_TEST_MARK
  {
    grep -lsa "SLURM_TEST_MARK=$SLURM_TEST_MARK" /proc/[0-9]*/environ
    find /proc/[0-9]*/cwd /proc/[0-9]*/fd -maxdepth 1 -lname "${folder:-/nowhere}/*"
  } | cut -d/ -f3 | sort -u
) 2>/dev/null

no_jobs() { [ -z "$(squeue --noheader 2>/dev/null)" ]; }

end_jobs() {
  timeout 10 scancel --user="$(id -un)" || return 0
  within 5 no_jobs || timeout 10 scancel --full --signal=KILL --user="$(id -un)" || return 0
  within 10 no_jobs || return 0
} 2>/dev/null

ended() { ! kill -0 "$1" 2>/dev/null; }

# Jobs first, because SLURM ends them best; its daemons in an order in which none waits for another; then whatever is left.
leave() {
  local round pid left signal=TERM
  trap - EXIT
  trap '' INT TERM
  [ -z "${SLURM_CONF:-}" ] || end_jobs
  for pid in $daemons; do
    kill "$pid" 2>/dev/null || continue
    within 10 ended "$pid" || true
  done
  for round in {1..50}; do
    left=$(ours || true)
    [ -n "$left" ] || break
    [ "$round" -lt 25 ] || signal=KILL
    for pid in $left; do kill -s "$signal" "$pid" 2>/dev/null || true; done
    sleep 0.2
  done
  [ -z "$folder" ] || rm -rf "$folder"
  exit "$status_of_tests"
}

main() {
  trap leave EXIT
  trap 'status_of_tests=130; exit' INT
  trap 'status_of_tests=143; exit' TERM
  need_slurm
  folder=$(mktemp -d /tmp/headgate-slurm-XXXXXX) # not below TMPDIR: a socket's path has 107 bytes at most
  chmod 755 "$folder" # munged asks for it
  configure
  start_slurm
  say "$(sinfo --noheader --format='node %N is %t, %c processors')"
  local command=(.venv/bin/python -m pytest -m slurm tests/slurm "$@")
  if [ "${1:-}" = -- ]; then command=("${@:2}"); fi
  status_of_tests=0
  # In the background and waited for, so that a signal is acted on at once.
  "${command[@]}" </dev/null &
  wait $! || status_of_tests=$?
  [ "$status_of_tests" = 0 ] || show_logs
}

main "$@"
