#include <filesystem>
#include <memory>

#include "base/json.h"
#include "cli/chip_model.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "planning/planner.h"
#include "planning/shapes.h"

namespace pd::cli {
namespace {

constexpr int kLengths[] = {16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
constexpr int kChunk = 512;

struct PlanOptions {
  ChipModel about;
  int texts = 4;
  bool json = false, list = false;
};

// One prompt length: what each device takes, on an idle machine and beside running texts.
struct PlanRow {
  int length = 0;
  std::vector<PrefillPlan> idle, busy;
  PrefillChoice idle_choice, busy_choice;
};

PrefillQuestion Question(int length, int texts) { return {1, 0, length - 1, kChunk, texts, {}, {}}; }

const std::string& DeviceOf(const MachineCosts& costs, const PrefillChoice& choice) {
  return choice.unit ? costs.units[*choice.unit].device : costs.direct.device;
}

std::vector<PlanRow> Rows(const Planner& planner, int context, int texts) {
  std::vector<PlanRow> rows;
  for (const int length : kLengths) {
    if (length > context) break;
    rows.push_back({length, planner.Plans(Question(length, 0)), planner.Plans(Question(length, texts)),
                    planner.Choose(Question(length, 0)), planner.Choose(Question(length, texts))});
  }
  return rows;
}

// Which device reads prompts of which lengths, in a sentence that starts with `when`.
std::string Summary(const MachineCosts& costs, const std::vector<PlanRow>& rows, const std::string& when,
                    PrefillChoice PlanRow::* choice) {
  const auto reads = [&](const PlanRow& row) { return DeviceOf(costs, row.*choice); };
  std::string text = fmt::format("{}: the {}", when, reads(rows.front()));
  bool changes = false;
  for (size_t i = 1; i < rows.size(); ++i) {
    if (reads(rows[i]) == reads(rows[i - 1])) continue;
    text += fmt::format(", the {} from {} tokens on", reads(rows[i]), Grouped(rows[i].length));
    changes = true;
  }
  return text + (changes ? " should read the prompt." : " should read prompts of every length.");
}

std::string IdleSummary(const MachineCosts& costs, const std::vector<PlanRow>& rows) {
  return Summary(costs, rows, "On an idle machine", &PlanRow::idle_choice);
}
std::string BusySummary(const MachineCosts& costs, const std::vector<PlanRow>& rows, int texts) {
  return Summary(costs, rows, fmt::format("Beside {} running texts", texts), &PlanRow::busy_choice);
}

Json ToJson(const MachineCosts& costs, const std::vector<PlanRow>& rows, const PlanOptions& options,
            const std::vector<std::pair<Measurement, double>>& measured) {
  const auto plans = [&](const std::vector<PrefillPlan>& all) {
    Json json = Json::object();
    for (const PrefillPlan& plan : all)
      json[DeviceOf(costs, plan.choice)] = {{"first_token_ms", plan.first_token_ms},
                                            {"loss_ms", plan.loss_ms}};
    return json;
  };
  Json lengths = Json::array();
  for (const PlanRow& row : rows)
    lengths.push_back({{"tokens", row.length},
                       {"idle", plans(row.idle)},
                       {"choice", DeviceOf(costs, row.idle_choice)},
                       {"busy", plans(row.busy)},
                       {"busy_choice", DeviceOf(costs, row.busy_choice)}});
  Json measurements = Json::array();
  for (const auto& [m, predicted] : measured)
    measurements.push_back({{"model", m.model},
                            {"device", m.device},
                            {"phase", m.phase},
                            {"bits", m.bits},
                            {"tokens", m.tokens},
                            {"unit", m.unit},
                            {"measured", m.value},
                            {"predicted", predicted},
                            {"error", predicted / m.value - 1},
                            {"source", m.source},
                            {"note", m.note.empty() ? Json(nullptr) : Json(m.note)}});
  return {{"chip", costs.machine},
          {"model", costs.model},
          {"texts", options.texts},
          {"summary", IdleSummary(costs, rows)},
          {"busy_summary", BusySummary(costs, rows, options.texts)},
          {"decode_tokens_per_s", 1000 / costs.decode.StepMs(1, 512)},
          {"lengths", lengths},
          {"measurements", measurements}};
}

std::string ToTable(const MachineCosts& costs, const std::vector<PlanRow>& rows, const PlanOptions& options,
                    const std::vector<std::pair<Measurement, double>>& measured) {
  std::string table =
      fmt::format("{}, {}: time to the first token, predicted\n\n", costs.machine, costs.model);
  table += fmt::format("{:>8}  ", "tokens");
  for (const PrefillPlan& plan : rows.front().idle)
    table += fmt::format("{:>12}", DeviceOf(costs, plan.choice));
  table += fmt::format("{:>10} |", "choice");
  for (const PrefillPlan& plan : rows.front().idle)
    table += fmt::format("{:>22}", DeviceOf(costs, plan.choice));
  table += fmt::format("{:>10}   beside {} running texts: first token, and what each text loses\n", "choice",
                       options.texts);
  for (const PlanRow& row : rows) {
    table += fmt::format("{:>8}  ", Grouped(row.length));
    for (const PrefillPlan& plan : row.idle) table += fmt::format("{:>9.0f} ms", plan.first_token_ms);
    table += fmt::format("{:>10} |", DeviceOf(costs, row.idle_choice));
    for (const PrefillPlan& plan : row.busy)
      table += fmt::format("{:>9.0f} ms {:>6.0f} ms", plan.first_token_ms, plan.loss_ms);
    table += fmt::format("{:>10}\n", DeviceOf(costs, row.busy_choice));
  }
  table += fmt::format("\n{}\n{}\nDecode, one text at 512 tokens: {:.0f} tok/s.\n", IdleSummary(costs, rows),
                       BusySummary(costs, rows, options.texts), 1000 / costs.decode.StepMs(1, 512));
  if (measured.empty()) return table;
  table += "\nWhat others measured on this chip:\n";
  for (const auto& [m, predicted] : measured)
    table += fmt::format(
        "  {:<15}{:<4}{:<8} {:>6} tokens, {:>4.3g} bits: {:>8.4g} {:<5}  predicted {:>8.4g} ({:+.0f} %)  "
        "{}{}\n",
        m.model, m.device, m.phase, m.tokens, m.bits, m.value, m.unit, predicted,
        100 * (predicted / m.value - 1), m.source, m.note.empty() ? "" : "; " + m.note);
  return table;
}

// Where a chip's figures are from.
std::string ListChips() {
  std::string text;
  for (const ChipProfile& chip : PublishedChips()) {
    const auto figure = [](const char* name, double value, const char* unit, const Figure& f) {
      return fmt::format("  {:<24}{:>8.3g} {:<9} {:<7} {}\n", name, value, unit, f.confidence, f.source);
    };
    text += fmt::format("{} ({})\n", chip.id, chip.name);
    text += figure("memory", chip.memory_bandwidth.value / 1e9, "GB/s", chip.memory_bandwidth);
    text += figure("GPU, prefill", chip.gpu.prefill_flops.value / 1e12, "TFLOP/s", chip.gpu.prefill_flops);
    text += figure("GPU, never above", chip.gpu.peak_flops.value / 1e12, "TFLOP/s", chip.gpu.peak_flops);
    text += figure("GPU, decode", 100 * chip.gpu.bandwidth_share.value, "% of it", chip.gpu.bandwidth_share);
    text += figure("Neural Engine, prefill", chip.ane.prefill_flops.value / 1e12, "TFLOP/s",
                   chip.ane.prefill_flops);
    text +=
        figure("Neural Engine, not above", chip.ane.peak_flops.value / 1e12, "TFLOP/s", chip.ane.peak_flops);
    text += figure("Neural Engine, memory", chip.ane.bandwidth.value / 1e9, "GB/s", chip.ane.bandwidth);
    text += figure("decode beside it", chip.ane.slowdown.value, "x time", chip.ane.slowdown);
  }
  text += "\nshapes:";
  for (const std::string& shape : KnownShapes()) text += " " + shape;
  return text + "\n";
}

int Plan(const PlanOptions& options) {
  if (options.list) return WriteOutput(ListChips()) ? kOk : kOutputClosed;
  if (options.about.chip.empty())
    throw Fail(ErrorKind::kBadRequest, "--chip: which one? 'pd-engine plan --list' lists them");
  const Planner planner(CostsOf(options.about));
  const MachineCosts& costs = planner.costs();
  const bool published = !std::filesystem::is_regular_file(options.about.chip);
  const int context = published ? SpecOf(options.about).max_context : INT_MAX;
  const auto rows = Rows(planner, context, options.texts);
  std::vector<std::pair<Measurement, double>> measured;
  if (published)
    for (const Measurement& m : FindChip(options.about.chip).measurements)
      measured.emplace_back(m, Predicted(FindChip(options.about.chip), m));
  const std::string text =
      options.json ? ToLine(ToJson(costs, rows, options, measured)) : ToTable(costs, rows, options, measured);
  return WriteOutput(text) ? kOk : kOutputClosed;
}

}  // namespace

void AddPlan(const Command& program) {
  const Command command = program.Add("plan", "Predict which device of a chip should read prompts");
  auto options = std::make_shared<PlanOptions>();
  PlanOptions& o = *options;
  command.Text("--chip", o.about.chip, "a published chip, or a file that calibrate wrote");
  AddChipModel(command, o.about);
  command.Integer("--texts", o.texts, {1, 1000}, "running texts of the busy case");
  AddJson(command, o.json);
  command.Switch("--list", o.list, "list the chips with the sources of their figures, and the shapes");
  command.Runs([options] { return Plan(*options); });
}

}  // namespace pd::cli
