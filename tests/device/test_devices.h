// The devices that device tests run on: one line each in test_devices.cc.
#pragma once
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "device/device.h"
#include "tests/tiny_model.h"

namespace pd::test {

struct TestDevice {
  std::string name;
  std::string backend;  // its rows of tests/error_table.h start with this
  bool exact;           // promises equal bits for any batch, chunking and handoff
  // Loads once; each call of the result opens an instance with KV memory of its own.
  std::function<std::function<std::unique_ptr<DecodeDevice>()>(TinyModel&)> load;
};
inline void PrintTo(const TestDevice& device, std::ostream* out) { *out << device.name; }
std::vector<TestDevice> AllDevices();

// The device's bound on logits for a model with these weights.
double LogitErrorOf(const TestDevice& device, TinyModel& model);

// KV of `ids` from position 0 with keys as they are before rotation, computed by the reference.
struct RawPrefill {
  KvSegment segment;
};
RawPrefill RunRawPrefill(TinyModel& model, std::span<const TokenId> ids);

// The same segment in the layout (1, layers * tokens, kv_heads, head_dim).
KvSegment PackAsOneTensor(const ModelSpec& spec, const KvSegment& segment);

}  // namespace pd::test
