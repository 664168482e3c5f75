# shellcheck shell=bash disable=SC2154,SC2034  # variables shared with ./dev
# The stages of ./dev test and ./dev check: run in order, timed, the first failure ends the run. A stage is a function stage_NAME,
# run in the repository's root; one that changes the path is a subshell.

# Minutes we allow a stage on 2 cores: with an empty compiler cache, and with a full one.
stage_budget() {
  case $1 in
    build) echo "12 cold, 2 warm" ;;
    tests) echo "10 cold, 8 warm" ;;
    sanitizers) echo "10 cold, 6 warm" ;;
    fuzz) echo "3 cold, 2 warm" ;;
    macos) echo "6 cold, 2 warm" ;;
    *) echo "" ;;
  esac
}

stage_dependencies() {
  install_packages build rust pip test
  # shellcheck source=tools/dev/default_model.sh
  . "$root/tools/dev/default_model.sh"
  fetch_default_model
}

stage_style() (
  llvm_on_path
  python3 tools/check_style.py --require-tools
)

stage_build() {
  configure release
  # MLX on its processor backend stands in for a GPU. On a Mac the product has MLX anyway.
  if [ "$(uname)" != Darwin ]; then (cd "$root" && cmake build/release -DPD_MLX=cpu >/dev/null) || fail "no MLX, see above"; fi
  build_targets release all
}

stage_tests() {
  ctest_closing_last release
}

stage_check() {
  # shellcheck source=tools/dev/default_model.sh
  . "$root/tools/dev/default_model.sh"
  fetch_gemma3_model
  ctest_closing_last check
}

stage_sanitizers() {
  local preset
  for preset in asan tsan; do
    build_targets "$preset"
    ctest --preset "$preset" --parallel "$(cores)"
  done
}

stage_fuzz() (
  llvm_on_path
  build_fuzz
  ctest --preset fuzz --parallel "$(cores)"
)

stage_macos() {
  if [ "$(uname)" = Darwin ]; then
    note "this is a Mac, and the build before was for it"
    return
  fi
  # shellcheck source=tools/dev/macos.sh
  . "$root/tools/dev/macos.sh"
  build_for_macos
}

stage_tidy() {
  # shellcheck source=tools/dev/tidy.sh
  . "$root/tools/dev/tidy.sh"
  install_packages check
  tidy_all
}

# ctest PRESET, its closing lines kept for the end of our output.
closing_lines=build/closing-lines
ctest_closing_last() {
  ctest --preset "$1" --parallel "$(cores)" 2>&1 | withhold_closing_lines
}

withhold_closing_lines() {
  local line closing=
  while IFS= read -r line; do
    case $line in [0-9]*'% tests passed, '*) closing=1 ;; esac
    if [ -n "$closing" ]; then
      printf '%s\n' "$line" >>"$closing_lines"
    else
      printf '%s\n' "$line"
    fi
  done
}

minutes() { printf '%d.%d' $(($1 / 60)) $(($1 % 60 / 6)); }

stage_times=
record_stage() {
  stage_times+=$(printf '%-14s%6s min   %s' "$current_stage" "$(minutes $((SECONDS - stage_start)))" "$1")$'\n'
}

# Runs on every exit: the table of times, then what ctest closed with.
close_stages() {
  local status=$?
  [ -z "$current_stage" ] || record_stage "FAILED"
  printf '\n%s%-14s%6s min\n' "$stage_times" total "$(minutes $((SECONDS - first_start)))"
  case $current_stage in
    "" | tests | check) if [ -s "$closing_lines" ]; then echo && cat "$closing_lines"; fi ;;
  esac
  if [ "$status" != 0 ]; then
    note "stage $current_stage failed"
    exit 1
  fi
}

run_stages() {
  cd "$root" || exit
  mkdir -p build
  rm -f "$closing_lines"
  first_start=$SECONDS
  current_stage=
  trap close_stages EXIT
  local stage budget
  for stage in "$@"; do
    current_stage=$stage
    stage_start=$SECONDS
    printf '\n== %s\n' "$stage"
    "stage_$stage"  # never in a condition: that would switch off `set -e` inside
    budget=$(stage_budget "$stage")
    record_stage "${budget:+(allowed: $budget)}"
    current_stage=
  done
}
