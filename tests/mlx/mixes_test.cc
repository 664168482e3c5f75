// On MLX a row may differ with its batch by what the error table allows; no more changes with scheduling.
#include "tests/serving/mixes.h"

#include <map>

#include "device/prefill_via.h"
#include "mlx/mlx_device.h"
#include "reference/reference_ops.h"
#include "tests/error_table.h"
#include "tests/tiny_model.h"

namespace pd::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMixes = 40;  // several times as slow
#else
constexpr int kMixes = 200;
#endif

// Greedy texts of the double reference, with the logits of every token.
class Truth {
 public:
  explicit Truth(std::shared_ptr<const ReferenceModel> model)
      : device_(OpenReferenceDevice(std::move(model))) {}

  std::vector<TokenId> Text(const std::vector<TokenId>& prompt, int count) {
    const SlotId slot = device_->Open(int(prompt.size()) + count, {});
    std::vector<TokenId> rest = prompt, text;
    for (int position = 0; int(text.size()) < count; position += int(rest.size()), rest = {text.back()}) {
      std::vector<int32_t> pos(rest.size());
      for (size_t i = 0; i < pos.size(); ++i) pos[i] = position + int32_t(i);
      const std::vector<SlotId> slots(rest.size(), slot);
      const int32_t last = int32_t(rest.size()) - 1;
      std::vector<float> logits = device_->RunLogits({rest, pos, slots, {&last, 1}}).values;
      text.push_back(TokenId(std::ranges::max_element(logits) - logits.begin()));
      logits_[prompt].push_back(std::move(logits));
    }
    device_->Close(slot);
    return text;
  }

  // Whether `token` may be token `index` of the text, each logit being off by what `error` of all of them is.
  bool MayBe(const std::vector<TokenId>& prompt, size_t index, TokenId token, double error) const {
    const std::vector<float>& logits = logits_.at(prompt).at(index);
    double norm = 0;
    for (float x : logits) norm += double(x) * x;
    return *std::ranges::max_element(logits) - logits[size_t(token)] <= 2 * error * std::sqrt(norm);
  }

 private:
  std::unique_ptr<DecodeDevice> device_;
  std::map<std::vector<TokenId>, std::vector<std::vector<float>>> logits_;
};

TEST(MlxMixes, GiveEveryRequestItsOwnText) {
  TinyModel tiny = RandomModel(MixedSpec());
  Truth truth(LoadReferenceModel(tiny.spec, tiny.tensors));
  const auto model = LoadMlxModel(tiny.spec, tiny.tensors);

  int same = 0, close = 0;
  Mixes::Options options;
  options.longest = 300, options.prompts = 40, options.text = 12;
  options.vocab = tiny.spec.vocab;
  options.alone = [&](const std::vector<TokenId>& prompt, int count) { return truth.Text(prompt, count); };
  options.devices = [&](int, const Faults& faults, int) {  // MLX's devices are one lane
    EngineDevices devices;
    devices.prefill.push_back(
        std::make_unique<FaultyPrefill>(std::make_unique<PrefillVia>(OpenMlxDevice(model)), faults));
    devices.decode = std::make_unique<FaultyDecode>(OpenMlxDevice(model), faults);
    return devices;
  };
  options.judge = [&](const Mixes::Known& known, const std::vector<TokenId>& tokens,
                      const std::vector<TokenId>& expected) {
    if (tokens == expected) {
      ++same;
      return;
    }
    // From the first token on that differs, the text is another.
    const auto at = size_t(std::ranges::mismatch(tokens, expected).in1 - tokens.begin());
    ASSERT_LT(at, tokens.size()) << "ended too soon";
    EXPECT_TRUE(truth.MayBe(known.prompt, at, tokens[at], LogitError("mlx_f32"))) << "token " << at;
    ++close;
  };
  options.leave_lane = LeaveMlxThread;
  Mixes(tiny.spec, options).Run(kMixes);
  EXPECT_LE(close * 50, same) << "more ties than there can be";
}

}  // namespace
}  // namespace pd::test
