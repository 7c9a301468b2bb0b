#!/bin/bash
# Slurm's Prolog, as root on each node: a directory for the job on the node's disk, which its user alone can enter.
set -euo pipefail

home=${TIERFLOW_LOCAL:-/local/tierflow}
user=${SLURM_JOB_USER:?Slurm sets it}
job=${SLURM_JOB_ID:?Slurm sets it}

install -d -m 755 "$home"
install -d -m 700 -o "$user" -g "$(id -gn "$user")" "$home/$user" "$home/$user/$job"
