#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/lint_report.h"
#include "cli/model.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/sample_text.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "coreml/export/export.h"
#include "session/bundles.h"
#include "session/text_codec.h"

namespace pd::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSampleTokens = 256;  // enough to see the large channels; a pass is linear in them

enum class Check : uint8_t { kLayers, kNone };

struct ExportFlags {
  std::string model, output, sample;
  ExportOptions options;
  Check check = Check::kLayers;
  int max_shard_mb = 900;
  bool json = false, quiet = false;
};

// The tokens that activations are measured on.
std::vector<TokenId> SampleTokens(const ExportFlags& flags, const ModelSource& model) {
  if (flags.check == Check::kNone) return {};
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = OpenTokenizer(model);
  } catch (const Error& error) {
    throw Fail(error.kind(), "{}; --check none exports without sample text", error.what());
  }
  std::vector<TokenId> ids =
      tokenizer->Encode(flags.sample.empty() ? std::string(kSampleText) : ReadTextFile(flags.sample));
  ids.resize(std::min({ids.size(), kSampleTokens, size_t(model.spec.max_context)}));
  if (ids.empty()) throw Fail(ErrorKind::kBadRequest, "--sample: {} holds no text", flags.sample);
  return ids;
}

// One bar for each stage of an export.
class Bars {
 public:
  explicit Bars(bool wanted) : wanted_(wanted) {}
  void Show(const ExportProgress& progress) {
    if (stage_ != progress.stage) {
      bar_.emplace(stage_ = progress.stage, wanted_);
    }
    bar_->Show(size_t(progress.done), size_t(progress.total));
  }

 private:
  bool wanted_;
  std::string stage_;
  std::optional<ProgressBar> bar_;
};

// Reasons of warnings and of forced violations, with the number of ops each is about.
std::map<std::string, int> CountReasons(const std::vector<mil::LintedFunction>& lint) {
  std::map<std::string, int> counts;
  for (const mil::LintedFunction& function : lint) {
    for (const mil::LintedOp& op : function.ops)
      if (op.verdict != mil::Verdict::kGood) ++counts[op.type + ": " + op.reason];
    for (const auto* whole : {&function.findings, &function.violations})
      for (const std::string& reason : *whole) ++counts[reason];
  }
  return counts;
}

std::string ToText(const ExportReport& report, const ExportFlags& flags) {
  const Bundle& bundle = report.bundle;
  std::string text;
  const auto line = [&](const std::string& label, const std::string& value) {
    text += fmt::format("{:<12}{}\n", label, value);
  };
  line("bundle", bundle.path.string());
  line("weights",
       fmt::format("{}, {} in {} package{}, from {}", Name(bundle.format),
                   WithUnit(double(report.written_bytes), "B"), bundle.shards.size(),
                   bundle.shards.size() == 1 ? "" : "s", WithUnit(double(report.source_bytes), "B")));
  std::map<int, std::vector<std::string>> histories;
  for (const mil::PrefillShape& f : bundle.functions) histories[f.tokens].push_back(Grouped(f.history));
  std::string label = "functions";
  for (const auto& [tokens, after] : histories)
    line(std::exchange(label, ""),
         fmt::format("{} tokens after up to {}", Grouped(tokens), fmt::join(after, " / ")));
  if (bundle.stream_scale != 1)
    line("range", fmt::format("residual stream scaled by 2^{}", int(std::log2(bundle.stream_scale))));
  if (report.layers.empty()) line("range", "not measured (--check none): large activations may leave fp16");
  const bool compared = bundle.format != WeightFormat::kFp16;
  if (!report.layers.empty())
    text += fmt::format("{:<12}{:>10}{}\n", "layer", "largest",
                        compared ? "  k cosine   k rms  v cosine   v rms" : "");
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const LayerQuality& l = report.layers[i];
    text += fmt::format("{:<12}{:>10.4g}", i, l.magnitude);
    if (compared)
      text += fmt::format("{:>10.6f}{:>8.4f}{:>10.6f}{:>8.4f}", l.k_cosine, l.k_rms_ratio, l.v_cosine,
                          l.v_rms_ratio);
    text += '\n';
  }
  label = "findings";
  for (const auto& [reason, count] : CountReasons(report.lint))
    line(std::exchange(label, ""), fmt::format("{} x {}", count, reason));
  if (flags.output.empty()) line("run it", "pd-engine run --prefill " + BundleDevice());
  return text;
}

Json ToJson(const ExportReport& report) {
  const Bundle& bundle = report.bundle;
  Json functions = Json::array(), shards = Json::array(), layers = Json::array(), findings = Json::object();
  for (const mil::PrefillShape& f : bundle.functions)
    functions.push_back({{"tokens", f.tokens}, {"history", f.history}});
  for (const BundleShard& s : bundle.shards)
    shards.push_back({{"package", s.package},
                      {"first_layer", s.first_layer},
                      {"end_layer", s.end_layer},
                      {"weight_bytes", s.weight_bytes}});
  const bool compared = bundle.format != WeightFormat::kFp16;
  for (const LayerQuality& l : report.layers) {
    Json layer = {{"largest", l.magnitude}};
    if (compared)
      layer.update({{"k_cosine", l.k_cosine},
                    {"k_rms_ratio", l.k_rms_ratio},
                    {"v_cosine", l.v_cosine},
                    {"v_rms_ratio", l.v_rms_ratio}});
    layers.push_back(std::move(layer));
  }
  for (const auto& [reason, count] : CountReasons(report.lint)) findings[reason] = count;
  return {{"bundle", bundle.path.string()},
          {"weights", Name(bundle.format)},
          {"source_bytes", report.source_bytes},
          {"written_bytes", report.written_bytes},
          {"stream_scale", bundle.stream_scale},
          {"functions", functions},
          {"shards", shards},
          {"layers", layers},
          {"findings", findings}};
}

int Export(ExportFlags flags, bool output_given) {
  if (output_given && (flags.output.empty() || flags.output == kStream))
    throw Fail(ErrorKind::kBadRequest, "--output: '{}' is no folder; give one, or leave it out for the cache",
               flags.output);
  const Interrupt interrupt;
  if (flags.check == Check::kNone && !flags.sample.empty())
    throw Fail(ErrorKind::kBadRequest, "--sample: --check none looks at no text");
  ModelSource model = OpenModel(ModelPath(flags.model));
  flags.options.sample = SampleTokens(flags, model);
  flags.options.max_shard_bytes = int64_t(flags.max_shard_mb) * 1'000'000;
  const fs::path output = flags.output.empty()
                              ? DefaultBundlePath(RequireCacheFolder("bundles", ", or give --output"), model)
                              : fs::path(flags.output);
  ExportReport report;
  {
    Bars bars(!flags.quiet);
    report = ExportBundle(model, output, flags.options, [&](const ExportProgress& progress) {
      interrupt.Check();
      bars.Show(progress);
    });
  }
  if (flags.json) return WriteOutput(ToLine(ToJson(report))) ? kOk : kOutputClosed;
  if (flags.quiet) return kOk;
  return WriteOutput(ToText(report, flags)) ? kOk : kOutputClosed;
}

std::vector<int> ParseSizes(const std::string& flag, const std::string& text) {
  const std::vector<TokenId> numbers = ParseIds(flag, text);
  return {numbers.begin(), numbers.end()};
}

}  // namespace

void AddExport(const Command& program) {
  const Command command = program.Add("export", "Write a model as Core ML packages for the Neural Engine");
  auto flags = std::make_shared<ExportFlags>();
  ExportFlags& f = *flags;
  ExportOptions& o = f.options;
  command.Text("MODEL", f.model, "a .gguf file or a Hugging Face folder; default: the default model");
  const Flag output = command
                          .Text("-o,--output", f.output,
                                fmt::format("the bundle's folder, where a bundle is replaced and nothing "
                                            "else; default: in the cache, where run "
                                            "--prefill {} finds it",
                                            BundleDevice()))
                          .ValueName("DIR");
  command.Choice<WeightFormat>(
      "--weights", o.weights,
      {{"fp16", WeightFormat::kFp16}, {"int8", WeightFormat::kInt8}, {"lut4", WeightFormat::kLut4}},
      "fp16; int8 by output channel; lut4: tables of 16 values");
  const auto add_sizes = [&](const char* name, std::optional<std::vector<int>>& sizes, const char* help) {
    command.Parsed(
               name, [name, &sizes](const std::string& text) { sizes = ParseSizes(name, text); }, help)
        .ValueName("N,N");
  };
  add_sizes("--chunks", o.chunks, "tokens that a function computes; default: 128,512 as the context needs");
  add_sizes("--history", o.histories,
            "past tokens that it attends to; default: 0,1024,4096 as the context needs");
  command.Integer("--max-shard-mb", f.max_shard_mb, {1, 1e6}, "size limit in MB of a package's weights");
  command.Choice<mil::AttentionForm>(
      "--attention", o.lowering.attention,
      {{"heads", mil::AttentionForm::kHeads},
       {"channels", mil::AttentionForm::kChannels},
       {"grouped", mil::AttentionForm::kGrouped}},
      "form of attention: a KV head at a time, scores as channels, or all heads as a batch");
  command.Choice<KeyForm>("--keys", o.lowering.keys, {{"rotated", KeyForm::kRotated}, {"raw", KeyForm::kRaw}},
                          "whether new keys leave rotated, or before that");
  command.Choice<Check>("--check", f.check, {{"layers", Check::kLayers}, {"none", Check::kNone}},
                        "measure ranges and quality layer by layer on sample text");
  command
      .Text("--sample", f.sample,
            fmt::format("text to measure on, its first {} tokens; default: our own", kSampleTokens))
      .ValueName("FILE");
  command.Switch("--force", o.force, "export despite violations of the Neural Engine's rules");
  AddJson(command, f.json);
  AddQuiet(command, f.quiet, "no report and no progress bar");
  command.Footer("The rules and their verdict on every op: pd-engine inspect DIR.");
  command.Runs([flags, output] { return Export(*flags, output.given()); });
}

}  // namespace pd::cli
