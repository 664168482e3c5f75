// How fast the MLX device decodes and prefills, on models of a published shape with random weights.
//
//   mlx_bench --shape tiny --weights q4 --batch 1,8,32 --prefill 512,4096
//   mlx_bench --shape tiny --weights q4 --split 4096      prefill on the processor while the device decodes
//   mlx_bench --check --weights q4 --activations f16      our kernels against MLX's operations, on this
//   device
//
// One JSON object a line. Every rate is of work that has been waited for, the median of --repeat runs after a
// warm-up; gb_per_s counts weights and the keys and values attended, and stands beside what the device reads
// at most, measured first.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/percentile.h"
#include "bench/device/random_model.h"
#include "cpu/cpu_device.h"
#include "device/local_device.h"
#include "device/prefill_via.h"
#include "mlx/gpu_kernels.h"
#include "mlx/mlx_backend.h"
#include "mlx/mlx_device.h"

namespace pd::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Spread {
  double median = 0, lowest = 0, highest = 0;
};
Spread Of(std::vector<double> values) {
  std::ranges::sort(values);
  return {Percentile(values, 50), values.front(), values.back()};
}

struct Options {
  std::string shape = "tiny", weights = "q4", activations = "f16";  // the last for --check
  std::vector<int> batches = {1, 8, 32}, prefills = {512, 4096};
  int context = 512, tokens = 128, repeat = 5, split = 0, cpu_threads = 0;
  bool check = false;
};

// Bytes a second that the device reads at most, from an array far larger than its caches.
double ReadBandwidth() {
  std::vector<double> rates;
  if (mx::default_device() == mx::Device::gpu) {
    const mx::array big = mx::ones({1 << 30}, mx::float16);
    for (int i = 0; i < 6; ++i) {
      const auto start = Clock::now();
      mx::array largest = mx::max(big);
      largest.eval();
      if (i > 0) rates.push_back(double(big.nbytes()) / Since(start));
    }
  } else {
    std::vector<uint64_t> big(size_t(1) << 25, 1);
    for (int i = 0; i < 5; ++i) {
      const auto start = Clock::now();
      const uint64_t sum = std::accumulate(big.begin(), big.end(), uint64_t(0));
      if (sum != big.size()) throw Fail(ErrorKind::kDevice, "memory does not hold what was written to it");
      rates.push_back(double(big.size() * sizeof(uint64_t)) / Since(start));
    }
  }
  return Of(rates).highest;
}

// Steps of `batch` sequences, each at its own position, sampled greedily on the device and submitted one
// ahead.
class Decoder {
 public:
  Decoder(DecodeDevice& device, int batch, int capacity) : device_(device) {
    for (int i = 0; i < batch; ++i) slots_.push_back(device.Open(capacity, {}));
    rules_.resize(size_t(batch));
    rows_.resize(size_t(batch));
    std::iota(rows_.begin(), rows_.end(), 0);
  }
  ~Decoder() {
    for (SlotId slot : slots_) {
      try {
        device_.Close(slot);
      } catch (const Error&) {  // NOLINT(bugprone-empty-catch): after a failure, which is reported already
      }
    }
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  void Prefill(int tokens) {
    for (SlotId slot : slots_) {
      device_.Truncate(slot, 0);
      Feed(slot, tokens);
    }
    ids_.assign(slots_.size(), 7);
    pos_.assign(slots_.size(), tokens);
  }

  // Seconds that `steps` steps take. `stop` ends them early; *done is how many there were.
  double Run(int steps, const std::atomic<bool>* stop = nullptr, int* done = nullptr) {
    const auto start = Clock::now();
    StepId running = Submit();
    int count = 1;
    for (; count < steps && !(stop && stop->load()); ++count) {
      ids_.assign(slots_.size(), kLastSampled);
      const StepId next = Submit();
      device_.Collect(running);
      running = next;
    }
    device_.Collect(running);
    if (done) *done = count;
    return Since(start);
  }

  // Microseconds that the host takes to put a step together and hand it over, the mean since the last call.
  double TakeSubmitMicroseconds() {
    const double mean = submits_ > 0 ? 1e6 * submit_seconds_ / submits_ : 0;
    submit_seconds_ = 0, submits_ = 0;
    return mean;
  }

  // Seconds that a prompt of `tokens` takes in one slot, keys and values only.
  double TimePrefill(int tokens) {
    device_.Truncate(slots_[0], 0);
    const auto start = Clock::now();
    Feed(slots_[0], tokens);
    return Since(start);
  }

 private:
  void Feed(SlotId slot, int tokens) {
    std::optional<StepId> running;
    for (int at = device_.Length(slot); at < tokens;) {
      const int n = std::min(device_.Info().max_rows, tokens - at);
      std::vector<TokenId> ids(static_cast<size_t>(n));
      std::vector<int32_t> pos(static_cast<size_t>(n));
      for (int i = 0; i < n; ++i) ids[size_t(i)] = TokenId((at + i) * 31 % 4000), pos[size_t(i)] = at + i;
      const std::vector<SlotId> slots(static_cast<size_t>(n), slot);
      const StepId step = device_.Submit({{ids, pos, slots, {}}, {}});
      if (running) device_.Collect(*running);
      running = step;
      at += n;
    }
    if (running) device_.Collect(*running);
  }

  StepId Submit() {
    const auto start = Clock::now();
    const StepId step = device_.Submit({{ids_, pos_, slots_, rows_}, rules_});
    submit_seconds_ += Since(start), ++submits_;
    for (int32_t& p : pos_) ++p;
    return step;
  }

  DecodeDevice& device_;
  std::vector<SlotId> slots_;
  std::vector<SampleSpec> rules_;
  std::vector<int32_t> rows_, pos_;
  std::vector<TokenId> ids_;
  double submit_seconds_ = 0;
  int submits_ = 0;
};

double PeakGb() { return double(mx::get_peak_memory()) / 1e9; }

void Decode(const RandomModel& model, DecodeDevice& device, const Options& options, double bandwidth) {
  for (int batch : options.batches) {
    Decoder decoder(device, batch, options.context + options.tokens + 1);
    const auto first = Clock::now();
    decoder.Prefill(options.context);
    decoder.Run(4);
    decoder.TakeSubmitMicroseconds();
    const double warm_up = Since(first);
    std::vector<double> rates;
    for (int i = 0; i < options.repeat; ++i) {
      decoder.Prefill(options.context);
      decoder.Run(2);
      rates.push_back(batch * (options.tokens - 2) / decoder.Run(options.tokens - 2));
    }
    const Spread rate = Of(rates);
    const double keys = options.context + options.tokens / 2.;
    const double step_bytes =
        double(device.Info().weight_bytes) + batch * keys * double(device.Info().kv_bytes_per_token);
    const double bytes = rate.median / batch * step_bytes;
    fmt::print(R"({{"model": "{}", "what": "decode", "batch": {}, "context": {}, "tokens_per_s": {:.1f}, )"
               R"("lowest": {:.1f}, "highest": {:.1f}, "gb_per_s": {:.0f}, "percent_of_bandwidth": {:.1f}, )"
               R"("submit_us": {:.0f}, "warm_up_s": {:.2f}, "peak_gb": {:.2f}}})"
               "\n",
               model.name, batch, options.context, rate.median, rate.lowest, rate.highest, bytes / 1e9,
               100 * bytes / bandwidth, decoder.TakeSubmitMicroseconds(), warm_up, PeakGb());
  }
}

void Prefill(const RandomModel& model, DecodeDevice& device, const Options& options) {
  for (int tokens : options.prefills) {
    Decoder decoder(device, 1, tokens);
    const double warm_up = decoder.TimePrefill(tokens);
    std::vector<double> rates;
    for (int i = 0; i < options.repeat; ++i) rates.push_back(tokens / decoder.TimePrefill(tokens));
    const Spread rate = Of(rates);
    fmt::print(
        R"({{"model": "{}", "what": "prefill", "tokens": {}, "tokens_per_s": {:.0f}, "lowest": {:.0f}, )"
        R"("highest": {:.0f}, "warm_up_s": {:.2f}, "peak_gb": {:.2f}}})"
        "\n",
        model.name, tokens, rate.median, rate.lowest, rate.highest, warm_up, PeakGb());
  }
}

// Prefill on the processor, on a thread of its own, while the device decodes other sequences; then the
// handoff.
void Split(RandomModel& model, DecodeDevice& device, const Options& options) {
  const int all = int(std::thread::hardware_concurrency());
  const int threads = options.cpu_threads > 0 ? options.cpu_threads : std::max(1, all - 2);
  const auto pool = std::make_shared<ThreadPool>(threads);
  PrefillVia cpu(OpenCpuDevice(LoadCpuModel(model.spec, model.tensors, *pool), pool));
  for (int batch : options.batches) {
    constexpr int kMostSteps = 20000;
    Decoder decoder(device, batch, options.context + kMostSteps + 300);
    decoder.Prefill(options.context);
    decoder.Run(20);
    const double alone = batch * 256 / decoder.Run(256);
    std::atomic<bool> stop = false;
    std::vector<KvSegment> segments;
    double prefill = 0;
    std::thread lane([&] {
      const auto start = Clock::now();
      const auto session = cpu.Begin(options.split, {}, {});
      for (int at = 0; at < options.split; at += 512) {
        std::vector<TokenId> ids(size_t(std::min(512, options.split - at)));
        for (size_t i = 0; i < ids.size(); ++i) ids[i] = TokenId((size_t(at) + i) * 31 % 4000);
        segments.push_back(session->Run(ids, at));
      }
      prefill = Since(start);
      stop = true;
    });
    int steps = 0;
    const double seconds = decoder.Run(kMostSteps, &stop, &steps);
    lane.join();
    const SlotId slot = device.Open(options.split + 1, {});
    size_t bytes = 0;
    for (const KvSegment& segment : segments) bytes += segment.bytes(model.spec);
    const auto start = Clock::now();
    for (const KvSegment& segment : segments) device.Import(slot, segment);
    const double handoff = Since(start);
    device.Close(slot);
    const double beside = batch * steps / seconds;
    fmt::print(
        R"({{"model": "{}", "what": "split", "batch": {}, "prompt": {}, "decode_alone": {:.1f}, )"
        R"("decode_beside": {:.1f}, "ratio": {:.3f}, "cpu_threads": {}, "cpu_prefill_tokens_per_s": {:.0f}, )"
        R"("handoff_gb_per_s": {:.2f}}})"
        "\n",
        model.name, batch, options.split, alone, beside, beside / alone, threads, options.split / prefill,
        double(bytes) / handoff / 1e9);
  }
}

// Rows of a prompt in one step of the check: as many as our kernels take, so that nothing of MLX's is
// compiled for it, which would be most of a minute for each kind of quantised product.
constexpr int kCheckRows = 32;

// Logits of the last row of `batch` sequences of about `length` tokens.
std::vector<float> LastLogits(DecodeDevice& device, int batch, int length) {
  std::vector<SlotId> slots;
  std::vector<TokenId> ids;
  std::vector<int32_t> pos, rows;
  for (int b = 0; b < batch; ++b) {
    const int n = std::max(1, length - 7 * b);
    slots.push_back(device.Open(n + 1, {}));
    for (int from = 0; from < n; from += kCheckRows) {
      const int count = std::min(kCheckRows, n - from);
      std::vector<TokenId> prompt(static_cast<size_t>(count));
      std::vector<int32_t> at(static_cast<size_t>(count));
      for (int i = 0; i < count; ++i)
        prompt[size_t(i)] = TokenId((b * 131 + (from + i) * 31) % 4000), at[size_t(i)] = from + i;
      const std::vector<SlotId> same(static_cast<size_t>(count), slots.back());
      device.RunLogits({prompt, at, same, {}});
    }
    ids.push_back(TokenId(b)), pos.push_back(n), rows.push_back(b);
  }
  Logits logits = device.RunLogits({ids, pos, slots, rows});
  for (SlotId slot : slots) device.Close(slot);
  return std::move(logits.values);
}

// The same values in f16, rounded: what MLX multiplies by without kernels that it must compile first.
RandomModel Plain(const RandomModel& quantised) {
  RandomModel plain = quantised;
  ForEachWeight(plain.spec, plain.tensors, [&](TensorView& t, const WeightInfo&) {
    if (!IsQuantised(t.type)) return;
    const auto bytes = std::make_shared<std::vector<std::byte>>(size_t(t.rows() * t.columns()) * sizeof(F16));
    std::vector<float> row(size_t(t.columns()));
    for (int64_t r = 0; r < t.rows(); ++r) {
      t.ReadRow(r, row);
      StoreRow(DType::kF16, row, bytes->data() + size_t(r) * row.size() * sizeof(F16));
    }
    t.type = DType::kF16, t.bytes = *bytes, t.owner = bytes;
  });
  return plain;
}

// Whether our kernels give what MLX's operations give, within what 16-bit activations allow.
bool Check(const Options& options) {
  if (options.activations != "f16" && options.activations != "bf16")
    throw Fail(ErrorKind::kBadRequest, "--activations {}: choose f16 or bf16", options.activations);
  MlxOptions mlx_options;
  mlx_options.activations = options.activations == "f16" ? DType::kF16 : DType::kBF16;
  RandomModel random = MakeRandomModel("small", options.weights);
  RandomModel plain = Plain(random);
  DeviceInfo info;
  info.name = "mlx", info.max_rows = 2048;
  LocalDevice<MlxBackend> ours(
      MlxBackend(LoadMlxModel(random.spec, random.tensors, mlx_options), MakeKernels()), info);
  LocalDevice<MlxBackend> theirs(
      MlxBackend(LoadMlxModel(plain.spec, plain.tensors, mlx_options), std::make_unique<MlxKernels>()), info);
  const double allowed = mlx_options.activations == DType::kF16 ? 1e-2 : 6e-2;
  bool good = true;
  for (int batch : {1, 2, 5, 8, 16, 32}) {
    double worst = 0;
    const auto start = Clock::now();
    for (int length : {1, 31, 32, 33, 65, 300, 1100}) {
      const auto got = LastLogits(ours, batch, length), want = LastLogits(theirs, batch, length);
      double error = 0, norm = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        const double d = double(got[i]) - double(want[i]);
        error += d * d, norm += double(want[i]) * double(want[i]);
      }
      const double relative = std::sqrt(error / norm);
      worst = relative <= 1 ? std::max(worst, relative) : 1;  // also when it is not a number
    }
    good = good && worst <= allowed;
    fmt::print(
        R"({{"what": "check", "weights": "{}", "activations": "{}", "batch": {}, "worst_error": {:.2e}, )"
        R"("allowed": {:.0e}, "seconds": {:.1f}}})"
        "\n",
        options.weights, options.activations, batch, worst, allowed, Since(start));
    std::fflush(stdout);
  }
  return good;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures the MLX device");
  app.add_option("--shape", options.shape, "tiny, 7b or small");
  app.add_option("--weights", options.weights, "q4, q8 or f16");
  app.add_option("--batch", options.batches, "sequences that decode together")->delimiter(',');
  app.add_option("--prefill", options.prefills, "prompt lengths")->delimiter(',');
  app.add_option("--context", options.context, "tokens held when decoding begins");
  app.add_option("--tokens", options.tokens, "steps of a run");
  app.add_option("--repeat", options.repeat, "runs");
  app.add_option("--split", options.split, "prompt that the processor prefills while the device decodes");
  app.add_option("--cpu-threads", options.cpu_threads, "for --split");
  app.add_flag("--check", options.check, "compare our kernels with MLX's operations, on --weights");
  app.add_option("--activations", options.activations, "f16 or bf16, for --check");
  CLI11_PARSE(app, argc, argv);
  const MlxStatus status = GetMlxStatus();
  if (!status.usable) throw Fail(ErrorKind::kUnsupported, "{}", status.problem);
  if (options.check) return Check(options) ? 0 : 1;

  RandomModel model = MakeRandomModel(options.shape, options.weights);
  const double bandwidth = ReadBandwidth();
  mx::clear_cache();
  const auto start = Clock::now();
  const auto device = OpenMlxDevice(LoadMlxModel(model.spec, model.tensors));
  fmt::print(
      R"({{"what": "device", "name": "{}", "mlx": "{}", "read_gb_per_s": {:.0f}, "weights_gb": {:.3f}, )"
      R"("active_gb": {:.3f}, "load_s": {:.1f}}})"
      "\n",
      status.device, status.version, bandwidth / 1e9, double(device->Info().weight_bytes) / 1e9,
      double(mx::get_active_memory()) / 1e9, Since(start));
  mx::reset_peak_memory();
  if (options.split > 0) {
    Split(model, *device, options);
  } else {
    Decode(model, *device, options, bandwidth);
    Prefill(model, *device, options);
  }
  return 0;
}

}  // namespace
}  // namespace pd::bench

int main(int argc, char** argv) {
  try {
    const int code = pd::bench::Main(argc, argv);
    pd::LeaveMlxThread();
    return code;
  } catch (const std::exception& e) {
    fmt::print(stderr, "mlx_bench: {}\n", e.what());
    return 1;
  }
}
