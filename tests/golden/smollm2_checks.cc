#include "tests/golden/smollm2_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "base/files.h"
#include "base/json.h"
#include "formats/model_source.h"
#include "tests/device/test_devices.h"
#include "tests/error_table.h"
#include "tests/golden/golden_file.h"

namespace pd::test {

std::filesystem::path SmolLM2Data(const char* name) {
  return std::filesystem::path(PD_TEST_DATA) / "smollm2" / name;
}

SmolLM2Devices& LoadSmolLM2() {
  static SmolLM2Devices devices = [] {
    const char* path = std::getenv("PD_TEST_MODEL");
    PD_CHECK(path);
    const ModelSource source = OpenModel(path);
    TinyModel model{source.spec, source.tensors};
    SmolLM2Devices loaded;
    for (const TestDevice& device : AllDevices()) {
      if (device.name == "reference") loaded.reference = device.load(model)();
      if (device.name == "cpu") {
        loaded.open_cpu = device.load(model);
        loaded.cpu = loaded.open_cpu();
        loaded.cpu_bound = LogitErrorOf(device, model);
      }
    }
    return loaded;
  }();
  return devices;
}

std::function<std::unique_ptr<DecodeDevice>()> LoadSmolLM2On(const std::string& name) {
  const char* path = std::getenv("PD_TEST_MODEL");
  PD_CHECK(path);
  const ModelSource source = OpenModel(path);
  TinyModel model{source.spec, source.tensors};
  for (const TestDevice& device : AllDevices())
    if (device.name == name) return device.load(model);
  return {};
}

Logits AllLogits(DecodeDevice& device, std::span<const TokenId> ids) {
  const SlotId slot = device.Open(int(ids.size()), {});
  Logits all;
  for (size_t at = 0; at < ids.size(); at += 64) {
    const size_t n = std::min<size_t>(64, ids.size() - at);
    std::vector<int32_t> pos(n), wanted(n);
    std::iota(pos.begin(), pos.end(), int32_t(at));
    std::iota(wanted.begin(), wanted.end(), 0);
    const Logits some = device.RunLogits({ids.subspan(at, n), pos, std::vector<SlotId>(n, slot), wanted});
    all.values.insert(all.values.end(), some.values.begin(), some.values.end());
    all.rows += some.rows, all.vocab = some.vocab;
  }
  device.Close(slot);
  return all;
}

std::span<const float> Row(const Logits& logits, int row) {
  return std::span(logits.values).subspan(size_t(row) * size_t(logits.vocab), size_t(logits.vocab));
}

static int ArgMax(std::span<const float> row) {
  return int(std::max_element(row.begin(), row.end()) - row.begin());
}

double LogSumExp(std::span<const float> row) {
  const double top = row[size_t(ArgMax(row))];
  double sum = 0;
  for (float x : row) sum += std::exp(double(x) - top);
  return top + std::log(sum);
}

// KL(softmax(p) || softmax(q)), in nats.
static double Divergence(std::span<const float> p, std::span<const float> q) {
  const double log_p = LogSumExp(p), log_q = LogSumExp(q);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i)
    sum += std::exp(double(p[i]) - log_p) * ((double(p[i]) - log_p) - (double(q[i]) - log_q));
  return sum;
}

namespace {

// Root mean square.
double Size(std::span<const float> row) {
  double square = 0;
  for (float x : row) square += double(x) * double(x);
  return std::sqrt(square / double(row.size()));
}

struct Tally {
  int positions = 0, disagreements = 0;
  int outliers = 0;  // rows further from the reference than the cpu's bound
  double divergence = 0;
};

// One text on both devices against the golden and each other.
void CheckPrompt(const GoldenFile& golden, const std::string& name, Tally& tally) {
  SCOPED_TRACE(name);
  const SmolLM2Devices& devices = LoadSmolLM2();
  const auto ids = golden.Read<TokenId>(name + ".ids"), top_ids = golden.Read<TokenId>(name + ".top_ids");
  const auto top_logits = golden.Read<float>(name + ".top_logits"),
             sums = golden.Read<float>(name + ".logsumexp");
  const Logits reference = AllLogits(*devices.reference, ids), cpu = AllLogits(*devices.cpu, ids);
  for (int t = 0; t < reference.rows; ++t) {
    const auto want = Row(reference, t), got = Row(cpu, t);
    const size_t top = size_t(t) * 8;
    EXPECT_EQ(ArgMax(want), top_ids[top]) << "reference at " << t;
    std::vector<float> same;  // the golden's eight best, as the reference has them
    for (size_t i = 0; i < 8; ++i) same.push_back(want[size_t(top_ids[top + i])]);
    EXPECT_LE(RelativeError(same, std::span(top_logits).subspan(top, 8)), LogitError("reference"))
        << "at " << t;
    EXPECT_NEAR(LogSumExp(want), double(sums[size_t(t)]), 1e-4) << "at " << t;

    const double error = RelativeError(got, want);
    EXPECT_LE(error, 3 * devices.cpu_bound) << "cpu at " << t;
    tally.outliers += error > devices.cpu_bound;
    const int choice = ArgMax(got);
    if (choice != top_ids[top]) {
      // Allowed only between logits that the cpu's bound cannot tell apart: each may be off by it.
      EXPECT_LE(top_logits[top] - want[size_t(choice)], 2 * devices.cpu_bound * Size(want)) << "cpu at " << t;
      ++tally.disagreements;
    }
    tally.divergence += Divergence(want, got);
    ++tally.positions;
  }
}

}  // namespace

void CheckPrompts(const std::vector<std::string>& names) {
  const GoldenFile golden(SmolLM2Data("golden.safetensors"));
  Tally tally;
  for (const std::string& name : names) CheckPrompt(golden, name, tally);
  EXPECT_LE(tally.disagreements, 0.02 * tally.positions) << tally.positions << " positions";
  EXPECT_LE(tally.outliers, 0.01 * tally.positions);
  EXPECT_LE(tally.divergence / tally.positions, 1e-3);
  std::printf("%d positions, cpu disagrees at %d, mean KL %.2e\n", tally.positions, tally.disagreements,
              tally.divergence / tally.positions);
}

void CheckAgainstCpu(DecodeDevice& device, const std::vector<std::string>& names) {
  const GoldenFile golden(SmolLM2Data("golden.safetensors"));
  const SmolLM2Devices& devices = LoadSmolLM2();
  int positions = 0, disagreements = 0;
  for (const std::string& name : names) {
    const auto ids = golden.Read<TokenId>(name + ".ids");
    const Logits cpu = AllLogits(*devices.cpu, ids), other = AllLogits(device, ids);
    for (int t = 0; t < cpu.rows; ++t, ++positions) {
      const auto want = Row(cpu, t), got = Row(other, t);
      EXPECT_LE(RelativeError(got, want), 3 * devices.cpu_bound) << name << " at " << t;
      const auto chosen = size_t(ArgMax(want)), choice = size_t(ArgMax(got));
      if (choice == chosen) continue;
      EXPECT_LE(want[chosen] - want[choice], 2 * devices.cpu_bound * Size(want)) << name << " at " << t;
      ++disagreements;
    }
  }
  EXPECT_LE(disagreements, 0.02 * positions) << positions << " positions";
  std::printf("%d positions, disagrees with the cpu at %d\n", positions, disagreements);
}

}  // namespace pd::test
