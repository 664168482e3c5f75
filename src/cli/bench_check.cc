#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "formats/model_source.h"
#include "planning/profile.h"
#include "planning/roofline.h"
#include "planning/shapes.h"

namespace pd::cli {
namespace {

constexpr std::string_view kRemedy = "remove or correct them";  // keys that nobody reads

struct CheckOptions {
  std::string file;
  bool json = false;
};

// What `bench check` reads.
struct Table {
  std::string model;  // in words
  double params = 0;
  std::vector<TimedRow> rows;
};

// {"params": N}, a known shape, or the path of a model, from the table's folder or from here.
void ReadModel(JsonReader& json, const std::filesystem::path& folder, Table& table) {
  const Json& model = json.Value("model");
  if (model.is_object()) {
    JsonReader about = json.Object("model");
    table.model = about.StringOr("name", "the model");
    table.params = about.Number("params");
    about.Done(kRemedy);
    if (!(table.params >= 1 && table.params <= 1e15))
      throw Fail(ErrorKind::kCorruptFile, "{}: params is {}, not a number of parameters", about.where(),
                 table.params);
    return;
  }
  table.model = json.String("model");
  const bool beside = std::filesystem::exists(folder / table.model);
  if (beside || std::filesystem::exists(table.model)) {
    table.params = CountLayerParameters(
        OpenModel(beside ? folder / table.model : std::filesystem::path(table.model)).spec);
  } else {
    table.params = CountLayerParameters(KnownShape(table.model));
  }
}

double Positive(JsonReader& json, const char* key) {
  const double value = json.Number(key);
  if (!(value > 0 && value < 1e15))
    throw Fail(ErrorKind::kCorruptFile, "{}: {} is {}, not above zero", json.where(), key, value);
  return value;
}

TimedRow ReadRow(JsonReader json, const std::map<std::string, DevicePeak>& peaks) {
  TimedRow row;
  row.device = json.String("device");
  row.tokens = int(json.Int("tokens", 1));
  row.ms = Positive(json, "ms");
  json.Done(kRemedy);
  const auto own = peaks.find(row.device);
  try {
    row.peak = own != peaks.end() ? own->second : PeakOf(row.device);
  } catch (const Error& e) {
    throw Fail(e.kind(), "{}: {}; or give \"peaks\": {{\"{}\": {{\"tflop_per_s\": ..., \"gb_per_s\": ...}}}}",
               json.where(), e.what(), row.device);
  }
  return row;
}

// What devices can do at most, by the name in the rows.
std::map<std::string, DevicePeak> ReadPeaks(JsonReader& json) {
  std::map<std::string, DevicePeak> peaks;
  if (!json.Has("peaks")) return peaks;
  const Json& object = json.Value("peaks");
  const std::string where = json.where() + ": peaks";
  if (!object.is_object()) throw Fail(ErrorKind::kCorruptFile, "{} must be an object", where);
  for (const auto& [device, value] : object.items()) {
    JsonReader peak(value, fmt::format("{}.{}", where, device));
    peaks[device] = {device, 1e12 * Positive(peak, "tflop_per_s"), 1e9 * Positive(peak, "gb_per_s")};
    peak.Done(kRemedy);
  }
  return peaks;
}

Table ReadTable(const std::filesystem::path& file) {
  const std::string where = InputName(file.string());
  const Json object = ParseJson(ReadTextInput(file.string()), where);
  JsonReader json(object, where);
  Table table;
  ReadModel(json, file.parent_path(), table);
  const auto peaks = ReadPeaks(json);
  const Json& rows = json.Value("rows");
  if (!rows.is_array() || rows.empty())
    throw Fail(ErrorKind::kCorruptFile, "{}: \"rows\" must be an array, and not empty", where);
  for (size_t i = 0; i < rows.size(); ++i)
    table.rows.push_back(ReadRow(JsonReader(rows[i], fmt::format("{}: row {}", where, i + 1)), peaks));
  json.Ignore({"source"});
  json.Done(kRemedy);
  return table;
}

int64_t Count(const std::vector<CheckedRow>& rows, Verdict verdict) {
  return std::ranges::count(rows, verdict, &CheckedRow::verdict);
}

Json ToJson(const Table& table, const std::vector<CheckedRow>& checked) {
  Json rows = Json::array();
  for (size_t i = 0; i < checked.size(); ++i)
    rows.push_back({{"device", table.rows[i].device},
                    {"tokens", table.rows[i].tokens},
                    {"ms", table.rows[i].ms},
                    {"verdict", Name(checked[i].verdict)},
                    {"tflop_per_s", checked[i].flops_per_s / 1e12},
                    {"peak_tflop_per_s", table.rows[i].peak.flops / 1e12},
                    {"peak_of", table.rows[i].peak.name},
                    {"why", checked[i].why}});
  return {{"model", {{"name", table.model}, {"params", table.params}}},
          {"impossible", Count(checked, Verdict::kImpossible)},
          {"doubtful", Count(checked, Verdict::kDoubtful)},
          {"plausible", Count(checked, Verdict::kPlausible)},
          {"rows", rows}};
}

std::string ToText(const Table& table, const std::vector<CheckedRow>& checked) {
  std::string text = fmt::format("{:<12}{:>7}{:>11}  {:<11} why\n", "device", "tokens", "ms", "verdict");
  for (size_t i = 0; i < checked.size(); ++i)
    text += fmt::format("{:<12}{:>7}{:>11.4g}  {:<11} {}\n", table.rows[i].device, table.rows[i].tokens,
                        table.rows[i].ms, Name(checked[i].verdict), checked[i].why);
  return text + fmt::format("\n{} impossible, {} doubtful, {} plausible.\n",
                            Count(checked, Verdict::kImpossible), Count(checked, Verdict::kDoubtful),
                            Count(checked, Verdict::kPlausible));
}

int Check(const CheckOptions& options) {
  const Table table = ReadTable(options.file);
  const auto checked = CheckRows(table.params, table.rows);
  return WriteOutput(options.json ? ToLine(ToJson(table, checked)) : ToText(table, checked)) ? kOk
                                                                                             : kOutputClosed;
}

}  // namespace

void AddBenchCheck(const Command& bench) {
  const Command command = bench.Add("check", "Say which rows of a table of prefill times can be true");
  auto options = std::make_shared<CheckOptions>();
  command.Text("file", options->file, "a JSON file; -: standard input").Required();
  AddJson(command, options->json);
  command.Footer(
      "The file: {\"model\": {\"params\": 1.1e9}, \"rows\": [{\"device\": \"gpu\", \"tokens\": 128, \"ms\": "
      "34}, ...]}\n"
      "with a model's path or a known shape instead of its parameters if you like. Device names are read by "
      "their words:\n"
      "gpu, ane or cpu stand for the fastest of their kind that anybody published, \"M4 Max GPU\" for that "
      "one, and\n"
      "\"peaks\": {\"gpu\": {\"tflop_per_s\": 20, \"gb_per_s\": 400}} says it yourself.");
  command.Runs([options] { return Check(*options); });
}

}  // namespace pd::cli
