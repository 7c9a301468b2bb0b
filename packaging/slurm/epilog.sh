#!/bin/bash
# Slurm's Epilog, as root on each node: waits until the agents of the job, if there are some, have brought what lies on the node to external
# storage, then removes the job's directory. What cannot be brought in time stays, and is named in the log.
set -uo pipefail

home=${TIERFLOW_LOCAL:-/local/tierflow}
user=${SLURM_JOB_USER:?Slurm sets it}
job=${SLURM_JOB_ID:?Slurm sets it}
# Slurm waits for this script: less than its PrologEpilogTimeout.
patience=${TIERFLOW_DRAIN_SECONDS:-600}
directory=$home/$user/$job

[ -d "$directory" ] || exit 0

drained=true
# The directories that were named as `agent` have the agent's socket.
while IFS= read -r -d '' socket; do
    # By the user: an agent serves no other, and root follows nothing that a user has put there.
    if ! runuser -u "$user" -- timeout "$patience" tierflow agent --stop "$(dirname "$(dirname "$socket")")"; then
        drained=false
    fi
done < <(find "$directory" -xdev -maxdepth 4 -type s -print0)

if $drained; then
    rm -rf --one-file-system -- "$directory"
else
    logger -t tierflow "job $job of $user: $directory is kept, as its agent did not bring all of it in $patience seconds"
fi
# An epilog that fails drains the node.
exit 0
