#!/bin/sh
# coremltools_env.sh PYTHON FOLDER: exits 0 when PYTHON has the coremltools that the tests want; makes it as a virtual
# environment in FOLDER first when it does not exist.
set -e
python=$1 folder=$2
requirements=$(dirname "$0")/requirements-coreml.txt
if [ ! -x "$python" ]; then
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet -r "$requirements"
fi
"$python" -c '
import coremltools.libmodelpackage, coremltools.libmilstoragepython
from importlib.metadata import version
assert version("coremltools") == "9.0", version("coremltools")' 2>/dev/null ||
  { echo "$python: no coremltools 9.0 with its native modules; see tools/requirements-coreml.txt" >&2; exit 1; }
