// plan, simulate and bench check with the real program.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "tests/cli/process.h"
#include "tests/temp_folder.h"

namespace pd::test {
namespace {

const std::string kTiny = PD_TEST_DATA "/models/llama-base";

Json JsonOf(const std::vector<std::string>& arguments) {
  return ParseJson(OutputOf(arguments), "standard output");
}

TEST(Plan, EveryChipAndShapeOfInterest) {
  for (const char* chip : {"M1", "M3", "M3 Ultra", "m4", "apple-m4-max", "M5 Pro", "iPhone 17 Pro"})
    for (const char* model : {"Qwen3-0.6B", "TinyLlama", "Llama-8B"}) {
      const Json plan = JsonOf({"plan", "--chip", chip, "--model", model, "--json"});
      ASSERT_FALSE(plan["lengths"].empty()) << chip << model;
      for (const Json& row : plan["lengths"]) {
        EXPECT_TRUE(row["idle"].contains(row["choice"].get<std::string>())) << row;
        EXPECT_GT(row["idle"]["ane"]["first_token_ms"], 0) << row;
        EXPECT_LE(row["idle"][row["choice"].get<std::string>()]["first_token_ms"],
                  row["idle"]["gpu"]["first_token_ms"])
            << row;
      }
    }
}

TEST(Plan, SaysWhereTheGpuShouldPrefill) {
  EXPECT_TRUE(Contains(OutputOf({"plan", "--chip", "M3 Ultra", "--model", "llama-8b"}),
                       "On an idle machine: the gpu should read prompts of every length."));
  const Json m4 = JsonOf({"plan", "--chip", "M4", "--model", "qwen3-0.6b", "--json"});
  EXPECT_EQ(m4["lengths"][0]["choice"], "gpu");
  EXPECT_EQ(m4["lengths"][5]["choice"], "ane");
}

TEST(Plan, StandsBesideWhatWasPublished) {
  const Json plan = JsonOf({"plan", "--chip", "M5 Pro", "--model", "qwen3-0.6b", "--json"});
  ASSERT_FALSE(plan["measurements"].empty());
  for (const Json& m : plan["measurements"]) {
    EXPECT_FALSE(m["source"].get<std::string>().empty());
    EXPECT_NEAR(m["error"].get<double>(), m["predicted"].get<double>() / m["measured"].get<double>() - 1,
                1e-9);
  }
}

TEST(Plan, TakesAModelsOwnShape) {
  EXPECT_EQ(JsonOf({"plan", "--chip", "M4", "--model", kTiny, "--json"})["model"], kTiny);
}

TEST(Plan, ListsChipsWithSources) {
  const std::string list = OutputOf({"plan", "--list"});
  for (const char* word : {"apple-m4-max", "TFLOP/s", "Anemll/anemll-bench", "medium", "llama-3.1-8b"})
    EXPECT_TRUE(Contains(list, word)) << word;
}

TEST(Plan, Errors) {
  EXPECT_TRUE(Contains(ErrorOf(3, {"plan", "--chip", "M9"}), "'M9': there are apple-m1"));
  EXPECT_TRUE(
      Contains(ErrorOf(3, {"plan", "--chip", "M4", "--model", "gpt-5"}), "'gpt-5'; shapes are smollm2"));
  EXPECT_TRUE(Contains(ErrorOf(3, {"plan", "--chip", "M4", "--model", "qwen3"}), "qwen3-1.7b"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"plan"}), "--chip: which one? 'pd-engine plan --list'"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"plan", "--chip", "M4", "--bits", "0"}), "--bits: '0'"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"plan", "--chip", "M4", "--texts", "x"}), "--texts: 'x'"));
  const TempFolder folder;
  EXPECT_TRUE(Contains(ErrorOf(5, {"plan", "--chip", folder.Write("p.json", "{}")}), "p.json"));
}

const std::string kTrace = "examples/trace-agents-and-chats.jsonl";

TEST(Simulate, ComparesOneLaneWithTwo) {
  const TempFolder folder;
  const Json json = JsonOf({"simulate", "--profile", "M3", "--model", "qwen3-0.6b", "--trace", kTrace,
                            "--svg", folder / "lanes.svg", "--json"});
  EXPECT_LT(json["two_lanes"]["gap_ms"]["p99"], json["one_lane"]["gap_ms"]["p99"]);
  EXPECT_LT(json["two_lanes"]["first_token_ms"]["p95"], json["one_lane"]["first_token_ms"]["p95"]);
  EXPECT_EQ(json["two_lanes"]["requests"].size(), 32u);
  EXPECT_EQ(json["two_lanes"]["joules"], nullptr);
  const std::string svg = ReadTextFile(folder / "lanes.svg");
  EXPECT_TRUE(svg.starts_with("<svg") && Contains(svg, ">ane<") && Contains(svg, ">gpu<"));
  const std::string table =
      OutputOf({"simulate", "--profile", "M3", "--model", "qwen3-0.6b", "--trace", kTrace});
  EXPECT_TRUE(Contains(table, "one lane") && Contains(table, "two lanes")) << table;
}

TEST(Simulate, Errors) {
  const TempFolder folder;
  const auto error = [&](const std::string& trace) {
    return ErrorOf(2, {"simulate", "--profile", "M3", "--trace", folder.Write("t.jsonl", trace)});
  };
  EXPECT_TRUE(Contains(error(""), "t.jsonl: no requests"));
  EXPECT_TRUE(Contains(error("{\"at_ms\": 0, \"prompt\": 1, \"output\": 1}\n{\"at_ms\": 0}\n"), "line 2"));
  EXPECT_TRUE(Contains(ErrorOf(3, {"simulate", "--profile", "M3", "--trace", folder / "absent"}), "absent"));
  EXPECT_EQ(ErrorOf(2, {"simulate", "--profile", "M3", "--trace", "-"},
                    {.input = "\xEF\xBB\xBF{\"at_ms\": 0, \"prompt\": 1, \"output\": 1, \"user\": 7}\r\n"}),
            "standard input: line 1: unknown key(s) user: remove or correct them");
  EXPECT_TRUE(Contains(ErrorOf(2, {"simulate", "--profile", "M3"}), "--trace"));
  EXPECT_TRUE(Contains(ErrorOf(3, {"simulate", "--profile", "M9", "--trace", kTrace}), "M9"));
}

TEST(BenchCheck, RefusesTheWriteUp) {
  const Json json = JsonOf({"bench", "check", "examples/prefill-write-up.json", "--json"});
  EXPECT_EQ(json["impossible"], 3);
  for (const Json& row : json["rows"]) {
    const bool gpu = row["device"] == "gpu";
    EXPECT_EQ(row["verdict"], !gpu ? "plausible" : row["tokens"] >= 64 ? "impossible" : "doubtful") << row;
    EXPECT_EQ(row["tflop_per_s"] > row["peak_tflop_per_s"], row["verdict"] == "impossible") << row;
  }
  EXPECT_TRUE(Contains(json["rows"][4]["why"], "warm-up"));
  EXPECT_TRUE(Contains(json["rows"][2]["why"], "655 TFLOP/s"));
  EXPECT_TRUE(Contains(OutputOf({"bench", "check", "examples/prefill-write-up.json"}),
                       "3 impossible, 1 doubtful, 4 plausible."));
}

TEST(BenchCheck, TakesModelsAndPeaks) {
  const TempFolder folder;
  const auto check = [&](const std::string& model, const std::string& device, const std::string& more = "") {
    const std::string file =
        folder.Write("t.json", "{\"model\": " + model + ", \"rows\": [{\"device\": \"" + device +
                                   "\", \"tokens\": 128, \"ms\": 10}]" + more + "}");
    return JsonOf({"bench", "check", file, "--json"})["rows"][0];
  };
  EXPECT_EQ(check("\"TinyLlama\"", "MLX (M4 Max GPU)")["peak_of"], "Apple M4 Max GPU");
  EXPECT_EQ(check("\"TinyLlama\"", "M1 GPU")["verdict"], "impossible");
  EXPECT_EQ(check("{\"params\": 1e9}", "H200",
                  ", \"peaks\": {\"H200\": {\"tflop_per_s\": 989, \"gb_per_s\": 4800}}")["verdict"],
            "plausible");
  std::filesystem::create_directory(folder.path() / "m");
  CopyModel("llama-base", folder.path() / "m");
  EXPECT_EQ(check("\"m\"", "cpu")["verdict"], "plausible");
}

TEST(BenchCheck, Errors) {
  const TempFolder folder;
  const auto error = [&](int code, const std::string& text) {
    return ErrorOf(code, {"bench", "check", folder.Write("t.json", text), "--json"});
  };
  const std::string model = "{\"model\": {\"params\": 1e9}, \"rows\": [";
  EXPECT_TRUE(Contains(error(5, "{"), "t.json"));
  EXPECT_TRUE(Contains(error(5, "[]"), "t.json"));
  EXPECT_TRUE(Contains(error(5, model + "]}"), "rows"));
  EXPECT_TRUE(Contains(error(5, "{\"model\": {\"params\": 0}, \"rows\": [1]}"), "params is 0"));
  EXPECT_TRUE(Contains(error(3, "{\"model\": \"gpt-5\", \"rows\": [1]}"), "gpt-5"));
  EXPECT_TRUE(Contains(error(2, model + "{\"device\": \"toaster\", \"tokens\": 1, \"ms\": 1}]}"), "row 1"));
  EXPECT_TRUE(Contains(error(2, model + "{\"device\": \"M9 GPU\", \"tokens\": 1, \"ms\": 1}]}"), "'M9 GPU'"));
  EXPECT_TRUE(Contains(error(5, model + "{\"device\": \"gpu\", \"tokens\": 1, \"ms\": 0}]}"), "ms is 0"));
  EXPECT_TRUE(Contains(error(5, model + "{\"device\": \"gpu\", \"tokens\": 0, \"ms\": 1}]}"), "tokens"));
  EXPECT_TRUE(Contains(error(4, model + "{\"device\": \"gpu\", \"tokens\": 1, \"ms\": 1, \"x\": 1}]}"), "x"));
  EXPECT_TRUE(Contains(ErrorOf(3, {"bench", "check", folder / "absent"}), "absent"));
  EXPECT_TRUE(Contains(ErrorOf(2, {"bench", "check"}), "see 'pd-engine bench check --help'"));
}

}  // namespace
}  // namespace pd::test
