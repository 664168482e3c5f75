#!/usr/bin/env bash
# Shows that a bare Debian 12 is enough: makes one in a folder, clones this repository's HEAD into it, and runs commands there as root.
#
#   tools/dev/bare_debian.sh FOLDER ['COMMAND'...]
#   tools/dev/bare_debian.sh /srv/bare './dev run --raw -p "The capital of France is"' './dev test'     (the default commands)
#
# FOLDER is made with debootstrap (--variant=minbase: no compiler, no cargo, no python, no git) when it does not exist; an existing
# one is used as the last run left it, so that a second run shows a warm start. The clone in it is new every time. What this machine's
# package managers are told (mirror, proxy, certificates, indexes) is copied in when the script runs. Needs root and debootstrap.
# Nothing of this machine is mounted in the folder but a new /proc and /dev/pts, and that only while a command runs: removing FOLDER
# is safe.
set -euo pipefail

fail() {
  echo "bare_debian: $*" >&2
  exit 1
}

[ $# -ge 1 ] || fail "usage: tools/dev/bare_debian.sh FOLDER ['COMMAND'...]"
[ "$(id -u)" = 0 ] || fail "debootstrap and chroot need root; run this as root"
repository=$(cd "$(dirname "$0")/../.." && pwd -P)
folder=$(realpath -m "$1")
shift
[ $# -gt 0 ] || set -- './dev run --raw -p "The capital of France is"' './dev test'
suite=bookworm

# "URL suite component" of every Debian 12 archive that this machine's apt knows: the release, its updates, its security fixes.
host_archives() {
  # shellcheck disable=SC2016  # apt's own format
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
    awk -v suite="$suite" '($2 == suite || index($2, suite "-") == 1) && $3 == "main"' | sort -u
}

make_bare_system() {
  command -v debootstrap >/dev/null || fail "no debootstrap here; run: apt-get install debootstrap"
  local mirror
  mirror=$(host_archives | awk -v suite="$suite" '$2 == suite { print $1; exit }')
  echo "bare_debian: making $folder" >&2
  debootstrap --variant=minbase "$suite" "$folder" ${mirror:+"$mirror"} >"$folder.log" 2>&1 ||
    fail "debootstrap failed; its log is $folder.log"
  rm "$folder.log"
}

# How this machine reaches its archives and registries; nothing here names one.
copy_network_settings() {
  local file
  cp -L /etc/resolv.conf "$folder/etc/resolv.conf"
  apt-config dump --format '%F "%v";%n' Acquire | grep -Ei '::proxy|::retries|check-(date|valid)' >"$folder/etc/apt/apt.conf.d/90host" || true
  if [ -n "$(host_archives)" ]; then host_archives | sed 's/^/deb /' >"$folder/etc/apt/sources.list"; fi
  for file in /usr/local/share/ca-certificates /etc/pip.conf "$HOME/.config/pip" "$HOME/.pip" "$HOME/.cargo/config.toml"; do
    if [ -e "$file" ]; then
      mkdir -p "$folder$(dirname "$file")"
      cp -rT "$file" "$folder$file"
    fi
  done
}

# The variables that tell pip, cargo, curl and the TLS libraries where to go.
network_variables() {
  env | grep -Ei '^(https?_proxy|no_proxy|all_proxy|PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|CERT|PROXY)|SSL_CERT_(FILE|DIR)|CARGO_(HTTP|NET|SOURCE|REGISTRIES)_[A-Z_]+)=' || true
}

clone_repository() {
  mkdir -p "$folder$HOME"
  rm -rf "${folder:?}$clone"
  git clone --quiet "file://$repository" "$folder$clone"
}

run_inside() {
  local variables
  mapfile -t variables < <(network_variables)
  # shellcheck disable=SC2016  # $0 is the inner shell's
  unshare --mount --pid --fork --mount-proc="$folder/proc" \
    sh -c 'mount -t devpts devpts "$0/dev/pts" && exec "$@"' "$folder" \
    chroot "$folder" /usr/bin/env -i HOME="$HOME" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM="${TERM:-dumb}" \
    LANG=C.UTF-8 "${variables[@]}" bash -c "cd $clone && $1"
}

clone=/opt/pd-engine
[ -e "$folder" ] || make_bare_system
copy_network_settings
clone_repository
for command in "$@"; do
  printf '\n== in %s: %s\n' "$folder" "$command"
  start=$SECONDS
  run_inside "$command" </dev/null || fail "failed with exit code $? after $((SECONDS - start)) s: $command"
  printf '== %d s: %s\n' $((SECONDS - start)) "$command"
done
