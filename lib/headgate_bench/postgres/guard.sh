#!/bin/sh
# Runs a PostgreSQL server that stops, and whose folder is removed, when the process that started this one is gone.
# usage: guard.sh FOLDER COMMAND…
# Standard input is a pipe whose other end that process holds; a line on it names the signal to stop the server with.
exec 3<&0
folder=$1
shift
"$@" 3<&- </dev/null &
server=$!
{
  read -r signal <&3 || : >"$folder/abandoned"
  # Again and again, because a server that is just starting does not listen to signals yet.
  while kill -s "${signal:-INT}" "$server"; do sleep 0.1; done
} 2>/dev/null &
watch=$!
wait "$server"
status=$?
kill "$watch" 2>/dev/null
cd /
[ ! -e "$folder/abandoned" ] || rm -rf "$folder"
exit "$status"
