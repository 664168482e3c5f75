#include "coreml/export/export.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "coreml/export/range.h"
#include "tests/coreml/example.h"
#include "tests/coreml/sources.h"
#include "tests/device_checks.h"
#include "tests/temp_folder.h"
#include "tests/tiny_model.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

std::string What(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return fmt::format("{}: {}", Name(error.kind()), error.what());
  }
  return "no error";
}
void ExpectHas(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

std::map<std::string, std::string> AllBytes(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(folder).string()] = ReadTextFile(entry.path());
  return files;
}

// ---- what is chosen ----

TEST(Export, ShapesCoverTheContextAndNoMore) {
  const auto shapes = [](int context, const ExportOptions& options = {}) {
    ModelSpec spec = test::MixedSpec();
    spec.max_context = context;
    std::string text;
    for (const mil::PrefillShape& s : ChooseShapes(spec, options))
      text += fmt::format("{}+{} ", s.history, s.tokens);
    return text;
  };
  EXPECT_EQ(shapes(8192), "0+128 1024+128 4096+128 0+512 1024+512 4096+512 ");
  EXPECT_EQ(shapes(2048), "0+128 1024+128 2048+128 0+512 1024+512 2048+512 ");
  EXPECT_EQ(shapes(1000), "0+128 1024+128 0+512 1024+512 ");
  EXPECT_EQ(shapes(300), "0+128 320+128 0+320 320+320 ");
  ExportOptions options;
  options.chunks = {64, 32, 64};
  options.histories = {0};
  EXPECT_EQ(shapes(8192, options), "0+32 0+64 ");
  options.chunks = {33};
  ExpectHas(What([&] { shapes(8192, options); }), "bad_request: chunks: 33 is not a multiple of 32");
  options.chunks = {32};
  options.histories = {-32};
  ExpectHas(What([&] { shapes(8192, options); }), "bad_request: history: -32");
}

TEST(Export, ShardsKeepTheLimitAndAreEven) {
  const auto begins = [](const std::vector<int64_t>& bytes, int64_t limit) {
    return ChooseShards(bytes, limit);
  };
  EXPECT_EQ(begins(std::vector<int64_t>(16, 10), 1000), (std::vector<int>{0}));
  EXPECT_EQ(begins(std::vector<int64_t>(16, 10), 100), (std::vector<int>{0, 8}));
  EXPECT_EQ(begins(std::vector<int64_t>(16, 10), 5).size(), 16u);  // a layer is never divided
  std::vector<int64_t> short_end(22, 88);                          // the last layer has keys and values only
  short_end.back() = 2;
  EXPECT_EQ(begins(short_end, 900), (std::vector<int>{0, 7, 14}));
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<int64_t> bytes(1 + random() % 40);
    for (int64_t& b : bytes) b = 1 + int64_t(random() % 100);
    const int64_t limit = 100 + int64_t(random() % 400);
    const std::vector<int> b = begins(bytes, limit);
    for (size_t i = 0; i < b.size(); ++i) {
      const auto end = i + 1 < b.size() ? bytes.begin() + b[i + 1] : bytes.end();
      EXPECT_LE(std::accumulate(bytes.begin() + b[i], end, int64_t(0)), limit);
    }
    const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t(0));
    EXPECT_LE(int64_t(b.size()), 2 * (total / limit) + 1);  // and there are not many more than needed
  }
}

// ---- bundles ----

class ExportedBundle : public testing::Test {
 protected:
  ExportedBundle() {
    options_.chunks = {32};
    options_.histories = {0, 32};
    options_.max_shard_bytes = 60'000;
  }
  ExportReport Export(const fs::path& out) {
    return ExportBundle(model_, out, options_, [](const ExportProgress&) {});
  }

  const test::TempFolder folder_;
  ModelSource model_ = test::RandomSource(test::MixedSpec());
  ExportOptions options_;
};

TEST_F(ExportedBundle, SameModelGivesSameBytes) {
  for (WeightFormat format : {WeightFormat::kFp16, WeightFormat::kInt8, WeightFormat::kLut4}) {
    options_.weights = format;
    Export(folder_ / "a");
    Export(folder_ / "b");
    EXPECT_EQ(AllBytes(folder_ / "a"), AllBytes(folder_ / "b")) << Name(format);
  }
}

// The same bytes from every compiler, and from every version: a change that gives others raises
// kRulesVersion, so that bundles made before it are refused.
TEST_F(ExportedBundle, BytesAreThoseOfTheRules) {
  model_ = OpenModel(PD_TEST_DATA "/models/llama-base");
  EXPECT_EQ(kRulesVersion, 1);
  for (const auto& [format, digest] : {std::pair{WeightFormat::kFp16, "53a31d293567b671"},
                                       std::pair{WeightFormat::kInt8, "a55804d107286f2f"},
                                       std::pair{WeightFormat::kLut4, "7e9ff2e67085ef3c"}}) {
    options_.weights = format;
    Export(folder_ / "a");
    EXPECT_EQ(fmt::format("{:016x}", Digest(ReadTextFile(folder_ / "a" / kBundleFile))), digest)
        << Name(format);
  }
}

TEST_F(ExportedBundle, ReadsBackWhatItIs) {
  options_.weights = WeightFormat::kLut4;
  options_.lowering = {mil::AttentionForm::kGrouped, KeyForm::kRaw};
  const ExportReport report = Export(folder_ / "a");
  const Bundle bundle = ReadBundle(folder_ / "a");
  EXPECT_EQ(bundle.format, WeightFormat::kLut4);
  EXPECT_EQ(bundle.lowering.attention, mil::AttentionForm::kGrouped);
  EXPECT_EQ(bundle.lowering.keys, KeyForm::kRaw);
  EXPECT_EQ(bundle.functions, report.bundle.functions);
  EXPECT_EQ(bundle.shards.size(), report.bundle.shards.size());
  EXPECT_EQ(bundle.spec, SpecDigest(model_.spec));
  CheckBundleModel(bundle, bundle.spec, bundle.weights);
  ExpectHas(What([&] { CheckBundleModel(bundle, bundle.spec, bundle.weights + 1); }),
            "same shape, other weights");
  ExpectHas(What([&] { CheckBundleModel(bundle, bundle.spec + 1, bundle.weights); }), "another architecture");
}

TEST_F(ExportedBundle, EveryFileIsGuarded) {
  Export(folder_ / "a");
  int files = 0;
  for (const auto& [name, bytes] : AllBytes(folder_ / "a")) {
    ++files;
    const fs::path path = folder_ / "a" / name;
    std::string altered = bytes;
    altered[altered.size() / 2] = char(altered[altered.size() / 2] ^ 1);
    WriteFileAtomically(path, altered);
    ExpectHas(What([&] { ReadBundle(folder_ / "a"); }), path.filename().string());
    WriteFileAtomically(path, std::string_view(bytes).substr(0, bytes.size() / 2));
    ExpectHas(What([&] { ReadBundle(folder_ / "a"); }), path.filename().string());
    fs::remove(path);
    ExpectHas(What([&] { ReadBundle(folder_ / "a"); }), path.filename().string());
    WriteFileAtomically(path, bytes);
    ReadBundle(folder_ / "a");
  }
  EXPECT_GE(files, 1 + 3 * 2);
  WriteFileAtomically(folder_ / "a" / "stray", std::string_view("x"));
  ExpectHas(What([&] { ReadBundle(folder_ / "a"); }), "stray: not part of the bundle");
}

TEST_F(ExportedBundle, OlderWritersAreRefused) {
  Export(folder_ / "a");
  const fs::path file = folder_ / "a" / "bundle.json";
  const std::string good = ReadTextFile(file);
  for (const char* key : {"\"format\": 2", "\"rules\": 1"}) {
    std::string text = good;
    text.replace(text.find(key), std::string(key).size(),
                 std::string(key, std::string(key).size() - 1) + "0");
    WriteFileAtomically(file, text);
    ExpectHas(What([&] { ReadBundle(folder_ / "a"); }), "export the model again");
  }
  ExpectHas(What([&] { ReadBundle(folder_ / "nothing"); }), "pd-engine export");
}

TEST_F(ExportedBundle, ReplacesBundlesOnly) {
  Export(folder_ / "a");
  options_.weights = WeightFormat::kInt8;
  Export(folder_ / "a");
  EXPECT_EQ(ReadBundle(folder_ / "a").format, WeightFormat::kInt8);
  fs::create_directories(folder_ / "precious");
  WriteFileAtomically(folder_ / "precious" / "thesis.txt", std::string_view("words"));
  ExpectHas(What([&] { Export(folder_ / "precious"); }), "bad_request");
  EXPECT_EQ(ReadTextFile(folder_ / "precious" / "thesis.txt"), "words");
  // A name proves nothing.
  for (const char* theirs :
       {"{\"name\": \"a web page\"}", "{\"digest\": \"0\", \"files\": {\"thesis.txt\": {}}}", "no JSON"}) {
    WriteFileAtomically(folder_ / "precious" / "bundle.json", std::string_view(theirs));
    ExpectHas(What([&] { Export(folder_ / "precious"); }), "holds no bundle that export wrote");
    EXPECT_EQ(AllBytes(folder_ / "precious"),
              (std::map<std::string, std::string>{{"bundle.json", theirs}, {"thesis.txt", "words"}}));
  }
  WriteFileAtomically(folder_ / "file", std::string_view("mine"));
  ExpectHas(What([&] { Export(folder_ / "file"); }), "is no folder");
  EXPECT_EQ(ReadTextFile(folder_ / "file"), "mine");
  ExpectHas(What([&] { Export(""); }), "empty");
}

TEST_F(ExportedBundle, WhatTheOwnerPutIntoABundleStays) {
  Export(folder_ / "a");
  const fs::path note = folder_ / "a" / "shard_0.mlpackage" / "README";
  WriteFileAtomically(note, std::string_view("why I made it"));
  const auto before = AllBytes(folder_ / "a");
  options_.weights = WeightFormat::kInt8;
  ExpectHas(What([&] { Export(folder_ / "a"); }), "README: not part of the bundle, which is not replaced");
  EXPECT_EQ(AllBytes(folder_ / "a"), before);
  fs::remove(note);
  // A link in place of a file of ours leads to somebody's file.
  const fs::path manifest = folder_ / "a" / "shard_0.mlpackage" / "Manifest.json";
  fs::rename(manifest, folder_ / "theirs.json");
  fs::create_symlink(folder_ / "theirs.json", manifest);
  ExpectHas(What([&] { Export(folder_ / "a"); }), "Manifest.json: not part of the bundle");
  EXPECT_TRUE(fs::is_symlink(manifest));
  // An altered file of ours is replaced: exporting again is the remedy that ReadBundle names.
  fs::remove(manifest);
  WriteFileAtomically(manifest, std::string_view("{}"));
  Export(folder_ / "a");
  EXPECT_EQ(ReadBundle(folder_ / "a").format, WeightFormat::kInt8);
}

TEST_F(ExportedBundle, ALinkToItStays) {
  fs::create_directory(folder_ / "disk");
  fs::create_directory_symlink("disk/a", folder_ / "link");
  Export(folder_ / "link");  // led to nothing yet
  options_.weights = WeightFormat::kInt8;
  Export(folder_ / "link");
  Export((folder_ / "link").string() + "/");
  EXPECT_EQ(fs::read_symlink(folder_ / "link"), "disk/a");
  EXPECT_EQ(ReadBundle(folder_ / "disk" / "a").format, WeightFormat::kInt8);
  EXPECT_EQ(ReadBundle(folder_ / "link").format, WeightFormat::kInt8);
}

TEST_F(ExportedBundle, IgnoresAndKeepsWhatSystemsLeave) {
  Export(folder_ / "a");
  fs::create_directory(folder_ / "a" / ".Spotlight-V100");
  const std::vector<std::string> litter = {
      ".DS_Store",  "._bundle.json",  ".Spotlight-V100/store",      "Thumbs.db",
      "notes.txt~", ".notes.txt.swp", "shard_0.mlpackage/.DS_Store"};
  for (const std::string& name : litter) WriteFileAtomically(folder_ / "a" / name, std::string_view(name));
  EXPECT_EQ(ReadBundle(folder_ / "a").format, WeightFormat::kFp16);
  options_.weights = WeightFormat::kInt8;
  Export(folder_ / "a");
  EXPECT_EQ(ReadBundle(folder_ / "a").format, WeightFormat::kInt8);
  for (const std::string& name : litter) EXPECT_EQ(ReadTextFile(folder_ / "a" / name), name);
}

TEST_F(ExportedBundle, LeftoversOfOthersStay) {
  Export(folder_ / "a");
  for (const char* name : {"a.partial-1", "a.replaced-1", "a.partial-999999999", "a.partial-letters"}) {
    fs::create_directory(folder_ / name);
    WriteFileAtomically(folder_ / name / "diary", std::string_view("dear diary"));
  }
  Export(folder_ / "a");
  for (const char* name : {"a.partial-1", "a.replaced-1", "a.partial-999999999", "a.partial-letters"})
    EXPECT_EQ(ReadTextFile(folder_ / name / "diary"), "dear diary");
}

// A bundle that is replaced while its files are opened is opened again: they are those that were checked.
TEST_F(ExportedBundle, WhatWasCheckedIsWhatIsUsed) {
  Export(folder_ / "a");
  int uses = 0;
  UseBundle(folder_ / "a", [&](const Bundle& bundle) {
    EXPECT_EQ(bundle.format, uses == 0 ? WeightFormat::kFp16 : WeightFormat::kInt8);
    EXPECT_TRUE(IsCurrent(bundle));
    options_.weights = WeightFormat::kInt8;
    if (++uses == 1) {
      Export(folder_ / "a");
      EXPECT_FALSE(IsCurrent(bundle));
      throw Fail(ErrorKind::kCorruptFile, "another bundle's file");
    }
  });
  EXPECT_EQ(uses, 2);
  ExpectHas(What([&] { UseBundle(folder_ / "a", [&](const Bundle&) { Export(folder_ / "a"); }); }),
            "busy: " + (folder_ / "a").string() + ": the bundle is replaced again and again");
  // An error of a bundle that stays is the caller's.
  ExpectHas(What([&] {
              UseBundle(folder_ / "a", [](const Bundle&) { throw Fail(ErrorKind::kDevice, "broken"); });
            }),
            "broken");
  // Folders that change places, the files being the same ones.
  Export(folder_ / "b");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // clocks of file systems are coarse
  uses = 0;
  UseBundle(folder_ / "a", [&](const Bundle&) {
    if (++uses > 1) return;
    for (int i = 0; i < 2; ++i) {
      fs::rename(folder_ / "a", folder_ / "c");
      fs::rename(folder_ / "b", folder_ / "a");
      fs::rename(folder_ / "c", folder_ / "b");
    }
  });
  EXPECT_EQ(uses, 2);
}

// Killed after each progress report in turn: what is at the target is the old bundle, whole, or nothing.
TEST_F(ExportedBundle, KilledExportsLeaveNoHalfBundle) {
  const fs::path target = folder_ / "a";
  int reports = 0;
  ExportBundle(model_, target, options_, [&](const ExportProgress&) { ++reports; });
  ASSERT_GT(reports, 10);
  options_.weights = WeightFormat::kInt8;
  for (int at = 1; at <= reports; at += 5) {
    const pid_t child = ::fork();
    if (child == 0) {
      int seen = 0;
      ExportBundle(model_, target, options_, [&](const ExportProgress&) {
        if (++seen == at) ::kill(::getpid(), SIGKILL);
      });
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(ReadBundle(target).format, WeightFormat::kFp16) << at;
  }
  Export(target);  // and the next one cleans up
  EXPECT_EQ(ReadBundle(target).format, WeightFormat::kInt8);
  for (const auto& entry : fs::directory_iterator(folder_.path())) EXPECT_EQ(entry.path().filename(), "a");
}

// ---- range and quality ----

TEST_F(ExportedBundle, LargeStreamsAreScaledAndHugeOnesRefused) {
  ModelSpec spec = test::MixedSpec();
  spec.layers.resize(4);  // with and without norms after the blocks
  options_.sample = test::SomeTokens(40, spec.vocab);
  const auto with_stream = [&](float scale) {
    spec.embed_scale = scale;
    ModelSource model = test::RandomSource(spec);
    return ExportBundle(model, folder_ / "a", options_, [](const ExportProgress&) {});
  };
  ExportReport report = with_stream(1);
  EXPECT_EQ(report.bundle.stream_scale, 1);
  for (const LayerQuality& layer : report.layers) EXPECT_GT(layer.magnitude, 1);
  report = with_stream(30000);
  EXPECT_LT(report.bundle.stream_scale, 1);
  for (const LayerQuality& layer : report.layers) EXPECT_LE(layer.magnitude, kComfortable);
  EXPECT_EQ(std::log2(report.bundle.stream_scale), std::round(std::log2(report.bundle.stream_scale)));
}

TEST_F(ExportedBundle, RefusesKeysBeyondHalves) {
  ModelSpec spec = test::MixedSpec();
  test::TinyModel tiny = test::RandomModel(spec);
  std::optional<TensorView>& bias = AttentionOf(tiny.tensors.layers[0]).v->bias;
  auto values = std::make_shared<std::vector<float>>(bias->ReadAll());
  values->front() = 60000;
  bias->bytes = std::as_bytes(std::span(*values));
  bias->owner = values;
  ModelSource model = test::SourceOf(std::move(tiny));
  options_.sample = test::SomeTokens(8, spec.vocab);
  ExpectHas(What([&] { ExportBundle(model, folder_ / "a", options_, [](const ExportProgress&) {}); }),
            "unsupported: layer 0: activations reach");
  EXPECT_FALSE(fs::exists(folder_ / "a"));
  values->front() = 70000;
  options_.sample.clear();
  ExpectHas(What([&] { ExportBundle(model, folder_ / "a", options_, [](const ExportProgress&) {}); }),
            "which fp16 cannot");
}

// Keys that are normed once rotated: an importer that rotates raw keys would leave the norm out.
TEST_F(ExportedBundle, RefusesRawKeysThatHaveNoRawForm) {
  model_ = test::RandomSource(test::OtherKindsSpec());
  options_.lowering.keys = KeyForm::kRaw;
  ExpectHas(What([&] { Export(folder_ / "a"); }), "unsupported: raw keys");
  EXPECT_FALSE(fs::exists(folder_ / "a"));
  options_.lowering.keys = KeyForm::kRotated;
  Export(folder_ / "a");
}

TEST_F(ExportedBundle, QualityFollowsTheFormat) {
  ModelSpec spec = test::MixedSpec();
  spec.layers.resize(3);
  model_ = test::RandomSource(spec);
  options_.sample = test::SomeTokens(60, spec.vocab);
  const auto worst = [&](WeightFormat format) {
    options_.weights = format;
    double cosine = 1;
    for (const LayerQuality& l : Export(folder_ / Name(format)).layers) {
      cosine = std::min({cosine, l.k_cosine, l.v_cosine});
      EXPECT_NEAR(l.k_rms_ratio, 1, 0.1);
      EXPECT_NEAR(l.v_rms_ratio, 1, 0.1);
    }
    return cosine;
  };
  EXPECT_EQ(worst(WeightFormat::kFp16), 1);
  const double int8 = worst(WeightFormat::kInt8), lut4 = worst(WeightFormat::kLut4);
  EXPECT_GT(int8, 0.998);
  EXPECT_GT(lut4, 0.9);
  EXPECT_LT(lut4, int8);
  EXPECT_LT(int8, 1);
}

}  // namespace
}  // namespace pd
