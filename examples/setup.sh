# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034  # sourced
# Sourced by examples/run.sh and tests/run.sh from the project's folder: installs what is missing, configures a build.

die() {
  echo "$*" >&2
  exit 1
}

# missing PACKAGE:PROBE...: prints the packages whose probe fails. A probe is a file, or a command on PATH.
missing() {
  for pair in "$@"; do
    package=${pair%%:*}
    probe=${pair#*:}
    case $probe in
      /*) for found in $probe; do [ -e "$found" ] || printf ' %s' "$package"; break; done ;;
      *) command -v "$probe" >/dev/null 2>&1 || printf ' %s' "$package" ;;
    esac
  done
}

# What the library's programs need, and what its tests need on top.
program_packages='g++:g++ meson:meson ninja-build:ninja pkg-config:pkg-config
  libcli11-dev:/usr/include/CLI/CLI.hpp rapidjson-dev:/usr/include/rapidjson/reader.h
  libfmt-dev:/usr/include/fmt/format.h libboost-dev:/usr/include/boost/interprocess/mapped_region.hpp'
test_packages='doctest-dev:/usr/include/doctest/doctest.h cmake:cmake clang:clang++
  libclang-rt-14-dev:/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-*.a
  libomp-dev:/usr/lib/llvm-*/lib/libomp.so openmpi-bin:mpirun libopenmpi-dev:mpicxx python3-pip:/usr/bin/pip3
  valgrind:valgrind'

# install_missing PACKAGE:PROBE...: nothing to do is the usual case, and then nothing is asked of apt.
install_missing() {
  packages=$(missing "$@")
  [ -n "$packages" ] || return 0
  command -v apt-get >/dev/null 2>&1 ||
    die "Missing here, by their Debian names:$packages
This machine has no apt-get: install them its own way, then run this again."
  as_root=''
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 ||
      die "These Debian packages are missing:$packages
Installing them needs root or sudo, and neither is here. As root:  apt-get install$packages"
    as_root=sudo
  fi
  echo "Installing:$packages"
  log=$(mktemp)
  # A package list that cannot be refreshed may still be good enough.
  $as_root apt-get update >"$log" 2>&1 || echo 'apt-get update failed; going on with the lists that are here' >&2
  # shellcheck disable=SC2086  # a list of words
  if ! $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends $packages </dev/null >>"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    die "apt-get could not install:$packages"
  fi
  rm -f "$log"
  packages=$(missing "$@")
  [ -z "$packages" ] || die "Installed, but still not found:$packages"
}

# configure FOLDER OPTION...: a new build folder, or the old one with these options, made anew where Meson cannot reuse
# it.
configure() {
  folder=$1
  shift
  fresh=''
  if [ -d "$folder/meson-private" ]; then
    meson setup --reconfigure "$folder" "$@" >"$folder/configure.log" 2>&1 && return 0
    fresh=--wipe
  elif [ -n "$(ls -A "$folder" 2>/dev/null)" ]; then
    die "$folder is not empty and no build folder of Meson: move it away"
  fi
  log=$(mktemp)
  # shellcheck disable=SC2086  # one word or none
  if meson setup $fresh "$folder" "$@" >"$log" 2>&1; then
    rm -f "$log"
  else
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
}
