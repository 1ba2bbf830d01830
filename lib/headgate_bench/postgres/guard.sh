#!/bin/sh
# Runs a PostgreSQL server; stops it and removes its folder when the process that started this script is gone.
# usage: guard.sh FOLDER COMMAND…
# Standard input is a pipe whose other end that process holds; a line on it names the signal that stops the server.
exec 3<&0
folder=$1
shift
"$@" 3<&- </dev/null &
server=$!
{
  read -r signal <&3 || : >"$folder/abandoned"
  # Repeatedly, because a server that is just starting does not handle signals yet.
  while kill -s "${signal:-INT}" "$server"; do sleep 0.1; done
} 2>/dev/null &
watch=$!
wait "$server"
status=$?
kill "$watch" 2>/dev/null
cd /
[ ! -e "$folder/abandoned" ] || rm -rf "$folder"
exit "$status"
