// One kernel of gpu/, callable with arrays.
#pragma once
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mlx/arrays.h"

namespace pd {

enum class GpuLanguage { kCuda, kMetal };

// MLX compiles it at its first use with each set of constants and types. Owned by one thread.
class GpuKernel {
 public:
  struct Launch {
    std::array<int, 3> groups;  // threadgroups
    int threads;                // per threadgroup, along x
    std::vector<std::pair<const char*, mx::fast::TemplateArg>> constants;
  };

  GpuKernel(GpuLanguage language, const std::string& name, std::vector<std::string> inputs,
            std::vector<std::string> outputs, const std::string& body, const std::string& header);

  // One array may be given for several inputs: the kernel then has one input, and the other names are
  // aliases. Every input costs the host a microsecond.
  std::vector<mx::array> operator()(std::vector<mx::array> inputs, std::vector<mx::Shape> shapes,
                                    const std::vector<mx::Dtype>& types, const Launch& launch);

 private:
  // For each input, the first that is the same array.
  using Pattern = std::vector<int>;
  const mx::fast::CustomKernelFunction& FunctionFor(const Pattern& pattern);

  GpuLanguage language_;
  std::string name_, body_, header_;
  std::vector<std::string> inputs_, outputs_;
  std::map<Pattern, mx::fast::CustomKernelFunction> functions_;
  // MLX assembles and hashes the whole source text at every call of a function, which costs more than the
  // rest of the call: so one primitive per key is made and reused for every node.
  std::map<std::vector<int>, std::shared_ptr<mx::Primitive>> primitives_;
};

}  // namespace pd
