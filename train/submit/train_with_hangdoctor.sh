#!/usr/bin/env bash
# A training on this host with hangdoctor: an agent and a collector beside torchrun.
#
#   RUN_ID=NAME bash train_with_hangdoctor.sh torchrun --rdzv-id NAME ... (train.submit writes all of it)
set -u

# It has the keys, address and incidents of this job (0700).
FOLDER=${HANGDOCTOR_FOLDER:-$HOME/.hangdoctor/jobs/$RUN_ID}
CONFIG=${HANGDOCTOR_CONFIG:-}            # a hangdoctor.toml with actions (docs/sidecar.md)

[ $# -gt 0 ] || { echo "no command: torchrun and its arguments go behind the script's name" >&2; exit 2; }

SIDECAR=
if [ "${HANGDOCTOR_SIDECAR:-on}" != off ]; then
    hangdoctor sidecar --local --job "$RUN_ID" --folder "$FOLDER" ${CONFIG:+--config "$CONFIG"} &
    SIDECAR=$!
fi

# Puts the probe into every rank; without it (plain torchrun) stalls are detected later and less exactly.
hangdoctor run -- "$@"
CODE=$?

[ -z "$SIDECAR" ] || { kill "$SIDECAR"; wait "$SIDECAR"; } 2>/dev/null
exit "$CODE"
