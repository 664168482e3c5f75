// RoPE frequencies against transformers', from published configurations (tests/data/README.md).
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "base/files.h"
#include "formats/safetensors.h"
#include "model/families/config.h"
#include "tests/expect_error.h"

namespace pd::test {
namespace {

std::filesystem::path Data(const char* name) { return std::filesystem::path(PD_TEST_DATA) / "models" / name; }

// A config of one attention layer, from which `rope` alone is of interest.
Json ConfigWith(const Json& golden, const Json& parameters) {
  const int head_dim = golden["head_dim"];
  return {{"model_type", "llama"},         {"vocab_size", 8},
          {"hidden_size", 4 * head_dim},   {"intermediate_size", 8},
          {"num_hidden_layers", 1},        {"num_attention_heads", 4},
          {"rope_parameters", parameters}, {"max_position_embeddings", golden["max_position_embeddings"]}};
}

TEST(Rope, FrequenciesOfEveryKindAreTransformers) {
  const auto file = SafetensorsFile::Open(Data("rope.safetensors"));
  std::map<std::string, std::span<const std::byte>> expected;
  for (const SafetensorsTensor& tensor : file->tensors()) expected[tensor.name] = tensor.bytes;
  const Json goldens = ParseJson(ReadTextFile(Data("rope.json")), "rope.json");
  ASSERT_GE(goldens.size(), 12u);
  for (const Json& golden : goldens) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    // No family here rotates a part of each head, so no config may ask for it; the formulas know how all the
    // same.
    Json parameters = golden["rope_parameters"];
    const double part = parameters.value("partial_rotary_factor", 1.0);
    const Json with_part = ConfigWith(golden, parameters);
    parameters.erase("partial_rotary_factor");
    const Json json = ConfigWith(golden, parameters);
    JsonReader config(part < 1 ? with_part : json, "config.json");
    Sizes sizes = ReadSizes(config, {});
    if (part < 1) {
      ExpectError(ErrorKind::kUnsupported, {"partial_rotary_factor"}, [&] { ReadRope(config, sizes); });
      sizes.head_dim = int(sizes.head_dim * part);
    }
    const RopeSpec rope = ReadRopeObject(&parameters, "rope", sizes, 10000, std::nullopt);
    EXPECT_NEAR(rope.scaling.attention_factor, golden["attention_factor"].get<double>(), 1e-15);
    ModelSpec spec;
    spec.layers.resize(1);
    spec.layers[0].mixer.emplace<AttentionSpec>().rope = rope;
    for (const int length : golden["lengths"].get<std::vector<int>>()) {
      SCOPED_TRACE(length);
      const RopeFrequencies frequencies = Frequencies(rope, FixRope(spec, length));
      EXPECT_NEAR(frequencies.scale, golden["attention_factor"].get<double>(), 1e-15);
      const auto bytes =
          expected.at(golden["name"].get<std::string>() + "." + std::to_string(length) + ".inv_freq");
      ASSERT_EQ(bytes.size(), frequencies.inverse.size() * sizeof(double));
      for (size_t i = 0; i < frequencies.inverse.size(); ++i) {
        double value;
        std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
        EXPECT_NEAR(frequencies.inverse[i] / value, 1, 1e-12) << i;
      }
    }
  }
}

TEST(Rope, GivenFactorsDivide) {
  RopeSpec rope{10000, 8, {}};
  const std::vector<double> plain = Frequencies(rope, {}).inverse;
  rope.scaling.kind = RopeScaling::Kind::kFactors;
  rope.scaling.factors = {1, 2, 4, 8};
  const RopeFrequencies scaled = Frequencies(rope, {});
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(scaled.inverse[i], plain[i] / double(1 << i));
  EXPECT_EQ(scaled.scale, 1);
}

// Asking twice gives the same: no form of scaling is applied in place.
TEST(Rope, LengthsDoNotLeakIntoEachOther) {
  RopeSpec rope{10000, 8, {}};
  rope.scaling.kind = RopeScaling::Kind::kDynamic;
  rope.scaling.factor = 2;
  rope.scaling.original_context = 16;
  const std::vector<double> within = Frequencies(rope, {}).inverse;
  EXPECT_NE(Frequencies(rope, {17}).inverse, within);
  EXPECT_NE(Frequencies(rope, {17}).inverse, Frequencies(rope, {64}).inverse);
  EXPECT_EQ(Frequencies(rope, {}).inverse, within);
}

}  // namespace
}  // namespace pd::test
