#!/usr/bin/env bash
# The CustomResourceDefinitions that versions.env pins into .deps/kubernetes, for the tests of the
# manifests (tests/oracle/manifest_test.cpp). Where they cannot be fetched those tests are skipped,
# so that it is no failure.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

# fetch URL SHA256 FILE
fetch() {
  curl -fsSL --connect-timeout 10 --max-time 120 -o "$3" "$1" && sha256sum -c --quiet - <<<"$2  $3"
}

partial=$DEPS/kubernetes.partial wanted="$JOBSET_CRD_SHA256 $PYTORCHJOB_CRD_SHA256"
if [[ $(cat "$DEPS/kubernetes/.levin-complete" 2>/dev/null) == "$wanted" ]]; then exit; fi
rm -rf "$partial"
mkdir -p "$partial"
if fetch "$JOBSET_CRD" "$JOBSET_CRD_SHA256" "$partial/jobset.yaml" &&
  fetch "$PYTORCHJOB_CRD" "$PYTORCHJOB_CRD_SHA256" "$partial/pytorchjob.yaml"; then
  printf '%s' "$wanted" >"$partial/.levin-complete"
  rm -rf "$DEPS/kubernetes"
  mv "$partial" "$DEPS/kubernetes"
else
  rm -rf "$partial"
  say "went on without Kubernetes' definitions: they could not be fetched (the message is above)"
fi
