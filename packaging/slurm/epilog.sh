#!/bin/bash
# Slurm's Epilog, as root on each node: has the agent of the job, or a new one where Slurm has ended it with the job, bring what it has noted to
# external storage, then removes the job's directory. The directory stays, and the log names it, where that takes too long, and where there
# are versions that no agent knew of.
set -uo pipefail

# Slurm starts this script without variables of the node: a centre names its own places here.
home=${TIERFLOW_LOCAL:-/local/tierflow}
programs=${TIERFLOW_PROGRAMS:-/opt/tierflow/0.1.0/bin}
# Slurm waits for this script: less than its PrologEpilogTimeout.
patience=${TIERFLOW_DRAIN_SECONDS:-600}
user=${SLURM_JOB_USER:?Slurm sets it}
job=${SLURM_JOB_ID:?Slurm sets it}
directory=$home/$user/$job

keep() {
    logger -t tierflow "job $job of $user: $directory is kept, $1"
    # An epilog that fails drains the node.
    exit 0
}

# Says that versions lie where the agent has left no mark, or are newer than its last one.
unknown() {
    local version
    while IFS= read -r -d '' version; do
        [ -e "${version%/*}/served" ] && ! [ "$version" -nt "${version%/*}/served" ] || return 0
    done < <(versions)
    return 1
}

versions() {
    find "$directory" -xdev \( -name '*.tfc' -o -name '*.tfs' -o -name '*.open' \) -print0
}

[ -d "$directory" ] || exit 0

if [ -d "$directory/agent/.tierflow-agent" ]; then
    # By the user: root follows nothing that a user has put there.
    # shellcheck disable=SC2016
    # The agent of the job goes on for a while after it is told to stop, and a new one cannot begin before it has ended.
    drain='"$0/tierflow" agent --stop "$1"; until "$0/tierflow-agent" --exit-when-idle 1 "$1"; do sleep 1; done'
    runuser -u "$user" -- timeout -k 10 "$patience" sh -c "$drain" "$programs" "$directory/agent" >/dev/null ||
        keep "as no agent brought all of it in $patience seconds; $programs/tierflow-agent $directory/agent, as $user, goes on with it"
    if unknown; then
        keep "as no agent knows where some of its versions belong"
    fi
elif [ -n "$(versions | head -c 1 | tr '\0' x)" ]; then
    keep "as no agent knows where its versions belong"
fi
rm -rf --one-file-system -- "$directory"
