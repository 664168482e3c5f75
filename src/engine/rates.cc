#include "engine/rates.h"

#include <fmt/format.h>

#include "engine/shapes.h"

namespace pd {
namespace {

double PerSecond(double amount, double ms) { return ms > 0 ? amount / (ms / 1000) : 0; }

void CheckFlops(PhaseRates& rates, double peak) {
  if (peak > 0 && rates.flops_per_s > peak)
    rates.impossible = fmt::format("{:.4g} TFLOP/s, this device cannot exceed {:.4g}",
                                   rates.flops_per_s / 1e12, peak / 1e12);
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
  PhaseRates rates;
  if (stats.prefill_tokens == 0) return rates;
  rates.tokens_per_s = PerSecond(stats.prefill_tokens, stats.prefill_ms);
  rates.flops_per_s =
      PerSecond(CostOf(spec, stats.cached_tokens, stats.prefill_tokens, 0).flops, stats.prefill_ms);
  CheckFlops(rates, peak_flops);
  return rates;
}

PhaseRates DecodeRates(const ModelSpec& spec, const RequestStats& stats, const DeviceInfo& device,
                       double peak_flops, double bandwidth) {
  PhaseRates rates;
  if (stats.decode_tokens == 0) return rates;
  const int prompt = stats.cached_tokens + stats.prefill_tokens + stats.tail_tokens;
  const Cost cost = CostOf(spec, prompt, stats.decode_tokens, stats.decode_tokens);
  const double bytes = double(device.weight_bytes) * stats.decode_tokens + KvBytes(spec, cost, device);
  rates.tokens_per_s = PerSecond(stats.decode_tokens, stats.decode_ms);
  rates.flops_per_s = PerSecond(cost.flops, stats.decode_ms);
  rates.bytes_per_s = PerSecond(bytes, stats.decode_ms);
  CheckFlops(rates, peak_flops);
  if (bandwidth > 0) {
    rates.bandwidth_used = rates.bytes_per_s / bandwidth;
    if (rates.bandwidth_used > kBandwidthDoubt)
      rates.impossible = fmt::format("{:.4g} GB/s, this machine reads {:.4g} from a working set of that size",
                                     rates.bytes_per_s / 1e9, bandwidth / 1e9);
  }
  return rates;
}

}  // namespace pd
