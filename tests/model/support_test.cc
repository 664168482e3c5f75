#include "model/support.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "tests/tiny_model.h"

namespace pd {
namespace {

struct Case {
  Feature feature;
  void (*add)(ModelSpec&);
};

AttentionSpec& Attention(ModelSpec& m) { return AttentionOf(m.layers[3]); }
LayerSpec& Layer(ModelSpec& m) { return m.layers[3]; }

const Case kCases[] = {
    {Feature::kLayerNorm, [](ModelSpec& m) { Layer(m).pre_mixer->mean = true; }},
    {Feature::kLayerNorm, [](ModelSpec& m) { Layer(m).ffn[0].post->bias = true; }},
    {Feature::kNormNoGain, [](ModelSpec& m) { Attention(m).v_norm = NormSpec{.gain = false}; }},
    {Feature::kUngatedMlp, [](ModelSpec& m) { MlpOf(Layer(m)).gated = false; }},
    {Feature::kMoreGates, [](ModelSpec& m) { MlpOf(Layer(m)).gate.act = Activation::kRelu2; }},
    {Feature::kMoreGates, [](ModelSpec& m) { MlpOf(Layer(m)).gate.limit = 7.f; }},
    {Feature::kScoreCap, [](ModelSpec& m) { Attention(m).soft_cap = 50.f; }},
    {Feature::kValueWidth, [](ModelSpec& m) { Attention(m).v_dim = 2; }},
    {Feature::kSharedValues, [](ModelSpec& m) { Attention(m).values = Values::kKeyProjection; }},
    {Feature::kChunkedWindow, [](ModelSpec& m) { Attention(m).window = WindowSpec{8, true}; }},
    {Feature::kQueryScale, [](ModelSpec& m) { Attention(m).query_scale = QueryScale{0.1, 8192, 0}; }},
    {Feature::kSharedMemory, [](ModelSpec& m) { Attention(m).kv_from = 1; }},
    {Feature::kLatentAttention, [](ModelSpec& m) { Attention(m).latent = LatentSpec{0, 16, 8, 4, {}}; }},
    {Feature::kAttentionGate, [](ModelSpec& m) { Attention(m).gate = GateSpec{}; }},
    {Feature::kSinks, [](ModelSpec& m) { Attention(m).sinks = true; }},
    {Feature::kDeltaNet, [](ModelSpec& m) { Layer(m).mixer = DeltaNetSpec{}; }},
    {Feature::kMamba, [](ModelSpec& m) { Layer(m).mixer = MambaSpec{}; }},
    {Feature::kShortConv, [](ModelSpec& m) { Layer(m).mixer = ShortConvSpec{}; }},
    {Feature::kExperts, [](ModelSpec& m) { Layer(m).ffn[0].body = MoeSpec{}; }},
    {Feature::kLayerScalar, [](ModelSpec& m) { Layer(m).scalar = true; }},
    {Feature::kLayerShape, [](ModelSpec& m) { Layer(m).mixer = {}; }},
    {Feature::kLayerShape, [](ModelSpec& m) { Layer(m).ffn.clear(); }},
    {Feature::kLayerShape, [](ModelSpec& m) { Layer(m).ffn.push_back(Layer(m).ffn[0]); }},
    {Feature::kLayerShape, [](ModelSpec& m) { Layer(m).post_ffn = NormSpec{}; }},
    {Feature::kPerLayerInputs, [](ModelSpec& m) { Layer(m).per_layer = PerLayerSpec{}; }},
    {Feature::kPerLayerInputs, [](ModelSpec& m) { m.per_layer = PerLayerInputs{8, 4, {}}; }},
    {Feature::kMtp, [](ModelSpec& m) { m.mtp.resize(1); }},
    {Feature::kAdapters, [](ModelSpec& m) { m.adapters.resize(1); }},
};

ModelSpec Plain() {
  ModelSpec m = test::MixedSpec();
  m.layers.assign(5, m.layers[2]);  // norms on both sides, a window
  return m;
}

Support AllBut(Feature missing) {
  Support support({});
  for (int f = 0; f < int(Feature::kCount); ++f)
    if (Feature(f) != missing) support.Add(Feature(f));
  return support;
}

TEST(Support, PlainModelsNeedNothing) { EXPECT_NO_THROW(CheckSupport(Plain(), "cpu", Support({}))); }

TEST(Support, WhatIsMissingIsNamedWithItsLayer) {
  std::set<Feature> seen;
  for (const Case& c : kCases) {
    ModelSpec m = Plain();
    c.add(m);
    SCOPED_TRACE(Name(c.feature));
    const bool of_model = m.per_layer || !m.mtp.empty() || !m.adapters.empty();
    const std::string layer = of_model ? "the model has " : "layer 3 of the model has ";
    try {
      CheckSupport(m, "cpu", AllBut(c.feature));
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
      EXPECT_EQ(std::string(e.what()),
                "cpu: " + layer + Name(c.feature) + ", which this device cannot compute");
    }
    Support all = AllBut(c.feature);
    all.Add(c.feature);
    EXPECT_NO_THROW(CheckSupport(m, "cpu", all));
    seen.insert(c.feature);
  }
  EXPECT_EQ(seen.size(), size_t(Feature::kCount));
}

TEST(Support, TheFirstLayerIsNamed) {
  ModelSpec m = Plain();
  Attention(m).sinks = true;
  MlpOf(m.layers[4]).gated = false;
  const auto message = [&](const Support& support) {
    try {
      CheckSupport(m, "cpu", support);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(message(Support({})).find("layer 3 "), std::string::npos) << message(Support({}));
  EXPECT_NE(message({Feature::kSinks}).find("layer 4 "), std::string::npos) << message({Feature::kSinks});
  EXPECT_EQ(message({Feature::kSinks, Feature::kUngatedMlp}), "");
}

// Wherever a norm stands, it may be a LayerNorm or lack its gain.
TEST(Support, EveryNormIsSeen) {
  void (*const places[])(ModelSpec&, const NormSpec&) = {
      [](ModelSpec& m, const NormSpec& n) { m.final_norm = n; },
      [](ModelSpec& m, const NormSpec& n) { Layer(m).pre_mixer = n; },
      [](ModelSpec& m, const NormSpec& n) { Layer(m).post_mixer = n; },
      [](ModelSpec& m, const NormSpec& n) { Layer(m).ffn[0].pre = n; },
      [](ModelSpec& m, const NormSpec& n) { Layer(m).ffn[0].post = n; },
      [](ModelSpec& m, const NormSpec& n) { Layer(m).post_ffn = n; },
      [](ModelSpec& m, const NormSpec& n) { Attention(m).qk_norm = QkNorm{n}; },
      [](ModelSpec& m, const NormSpec& n) { Attention(m).v_norm = n; },
  };
  const std::pair<NormSpec, Feature> norms[] = {{{.mean = true}, Feature::kLayerNorm},
                                                {{.bias = true}, Feature::kLayerNorm},
                                                {{.gain = false}, Feature::kNormNoGain}};
  for (size_t place = 0; place < std::size(places); ++place)
    for (const auto& [norm, feature] : norms) {
      ModelSpec m = Plain();
      places[place](m, norm);
      EXPECT_THROW(CheckSupport(m, "cpu", AllBut(feature)), Error) << place << " " << Name(feature);
      EXPECT_NO_THROW(CheckSupport(m, "cpu", {feature, Feature::kLayerShape}))
          << place << " " << Name(feature);
    }
}

TEST(Support, EveryPartOfAGateIsSeen) {
  void (*const changes[])(GateSpec&) = {
      [](GateSpec& g) { g.act = Activation::kRelu2; },
      [](GateSpec& g) { g.act = Activation::kSigmoid; },
      [](GateSpec& g) { g.act = Activation::kTanh; },
      [](GateSpec& g) { g.act = Activation::kIdentity; },
      [](GateSpec& g) { g.sigmoid_gain = 1.702f; },
      [](GateSpec& g) { g.up_offset = 1; },
      [](GateSpec& g) { g.limit = 7.f; },
      [](GateSpec& g) { g.cutoff = 1.f; },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    ModelSpec m = Plain();
    changes[i](MlpOf(Layer(m)).gate);
    EXPECT_THROW(CheckSupport(m, "cpu", AllBut(Feature::kMoreGates)), Error) << i;
    EXPECT_NO_THROW(CheckSupport(m, "cpu", {Feature::kMoreGates})) << i;
  }
  for (Activation act : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
    ModelSpec m = Plain();
    MlpOf(Layer(m)).gate.act = act;
    EXPECT_NO_THROW(CheckSupport(m, "cpu", Support({}))) << Name(act);
  }
}

}  // namespace
}  // namespace pd
