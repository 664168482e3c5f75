#include "coreml/device/interpreted.h"

#include <set>

#include "base/error.h"
#include "coreml/interpreter/interpreter.h"

namespace pd {
namespace {

struct InterpretedState final : PredictorState {
  explicit InterpretedState(ProgramStates made) : states(std::move(made)) {}
  ProgramStates states;
};

class InterpretedPredictor final : public Predictor {
 public:
  InterpretedPredictor(const Package& package, std::shared_ptr<ThreadPool> pool)
      : interpreter_(package, std::move(pool)) {
    for (const auto& [name, function] : package.program.functions) {
      for (const mil::NamedType& input : function.inputs) {
        Require(name, input);
        if (input.state) stateful_.insert(name);
      }
      for (const mil::NamedType& output : interpreter_.Outputs(name)) Require(name, output);
    }
  }

  std::vector<std::string> Inputs(const std::string& function) override {
    std::vector<std::string> names;
    for (const mil::NamedType& input : interpreter_.Inputs(function)) names.push_back(input.name);
    return names;
  }

  HalfTensors Predict(const std::string& function, const HalfTensors& inputs,
                      PredictorState* state) override {
    InputTensors given;
    for (const auto& [name, tensor] : inputs) {
      InputTensor& input = given[name];
      input.type = {mil::DataType::kF16, tensor.shape};
      input.strides = tensor.strides;
      input.data = reinterpret_cast<const std::byte*>(tensor.data);
    }
    const auto* states = static_cast<InterpretedState*>(state);
    HalfTensors results;
    for (auto& [name, tensor] : interpreter_.Run(function, given, states ? &states->states : nullptr))
      results[name] = {tensor.type.shape, mil::DenseStrides(tensor.type.shape),
                       reinterpret_cast<const F16*>(tensor.bytes->data()), tensor.bytes};
    return results;
  }

  std::unique_ptr<PredictorState> NewState(const std::string& function) override {
    interpreter_.Inputs(function);  // checks that the function exists
    if (!stateful_.contains(function))
      throw Fail(ErrorKind::kUnsupported, "function {} has no states", function);
    return std::make_unique<InterpretedState>(interpreter_.MakeStates());
  }

 private:
  static void Require(const std::string& function, const mil::NamedType& tensor) {
    if (tensor.type.dtype != mil::DataType::kF16)
      throw Fail(ErrorKind::kUnsupported,
                 "function {}: '{}' is {}, but a predictor supports only fp16 tensors", function, tensor.name,
                 ToString(tensor.type));
  }

  Interpreter interpreter_;
  std::set<std::string> stateful_;
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
