#!/usr/bin/env bash
# The chat templates of models that the Python package trl holds, into .deps/chat_templates: the wheel is unpacked,
# not installed. Pip refuses a file with another checksum. Where it cannot be fetched the tests that need them are skipped.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
version=1.16.0
hash=c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396
folder=$DEPS/chat_templates
if [[ $(cat "$folder/.levin-complete" 2>/dev/null) == "$version" ]]; then exit 0; fi
say "fetching the chat templates of trl $version"
rm -rf "$folder" "$folder.new"
mkdir -p "$folder.new"
echo "trl==$version --hash=sha256:$hash" >"$folder.new/requirements.txt"
"$DEPS/oracle/bin/python" -m pip download -qq --no-deps --require-hashes -d "$folder.new" -r "$folder.new/requirements.txt" ||
  {
    rm -rf "$folder.new"
    say "went on without the chat templates of trl: pip could not fetch them (its message is above)"
    exit 0
  }
"$DEPS/oracle/bin/python" - "$folder.new" <<'PY'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
    for name in wheel.namelist():
        if name.startswith("trl/chat_templates/") and name.endswith(".jinja"):
            (folder / pathlib.Path(name).name).write_bytes(wheel.read(name))
PY
rm "$folder.new"/*.whl
echo "$version" >"$folder.new/.levin-complete"
mv "$folder.new" "$folder"
