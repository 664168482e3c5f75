#include "coreml/interpreter/interpreter.h"

#include <algorithm>

#include "base/error.h"
#include "coreml/interpreter/plan.h"

namespace pd {

using interp::Plan;
using interp::Storage;
using interp::TensorPlace;
using interp::View;

struct ProgramStates::Content {
  std::map<std::string, std::vector<std::byte>> bytes;
};

std::vector<std::byte>& ProgramStates::at(const std::string& name) const {
  PD_CHECK(content_);
  const auto it = content_->bytes.find(name);
  PD_CHECK(it != content_->bytes.end());
  return it->second;
}

struct Interpreter::State {
  // A planned function, and the memory of its results, which is reused once nobody holds them.
  struct Function {
    Plan plan;
    std::vector<std::shared_ptr<std::vector<std::byte>>> outputs;
  };

  State(Package given, std::shared_ptr<ThreadPool> threads)
      : package(std::move(given)),
        pool(std::move(threads)),
        constants(*pool),
        machine{*pool, *cpu::FindKernels(cpu::BestLevel()), {}, {}, {}, {}} {}

  Function& Find(const std::string& name) {
    const auto it = functions.find(name);
    if (it == functions.end()) throw Fail(ErrorKind::kUnsupported, "the package has no function '{}'", name);
    return it->second;
  }

  Package package;
  std::shared_ptr<ThreadPool> pool;
  interp::Constants constants;
  interp::Machine machine;
  std::map<std::string, Function> functions;
  cpu::Pages arena;                            // of the function that runs
  std::vector<std::vector<std::byte>> staged;  // copies of inputs that were not dense
  std::vector<std::byte*> bases;               // of the storages of the running plan
  std::vector<View> in, out;                   // of the running step
};

Interpreter::Interpreter(Package package, std::shared_ptr<ThreadPool> pool, const InterpreterOptions& options)
    : state_(std::make_unique<State>(std::move(package), std::move(pool))) {
  const size_t limit = options.memory_limit != 0 ? options.memory_limit : cpu::PhysicalMemory();
  size_t largest = 0;
  for (const auto& [name, function] : state_->package.program.functions) {
    Plan plan = MakePlan(name, function, state_->constants, {options.plain, limit});
    largest = std::max(largest, plan.arena_bytes);
    state_->functions[name].plan = std::move(plan);
  }
  state_->arena = cpu::Pages(largest, cpu::Pages::Size::kSmall, "tensors of a Core ML program");
}

Interpreter::~Interpreter() = default;
Interpreter::Interpreter(Interpreter&&) noexcept = default;

const std::vector<mil::NamedType>& Interpreter::Inputs(const std::string& function) const {
  return state_->Find(function).plan.inputs;
}
const std::vector<mil::NamedType>& Interpreter::Outputs(const std::string& function) const {
  return state_->Find(function).plan.outputs;
}
size_t Interpreter::working_bytes() const { return state_->arena.bytes(); }

ProgramStates Interpreter::MakeStates() const {
  std::map<std::string, mil::TensorType> types;
  ProgramStates states;
  states.content_ = std::make_shared<ProgramStates::Content>();
  for (const auto& [name, function] : state_->functions)
    for (const mil::NamedType& s : function.plan.states) {
      const auto [it, is_new] = types.try_emplace(s.name, s.type);
      if (it->second != s.type)
        throw Fail(ErrorKind::kUnsupported, "state '{}' is {} in one function and {} in another", s.name,
                   ToString(it->second), ToString(s.type));
      if (is_new) states.content_->bytes[s.name].resize(mil::ByteSize(s.type));
    }
  return states;
}

namespace {

// The data of an input, dense; copied to `staging` if the caller's data are not dense.
const std::byte* DenseInput(interp::Machine& machine, const std::string& function,
                            const mil::NamedType& wanted, const InputTensors& inputs,
                            std::vector<std::byte>& staging) {
  const auto it = inputs.find(wanted.name);
  if (it == inputs.end())
    throw Fail(ErrorKind::kBadRequest, "function {}: input '{}' is missing", function, wanted.name);
  const InputTensor& given = it->second;
  if (given.type != wanted.type)
    throw Fail(ErrorKind::kBadRequest, "function {}: input '{}' is {}, given {}", function, wanted.name,
               ToString(wanted.type), ToString(given.type));
  const mil::Dims dense = mil::DenseStrides(given.type.shape);
  if (given.strides.empty() || given.strides == dense) return given.data;
  if (given.strides.size() != dense.size())
    throw Fail(ErrorKind::kBadRequest, "function {}: input '{}' has {} strides", function, wanted.name,
               given.strides.size());
  staging.resize(mil::ByteSize(given.type));
  const View from =
      interp::MakeView(given.type.dtype, given.type.shape, given.strides, const_cast<std::byte*>(given.data));
  CopyElements(machine, from, interp::DenseView(given.type, staging.data()));
  return staging.data();
}

}  // namespace

OutputTensors Interpreter::Run(const std::string& function, const InputTensors& inputs,
                               const ProgramStates* states) {
  State& s = *state_;
  State::Function& f = s.Find(function);
  const Plan& plan = f.plan;
  for (const auto& given : inputs)
    if (std::none_of(plan.inputs.begin(), plan.inputs.end(),
                     [&](const mil::NamedType& input) { return input.name == given.first; }))
      throw Fail(ErrorKind::kBadRequest, "function {} has no input '{}'", function, given.first);
  if (!plan.states.empty() && !(states && states->content_))
    throw Fail(ErrorKind::kBadRequest, "function {} has states, but none were given", function);

  s.staged.resize(std::max(s.staged.size(), plan.inputs.size()));
  f.outputs.resize(plan.outputs.size());
  for (auto& output : f.outputs)
    if (!output || output.use_count() > 1) output = std::make_shared<std::vector<std::byte>>();
  s.bases.clear();
  for (const Storage& storage : plan.storages) {
    switch (storage.kind) {
      case Storage::Kind::kArena:
        s.bases.push_back(s.arena.data() + storage.offset);
        break;
      case Storage::Kind::kConstant:
        s.bases.push_back(const_cast<std::byte*>(storage.data));
        break;
      case Storage::Kind::kInput:
        s.bases.push_back(const_cast<std::byte*>(
            DenseInput(s.machine, function, plan.inputs[storage.index], inputs, s.staged[storage.index])));
        break;
      case Storage::Kind::kState: {
        auto& bytes = states->at(plan.states[storage.index].name);
        PD_CHECK(bytes.size() == storage.bytes);
        s.bases.push_back(bytes.data());
        break;
      }
      case Storage::Kind::kOutput:
        f.outputs[storage.index]->resize(storage.bytes);
        s.bases.push_back(f.outputs[storage.index]->data());
        break;
    }
  }

  const auto resolve = [&](const std::vector<TensorPlace>& places, std::vector<View>& views) {
    views.clear();
    for (const TensorPlace& place : places) {
      views.push_back(place.view);
      views.back().data = s.bases[place.storage] + place.offset;
    }
  };
  for (const interp::PlannedOp& step : plan.steps) {
    resolve(step.in, s.in);
    resolve(step.out, s.out);
    try {
      step.kernel({s.in, s.out, s.machine});
    } catch (const Error& error) {
      throw Fail(error.kind(), "{}: {}", step.place, error.what());
    }
  }
  OutputTensors outputs;
  for (size_t i = 0; i < plan.outputs.size(); ++i)
    outputs[plan.outputs[i].name] = {plan.outputs[i].type, f.outputs[i]};
  return outputs;
}

}  // namespace pd
