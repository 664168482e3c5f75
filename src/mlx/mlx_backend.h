// MlxBackend: MlxOps with weights, slots and sampling, for LocalDevice.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mlx/mlx_device.h"
#include "mlx/mlx_ops.h"

namespace pd {

class MlxModel {
 public:
  ModelSpec spec;
  Weights<MlxWeight> weights;
  KvIdentity id;
  mx::Dtype activations = mx::float32;
  int max_rows = 0;
  size_t weight_bytes = 0;
  std::vector<std::string> notes;  // LoadNotes
};

// A Backend that runs ahead of the host (device/local_device.h): a step is submitted and its tokens stay on
// the device, where the next step finds them. Owned by one thread.
class MlxBackend : public MlxOps {
 public:
  MlxBackend(std::shared_ptr<const MlxModel> model, std::unique_ptr<MlxKernels> kernels);

  const ModelSpec& Spec() const { return model_->spec; }
  const Weights<MlxWeight>& ModelWeights() const { return model_->weights; }
  KvIdentity Identity() const { return model_->id; }

  SlotId OpenSlot(int capacity, const Variant& variant);
  void CloseSlot(SlotId slot);
  void TruncateSlot(SlotId, int) {}  // the part past a slot's length is never read
  void BeginRows(const Rows& rows);
  void BeginLayer(int layer, Tensor& x);
  void ImportRows(SlotId slot, const KvSegment& segment);
  KvSegment ExportRows(SlotId slot, int first, int count);
  std::span<const float> ReadLogits(const Tensor& logits);

  // A submitted step. The host reads only `pending`: reading an array may move it, and the next step uses the
  // others.
  struct Running {
    std::optional<mx::array>
        pending;          // MlxChoice's report; without logits, an array computed with keys and values
    bool chosen = false;  // pending is a report
    std::vector<Sampled> sampled;  // by the host already, if some row needs more than the device can do
    std::vector<SlotId> slots;     // of its rows
    int failures = 0;              // failures_ when it was started
  };
  Running Start(const Rows& rows, const std::optional<Tensor>& logits, std::span<const SampleSpec> sample);
  std::vector<Sampled> Finish(Running running);

 private:
  struct LastToken {
    mx::array tokens;  // [R] i32: sampled by a step
    int row;
  };
  struct Slot {
    int capacity = 0;
    Variant variant;
    bool lost = false;
    int under_way = 0;              // uncollected steps with rows of this slot
    std::optional<LastToken> last;  // what this slot sampled last
  };

  Slot& Usable(SlotId slot);
  mx::array Ids(const Rows& rows) const;
  std::vector<Sampled> SampleOnHost(const Rows& rows, const mx::array& logits,
                                    std::span<const SampleSpec> sample);
  // Runs work on the device for these slots. A failure loses the slots and is thrown as Error.
  template <class F>
  auto OnDevice(std::span<const SlotId> slots, F compute) {
    try {
      return compute();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      LoseSlots(slots);
      throw MlxFailure(e);
    }
  }
  void LoseSlots(std::span<const SlotId> failed);
  void Count(Running& running, const Rows& rows);

  std::shared_ptr<const MlxModel> model_;
  std::map<SlotId, Slot> slots_;
  std::vector<SlotId> step_slots_;  // of the rows of the last step, whose arrays plan_ holds
  std::vector<int32_t> step_pos_;
  int failures_ = 0;
  Sampler sampler_;
  std::vector<float> logits_;
};

}  // namespace pd
