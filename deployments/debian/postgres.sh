#!/bin/sh
# Makes the database on the first start, from the variables that the official image reads, too, and serves it.
set -eu
user=${POSTGRES_USER:-postgres}
if ! test -s "$PGDATA/PG_VERSION"; then
    mkdir -p "$PGDATA"
    chmod 700 "$PGDATA"
    password=$(mktemp)
    printf '%s\n' "${POSTGRES_PASSWORD:?set the password of the database}" > "$password"
    initdb --username="$user" --pwfile="$password" --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8
    rm "$password"
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    if test "${POSTGRES_DB:-$user}" != postgres; then
        # Not on TCP, so that nobody takes a half-made database for a ready one.
        echo "CREATE DATABASE \"${POSTGRES_DB:-$user}\"" | postgres --single -j postgres > /dev/null
    fi
fi
exec postgres -c listen_addresses='*' "$@"
