#!/usr/bin/env bash
# One worker of a Headgate job queue per array task: claims jobs and evaluates them until the queue has no more work.
#
#   export HEADGATE_JOBQUEUE_URL=http://queue.example:8000
#   export HEADGATE_JOBQUEUE_TOKEN=…
#   export HEADGATE_EVAL_COMMAND='python evaluate.py'
#   sbatch --array=0-47 --gres=gpu:1 eval.sh
#
# The lines below are defaults; options of the sbatch command line stand above them.
#SBATCH --job-name=headgate-eval
#SBATCH --output=headgate-eval-%A_%a.log
#SBATCH --array=0-47
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=60G
#SBATCH --time=14-00:00:00
# A minute before its time is over, this script (B:) is told, so that its job goes back to the queue at once.
#SBATCH --signal=B:TERM@60
# A task that SLURM puts back into the queue goes on in the same log.
#SBATCH --open-mode=append
#
# What it reads:
#   HEADGATE_JOBQUEUE_URL    the queue; JOB_QUEUE_URL does as well
#   HEADGATE_JOBQUEUE_TOKEN  a token with the scope `work`; not needed when the queue has no tokens
#   HEADGATE_EVAL_COMMAND    what evaluates one job (`headgate jobqueue work --help` says what it is given)
#   HEADGATE_EVAL_OPTIONS    further options of `headgate jobqueue work`, such as "--team team_a --stay 600"
#   HEADGATE_PAUSE_S         seconds before a worker that failed is started again; doubles up to 300 (default 10)
#   HEADGATE                 the program, when `headgate` is not on the PATH of the node
set -u

say() { printf '%s eval.sh[%s]: %s\n' "$(date +%FT%T)" "${SLURM_JOB_ID:-$$}" "$*"; }
stop() { say "$*" >&2; exit 2; }

url=${HEADGATE_JOBQUEUE_URL:-${JOB_QUEUE_URL:-}}
[ -n "$url" ] || stop "HEADGATE_JOBQUEUE_URL is not set: export the queue's address before sbatch"
[ -n "${HEADGATE_EVAL_COMMAND:-}" ] || stop "HEADGATE_EVAL_COMMAND is not set: export the command that evaluates a job"
export HEADGATE_JOBQUEUE_URL=$url

FIRST_PAUSE=${HEADGATE_PAUSE_S:-10}
LONGEST_PAUSE=300
LONG_RUN=600 # a worker that ran so long did not fail for the same reason as the one before it

running="" # process id of the worker, or of the pause before the next one
is_ending=""

# `scancel`, preemption and the end of the time limit: the worker gives its job back and leaves.
end() {
  is_ending=yes
  say "told to end; the worker gives its job back"
  [ -z "$running" ] || kill -TERM "$running" 2>/dev/null
}
trap end TERM INT

# A trap ends `wait` before the process has ended, so that it is waited for again.
run() { # run COMMAND…: its exit status
  local status
  "$@" &
  running=$!
  [ -z "$is_ending" ] || kill -TERM "$running" 2>/dev/null
  while :; do
    wait "$running"
    status=$?
    kill -0 "$running" 2>/dev/null || break
  done
  running=""
  return "$status"
}

pause=$FIRST_PAUSE
while [ -z "$is_ending" ]; do
  started=$SECONDS
  # shellcheck disable=SC2086 # the options are words
  run "${HEADGATE:-headgate}" jobqueue work --url "$url" --command "$HEADGATE_EVAL_COMMAND" ${HEADGATE_EVAL_OPTIONS:-}
  status=$?
  [ -z "$is_ending" ] || break
  if [ "$status" = 0 ]; then
    say "the queue has no more work for this worker"
    exit 0
  fi
  [ "$((SECONDS - started))" -lt "$LONG_RUN" ] || pause=$FIRST_PAUSE
  say "the worker ended with status $status; the next one starts in $pause s"
  run sleep "$pause"
  pause=$((pause * 2 < LONGEST_PAUSE ? pause * 2 : LONGEST_PAUSE))
done
say "ended"
exit 0
