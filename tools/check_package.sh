#!/usr/bin/env bash
# Builds the sdist, and from it the wheel; installs the wheel in a new environment and uses it from another folder.
set -euo pipefail
python=$(realpath --no-symlinks "${PYTHON:-python3}")
cuda=${CUDA:-cu13}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m build --outdir "$work/dist" "$root" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet "$(echo "$work"/dist/*.whl)[$cuda,emulator]"
cd "$work"
export PATH="$work/venv/bin:$PATH" XDG_CACHE_HOME="$work/cache"
mk --version
mk compile unfused local_recompute row_retained retained --json >compiled.json
mk occupancy row_retained --device h100 --json >occupancy.json
mk verify row_retained --device emulator --rows 2 --width 4096 --submission graph
python - <<'CHECK'
import json
from importlib.resources import files

package = files("megakernel")
assert (package / "py.typed").is_file(), "the wheel lacks py.typed"
assert (package / "frozen.toml").is_file(), "the wheel lacks the frozen configurations"
assert (package / "kernels" / "emulator" / "cuda_host.hpp").is_file(), "the wheel lacks the emulator's headers"
assert (package / "report" / "page.html").is_file(), "the wheel lacks the page's template"
assert (package / "published_h100.toml").is_file(), "the wheel lacks the published figures"
assert len(json.load(open("compiled.json"))) >= 13
CHECK
echo "wheel and sdist: good"
