#include "cli/lint_report.h"

#include <fmt/ranges.h>

#include <optional>
#include <utility>
#include <vector>

#include "cli/units.h"
#include "coreml/export/bundle.h"
#include "coreml/mil/lint.h"
#include "coreml/package/package.h"

namespace pd::cli {
namespace {

namespace fs = std::filesystem;

struct LintedPackage {
  std::string name;
  std::vector<mil::LintedFunction> functions;
};

struct Exported {
  std::optional<Bundle> bundle;
  std::vector<LintedPackage> packages;
};

LintedPackage LintPackage(const fs::path& path) {
  LintedPackage linted{path.filename().string(), {}};
  for (const auto& [name, function] : ReadPackage(path).program.functions)
    linted.functions.push_back(mil::Lint(name, function));
  return linted;
}

Exported Read(const fs::path& path) {
  Exported exported;
  if (!fs::exists(path / kBundleFile)) {
    exported.packages.push_back(LintPackage(path));
    return exported;
  }
  exported.bundle = ReadBundle(path);
  for (const BundleShard& shard : exported.bundle->shards)
    exported.packages.push_back(LintPackage(path / shard.package));
  return exported;
}

const char* Name(mil::Verdict verdict) {
  constexpr const char* kNames[] = {"good", "warning", "VIOLATION"};
  return kNames[size_t(verdict)];
}

// Weights are read from the package as they lie there; what runs a function holds them and its activations.
int64_t Memory(const mil::LintedFunction& f) { return f.weight_bytes + f.activation_bytes; }

void AddOps(const mil::LintedFunction& function, std::string& text) {
  for (const mil::LintedOp& op : function.ops) {
    std::string row =
        fmt::format("  {:<10}{:<20}{:<28}{:<28}{:>11}{:>10}  {}", Name(op.verdict), op.type, op.name,
                    mil::ToString(op.result), op.flops > 0 ? WithUnit(op.flops, "FLOP") : "",
                    op.weight_bytes > 0 ? WithUnit(double(op.weight_bytes), "B") : "", op.reason);
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
}

}  // namespace

bool IsExported(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / kBundleFile, ignored) || fs::exists(path / "Manifest.json", ignored);
}

std::string DescribeExported(const fs::path& path) {
  const Exported exported = Read(path);
  std::string text, summary;
  for (const LintedPackage& package : exported.packages) {
    for (const mil::LintedFunction& f : package.functions) {
      text += fmt::format("{} {}\n", package.name, f.name);
      AddOps(f, text);
      text += '\n';
      summary += fmt::format("{:<20} {:<22}{:>6}{:>9}{:>11}{:>12}{:>11}{:>11}\n", package.name, f.name,
                             f.ops.size(), f.CountOps(mil::Verdict::kWarning),
                             f.CountOps(mil::Verdict::kViolation), WithUnit(f.flops, "FLOP"),
                             WithUnit(double(f.weight_bytes), "B"), WithUnit(double(Memory(f)), "B"));
      for (const std::string& violation : f.violations) summary += fmt::format("  VIOLATION {}\n", violation);
      for (const std::string& finding : f.findings) summary += fmt::format("  warning   {}\n", finding);
    }
  }
  text += fmt::format("{:<20} {:<22}{:>6}{:>9}{:>11}{:>12}{:>11}{:>11}\n", "package", "function", "ops",
                      "warnings", "violations", "work", "weights", "memory");
  text += summary;
  if (exported.bundle) {
    const Bundle& b = *exported.bundle;
    text += fmt::format("\n{}: {} model, {} weights, attention by {}, {} keys, weights digest {:016x}\n",
                        path.string(), b.family, pd::Name(b.format), mil::Name(b.lowering.attention),
                        b.lowering.keys == KeyForm::kRaw ? "raw" : "rotated", b.weights);
  }
  return text;
}

Json ExportedToJson(const fs::path& path) {
  const Exported exported = Read(path);
  Json packages = Json::array();
  for (const LintedPackage& package : exported.packages) {
    Json functions = Json::array();
    for (const mil::LintedFunction& f : package.functions) {
      Json ops = Json::array();
      for (const mil::LintedOp& op : f.ops)
        ops.push_back({{"op", op.type},
                       {"name", op.name},
                       {"type", mil::Name(op.result.dtype)},
                       {"shape", op.result.shape},
                       {"verdict", Name(op.verdict)},
                       {"reason", op.reason},
                       {"flops", op.flops},
                       {"weight_bytes", op.weight_bytes}});
      functions.push_back({{"function", f.name},
                           {"ops", ops},
                           {"findings", f.findings},
                           {"violations", f.violations},
                           {"flops", f.flops},
                           {"weight_bytes", f.weight_bytes},
                           {"activation_bytes", f.activation_bytes}});
    }
    packages.push_back({{"package", package.name}, {"functions", functions}});
  }
  Json json = {{"path", path.string()}, {"packages", packages}};
  if (exported.bundle) {
    json["family"] = exported.bundle->family;
    json["weights"] = pd::Name(exported.bundle->format);
    json["digest"] = fmt::format("{:016x}", exported.bundle->weights);
  }
  return json;
}

}  // namespace pd::cli
