// On the CPU answers do not depend on scheduling, bit for bit.
#include "tests/serving/mixes.h"
#include "tests/serving/cpu_engine.h"

namespace pd::test {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr int kMixes = 50;  // ten times as slow
#else
constexpr int kMixes = 200;
#endif

TEST(Mixes, GiveEveryRequestItsOwnText) {
  const CpuModelForTests model;
  Mixes::Options options;
  options.vocab = model.spec().vocab;
  options.alone = [&](const std::vector<TokenId>& prompt, int count) {
    return model.GreedyText(prompt, count);
  };
  options.devices = [&, made = 0](int lanes, const Faults& faults, int max_rows) mutable {
    const bool direct = ++made % 4 == 0;
    return direct ? model.DirectDevices(faults, max_rows) : model.Devices(lanes, faults, max_rows);
  };
  options.judge = [](const Mixes::Known&, const std::vector<TokenId>& tokens,
                     const std::vector<TokenId>& expected) { EXPECT_EQ(tokens, expected); };
  Mixes(model.spec(), options).Run(kMixes);
}

}  // namespace
}  // namespace pd::test
