#include <algorithm>
#include <map>
#include <memory>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/lint_report.h"
#include "cli/model.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "formats/model_source.h"
#include "open/open.h"
#include "reference/count_ops.h"

namespace pd::cli {
namespace {

constexpr int kPrompt = 512;  // tokens over which the cost of prefill is averaged, fewer in a shorter context

struct InspectOptions {
  std::string model;
  bool json = false, ops = false;
};

struct TensorTotal {
  int64_t count = 0, values = 0;
  size_t bytes = 0;
};

struct Summary {
  std::map<std::string, TensorTotal> types;
  TensorTotal all;
  double prefill_flops = 0, decode_flops = 0, full_decode_flops = 0;  // for a token
  std::vector<std::pair<std::string, MemoryNeed>> memory;             // by device
};

Summary Summarise(ModelSource& model) {
  Summary summary;
  ForEachWeight(model.spec, model.tensors, [&](const TensorView& tensor, const WeightInfo&) {
    for (TensorTotal* total : {&summary.types[Name(tensor.type)], &summary.all}) {
      ++total->count;
      total->values += tensor.rows() * tensor.columns();
      total->bytes += tensor.stored_bytes();
    }
  });
  const int context = model.spec.max_context, prompt = std::min(kPrompt, context);
  summary.prefill_flops = CostOf(model.spec, 0, prompt, 0).flops / prompt;
  summary.decode_flops = CostOf(model.spec, prompt - 1, 1, 1).flops;
  summary.full_decode_flops = CostOf(model.spec, context - 1, 1, 1).flops;
  for (const std::string& device : DeviceNames())
    summary.memory.emplace_back(device, EstimateMemory(model, device));
  return summary;
}

Json ToJson(const ModelSource& model, const Summary& summary) {
  Json types = Json::array(), memory = Json::object();
  for (const auto& [type, total] : summary.types)
    types.push_back(
        {{"type", type}, {"count", total.count}, {"values", total.values}, {"bytes", total.bytes}});
  for (const auto& [device, need] : summary.memory)
    memory[device] = {{"weights", need.weights},
                      {"activations", need.activations},
                      {"kv_per_token", MemoryBytes(model.spec, need.memory, 1)},
                      {"kv_full_context", MemoryBytes(model.spec, need.memory, model.spec.max_context)}};
  return {{"model", model.path.string()},
          {"family", model.family},
          {"parameters", summary.all.values},
          {"bytes", summary.all.bytes},
          {"tensors", types},
          {"flops_per_token",
           {{"prefill", summary.prefill_flops},
            {"decode", summary.decode_flops},
            {"decode_full_context", summary.full_decode_flops}}},
          {"memory", memory},
          {"spec", pd::ToJson(model.spec)}};
}

std::string Describe(const LayerSpec& layer) {
  const AttentionSpec& a = AttentionOf(layer);
  std::string text = fmt::format("{} heads of {}, {} for keys and values, hidden {}", a.heads, a.head_dim,
                                 a.kv_heads, Grouped(MlpOf(layer).hidden));
  if (a.window) text += fmt::format(", window {}", Grouped(a.window->size));
  text += a.rope ? fmt::format(", RoPE base {:g}", a.rope->theta) : ", no positions";
  if (a.qk_norm) text += ", q and k normed";
  if (a.kv_bias) text += ", q, k and v biased";
  return text;
}

std::string ToText(const ModelSource& model, const Summary& summary) {
  const ModelSpec& spec = model.spec;
  std::string text;
  const auto line = [&](const std::string& label, const std::string& value) {
    text += fmt::format("{:<12}{}\n", label, value);
  };
  line("model", model.path.string());
  line("family", model.family);
  line("parameters", WithUnit(double(summary.all.values), ""));
  line("width", Grouped(spec.width));
  line("vocabulary", Grouped(spec.vocab) + (spec.tied_head ? ", head tied to the embedding" : ""));
  line("context", Grouped(spec.max_context) + " tokens");
  // Layers of one kind together, kinds in the order of their first layer.
  std::vector<std::pair<LayerSpec, int>> kinds;
  for (const LayerSpec& layer : spec.layers) {
    const auto it = std::ranges::find(kinds, layer, &std::pair<LayerSpec, int>::first);
    if (it == kinds.end()) {
      kinds.emplace_back(layer, 1);
    } else {
      ++it->second;
    }
  }
  std::string label = "layers";
  for (const auto& [layer, count] : kinds)
    line(std::exchange(label, ""), fmt::format("{} x {}", count, Describe(layer)));
  label = "tensors";
  for (const auto& [type, total] : summary.types)
    line(std::exchange(label, ""),
         fmt::format("{:<7} {:>6}  {:>10}  {:>10}", type, total.count, WithUnit(double(total.values), ""),
                     WithUnit(double(total.bytes), "B")));
  line("per token",
       fmt::format("prefill {}, decode {} ({} at the full context)", WithUnit(summary.prefill_flops, "FLOP"),
                   WithUnit(summary.decode_flops, "FLOP"), WithUnit(summary.full_decode_flops, "FLOP")));
  label = "memory";
  for (const auto& [device, need] : summary.memory)
    line(std::exchange(label, ""),
         fmt::format(
             "{}: weights {}, activations up to {}, keys and values {} a token, {} for the full context",
             device, WithUnit(double(need.weights), "B"), WithUnit(double(need.activations), "B"),
             WithUnit(double(MemoryBytes(spec, need.memory, 1)), "B"),
             WithUnit(double(MemoryBytes(spec, need.memory, spec.max_context)), "B")));
  return text;
}

int Inspect(const InspectOptions& options) {
  const std::filesystem::path path = ModelPath(options.model);
  if (IsExported(path)) {
    const std::string text =
        options.json ? ToLine(ExportedToJson(path)) : DescribeExported(path, options.ops);
    return WriteOutput(text) ? kOk : kOutputClosed;
  }
  if (options.ops)
    throw Fail(ErrorKind::kBadRequest, "--ops: {} is a model; a bundle or a package has ops to list",
               path.string());
  ModelSource model = OpenModel(path);
  const Summary summary = Summarise(model);
  const std::string text = options.json ? ToLine(ToJson(model, summary)) : ToText(model, summary);
  return WriteOutput(text) ? kOk : kOutputClosed;
}

}  // namespace

void AddInspect(const Command& program) {
  const Command command =
      program.Add("inspect", "Show what a model, a bundle or a package is and needs, without loading it");
  auto options = std::make_shared<InspectOptions>();
  command.Text("MODEL", options->model,
               "a .gguf file, a Hugging Face folder, a bundle that 'export' wrote, or a .mlpackage; default: "
               "the default model");
  command.Switch("--ops", options->ops,
                 "list every op of a bundle or a package, its shape, and what the Neural Engine's rules say");
  AddJson(command, options->json);
  command.Runs([options] { return Inspect(*options); });
}

}  // namespace pd::cli
