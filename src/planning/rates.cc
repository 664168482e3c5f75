#include "planning/rates.h"

#include "planning/shapes.h"

namespace pd {
namespace {

PhaseRates RatesOf(int tokens, double flops, double bytes, double ms, const DeviceLimits& limits) {
  return {RatesAgainst(flops, bytes, ms, limits), ms > 0 ? tokens / (ms / 1000) : 0};
}

}  // namespace

double PeakFlops(const PhysicalDevice& device, int threads) {
  if (device.kind != PhysicalDevice::Kind::kCpu) return 0;
  // The fastest unit our kernels use is a tile unit with 1024 8-bit multiply-adds a cycle, and no core runs
  // above 6 GHz. `bench` measures this machine's own peak.
  return 2 * 1024 * 6e9 * threads;
}

double LayerBytes(const ModelSpec& spec, size_t weight_bytes) {
  const double layers = CountLayerParameters(spec), head = double(spec.vocab) * spec.width;
  return double(weight_bytes) * layers / (layers + head);
}

double KvBytes(const Cost& cost, const DeviceInfo& device) {
  return cost.kv_values * double(RowBytes(device.memory.kv, 1));
}

PhaseRates PrefillRates(const ModelSpec& spec, const RequestStats& stats, double peak_flops) {
  if (stats.prefill_tokens == 0) return {};
  const Cost cost = CostOf(spec, stats.cached_tokens, stats.prefill_tokens, 0);
  return RatesOf(stats.prefill_tokens, cost.flops, 0, stats.prefill_ms, {peak_flops, 0});
}

PhaseRates DecodeRates(const ModelSpec& spec, const RequestStats& stats, const DeviceInfo& device,
                       double peak_flops, double bandwidth) {
  if (stats.decode_tokens == 0) return {};
  const int prompt = stats.cached_tokens + stats.prefill_tokens + stats.tail_tokens;
  const Cost cost = CostOf(spec, prompt, stats.decode_tokens, stats.decode_tokens);
  const double bytes = double(device.weight_bytes) * stats.decode_tokens + KvBytes(cost, device);
  return RatesOf(stats.decode_tokens, cost.flops, bytes, stats.decode_ms, {peak_flops, bandwidth});
}

}  // namespace pd
