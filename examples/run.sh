#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing (Debian, as root or through sudo) and builds the programs into build/examples.
# Usage: sh examples/run.sh --build-only
set -eu
cd "$(dirname "$0")/.."
. examples/setup.sh

# shellcheck disable=SC2086  # lists of words
install_missing $program_packages
configure build -Dtests=disabled -Dexamples=enabled -Dbench=disabled
meson compile -C build
[ "${1-}" != --build-only ] || exit 0
