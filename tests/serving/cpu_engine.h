// Engines of cpu devices on a tiny model.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "cpu/cpu_device.h"
#include "device/prefill_via.h"
#include "serving/engine.h"
#include "tests/serving/faulty_devices.h"
#include "tests/tiny_model.h"

namespace pd::test {

class CpuModelForTests {
 public:
  explicit CpuModelForTests(const ModelSpec& model_spec = MixedSpec())
      : tiny_(RandomModel(model_spec)), pool_(std::make_shared<ThreadPool>(1)) {
    model_ = LoadCpuModel(tiny_.spec, tiny_.tensors, *pool_);
  }
  const ModelSpec& spec() const { return tiny_.spec; }

  // On a pool of its own. Devices with different numbers are on different silicon.
  std::unique_ptr<DecodeDevice> Open(int processor, int max_rows = 64) const {
    CpuDeviceOptions options;
    options.max_rows = max_rows;
    options.cores = {processor};
    return OpenCpuDevice(model_, std::make_shared<ThreadPool>(1), options);
  }

  EngineDevices Devices(int lanes, const Faults& faults = {}, int max_rows = 64) const {
    EngineDevices devices;
    devices.prefill.push_back(
        std::make_unique<FaultyPrefill>(std::make_unique<PrefillVia>(Open(lanes == 1 ? 0 : 1)), faults));
    devices.decode = std::make_unique<FaultyDecode>(Open(0, max_rows), faults);
    return devices;
  }

  // Without a prefill device: prompts go straight into the slots.
  EngineDevices DirectDevices(const Faults& faults = {}, int max_rows = 64) const {
    EngineDevices devices;
    devices.decode = std::make_unique<FaultyDecode>(Open(0, max_rows), faults);
    return devices;
  }

  // The greedy continuation, computed alone in the simplest way.
  std::vector<TokenId> GreedyText(std::span<const TokenId> prompt, int count) const {
    const auto device = Open(0, 1024);
    const SlotId slot = device->Open(int(prompt.size()) + count, {});
    std::vector<TokenId> rest(prompt.begin(), prompt.end()), text;
    for (int position = 0; int(text.size()) < count; position += int(rest.size()), rest = {text.back()}) {
      std::vector<int32_t> pos(rest.size());
      for (size_t i = 0; i < pos.size(); ++i) pos[i] = position + int32_t(i);
      const std::vector<SlotId> slots(rest.size(), slot);
      const int32_t last = int32_t(rest.size()) - 1;
      const auto logits = device->RunLogits({rest, pos, slots, {&last, 1}}).values;
      text.push_back(TokenId(std::ranges::max_element(logits) - logits.begin()));
    }
    return text;
  }

 private:
  TinyModel tiny_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<const CpuModel> model_;
};

}  // namespace pd::test
