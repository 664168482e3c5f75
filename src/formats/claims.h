// The tensors of a checkpoint, each taken exactly once.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "model/tensor.h"

namespace pd {

// Whether `name` fits `pattern`, in which '*' stands for any characters.
bool Matches(std::string_view pattern, std::string_view name);

class TensorClaims {
 public:
  // `where` names the checkpoint in messages.
  explicit TensorClaims(std::string where) : where_(std::move(where)) {}

  // Throws kCorruptFile when the name is there already.
  void Add(std::string name, TensorView view);
  bool Has(std::string_view name) const { return views_.count(name) > 0; }
  // Throws kCorruptFile when it is missing or its shape is another.
  TensorView Take(const std::string& name, const Shape& shape);
  void Ignore(std::string_view pattern);
  // Throws kUnsupported and names what nobody took.
  void Done() const;

 private:
  std::string where_;
  std::map<std::string, TensorView, std::less<>> views_;
};

}  // namespace pd
