#include "formats/claims.h"

#include <fmt/ranges.h>

#include "base/error.h"

namespace pd {

bool Matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  for (size_t at = star; at <= name.size(); ++at)
    if (Matches(pattern.substr(star + 1), name.substr(at))) return true;
  return false;
}

void TensorClaims::Add(std::string name, TensorView view) {
  const auto [it, added] = views_.emplace(std::move(name), std::move(view));
  if (!added) throw Fail(ErrorKind::kCorruptFile, "{}: tensor \"{:.80}\" is there twice", where_, it->first);
}

TensorView TensorClaims::Take(const std::string& name, const Shape& shape) {
  auto node = views_.extract(name);
  if (!node)
    throw Fail(ErrorKind::kCorruptFile,
               "{}: tensor \"{}\" is missing: the weights are not what the model's configuration describes; "
               "download "
               "both again",
               where_, name);
  if (node.mapped().shape != shape)
    throw Fail(
        ErrorKind::kCorruptFile,
        "{}: tensor \"{}\" has the shape [{}], the model's configuration asks for [{}]; download both again",
        where_, name, fmt::join(node.mapped().shape, ", "), fmt::join(shape, ", "));
  return std::move(node.mapped());
}

void TensorClaims::Ignore(std::string_view pattern) {
  std::erase_if(views_, [&](const auto& entry) { return Matches(pattern, entry.first); });
}

void TensorClaims::Done() const {
  if (views_.empty()) return;
  constexpr size_t kShown = 4;
  std::string names;
  size_t shown = 0;
  for (const auto& [name, view] : views_) {
    if (shown++ == kShown) break;
    names += fmt::format("{}\"{:.80}\"", names.empty() ? "" : ", ", name);
  }
  throw Fail(ErrorKind::kUnsupported,
             "{}: {} tensor(s) that this version has no use for: {}{}: they could change the result, so they "
             "are not "
             "skipped",
             where_, views_.size(), names, views_.size() > kShown ? ", ..." : "");
}

}  // namespace pd
