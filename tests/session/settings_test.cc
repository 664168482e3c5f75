// Which devices settings stand for, and where files are looked for.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "session/bundles.h"
#include "session/calibrate.h"
#include "session/open_engine.h"
#include "session/prefill_setup.h"
#include "tests/expect_error.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

const std::string kTiny = PD_TEST_DATA "/models/llama-base";

TEST(Backends, SayWhatTheyCanDo) {
  EXPECT_EQ(FindBackend("toaster"), nullptr);
  for (const BackendInfo& b : Backends()) {
    EXPECT_EQ(FindBackend(b.name), &b);
    EXPECT_EQ(b.missing.empty(), b.prefills || b.decodes) << b.name;
    if (b.decodes) CheckDeviceName(b.name);
    if (b.prefills) CheckPrefillDeviceName(b.name);
  }
  EXPECT_TRUE(FindBackend(kDefaultDevice)->decodes);
  EXPECT_EQ(std::ranges::count(Backends(), true, &BackendInfo::needs_bundle), 1);
}

// One device for both phases reads prompts into its own memory: no unit, unless its processors are divided.
TEST(SetUpPrefill, ADeviceNeedsNoUnitBesideItself) {
  ModelSource model = OpenModel(kTiny);
  DeviceSettings settings;
  settings.prefill = settings.decode = "cpu";
  EXPECT_TRUE(SetUpPrefill(settings, model).names.empty());
  settings.prefill = kAuto;  // and nothing was calibrated
  const PrefillSetup uncalibrated = SetUpPrefill(settings, model);
  EXPECT_TRUE(uncalibrated.names.empty());
  EXPECT_FALSE(uncalibrated.choose({.count = 100, .chunk = 32}).unit);
  EXPECT_EQ(uncalibrated.choose({.count = 100, .chunk = 32}).chunk, 32);
  settings.prefill_threads = 1;
  EXPECT_EQ(SetUpPrefill(settings, model).names, std::vector<std::string>{"cpu"});
  EXPECT_EQ(SetUpPrefill(settings, model).choose({.count = 100, .chunk = 32}).unit, 0u);
  settings.prefill = "reference";
  settings.prefill_threads = 0;
  EXPECT_EQ(SetUpPrefill(settings, model).names, std::vector<std::string>{"reference"});
}

TEST(FindBundle, LooksWhereExportPutsIt) {
  ModelSource model = OpenModel(kTiny);
  const TempFolder cache;
  EXPECT_EQ(FindBundle("named", std::nullopt, model), "named");
  EXPECT_EQ(FindBundle("", std::nullopt, model), std::nullopt);
  EXPECT_EQ(FindBundle("", cache.path(), model), std::nullopt);
  // The weights were not read for nothing: their digest is not taken yet.
  model.tensors.embed = model.tensors.layers[0].ffn[0].pre.gain.value();
  EXPECT_EQ(model.Digest(), WeightsDigest(model.spec, model.tensors));
  const std::filesystem::path path = DefaultBundlePath(cache.path(), model);
  std::filesystem::create_directories(path);
  EXPECT_EQ(FindBundle("", cache.path(), model), std::nullopt);
  WriteFileAtomically(path / "bundle.json", "{}");
  EXPECT_EQ(FindBundle("", cache.path(), model), path);
  ExpectError(ErrorKind::kNotFound, {"pd-engine export"}, [&] { RequireBundle("", std::nullopt, model); });
}

TEST(OpenEngine, RefusesBeforeItLoads) {
  ModelSource model = OpenModel(kTiny);
  const EngineHooks hooks{.progress = [](size_t, size_t) { ADD_FAILURE() << "loaded"; }};
  const auto error = [&](ErrorKind kind, std::string_view named, const EngineSettings& settings) {
    ExpectError(kind, {named}, [&] { OpenEngine(model, settings, hooks); });
  };
  error(ErrorKind::kBadRequest, "toaster", {.devices = {.prefill = "toaster"}});
  error(ErrorKind::kBadRequest, "only prefills", {.devices = {.decode = BundleDevice()}});
  error(ErrorKind::kNotFound, "pd-engine export", {.devices = {.prefill = BundleDevice()}});
  error(ErrorKind::kOutOfMemory, "keys and values", {.tokens = INT32_MAX});
}

TEST(OpenEngine, EndsWhenProgressThrows) {
  ModelSource model = OpenModel(kTiny);
  ExpectError(ErrorKind::kCancelled, {"enough"}, [&] {
    OpenEngine(model, {}, {.progress = [](size_t, size_t) { throw Fail(ErrorKind::kCancelled, "enough"); }});
  });
}

}  // namespace
}  // namespace pd::test
