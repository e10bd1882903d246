#!/usr/bin/env bash
# Tries the two commands as a new user would, on a Debian that has Python and nothing else.
#
#   tests/clean_machine.sh [--release NAME] [--packages "NAME..."] [root|user]... [-- COMMAND...]
#
# Makes the Debian (bookworm, or the release given) with debootstrap, clones this checkout's last commit
# into it, and calls there `./run demo` and `./run test` (or the one COMMAND given) as root, from a folder
# that is closed to everybody else, and as an ordinary user, from a folder with a space in its name. For the
# versions of PostgreSQL and Python that another release has, with what people install beside them:
#
#   tests/clean_machine.sh --release trixie --packages "postgresql-17 postgresql-17-cron
#       postgresql-17-partman postgresql-17-pgvector postgresql-server-dev-17 gcc libc6-dev make" \
#       user -- ./run test --pg 17
#
# Needs root,
# debootstrap and a network. Mounts and processes live in namespaces of their own, which end with
# the script; the Debian is removed at the end.
set -euo pipefail

release=${CLEAN_RELEASE:-bookworm}
packages=${CLEAN_PACKAGES:-}
limit=60m

fail() {
    echo "clean_machine: $1" >&2
    exit 2
}

if [[ -z ${CLEAN_MACHINE:-} ]]; then
    while [[ ${1:-} == --release || ${1:-} == --packages ]]; do
        [[ $# -ge 2 ]] || fail "$1 needs a value."
        [[ $1 == --release ]] && export CLEAN_RELEASE=$2 || export CLEAN_PACKAGES=$2
        shift 2
    done
    [[ $EUID -eq 0 ]] || fail "only root can make another Debian: call it as root."
    command -v debootstrap >/dev/null || fail "debootstrap is missing: install the package debootstrap."
    CLEAN_MACHINE=$(mktemp -d /var/tmp/idivm-clean-XXXXXX)
    export CLEAN_MACHINE
    trap 'rm -rf --one-file-system "$CLEAN_MACHINE"' EXIT
    chmod 755 "$CLEAN_MACHINE"
    status=0
    unshare --mount --pid --fork --kill-child --mount-proc bash "$0" "$@" || status=$?
    exit "$status"
fi

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
machine=$CLEAN_MACHINE
whoms=()
while [[ $# -gt 0 && $1 != -- ]]; do
    [[ $1 == root || $1 == user ]] || fail "$1 is neither root nor user."
    whoms+=("$1")
    shift
done
[[ $# -eq 0 ]] || shift
[[ ${#whoms[@]} -gt 0 ]] || whoms=(root user)

echo "== a Debian $release with nothing but Python"
# The mirror that this machine itself installs from, else debootstrap's own choice.
mirror=$(apt-get indextargets --format "\$(CODENAME) \$(REPO_URI)" "Created-By: Packages" |
    awk -v release="$release" '$1 == release { print $2; exit }')
debootstrap --variant=minbase --include=python3,python3-venv "$release" "$machine" ${mirror:+"$mirror"} \
    >"$machine.log" 2>&1 || { tail -n 5 "$machine.log" >&2; fail "debootstrap failed."; }
rm -f "$machine.log"
mount -t proc proc "$machine/proc"
mount -t tmpfs -o mode=1777 tmpfs "$machine/dev/shm"
cp /etc/resolv.conf /etc/hosts "$machine/etc/"

# What this machine tells pip about indexes and certificates, told there by the environment.
settings=()
while IFS= read -r -d '' setting; do
    settings+=("$setting")
done < <(python3 - <<'PYTHON'
import ast
import os
import subprocess
import sys

found = {}
listed = subprocess.run(
    [sys.executable, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, text=True
).stdout
for line in listed.splitlines():
    name, _, value = line.partition("=")
    section, _, option = name.rpartition(".")
    if section in ("global", "install"):
        found["PIP_" + option.upper().replace("-", "_")] = ast.literal_eval(value)
found.update(
    (name, value)
    for name, value in os.environ.items()
    if name.startswith("PIP_") or name.lower().endswith("_proxy")
    or name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
)
for name, value in found.items():
    # A newcomer has no folders full of packages or certificates.
    words = [word for word in value.split() if not os.path.isdir(word.removeprefix("file://"))]
    if words:
        sys.stdout.write(f"{name}={' '.join(words)}\0")
PYTHON
)
# The files that these settings name, such as certificates, lie at the same place there.
for setting in "${settings[@]}"; do
    for path in ${setting#*=}; do
        if [[ $path == /* && -f $path ]]; then
            mkdir -p "$machine$(dirname "$path")"
            cp -L "$path" "$machine$path"
        fi
    done
done

if [[ -n $packages ]]; then
    echo "== and $packages"
    mkdir -p "$machine/etc/postgresql-common"
    echo "create_main_cluster = false" >"$machine/etc/postgresql-common/createcluster.conf"
    # What this machine installs packages by, such as a proxy, holds there too.
    cp -r /etc/apt/apt.conf.d/. "$machine/etc/apt/apt.conf.d/" 2>/dev/null || true
    chroot "$machine" apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive chroot "$machine" apt-get install -y -qq --no-install-recommends $packages \
        >"$machine.log" 2>&1 || { tail -n 5 "$machine.log" >&2; fail "the packages could not be installed."; }
    rm -f "$machine.log"
fi

chroot "$machine" useradd --create-home --shell /bin/sh newcomer

inside() { # WHO HOME FOLDER COMMAND...
    local who=$1 home=$2 folder=$3
    shift 3
    echo "== as $who, in $folder: $*"
    timeout --kill-after=10s "$limit" chroot --userspec="$who:" "$machine" \
        env -i HOME="$home" USER="$who" PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 "${settings[@]}" \
        /bin/sh -c 'cd "$1" && shift && exec "$@"' sh "$folder" "$@" </dev/null
}

for whom in "${whoms[@]}"; do
    if [[ $whom == root ]]; then
        who=root home=/root folder=/root/idivm
        chmod 700 "$machine/root"
    else
        who=newcomer home=/home/newcomer folder="/home/newcomer/my idivm"
    fi
    git clone --quiet --no-hardlinks "$checkout" "$machine$folder"
    chroot "$machine" chown -R "$who:" "$folder"
    if [[ $# -gt 0 ]]; then
        inside "$who" "$home" "$folder" "$@"
    else
        inside "$who" "$home" "$folder" ./run demo
        inside "$who" "$home" "$folder" ./run test
    fi
done
echo "== it works on a machine with nothing but Python"
