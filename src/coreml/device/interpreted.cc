#include "coreml/device/interpreted.h"

#include "base/error.h"
#include "coreml/interpreter/interpreter.h"

namespace pd {
namespace {

class InterpretedPredictor final : public Predictor {
 public:
  InterpretedPredictor(const Package& package, std::shared_ptr<ThreadPool> pool)
      : interpreter_(package, std::move(pool)) {
    for (const auto& [name, function] : package.program.functions) {
      for (const mil::NamedType& input : function.inputs) Require(name, input);
      for (const mil::NamedType& output : interpreter_.Outputs(name)) Require(name, output);
    }
  }

  std::vector<std::string> Inputs(const std::string& function) override {
    std::vector<std::string> names;
    for (const mil::NamedType& input : interpreter_.Inputs(function)) names.push_back(input.name);
    return names;
  }

  HalfTensors Predict(const std::string& function, const HalfTensors& inputs) override {
    InputTensors given;
    for (const auto& [name, tensor] : inputs) {
      InputTensor& input = given[name];
      input.type = {mil::DataType::kF16, tensor.shape};
      input.strides = tensor.strides;
      input.data = reinterpret_cast<const std::byte*>(tensor.data);
    }
    HalfTensors results;
    for (auto& [name, tensor] : interpreter_.Run(function, given))
      results[name] = {tensor.type.shape, DenseStrides(tensor.type.shape),
                       reinterpret_cast<const F16*>(tensor.bytes->data()), tensor.bytes};
    return results;
  }

 private:
  static void Require(const std::string& function, const mil::NamedType& tensor) {
    if (tensor.state || tensor.type.dtype != mil::DataType::kF16)
      throw Fail(ErrorKind::kUnsupported, "function {}: '{}' is {}, a prefill program has fp16 tensors only",
                 function, tensor.name, tensor.state ? "a state" : ToString(tensor.type));
  }

  Interpreter interpreter_;
};

}  // namespace

PredictorFactory InterpretedPredictors(std::shared_ptr<ThreadPool> pool) {
  return [pool = std::move(pool)](const std::filesystem::path& path) -> std::unique_ptr<Predictor> {
    const Package package = ReadPackage(path);
    try {
      return std::make_unique<InterpretedPredictor>(package, pool);
    } catch (const Error& error) {
      throw Fail(error.kind(), "{}: {}", path.string(), error.what());
    }
  };
}

}  // namespace pd
