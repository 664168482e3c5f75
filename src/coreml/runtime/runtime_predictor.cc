#include "coreml/runtime/runtime_predictor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <future>

#include "base/error.h"
#include "coreml/runtime/failure.h"
#include "coreml/runtime/shared.h"
#include "coreml/runtime/strides.h"
#include "coreml/runtime/surface_pool.h"
#include "coreml/runtime/zeros.h"

namespace pd {
namespace {

struct RuntimeState final : PredictorState {
  std::unique_ptr<ModelState> state;
};

struct Failure {
  Stage stage = Stage::kPredict;
  Status status;  // ok: no failure
};

// The remedies tried within one call.
class Recovery {
 public:
  Remedy Next(const Failure& failure) {
    for (;;) {
      const Remedy remedy = RemedyFor(failure.stage, failure.status.code, attempts_[size_t(failure.stage)]++);
      if (remedy == Remedy::kReload && std::exchange(reloaded_, true)) continue;
      if (remedy == Remedy::kRecompile && std::exchange(recompiled_, true)) continue;
      return remedy;
    }
  }

 private:
  std::array<int, size_t(Stage::kPredict) + 1> attempts_{};
  bool reloaded_ = false, recompiled_ = false;
};

class RuntimePredictor final : public Predictor {
 public:
  RuntimePredictor(std::shared_ptr<RuntimeShared> shared, std::filesystem::path package)
      : shared_(std::move(shared)), path_(std::move(package)), package_(path_.filename().string()) {}
  ~RuntimePredictor() override {
    leaving_ = true;
    if (preload_) preload_->result.wait();
  }
  RuntimePredictor(const RuntimePredictor&) = delete;
  RuntimePredictor& operator=(const RuntimePredictor&) = delete;

  // A package that does not compile can still be opened: it is disabled.
  void Open() {
    try {
      Recover("", [&] { return Compiled(); });
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kCancelled) throw;
    }
  }

  std::vector<std::string> Inputs(const std::string& function) override {
    Recover(function, [&] { return Ready(function); });
    std::vector<std::string> names;
    for (const auto& [name, shape] : functions_[function].loaded->Interface().inputs) names.push_back(name);
    return names;
  }

  HalfTensors Predict(const std::string& function, const HalfTensors& inputs,
                      PredictorState* state) override {
    auto* own = static_cast<RuntimeState*>(state);
    HalfTensors results;
    Recover(
        function,
        [&] {
          Failure failure = Ready(function);
          if (!failure.status.ok()) return failure;
          Function& f = functions_[function];
          failure.stage = f.predicted ? Stage::kPredict : Stage::kFirstPredict;
          failure.status = Run(*f.loaded, *f.surfaces, inputs, own ? own->state.get() : nullptr, &results);
          return failure;
        },
        own != nullptr);
    Function& f = functions_[function];
    f.predicted = true;
    f.fallbacks = 0;
    shared_->Update(package_, function, [](FunctionReport& r) { ++r.predictions; });
    return results;
  }

  std::unique_ptr<PredictorState> NewState(const std::string& function) override {
    auto state = std::make_unique<RuntimeState>();
    Recover(function, [&] {
      Failure failure = Ready(function);
      if (!failure.status.ok()) return failure;
      LoadedFunction& loaded = *functions_[function].loaded;
      if (loaded.Interface().states.empty())
        throw Fail(ErrorKind::kUnsupported, "{}: function {} has no states", package_, function);
      return Failure{Stage::kPredict, loaded.NewState(&state->state)};
    });
    return state;
  }

  void Prepare(const std::string& function) override {
    CollectPreload(false);
    if (shared_->options().resident_functions < 2 || preload_ || !compiled_ || GivenUp(function)) return;
    if (functions_[function].loaded) return;
    MakeRoom();
    preload_ = Preload{function, std::async(std::launch::async, [this, function, compiled = compiled_] {
                         return LoadNow(*compiled, function);
                       })};
  }

  std::optional<std::string> GivenUp(const std::string& function) override {
    if (std::string why = shared_->Disabled(); !why.empty()) return why;
    const auto it = functions_.find(function);
    if (it == functions_.end() || it->second.disabled.empty()) return std::nullopt;
    return it->second.disabled;
  }

  void Distrust(const std::string& function, const std::string& why) override {
    Disable(function, why, true);
  }

 private:
  struct Function {
    std::unique_ptr<LoadedFunction> loaded;
    std::shared_ptr<SurfacePool> surfaces;
    std::optional<FunctionVerdict> verdict;  // set once read
    bool unplanned = false;                  // Core ML gave no plan
    bool predicted = false;                  // a prediction succeeded
    int fallbacks = 0;                       // in a row
    std::string disabled;
  };
  struct Loading {
    Status status;
    std::unique_ptr<LoadedFunction> loaded;
    double milliseconds = 0;
  };
  struct Preload {
    std::string function;
    std::future<Loading> result;
  };

  bool Cancelled() const {
    const CancelCheck& cancelled = shared_->options().cancelled;
    return leaving_ || (cancelled && cancelled());
  }
  CancelCheck CancelChecker() const {
    return [this] { return Cancelled(); };
  }

  // ---- failures ----

  // Calls `attempt` until it succeeds or the table ends the call; then throws. A failed prediction leaves
  // unknown states, so it is not repeated with them.
  template <class Attempt>
  void Recover(const std::string& function, Attempt attempt, bool with_state = false) {
    Recovery recovery;
    for (;;) {
      const Failure failure = attempt();
      if (failure.status.ok()) return;
      const bool predicting = failure.stage == Stage::kFirstPredict || failure.stage == Stage::kPredict;
      Remedy remedy = recovery.Next(failure);
      if (with_state && predicting && remedy < Remedy::kFallBack) {
        Unload(function);
        remedy = Remedy::kFallBack;
      }
      Apply(function, failure, remedy);
    }
  }

  void Apply(const std::string& function, const Failure& failure, Remedy remedy) {
    const std::string what = fmt::format("{}{}{}: {} ({})", package_, function.empty() ? "" : ", function ",
                                         function, failure.status.message, Name(failure.stage));
    switch (remedy) {
      case Remedy::kRetry:
        return shared_->Count(&RuntimeReport::retries);
      case Remedy::kFreeAndRetry:
        for (auto& [name, f] : functions_) {
          if (name != function) Unload(name);
          if (f.surfaces) f.surfaces->Trim();
        }
        return shared_->Count(&RuntimeReport::retries);
      case Remedy::kReload:
        Unload(function);
        return shared_->Count(&RuntimeReport::reloads);
      case Remedy::kRecompile:
        ForgetCompiled();
        return shared_->Count(&RuntimeReport::recompiles);
      case Remedy::kFallBack:
        if (++functions_[function].fallbacks >= kMostFallbacksInARow)
          Disable(function,
                  fmt::format("it failed {} times in a row, the last time: {}", kMostFallbacksInARow,
                              failure.status.message),
                  false);
        break;
      case Remedy::kDisableFunction:
        Disable(function, failure.status.message, Lasting(failure.status.code));
        break;
      case Remedy::kDisableDevice:
        shared_->DisableDevice(what);
        break;
      case Remedy::kCancel:
        throw Fail(ErrorKind::kCancelled, "{}: cancelled during preparation", package_);
      case Remedy::kIgnore:  // handled by the caller that asked for it
        PD_CHECK(remedy != Remedy::kIgnore);
    }
    shared_->Count(&RuntimeReport::fallbacks);
    throw Fail(ErrorKind::kDevice, "{}", what);
  }

  // Whether the next process would have the same failure.
  static bool Lasting(Code code) {
    return code == Code::kCrashed || code == Code::kTimedOut || code == Code::kBadResult ||
           code == Code::kOffEngine;
  }

  void Disable(const std::string& function, const std::string& why, bool lasting) {
    Function& f = functions_[function];
    if (!f.disabled.empty()) return;
    f.disabled = why;
    Unload(function);
    f.surfaces.reset();
    if (lasting && compiled_) {
      FunctionVerdict verdict = f.verdict.value_or(FunctionVerdict{});
      verdict.refused = why;
      compiled_->SetVerdict(function, verdict);
    }
    shared_->Update(package_, function, [&](FunctionReport& r) { r.disabled = why; });
    shared_->Say(
        fmt::format("{}: function {} is not used on the Neural Engine: {}", package_, function, why));
  }

  // ---- preparing a prediction ----

  Failure Compiled() {
    if (std::string why = shared_->Disabled(); !why.empty())
      throw Fail(ErrorKind::kDevice, "{}: the Neural Engine is not used: {}", package_, why);
    if (compiled_) return {};
    const CancelCheck cancelled = CancelChecker();
    const double begin = shared_->Milliseconds();
    Status status = shared_->cache().Get(
        shared_->KeyOf(package_), anew_, cancelled,
        [&](std::filesystem::path* compiled) {
          shared_->Say(fmt::format("{}: compiling for this system, once; this may take minutes", package_));
          Status made = shared_->core_ml().Compile(path_, cancelled, compiled);
          if (!made.ok() || IsCurrent(shared_->bundle())) return made;
          std::error_code ignored;  // of another model, perhaps: it must not be kept under this one's key
          std::filesystem::remove_all(*compiled, ignored);
          return Status::Fail(Code::kFailed, "the bundle was replaced meanwhile; start again");
        },
        &compiled_);
    if (!status.ok()) return {Stage::kCompile, std::move(status)};
    anew_ = false;
    compile_ms_ = compiled_->found() ? 0 : shared_->Milliseconds() - begin;
    if (!compiled_->kept())
      shared_->Say(fmt::format("compiled models are not kept, so each start compiles again: {}",
                               compiled_->why_not_kept()));
    return {};
  }

  void ForgetCompiled() {
    CollectPreload(true);
    for (auto& [name, f] : functions_) {
      Unload(name);
      f.verdict.reset();
      f.unplanned = false;
    }
    compiled_.reset();
    anew_ = true;
  }

  // Compiled, planned for the engine, tried, loaded and measured, in this order: steps that may end the
  // process or disable the function come before those that need memory.
  Failure Ready(const std::string& function) {
    if (Failure failure = Compiled(); !failure.status.ok()) return failure;
    Function& f = functions_[function];
    const auto check_enabled = [&] {
      if (!f.disabled.empty())
        throw Fail(ErrorKind::kDevice, "{}: function {}: {}", package_, function, f.disabled);
    };
    check_enabled();
    if (!f.verdict) f.verdict = compiled_->Verdict(function).value_or(FunctionVerdict{});
    FunctionVerdict& verdict = *f.verdict;
    if (!verdict.refused.empty())
      Disable(function,
              fmt::format("{} (determined earlier; remove {} to try again)", verdict.refused,
                          compiled_->path().parent_path().string()),
              false);
    check_enabled();
    if (Status status = Plan(function, f, verdict); !status.ok()) return {Stage::kPlan, std::move(status)};
    if (Status status = TryApart(function, verdict); !status.ok()) return {Stage::kTrial, std::move(status)};
    if (Status status = Load(function, f); !status.ok()) return {Stage::kLoad, std::move(status)};
    if (Status status = Measure(function, f, verdict); !status.ok())
      return {Stage::kFirstPredict, std::move(status)};
    return {};
  }

  Status Plan(const std::string& function, Function& f, FunctionVerdict& verdict) {
    if (verdict.audited || f.unplanned) return {};
    Placement placement;
    Status status = shared_->core_ml().Plan(compiled_->path(), function, CancelChecker(), &placement);
    if (!status.ok()) {
      if (RemedyFor(Stage::kPlan, status.code, 0) != Remedy::kIgnore) return status;
      f.unplanned = true;
      return {};
    }
    shared_->Update(package_, function, [&](FunctionReport& r) { r.placement = placement; });
    if (const auto refused = RefusedPlacement(placement, shared_->options().placement))
      return Status::Fail(Code::kOffEngine, *refused);
    verdict.audited = true;
    verdict.share_of_ops = placement.ShareOfOps();
    verdict.share_of_cost = placement.ShareOfCost();
    Learnt(function, verdict);
    return {};
  }

  Status TryApart(const std::string& function, FunctionVerdict& verdict) {
    if (verdict.tried || !shared_->options().trial) return {};
    shared_->Say(fmt::format("{}: preparing function {}, once; this may take minutes", package_, function));
    Status status = shared_->options().trial(compiled_->path(), function, CancelChecker());
    if (!status.ok()) return status;
    verdict.tried = true;
    Learnt(function, verdict);
    return {};
  }

  void Learnt(const std::string& function, const FunctionVerdict& verdict) {
    compiled_->SetVerdict(function, verdict);
    shared_->Update(package_, function, [&](FunctionReport& r) { r.verdict = verdict; });
  }

  Loading LoadNow(const CompiledModel& compiled, const std::string& function) const {
    Loading loading;
    const double begin = shared_->Milliseconds();
    loading.status = shared_->core_ml().Load(compiled.path(), function, Units::kCpuAndNeuralEngine,
                                             CancelChecker(), &loading.loaded);
    loading.milliseconds = shared_->Milliseconds() - begin;
    return loading;
  }

  Status Load(const std::string& function, Function& f) {
    CollectPreload(preload_ && preload_->function == function);
    if (!f.loaded) {
      MakeRoom();
      Adopt(function, LoadNow(*compiled_, function));
    }
    if (!f.loaded) return std::exchange(load_status_, {});
    std::erase(used_, function);  // moves it to the end: the most recently used
    used_.push_back(function);
    return {};
  }

  void Adopt(const std::string& function, Loading loading) {
    load_status_ = std::move(loading.status);
    if (!load_status_.ok()) return;
    Function& f = functions_[function];
    f.loaded = std::move(loading.loaded);
    if (!f.surfaces)
      f.surfaces = std::make_shared<SurfacePool>(shared_->core_ml(), f.loaded->Interface().outputs);
    std::erase(used_, function);
    used_.push_back(function);
    shared_->Update(package_, function, [&](FunctionReport& r) {
      r.load_ms = loading.milliseconds;
      r.compiled_here = !compiled_->found();
      r.compile_ms = compile_ms_;
      r.verdict = f.verdict;
    });
  }

  // Takes over what was loaded in the background. A load that failed there is repeated when the function is
  // needed.
  void CollectPreload(bool wait) {
    if (!preload_) return;
    if (!wait && preload_->result.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    Loading loading = preload_->result.get();
    const std::string function = std::exchange(preload_, std::nullopt)->function;
    if (functions_[function].disabled.empty()) Adopt(function, std::move(loading));
  }

  // Unloads the least recently used functions to make room for one more.
  void MakeRoom() {
    const auto most = size_t(shared_->options().resident_functions);
    while (!used_.empty() && used_.size() + (preload_ ? 1 : 0) >= most) Unload(std::string(used_.front()));
  }

  void Unload(const std::string& function) {
    const auto it = functions_.find(function);
    if (it == functions_.end()) return;
    it->second.loaded.reset();
    if (it->second.surfaces) it->second.surfaces->Trim();
    std::erase(used_, function);
  }

  // ---- whether the engine runs it ----

  Status Measure(const std::string& function, Function& f, FunctionVerdict& verdict) {
    if (verdict.engagement) return {};
    const ZeroInputs zeros(f.loaded->Interface());
    std::vector<double> with_engine, cpu_only;
    if (Status status = Time(*f.loaded, *f.surfaces, zeros.tensors(), with_engine); !status.ok())
      return status;
    std::unique_ptr<LoadedFunction> on_cpu;
    Status status =
        shared_->core_ml().Load(compiled_->path(), function, Units::kCpuOnly, CancelChecker(), &on_cpu);
    if (status.ok()) status = Time(*on_cpu, *f.surfaces, zeros.tensors(), cpu_only);
    if (status.code == Code::kCancelled) return status;
    if (!status.ok()) {  // nothing to compare with: repeated at the next start
      verdict.engagement = Engagement{};
      return {};
    }
    const Engagement engagement = JudgeEngagement(with_engine, cpu_only, shared_->options().engagement);
    verdict.engagement = engagement;
    Learnt(function, verdict);
    if (engagement.verdict != Engagement::Verdict::kNotEngaged) return {};
    return Status::Fail(
        Code::kOffEngine,
        fmt::format("a prediction takes {:.1f} ms with the Neural Engine and {:.1f} ms without: it "
                    "runs on the processor",
                    engagement.engine_ms, engagement.cpu_ms));
  }

  Status Time(LoadedFunction& loaded, SurfacePool& surfaces, const HalfTensors& inputs,
              std::vector<double>& times) {
    std::unique_ptr<ModelState> state;
    if (!loaded.Interface().states.empty())
      if (Status status = loaded.NewState(&state); !status.ok()) return status;
    for (int run = 0; run <= shared_->options().engagement.runs; ++run) {
      if (Cancelled()) return Status::Fail(Code::kCancelled, "cancelled");
      HalfTensors results;
      const double begin = shared_->Milliseconds();
      if (Status status = Run(loaded, surfaces, inputs, state.get(), &results); !status.ok()) return status;
      if (run > 0) times.push_back(shared_->Milliseconds() - begin);  // the first run warms up
    }
    return {};
  }

  // ---- a prediction ----

  Status Run(LoadedFunction& loaded, SurfacePool& surfaces, const HalfTensors& inputs, ModelState* state,
             HalfTensors* results) {
    if (Status status = CheckInputs(loaded.Interface(), inputs); !status.ok()) return status;
    const std::shared_ptr<SurfacePool::Lease> lease = surfaces.Take();
    std::map<std::string, Result> made;
    if (Status status = loaded.Predict(inputs, lease->Offers(), state, &made); !status.ok()) return status;
    results->clear();
    for (const auto& [name, shape] : loaded.Interface().outputs) {
      const auto it = made.find(name);
      if (it == made.end())
        return Status::Fail(Code::kBadResult, fmt::format("there is no result '{}'", name));
      HalfTensor& tensor = (*results)[name];
      Status status =
          it->second.in_surface ? Share(lease, name, tensor) : Copy(it->second, name, shape, tensor);
      if (!status.ok()) return status;
    }
    return {};
  }

  static Status CheckInputs(const FunctionInterface& interface, const HalfTensors& inputs) {
    for (const auto& [name, shape] : interface.inputs) {
      const auto it = inputs.find(name);
      if (it == inputs.end() || it->second.shape != shape)
        return Status::Fail(Code::kBadResult, fmt::format("the function needs another input '{}'", name));
    }
    if (inputs.size() != interface.inputs.size())
      return Status::Fail(Code::kBadResult, "the function has fewer inputs than the program");
    return {};
  }

  static Status Share(const std::shared_ptr<SurfacePool::Lease>& lease, const std::string& name,
                      HalfTensor& tensor) {
    const F16* data = lease->Lock(name);
    if (!data)
      return Status::Fail(Code::kBadResult, fmt::format("the memory of result '{}' cannot be read", name));
    tensor = {lease->at(name).shape(), lease->at(name).strides(), data, lease};
    return {};
  }

  Status Copy(const Result& result, const std::string& name, const mil::Dims& shape, HalfTensor& tensor) {
    shared_->Count(&RuntimeReport::copies);
    if (!result.half || result.shape != shape || !result.bytes)
      return Status::Fail(Code::kBadResult, fmt::format("result '{}' has another shape or type", name));
    bool distrusted = false;
    const auto strides = UsableStrides(shape, result.strides, result.bytes->size(), &distrusted);
    if (distrusted) shared_->Count(&RuntimeReport::distrusted);
    if (!strides)
      return Status::Fail(Code::kBadResult, fmt::format("the memory layout of result '{}' is unknown", name));
    tensor = {shape, *strides, reinterpret_cast<const F16*>(result.bytes->data()), result.bytes};
    return {};
  }

  std::shared_ptr<RuntimeShared> shared_;
  std::filesystem::path path_;
  std::string package_;
  std::shared_ptr<const CompiledModel> compiled_;
  bool anew_ = false;  // the cached model is unusable
  double compile_ms_ = 0;
  std::map<std::string, Function> functions_;
  std::vector<std::string> used_;  // loaded functions, the least recently used first
  std::optional<Preload> preload_;
  Status load_status_;  // of the latest load
  std::atomic<bool> leaving_ = false;
};

}  // namespace

std::unique_ptr<Predictor> OpenRuntimePredictor(std::shared_ptr<RuntimeShared> shared,
                                                const std::filesystem::path& package) {
  auto predictor = std::make_unique<RuntimePredictor>(std::move(shared), package);
  predictor->Open();
  return predictor;
}

}  // namespace pd
