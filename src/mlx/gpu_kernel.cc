#include "mlx/gpu_kernel.h"

#include <mlx/primitives.h>

#include <algorithm>

#include "base/error.h"

namespace pd {
namespace {

// How a kernel gets its position, in each language. MLX looks for Metal's names in the text.
constexpr const char* kCudaPlace = R"(
const uint3 group = blockIdx, group_count = make_uint3(gridDim.x, gridDim.y, gridDim.z);
const int thread_index = threadIdx.x;
)";
constexpr const char* kMetalPlace = R"(
const uint3 group = threadgroup_position_in_grid, group_count = threadgroups_per_grid;
const int thread_index = int(thread_position_in_threadgroup.x);
)";

int Number(const mx::fast::TemplateArg& arg) {
  if (const auto* type = std::get_if<mx::Dtype>(&arg)) return int(type->val());
  if (const auto* flag = std::get_if<bool>(&arg)) return *flag;
  return std::get<int>(arg);
}

}  // namespace

GpuKernel::GpuKernel(GpuLanguage language, const std::string& name, std::vector<std::string> inputs,
                     std::vector<std::string> outputs, const std::string& body, const std::string& header)
    : language_(language),
      name_(name),
      body_(body),
      header_(header),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)) {}

const mx::fast::CustomKernelFunction& GpuKernel::FunctionFor(const Pattern& pattern) {
  const auto it = functions_.find(pattern);
  if (it != functions_.end()) return it->second;
  std::string name = name_, aliases;
  std::vector<std::string> inputs;
  for (size_t i = 0; i < pattern.size(); ++i) {
    name += fmt::format("_{}", pattern[i]);
    if (pattern[i] == int(i)) {
      inputs.push_back(inputs_[i]);
    } else {
      aliases += fmt::format("#define {} {}\n", inputs_[i], inputs_[size_t(pattern[i])]);
    }
  }
  const bool cuda = language_ == GpuLanguage::kCuda;
  const std::string body = "\n" + aliases + (cuda ? kCudaPlace : kMetalPlace) + body_;
  auto function = cuda ? mx::fast::cuda_kernel(name, inputs, outputs_, body, header_, false)
                       : mx::fast::metal_kernel(name, inputs, outputs_, body, header_, false);
  return functions_.emplace(pattern, std::move(function)).first->second;
}

std::vector<mx::array> GpuKernel::operator()(std::vector<mx::array> inputs, std::vector<mx::Shape> shapes,
                                             const std::vector<mx::Dtype>& types, const Launch& launch) {
  PD_CHECK(inputs.size() == inputs_.size());
  // The generated text depends on the constants, on which inputs are the same array, and on their types; for
  // Metal also on which inputs are small enough to be constants.
  const mx::Stream stream = mx::default_stream(mx::default_device());
  std::vector<int> key = {stream.index, launch.groups[0], launch.groups[1], launch.groups[2], launch.threads};
  for (const auto& [name, value] : launch.constants) key.push_back(Number(value));
  Pattern pattern(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    size_t first = 0;
    while (inputs[first].id() != inputs[i].id()) ++first;
    pattern[i] = int(first);
    key.push_back(int(inputs[i].dtype().val()) * 2 + (inputs[i].size() < 8));
    key.push_back(int(first));
  }
  std::vector<mx::array> distinct;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (pattern[i] == int(i)) distinct.push_back(std::move(inputs[i]));
  auto& primitive = primitives_[key];
  if (primitive) return mx::array::make_arrays(std::move(shapes), types, primitive, distinct);
  const auto [x, y, z] = launch.groups;
  const std::vector<std::pair<std::string, mx::fast::TemplateArg>> constants(launch.constants.begin(),
                                                                             launch.constants.end());
  auto outputs = FunctionFor(pattern)(distinct, shapes, types, {x * launch.threads, y, z},
                                      {launch.threads, 1, 1}, constants, std::nullopt, false, stream);
  primitive = outputs[0].primitive_ptr();
  return outputs;
}

}  // namespace pd
