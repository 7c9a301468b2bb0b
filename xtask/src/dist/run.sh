#!/usr/bin/env bash
# Runs the tests, benches and examples of Tierflow on a machine without Rust.
# Written by `cargo xtask dist`; kernels are inside the binaries, so this folder is all there is.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")"
here=$PWD
shopt -s nullglob

usage() {
    cat <<'TEXT'
run.sh tests [ARG…]            every test that needs no GPU; ARGs go to each test binary
run.sh gpu-tests [ARG…]        the tests that need a GPU, one at a time
run.sh bench [--quick] [NAME…] benches and experiments; report in ./report
run.sh example NAME [ARG…]     one example
run.sh campaigns [ARG…]        the campaigns over every door, with python3; TIERFLOW_HISTORIES and others say how long
TEXT
    printf 'examples:'; printf ' %s' examples/*; echo
    exit 2
}

facts() {
    echo "== machine"
    uname -sr
    awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo
    echo "$(nproc) cores, $(awk '/^MemTotal/ { printf "%.1f", $2 / 1048576 }' /proc/meminfo) GiB of memory"
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi -L
        nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u | sed 's/^/driver /'
    else
        echo "no nvidia-smi"
    fi
}

# Runs the command and remembers that it failed, so that one failure does not hide the next.
failed=()
try() {
    echo "== $*"
    "$@" || failed+=("$1")
}

finish() {
    if ((${#failed[@]})); then
        echo "FAILED: ${failed[*]}"
        exit 1
    fi
    echo "all passed"
}

[ $# -gt 0 ] || usage
command=$1
shift
case $command in
tests)
    facts
    for test in tests/*; do try "$test" "$@"; done
    finish
    ;;
gpu-tests)
    facts
    ran=0
    gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
    for test in tests/*; do
        # Tests that need two are in files of that name.
        if [[ $test == *.two_gpus ]] && ((gpus < 2)); then
            echo "not run: $test needs two GPUs, and this machine has $gpus"
            continue
        fi
        # Only tests that need a GPU are ignored; `cargo xtask tidy` sees to it.
        if [ -n "$("$test" --list --ignored --format terse)" ]; then
            try "$test" --ignored --test-threads=1 "$@"
            ran=$((ran + 1))
        fi
    done
    ((ran)) || { echo "no binary here has a test that needs a GPU"; exit 1; }
    finish
    ;;
bench)
    facts
    quick=()
    criterion=()
    names=()
    for arg in "$@"; do
        case $arg in
        --quick)
            quick=(--quick)
            criterion=(@QUICK_CRITERION@)
            ;;
        *) names+=("$arg") ;;
        esac
    done
    # Without a name everything runs; with names, the benches and the experiments so called.
    chosen() { ((${#names[@]} == 0)) || [[ " ${names[*]} " == *" $1 "* ]]; }
    experiments=()
    for bench in benches/*; do
        name=${bench#benches/}
        chosen "$name" || continue
        try "$bench" --bench "${criterion[@]}"
    done
    for name in "${names[@]}"; do
        [ -x "benches/$name" ] || experiments+=("$name")
    done
    if ((${#experiments[@]})) || { ((${#names[@]} == 0)) && [ -x bin/experiments ]; }; then
        try bin/experiments all "${quick[@]}" --out report "${experiments[@]}"
    fi
    finish
    ;;
example)
    [ $# -gt 0 ] && [ -x "examples/$1" ] || usage
    facts
    name=$1
    shift
    cd "$from" # paths in the arguments are the caller's
    exec "$here/examples/$name" "$@"
    ;;
campaigns)
    facts
    export TIERFLOW_CHILDREN=$here/campaigns PYTHONPATH=$here/campaigns
    export TIERFLOW_PYTHON=${TIERFLOW_PYTHON:-python3} TIERFLOW_JOBS=${TIERFLOW_JOBS:-$(nproc)}
    # All campaigns side by side: they share the room for histories.
    exec tests/tierflow-campaigns.campaigns --nocapture --test-threads=16 "$@"
    ;;
*) usage ;;
esac
