#include "coreml/package/package.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/files.h"
#include "coreml/package/manifest.h"
#include "tests/coreml/example.h"
#include "tests/temp_folder.h"

namespace pd {
namespace {

using mil::DataType;
namespace fs = std::filesystem;

std::string What(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return fmt::format("{}: {}", Name(error.kind()), error.what());
  }
  return "no error";
}

std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 3)
    bytes += char(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

TEST(Package, ComesBackAsWritten) {
  const test::TempFolder folder;
  const Package written = test::MakeExample(folder / "a.mlpackage");
  WritePackage(folder / "a.mlpackage", written);
  const Package read = ReadPackage(folder / "a.mlpackage");
  EXPECT_EQ(read.program, written.program);
  EXPECT_EQ(read.default_function, "t32");
  EXPECT_EQ(read.specification_version, 9);
  const mil::Operation& weight = read.program.functions.at("t64").body.operations.at(0);
  const auto bytes = weight.attributes.at("val").bytes();
  const auto expected = test::Pattern({DataType::kF16, {32, 64, 1, 1}});
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end()));
}

TEST(Package, SingleFunctionLayoutComesBack) {
  const test::TempFolder folder;
  Package written = test::MakeExample(folder / "a.mlpackage", {32});
  written.program.functions["main"] = written.program.functions.at("t32");
  written.program.functions.erase("t32");
  written.default_function.clear();
  written.metadata["source"] = "test";
  WritePackage(folder / "a.mlpackage", written);
  const Package read = ReadPackage(folder / "a.mlpackage");
  EXPECT_EQ(read.program, written.program);
  EXPECT_EQ(read.metadata, written.metadata);
}

TEST(Package, SameContentGivesSameBytes) {
  const test::TempFolder folder;
  for (const char* name : {"a", "b"}) WritePackage(folder / name, test::MakeExample(folder / name));
  for (const char* file : {"Manifest.json", kModelPlace})
    EXPECT_EQ(ReadTextFile(folder / "a" / file), ReadTextFile(folder / "b" / file));
  WritePackage(folder / "c", test::MakeExample(folder / "c", {32, 96}));
  EXPECT_NE(ReadTextFile(folder / "a" / "Manifest.json"), ReadTextFile(folder / "c" / "Manifest.json"));
}

// Messages written by hand, as the format's description gives them.
TEST(Package, ValuesAreStoredAsTheFormatSays) {
  Package package;
  mil::FunctionBuilder f("CoreML8");
  const std::string x = f.Input("x", {DataType::kF16, {1, 64, 1, 32}});
  f.Output(f.Op("relu", {{"x", x}}), "y");
  mil::Function& main = package.program.functions["main"] = std::move(f).Finish();
  const auto add = [&](const std::string& name, const mil::Value& value) {  // a constant that nothing reads
    main.body.operations.push_back(
        {"const", {}, {{name, value.type}}, {}, {{"name", mil::Scalar(name)}, {"val", value}}});
  };
  add("minus_one", mil::Scalar(-1));
  add("one", mil::ScalarF16(1));
  add("pair", mil::Vector(std::vector<int32_t>{1, 0}));
  add("w", {{DataType::kF16, {128, 64}}, mil::Blob{kWeightFile, 64, {}, {}}});
  add("flags", mil::Vector(std::vector<bool>{true, false}));
  add("none", mil::Vector(std::vector<int32_t>{}));
  const std::string bytes = SerialiseModel(package);
  const std::string expected[] = {
      FromHex("12 04 0A 02 08 17 1A 10 0A 0E 12 0C 0A 0A FF FF FF FF FF FF FF FF FF 01"),
      FromHex("12 04 0A 02 08 0A 1A 08 0A 06 3A 04 0A 02 00 3C"),
      FromHex("12 0C 0A 0A 08 17 10 01 1A 04 0A 02 08 02 1A 08 0A 06 12 04 0A 02 01 00"),
      FromHex("12 13 0A 11 08 0A 10 02 1A 05 0A 03 08 80 01 1A 04 0A 02 08 40 2A 22 0A 1E") + kWeightFile +
          FromHex("10 40"),
      FromHex("1A 08 0A 06 1A 04 0A 02 01 00"),
      FromHex("08 17 10 01 1A 02 0A 00 1A 04 0A 02 12 00"),  // no elements: the kinds are there, empty
  };
  for (const std::string& e : expected) EXPECT_NE(bytes.find(e), std::string::npos) << &e - expected;
  EXPECT_NE(bytes.find("\xB2\x1F"), std::string::npos);  // field 502
  const Package read = ParseModel(bytes, "model");
  EXPECT_EQ(read.program, package.program);
}

TEST(Package, StatesAndControlFlowComeBack) {
  mil::Function main;
  main.opset = "CoreML8";
  const mil::TensorType cache{DataType::kF16, {1, 8}};
  main.inputs = {{"x", cache}, {"cache", cache, true}};
  const auto op = [](std::string type, std::vector<mil::NamedType> outputs) {
    mil::Operation result{std::move(type), {}, std::move(outputs), {}, {}};
    return result;
  };
  mil::Operation read = op("read_state", {{"old", cache}});
  read.inputs["input"] = {"cache"};
  mil::Operation add = op("add", {{"sum", cache}});
  add.inputs["x"] = {"old"};
  add.inputs["y"] = {"x"};
  mil::Operation write = op("write_state", {});
  write.inputs["input"] = {"cache"};
  write.inputs["data"] = {"sum"};
  mil::Operation decide = op("const", {{"yes", {DataType::kBool, {}}}});
  decide.attributes["val"] = mil::Scalar(true);
  mil::Operation relu = op("relu", {{"inner", cache}}), tanh = op("tanh", {{"other", cache}});
  relu.inputs["x"] = tanh.inputs["x"] = {"sum"};
  mil::Operation cond = op("cond", {{"y", cache}});
  cond.inputs["pred"] = {"yes"};
  cond.blocks = {{{}, {relu}, {"inner"}}, {{}, {tanh}, {"other"}}};
  main.body = {{}, {read, add, write, decide, cond}, {"y"}};
  const Package package{9, "", {{{"main", main}}, {}}, {}};
  EXPECT_EQ(ParseModel(SerialiseModel(package), "model").program, package.program);
}

// Others' packages are read with outputs that hold nothing, or are inputs; not all of them can be written.
TEST(Package, SaysWhichFeaturesItDoesNotWrite) {
  const auto of = [](const mil::TensorType& type, std::vector<std::string> outputs) {
    mil::Function main;
    main.opset = "CoreML8";
    main.inputs = {{"x", type}};
    mil::Operation relu{"relu", {}, {{"y", type}}, {}, {}};
    relu.inputs["x"] = {"x"};
    main.body = {{}, {relu}, std::move(outputs)};
    return Package{9, "", {{{"main", main}}, {}}, {}};
  };
  EXPECT_EQ(What([&] { SerialiseModel(of({DataType::kF16, {1, 0}}, {"y"})); }).find("unsupported: 'x' is "),
            0u);
  EXPECT_EQ(
      What([&] { SerialiseModel(of({DataType::kF16, {1, mil::kUnknown}}, {"y"})); }).find("unsupported: "),
      0u);
  const Package through = of({DataType::kF16, {1, 8}}, {"y", "x"});
  EXPECT_EQ(ParseModel(SerialiseModel(through), "model").program, through.program);

  Package empty = of({DataType::kF16, {1, 8}}, {"z"});  // as coremltools writes an output without elements
  mil::Operation none{"slice_by_size", {}, {{"z", {DataType::kF16, {1, 0}}}}, {}, {}};
  none.inputs["x"] = {"y"};
  none.inputs["begin"] = {mil::Vector(std::vector<int32_t>{0, 0})};
  none.inputs["size"] = {mil::Vector(std::vector<int32_t>{1, 0})};
  empty.program.functions.at("main").body.operations.push_back(none);
  const std::string what = What([&] { SerialiseModel(empty); });
  EXPECT_NE(what.find("'z' is tensor<fp16, [1, 0]>"), std::string::npos) << what;
}

// ---- manifests ----

TEST(Package, RefusesManifestsThatAppleWouldRefuse) {
  const test::TempFolder folder;
  const fs::path package = folder / "a.mlpackage";
  WritePackage(package, test::MakeExample(package));
  const std::string good = ReadTextFile(package / "Manifest.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    WriteFileAtomically(package / "Manifest.json", text);
    const std::string what = What([&] { ReadPackage(package); });
    EXPECT_NE(what.find("Manifest.json"), std::string::npos) << what;
    return what;
  };
  const auto has = [](const std::string& what, const char* part) {
    EXPECT_NE(what.find(part), std::string::npos) << what;
  };
  has(with("1.0.0", "2.0.0"), "fileFormatVersion");
  has(with("fileFormatVersion", "fileFormat"), "fileFormat");
  has(with("rootModelIdentifier", "rootModel"), "rootModelIdentifier");
  has(with("\"rootModelIdentifier\": \"", "\"rootModelIdentifier\": \"0"), "names no item");
  has(with("\"itemInfoEntries\": {\n        \"", "\"itemInfoEntries\": {\n        \"x"), "is not a UUID");
  has(with("\"author\"", "\"writer\""), "author");
  has(with("\"description\"", "\"words\""), "description");
  has(with("\"name\": \"model.mlmodel\"", "\"name\": \"model2.mlmodel\""), "is not author/name");
  has(with("com.apple.CoreML/weights", "com.apple.CoreML/../weights"), "is not author/name");
  has(with("\"path\"", "\"place\""), "path");
  has(with("{", ""), "Manifest.json");
  WriteFileAtomically(package / "Manifest.json", good);
  fs::rename(package / kWeightsPlace, package / "elsewhere");
  has(What([&] { ReadPackage(package); }), "'com.apple.CoreML/weights' does not exist");
  fs::rename(package / "elsewhere", package / kWeightsPlace);
  EXPECT_EQ(What([&] { ReadPackage(package); }), "no error");
  fs::remove(package / kModelPlace);
  has(What([&] { ReadPackage(package); }), "'com.apple.CoreML/model.mlmodel' does not exist");
  has(What([&] { ReadPackage(folder / "nowhere"); }), "not_found");
}

}  // namespace
}  // namespace pd
