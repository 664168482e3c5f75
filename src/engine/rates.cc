#include "engine/rates.h"

#include "engine/shapes.h"

namespace pd {
namespace {

PhaseRates RatesOf(int tokens, double flops, double bytes, double ms, const DeviceLimits& limits) {
  return {RatesAgainst(flops, bytes, ms, limits), ms > 0 ? tokens / (ms / 1000) : 0};
}

}  // namespace

double PeakFlops(const PhysicalDevice& device, int threads) {
  if (device.kind != PhysicalDevice::Kind::kCpu) return 0;
  // A tile unit, with 1024 multiply-adds of 8 bits a cycle, is the most that our kernels ask of any core, and
  // no core runs above 6 GHz. `bench` measures what this machine's do.
  return 2 * 1024 * 6e9 * threads;
}

double LayerBytes(const ModelSpec& spec, size_t weight_bytes) {
  const double layers = CountLayerParameters(spec), head = double(spec.vocab) * spec.width;
  return double(weight_bytes) * layers / (layers + head);
}

double KvBytes(const ModelSpec& spec, const Cost& cost, const DeviceInfo& device) {
  double values_per_token = 0;
  for (const LayerSpec& layer : spec.layers) values_per_token += 2.0 * layer.attn.kv_width();
  return cost.kv_values * double(device.kv_bytes_per_token) / values_per_token;
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
  const double bytes = double(device.weight_bytes) * stats.decode_tokens + KvBytes(spec, cost, device);
  return RatesOf(stats.decode_tokens, cost.flops, bytes, stats.decode_ms, {peak_flops, bandwidth});
}

}  // namespace pd
