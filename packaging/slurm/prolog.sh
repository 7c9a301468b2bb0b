#!/bin/bash
# Slurm's Prolog, as root on each node: a directory for the job on the node's disk, which its user alone can enter, with one for the agent.
set -euo pipefail

# Slurm starts this script without variables of the node: a centre names its own place here, in the epilog, and in tierflow.conf.
home=${TIERFLOW_LOCAL:-/local/tierflow}
user=${SLURM_JOB_USER:?Slurm sets it}
job=${SLURM_JOB_ID:?Slurm sets it}

# Root's, all above the job's own: where a user can put links, root would give away what they lead to.
install -d -m 755 -o root -g root "$home" "$home/$user"
if [ -L "$home/$user/$job" ]; then
    logger -t tierflow "job $job of $user: $home/$user/$job is a link, and is not used; remove it"
    exit 1
fi
install -d -m 700 -o "$user" -g "$(id -gn "$user")" "$home/$user/$job"
# By the user: root follows nothing that a user has put there, in an earlier run of the job.
runuser -u "$user" -- mkdir -p -m 700 "$home/$user/$job/agent"
