#!/bin/sh
# tfrnet serve --on-commit 'sh reload-sglang.sh': export the new generation, let SGLang load it.
# SERVER is SGLang's address, EXPORTS a folder that both can see.
set -eu
out="$EXPORTS/$TFRNET_GENERATION"
[ -d "$out" ] || "${TFRNET:-tfrnet}" export --state "$TFRNET_STATE" --generation "$TFRNET_GENERATION" --out "$out"
curl --fail --silent --show-error "$SERVER/update_weights_from_disk" \
    --header 'Content-Type: application/json' --data "{\"model_path\": \"$out\"}"
