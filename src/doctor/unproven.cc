#include "doctor/unproven.h"

#include <algorithm>

#include "base/error.h"

namespace pd {
namespace {

constexpr Claim kClaims[] = {
    {1, "builds", "./dev run --raw -p \"The capital of France is\", from a fresh clone"},
    {2, "tests", "./dev test"},
    {3, "cpu_bits", "./dev test"},
    {4, "cpu_speed", "pd-engine run prints it"},
    {5, "compile", ""},
    {6, "placement", ""},
    {7, "attention_form", "this report of bundles exported with --attention heads, channels and grouped"},
    {8, "weight_format", ""},
    {9, "streaming_notch", "this report of a bundle with 4096 x 4096 projections, beside one without"},
    {10, "shard_size", ""},
    {11, "compile_time", ""},
    {12, "numerics", ""},
    {13, "mlx_tests", "./dev test"},
    {14, "mlx_kernels", "mlx_bench --check --weights q4, as bench/device/README.md says"},
    {15, "mlx_cache_writes", "the same"},
    {16, "handoff", ""},
    {17, "gpu_speed", ""},
    {18, "undocumented_ops", "tests/coreml/interpreter/cases.py ops, its packages predicted on a Mac"},
    {19, "runtime_calls", "pd-engine run --prefill coreml, after pd-engine export"},
    {20, "offered_memory", "the same; copies and distrusted strides in this report are 0"},
    {21, "input_strides", "the same with a prompt longer than one chunk, against ane-reference"},
    {22, "trial_process", "the same: the time of the trial and of the load after it"},
    {23, "engagement_limits", "this report: shares and both times of each function"},
    {24, "resident_functions",
     "pd-engine run --prefill coreml --decode mlx with a long prompt, beside Activity Monitor"},
    {25, "os_update", "the first start after an update of macOS says that it compiles"},
    {26, "error_codes",
     "damage model.mlmodelc in the folder of compiled models, keeping sizes: the next run compiles anew"},
    {27, "imported_memory", "pd-engine run --prefill coreml --decode mlx: the rate of the handoff"},
    {28, "engagement", ""},
    {29, "prefill_speed", ""},
    {30, "overlap", ""},
    {31, "energy", ""},
    {32, "chip_figures", "pd-engine calibrate, then pd-engine plan --chip PROFILE beside plan --chip NAME"},
    {33, "crossing", "pd-engine calibrate --decode mlx"},
    {34, "energy_meter",
     "pd-engine doctor names the meters; pd-engine run with a long prompt, beside sudo powermetrics "
     "--samplers "
     "cpu_power,gpu_power,ane_power"},
    {35, "nvidia_energy", "pd-engine run --decode mlx --json on a machine with two NVIDIA GPUs"},
};

}  // namespace

std::span<const Claim> Claims() { return kClaims; }

const Claim& FindClaim(std::string_view name) {
  const auto* found = std::ranges::find(kClaims, name, &Claim::name);
  PD_CHECK(found != std::end(kClaims));
  return *found;
}

}  // namespace pd
