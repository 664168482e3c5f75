#include "device/prefill_via.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "device/scoped_slot.h"

namespace pd {
namespace {

class Session final : public PrefillSession {
 public:
  Session(DecodeDevice& device, int capacity, const Variant& variant, const std::function<bool()>& cancelled)
      : device_(device), slot_(device, capacity, variant), cancelled_(cancelled) {}

  void Import(const KvSegment& segment) { device_.Import(slot_.id(), segment); }

  KvSegment Run(std::span<const TokenId> chunk, int first) override {
    const int count = int(chunk.size()), most = device_.Info().max_rows;
    for (int done = 0; done < count; done += most) {
      if (cancelled_ && cancelled_()) throw Fail(ErrorKind::kCancelled, "interrupted");
      const int n = std::min(most, count - done);
      pos_.resize(size_t(n));
      std::iota(pos_.begin(), pos_.end(), first + done);
      slots_.assign(size_t(n), slot_.id());
      const StepId step = device_.Submit({{chunk.subspan(size_t(done), size_t(n)), pos_, slots_, {}}, {}});
      device_.Collect(step);
    }
    return device_.Export(slot_.id(), first, count);
  }

  void Close() override { slot_.Close(); }

 private:
  DecodeDevice& device_;
  ScopedSlot slot_;
  const std::function<bool()>& cancelled_;
  std::vector<int32_t> pos_;
  std::vector<SlotId> slots_;
};

}  // namespace

std::unique_ptr<PrefillSession> PrefillVia::Begin(int capacity, const Variant& variant,
                                                  std::span<const KvSegment> prefix) {
  auto session = std::make_unique<Session>(*device_, capacity, variant, cancelled_);
  for (const KvSegment& segment : prefix) session->Import(segment);
  return session;
}

}  // namespace pd
