#!/usr/bin/env bash
# One worker of a Headgate job queue per array task: it evaluates jobs until the queue has had none for a while.
#
#   export HEADGATE_JOBQUEUE_URL=http://queue.example.com:8000 HEADGATE_JOBQUEUE_TOKEN=hgq_…
#   export EVAL_COMMAND='python evaluate.py'
#   sbatch --array=0-47 --gres=gpu:1 eval.sh
#
# The lines below are defaults; options of sbatch's command line win over them.
#SBATCH --job-name=headgate-eval
#SBATCH --output=headgate-eval-%A_%a.log
#SBATCH --array=0-47
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=60G
#SBATCH --time=14-00:00:00
# A minute before its time is over this script (B:) is told, so that its job goes back to the queue at once.
#SBATCH --signal=B:TERM@60
# A task that SLURM starts again, after a failure of its node, goes on in the same log.
#SBATCH --open-mode=append
#
# What it reads (the names do not begin with HEADGATE_, which is for settings of Headgate itself):
#   HEADGATE_JOBQUEUE_URL    where the queue is; JOB_QUEUE_URL does as well
#   HEADGATE_JOBQUEUE_TOKEN  a token with the scopes claim,complete; not needed when the queue asks for none
#   EVAL_COMMAND             what evaluates one job; `headgate jobqueue work --help` says what it finds and writes
#   EVAL_OPTIONS             more options of `headgate jobqueue work`, such as "--team team_a --results-dir /shared/results"
#   EVAL_IDLE_S              seconds without a job after which the node is given up (default 600)
#   EVAL_PAUSE_S             seconds before a worker that failed is started again; doubles up to 300 (default 10)
#   EVAL_HEADGATE            the program, when `headgate` is not on the PATH of the nodes
set -u

readonly LONGEST_PAUSE_S=300
readonly LONG_RUN_S=600 # a worker that ran so long has not failed for the reason of the one before it
readonly WRONG_INPUT=2  # exit status: it would fail in the same way again

say() { printf '%s eval.sh[%s]: %s\n' "$(date +%FT%T)" "${SLURM_JOB_ID:-$$}" "$*"; }
stop() { say "$*" >&2; exit "$WRONG_INPUT"; }

[ -n "${HEADGATE_JOBQUEUE_URL:-${JOB_QUEUE_URL:-}}" ] || stop "HEADGATE_JOBQUEUE_URL is not set: export the queue's address, then run sbatch again"
[ -n "${EVAL_COMMAND:-}" ] || stop "EVAL_COMMAND is not set: export the command that evaluates a job, then run sbatch again"

running="" # process id of the worker, or of the pause before the next one
is_ending=""

# scancel, preemption and the end of the time limit: the worker gives its job back, then this script ends.
# scancel tells every process of the task itself; the worker does not mind being told twice.
end() {
  is_ending=yes
  say "told to end: the worker gives its job back"
  [ -z "$running" ] || kill -TERM "$running" 2>/dev/null
}
trap end TERM INT

run() { # run COMMAND…: returns its exit status; a signal is acted on at once, which waiting in the foreground would not do
  local status
  "$@" &
  running=$!
  [ -z "$is_ending" ] || kill -TERM "$running" 2>/dev/null
  while :; do
    wait "$running" # a signal ends it before the command has ended
    status=$?
    kill -0 "$running" 2>/dev/null || break
  done
  running=""
  return "$status"
}

first_pause=${EVAL_PAUSE_S:-10}
pause=$first_pause
while [ -z "$is_ending" ]; do
  started=$SECONDS
  # shellcheck disable=SC2086 # the options are words
  run "${EVAL_HEADGATE:-headgate}" jobqueue work \
    --command "$EVAL_COMMAND" --idle-exit-s "${EVAL_IDLE_S:-600}" ${EVAL_OPTIONS:-}
  status=$?
  [ -z "$is_ending" ] || break
  if [ "$status" = 0 ]; then
    say "the queue has no more work for this worker"
    exit 0
  fi
  [ "$status" != "$WRONG_INPUT" ] || stop "the worker was started with something that it cannot use, such as its token; see above"
  [ "$((SECONDS - started))" -lt "$LONG_RUN_S" ] || pause=$first_pause
  say "the worker ended with status $status; the next one starts in $pause s"
  run sleep "$pause"
  pause=$((pause * 2 < LONGEST_PAUSE_S ? pause * 2 : LONGEST_PAUSE_S))
done
say "ended"
exit 0
