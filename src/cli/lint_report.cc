#include "cli/lint_report.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
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
  UseBundle(path, [&](const Bundle& bundle) {
    exported = {.bundle = bundle, .packages = {}};
    for (const BundleShard& shard : bundle.shards)
      exported.packages.push_back(LintPackage(path / shard.package));
  });
  return exported;
}

const char* Name(mil::Verdict verdict) {
  constexpr const char* kNames[] = {"good", "warning", "VIOLATION"};
  return kNames[size_t(verdict)];
}

// Weights are read from the package as they lie there; what runs a function holds them and its activations.
int64_t Memory(const mil::LintedFunction& f) { return f.weight_bytes + f.activation_bytes; }

// Rows of cells in columns as wide as their widest cell.
class Columns {
 public:
  enum class Side : uint8_t { kLeft, kRight };
  explicit Columns(std::vector<Side> sides) : sides_(std::move(sides)), widths_(sides_.size()) {}

  void Add(std::vector<std::string> cells) {
    for (size_t i = 0; i < cells.size(); ++i) widths_[i] = std::max(widths_[i], cells[i].size());
    rows_.push_back(std::move(cells));
  }

  std::string ToText(std::string_view indent = "") const {
    std::string text;
    for (const auto& cells : rows_) {
      std::string row(indent);
      for (size_t i = 0; i < cells.size(); ++i) {
        if (i > 0) row += "  ";
        row += sides_[i] == Side::kLeft ? fmt::format("{:<{}}", cells[i], widths_[i])
                                        : fmt::format("{:>{}}", cells[i], widths_[i]);
      }
      row.erase(row.find_last_not_of(' ') + 1);
      text += row + "\n";
    }
    return text;
  }

 private:
  const std::vector<Side> sides_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

constexpr auto kLeft = Columns::Side::kLeft, kRight = Columns::Side::kRight;

std::string Heading(const LintedPackage& package, const mil::LintedFunction& function) {
  return package.name + " " + function.name;
}

// A row a function.
std::string Summary(const Exported& exported) {
  Columns table({kLeft, kLeft, kRight, kRight, kRight, kRight, kRight, kRight});
  table.Add({"package", "function", "ops", "warnings", "violations", "work", "weights", "memory"});
  for (const LintedPackage& package : exported.packages)
    for (const mil::LintedFunction& f : package.functions)
      table.Add({package.name, f.name, std::to_string(f.ops.size()),
                 std::to_string(f.CountOps(mil::Verdict::kWarning) + int(f.findings.size())),
                 std::to_string(f.CountOps(mil::Verdict::kViolation) + int(f.violations.size())),
                 WithUnit(f.flops, "FLOP"), WithUnit(double(f.weight_bytes), "B"),
                 WithUnit(double(Memory(f)), "B")});
  return table.ToText();
}

// What is wrong with each function and its ops; of what only may be, a count by reason.
std::string Remarks(const mil::LintedFunction& f) {
  std::string text;
  for (const std::string& violation : f.violations) text += fmt::format("  VIOLATION  {}\n", violation);
  for (const mil::LintedOp& op : f.ops)
    if (op.verdict == mil::Verdict::kViolation)
      text +=
          fmt::format("  VIOLATION  {} {} {}: {}\n", op.type, op.name, mil::ToString(op.result), op.reason);
  for (const std::string& finding : f.findings) text += fmt::format("  warning    {}\n", finding);
  std::map<std::string, int> warnings;
  for (const mil::LintedOp& op : f.ops)
    if (op.verdict == mil::Verdict::kWarning) ++warnings[op.reason];
  for (const auto& [reason, count] : warnings)
    text += fmt::format("  warning    {} op{}: {}\n", count, count == 1 ? "" : "s", reason);
  return text;
}

std::string Ops(const mil::LintedFunction& function) {
  Columns table({kLeft, kLeft, kLeft, kLeft, kRight, kRight, kLeft});
  for (const mil::LintedOp& op : function.ops)
    table.Add({Name(op.verdict), op.type, op.name, mil::ToString(op.result),
               op.flops > 0 ? WithUnit(op.flops, "FLOP") : "",
               op.weight_bytes > 0 ? WithUnit(double(op.weight_bytes), "B") : "", op.reason});
  return table.ToText("  ");
}

}  // namespace

bool IsExported(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / kBundleFile, ignored) || fs::exists(path / "Manifest.json", ignored);
}

std::string DescribeExported(const fs::path& path, bool ops) {
  const Exported exported = Read(path);
  std::string text;
  if (exported.bundle) {
    const Bundle& b = *exported.bundle;
    text += fmt::format("{}: {} model, {} weights, attention by {}, {} keys, weights digest {:016x}\n\n",
                        path.string(), b.family, pd::Name(b.format), mil::Name(b.lowering.attention),
                        b.lowering.keys == KeyForm::kRaw ? "raw" : "rotated", b.weights);
  }
  text += Summary(exported);
  for (const LintedPackage& package : exported.packages)
    for (const mil::LintedFunction& f : package.functions)
      if (const std::string remarks = Remarks(f); !remarks.empty())
        text += fmt::format("\n{}\n{}", Heading(package, f), remarks);
  if (!ops) return text;
  for (const LintedPackage& package : exported.packages)
    for (const mil::LintedFunction& f : package.functions)
      text += fmt::format("\n{}\n{}", Heading(package, f), Ops(f));
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
