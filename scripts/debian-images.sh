#!/usr/bin/env bash
# Builds headgate:local and headgate-postgres:local with podman where no registry is at hand, from Debian's packages. Needs
# root, debootstrap and a mirror of Debian. Variables, all optional:
#
#   DEBIAN_MIRROR  the address of the mirror
#   PIP_CONF       a pip.conf that names your index; `cert = /run/secrets/ca.crt` in it is the file of CA_CRT
#   CA_CRT         certificates that the index is checked with
set -euo pipefail
cd "$(dirname "$0")/.."

base=localhost/headgate-debian:bookworm
if ! podman image exists "$base"; then
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    debootstrap --variant=minbase bookworm "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    tar -C "$root" -c . | podman import - "$base"
fi

for target in python python-build postgres; do
    podman build -f deployments/debian/Dockerfile --build-arg DEBIAN="$base" --target "$target" -t "localhost/headgate-$target:local" .
done
podman build -f deployments/Dockerfile -t localhost/headgate:local \
    --build-arg PYTHON=localhost/headgate-python:local --build-arg PYTHON_BUILD=localhost/headgate-python-build:local \
    ${PIP_CONF:+--secret "id=pip.conf,src=$PIP_CONF"} ${CA_CRT:+--secret "id=ca.crt,src=$CA_CRT"} .
