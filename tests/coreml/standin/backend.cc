#include "tests/coreml/standin/backend.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>

#include "base/error.h"
#include "coreml/interpreter/interpreter.h"
#include "coreml/package/package.h"

namespace pd::standin {

namespace fs = std::filesystem;

Director& Director::The() {
  static Director director;
  return director;
}

void Director::On(Call call, int nth, Fault fault) {
  const std::lock_guard guard(mutex_);
  if (nth == 0)
    always_[int(call)] = fault;
  else
    faults_[int(call)][calls_[int(call)] + nth] = fault;
}

Fault Director::Next(Call call) {
  const std::lock_guard guard(mutex_);
  auto& faults = faults_[int(call)];
  const auto it = faults.find(++calls_[int(call)]);
  return it == faults.end() ? always_[int(call)] : it->second;
}

int Director::Calls(Call call) const {
  const std::lock_guard guard(mutex_);
  return calls_[int(call)];
}

void Director::Reset() {
  Settle();
  const std::lock_guard guard(mutex_);
  for (int c = 0; c < kCalls; ++c) {
    faults_[c].clear();
    always_[c] = {};
    calls_[c] = 0;
  }
  engine_ms = 1, cpu_ms = 10, touched = 0;
}

void Director::Async(std::function<void()> work) {
  const std::lock_guard guard(mutex_);
  threads_.emplace_back(std::move(work));
}

void Director::Settle() {
  for (;;) {
    std::vector<std::thread> threads;
    {
      const std::lock_guard guard(mutex_);
      threads.swap(threads_);
    }
    if (threads.empty()) return;
    for (std::thread& thread : threads) thread.join();
  }
}

namespace {

constexpr const char* kInside = "program.mlpackage";

void CopyElements(const Tensor& from, std::byte* to, const mil::Dims& strides, size_t size, size_t axis,
                  int64_t at, int64_t out) {
  const mil::Dims dense = mil::DenseStrides(from.shape);
  const mil::Dims& steps = from.strides.empty() ? dense : from.strides;
  if (axis == from.shape.size()) {
    std::memcpy(to + size_t(out) * size, from.data + size_t(at) * size, size);
    return;
  }
  for (int64_t i = 0; i < from.shape[axis]; ++i)
    CopyElements(from, to, strides, size, axis + 1, at + i * steps[axis], out + i * strides[axis]);
}

}  // namespace

void Write(const Tensor& from, std::byte* to, const mil::Dims& strides) {
  const size_t size = size_t(mil::Bits(from.dtype)) / 8;
  const mil::Dims dense = mil::DenseStrides(from.shape);
  const bool rows =
      !from.shape.empty() && strides.back() == 1 && (from.strides.empty() || from.strides == dense);
  if (!rows) return CopyElements(from, to, strides, size, 0, 0, 0);
  const auto row = size_t(from.shape.back());
  const int64_t count = row == 0 ? 0 : mil::Elements({from.dtype, from.shape}) / int64_t(row);
  for (int64_t r = 0; r < count; ++r) {
    int64_t out = 0, rest = r;
    for (size_t axis = from.shape.size() - 1; axis-- > 0;) {
      out += rest % from.shape[axis] * strides[axis];
      rest /= from.shape[axis];
    }
    std::memcpy(to + size_t(out) * size, from.data + size_t(r) * row * size, row * size);
  }
}

fs::path Compile(const fs::path& package, bool hollow) {
  std::error_code error;
  fs::path folder = fs::temp_directory_path() /
                    fmt::format("pd_standin_{}_{:x}.mlmodelc", getpid(), std::random_device{}());
  fs::create_directories(folder, error);
  // Links where they are possible: weights are large.
  fs::copy(package, folder / kInside, fs::copy_options::recursive | fs::copy_options::create_hard_links,
           error);
  if (error) {
    fs::remove_all(folder / kInside, error);
    fs::copy(package, folder / kInside, fs::copy_options::recursive, error);
  }
  if (!error) {
    try {
      ReadPackage(folder / kInside);
    } catch (const Error&) {
      error = std::make_error_code(std::errc::invalid_argument);
    }
  }
  if (hollow) fs::remove_all(folder / kInside / "Data", error);
  if (!error) return folder;
  fs::remove_all(folder, error);
  return {};
}

class Program {
 public:
  explicit Program(const fs::path& compiled)
      : package(ReadPackage(compiled / kInside)),
        interpreter(package,
                    std::make_shared<ThreadPool>(int(std::max(1u, std::thread::hardware_concurrency())))) {}

  Package package;
  std::mutex mutex;  // one run at a time
  Interpreter interpreter;
};

class States {
 public:
  ProgramStates states;
};

namespace {

// Interpreters of models that somebody has loaded.
std::shared_ptr<Program> Share(const fs::path& compiled) {
  static std::mutex mutex;
  static std::map<fs::path, std::weak_ptr<Program>> programs;
  const std::lock_guard guard(mutex);
  std::weak_ptr<Program>& known = programs[compiled];
  if (auto program = known.lock()) return program;
  auto program = std::make_shared<Program>(compiled);
  known = program;
  return program;
}

}  // namespace

std::unique_ptr<Model> Model::Load(const fs::path& compiled, const std::string& function, bool cpu_only,
                                   std::string* error) {
  try {
    std::unique_ptr<Model> model(new Model);
    model->program_ = Share(compiled);
    const Package& package = model->program_->package;
    model->function_ = !function.empty()                  ? function
                       : package.default_function.empty() ? "main"
                                                          : package.default_function;
    model->cpu_only_ = cpu_only;
    model->inputs_ = model->program_->interpreter.Inputs(model->function_);
    model->outputs_ = model->program_->interpreter.Outputs(model->function_);
    for (const mil::NamedType& input : package.program.functions.at(model->function_).inputs)
      if (input.state) model->states_.push_back(input);
    return model;
  } catch (const std::exception& e) {
    *error = e.what();
    return nullptr;
  }
}

Model::~Model() = default;

std::shared_ptr<States> Model::NewStates(std::string* error) const {
  try {
    const std::lock_guard guard(program_->mutex);
    auto states = std::make_shared<States>();
    states->states = program_->interpreter.MakeStates();
    return states;
  } catch (const std::exception& e) {
    *error = e.what();
    return nullptr;
  }
}

std::map<std::string, Tensor> Model::Predict(const std::map<std::string, Tensor>& inputs, States* states,
                                             std::string* error) const {
  Director& director = Director::The();
  director.clock_us += 1000 * int64_t(cpu_only_ ? director.cpu_ms : director.engine_ms);
  std::map<std::string, Tensor> results;
  try {
    InputTensors given;
    for (const auto& [name, tensor] : inputs)
      given[name] = {{tensor.dtype, tensor.shape}, tensor.strides, tensor.data};
    const std::lock_guard guard(program_->mutex);
    for (auto& [name, tensor] :
         program_->interpreter.Run(function_, given, states ? &states->states : nullptr))
      results[name] = {tensor.type.dtype, tensor.type.shape, {}, tensor.bytes->data(), tensor.bytes};
  } catch (const std::exception& e) {
    *error = e.what();
    results.clear();
  }
  return results;
}

std::map<std::string, std::vector<Op>> Operations(const fs::path& compiled) {
  std::map<std::string, std::vector<Op>> all;
  try {
    const Package package = ReadPackage(compiled / kInside);
    for (const auto& [name, function] : package.program.functions)
      for (const mil::Operation& op : function.body.operations)
        all[name].push_back({function.opset == "CoreML8" ? "ios18." + op.type : op.type,
                             op.outputs.empty() ? "" : op.outputs[0].name});
  } catch (const std::exception&) {
    all.clear();
  }
  return all;
}

}  // namespace pd::standin
