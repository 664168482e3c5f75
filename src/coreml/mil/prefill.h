// Inputs and outputs of a prefill program: names and shapes shared by the lowering, the bundle and the
// device. Letters: T new tokens, S past tokens (the history bucket), H query heads, K KV heads, D head size,
// C width.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "device/chunk_plan.h"
#include "model/spec.h"
#include "model/support.h"

namespace pd::mil {

// What prefill programs support of a model.
const Support& PrefillSupport();

// The published forms of attention on the Neural Engine, to be timed against each other.
enum class AttentionForm : uint8_t {
  kHeads,     // one KV head at a time: [1, G, T, S+T] scores, softmax on the last axis
  kChannels,  // one query head at a time: (1, S+T, 1, T) scores, softmax on the channel axis
  kGrouped,   // all KV heads as a batch: [K, G, T, S+T]
};
const char* Name(AttentionForm form);
std::optional<AttentionForm> AttentionFormOf(std::string_view name);

// One function of a package: T is shape.tokens, S shape.history.
using pd::PrefillShape;
std::string FunctionName(const PrefillShape& shape);  // "prefill_t128_s1024"

inline constexpr const char* kHidden = "x";  // (1, C, 1, T): embedded tokens, or the stream of the last shard
inline constexpr const char* kHiddenOut = "hidden";  // (1, C, 1, T): the stream for the next shard
std::string PastKeys(int layer);                     // (1, K*D, 1, past): rotated
std::string PastValues(int layer);
std::string NewKeys(int layer);  // (1, K*D, 1, T): rotated, or raw when the bundle says so
std::string NewValues(int layer);

// Past tokens that a layer takes from a history of S. A window needs only the window - 1 tokens before a row,
// rounded up to whole 64-byte rows of halves.
int PastWidth(const AttentionSpec& attn, int history);

// Tables shared by the layers with equal rotations: cos and signed sin, [1, 1, D, T] each. y = x * cos +
// swapped(x) * sin, where `swapped` exchanges the halves of the rotated dimensions; sin is negative in the
// first half; dimensions that are not rotated have cos 1 and sin 0.
struct RopeInput {
  RopeSpec rope;
  int head_dim = 0;
  std::string cos, sin;
};
// Added to the scores, shared by the layers of one window: 0 where a row sees a key, kMasked elsewhere. [1,
// 1, T, past + T] with the past first; (1, past + T, 1, T) in the channels form.
struct MaskInput {
  std::optional<WindowSpec> window;
  int past = 0;
  std::string name;
};
inline constexpr float kMasked =
    -3e4f;  // finite: two infinities would make NaN; exact in fp16, with room to spare

struct PrefillInterface {
  std::vector<RopeInput> ropes;
  std::vector<MaskInput> masks;
  const RopeInput& RopeOf(const RopeSpec& rope, int head_dim) const;
  const MaskInput& MaskOf(const AttentionSpec& attn) const;
};
// For the whole model; a shard takes those that its layers use.
PrefillInterface InterfaceOf(const ModelSpec& spec, int history);

}  // namespace pd::mil
