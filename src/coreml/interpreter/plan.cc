#include "coreml/interpreter/plan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "base/error.h"
#include "coreml/mil/check.h"

namespace pd::interp {
namespace {

using mil::NamedType;
using mil::Operation;
using mil::TensorType;

constexpr size_t kNever = std::numeric_limits<size_t>::max();
constexpr size_t kAlign = 64;

bool IsConstant(const Operation& op) { return op.type == "const" || op.type.starts_with("constexpr_"); }

// Ops whose result has the operand's elements in the same order.
bool KeepsOrder(const Operation& op) {
  return op.type == "identity" || op.type == "reshape" || op.type == "expand_dims" || op.type == "squeeze";
}
// Ops whose results may be views of 'x'.
bool MayView(const Operation& op) {
  return KeepsOrder(op) || op.type == "transpose" || op.type == "slice_by_index" ||
         op.type == "slice_by_size" || op.type == "split";
}
const std::string* NameIn(const Operation& op, std::string_view parameter) {
  const mil::Binding* binding = op.Find(parameter);
  return binding ? std::get_if<std::string>(binding) : nullptr;
}

// A first pass over a function: finds which results can be computed in place, and how long states' contents
// are read.
class Survey {
 public:
  // A tensor that can be computed in a concat's result: operand `operand` of `concat`.
  struct Home {
    const Operation* concat = nullptr;
    size_t operand = 0;
  };

  explicit Survey(const mil::Function& function) {
    const auto& ops = function.body.operations;
    for (size_t i = 0; i < ops.size(); ++i) Visit(ops[i], i);
    for (const std::string& output : function.body.outputs) Use(output, kNever);
  }

  const Home* HomeOf(const std::string& name) const {
    const auto it = homes_.find(name);
    return it == homes_.end() ? nullptr : &it->second;
  }
  // Whether the result of read_state at op `index` is no longer read once the state changes.
  bool OutlivesReads(const std::string& result, const std::string& state, size_t index) const {
    const auto last = last_use_.find(result);
    const auto writes = writes_.find(state);
    if (last == last_use_.end() || writes == writes_.end()) return true;
    const auto next = std::upper_bound(writes->second.begin(), writes->second.end(), index);
    return next == writes->second.end() || last->second < *next;
  }

 private:
  struct Root {
    std::string name;
    bool whole = true;     // all of it, in order
    bool computed = true;  // by an op that can write to a given place
  };

  void Visit(const Operation& op, size_t index) {
    if (IsConstant(op)) return;
    for (const auto& [parameter, bindings] : op.inputs)
      for (const mil::Binding& binding : bindings)
        if (const auto* name = std::get_if<std::string>(&binding)) Use(*name, index);
    if (op.type == "write_state") {
      if (const std::string* state = NameIn(op, "input")) writes_[*state].push_back(index);
      return;
    }
    if (op.type == "concat" || op.type == "stack") OfferHomes(op);
    const std::string* viewed = MayView(op) ? NameIn(op, "x") : nullptr;
    const auto root = viewed ? roots_.find(*viewed) : roots_.end();
    for (const NamedType& output : op.outputs) {
      if (root != roots_.end())
        roots_[output.name] = {root->second.name, root->second.whole && KeepsOrder(op),
                               root->second.computed};
      else
        roots_[output.name] = {output.name, true, !MayView(op) && op.type != "read_state"};
    }
  }

  void OfferHomes(const Operation& concat) {
    const auto values = concat.inputs.find("values");
    if (values == concat.inputs.end()) return;
    for (size_t i = 0; i < values->second.size(); ++i) {
      const auto* name = std::get_if<std::string>(&values->second[i]);
      const auto root = name ? roots_.find(*name) : roots_.end();
      if (root != roots_.end() && root->second.whole && root->second.computed)
        homes_.try_emplace(root->second.name, Home{&concat, i});
    }
  }

  void Use(const std::string& name, size_t index) {
    const auto root = roots_.find(name);
    if (root != roots_.end()) last_use_[root->second.name] = index;
  }

  std::map<std::string, Root> roots_;                  // of results
  std::map<std::string, Home> homes_;                  // by name of the result
  std::map<std::string, size_t> last_use_;             // index of the op
  std::map<std::string, std::vector<size_t>> writes_;  // by state, ascending
};

class FunctionPlanner {
 public:
  FunctionPlanner(const std::string& name, const mil::Function& function, Constants& constants,
                  const PlanOptions& options)
      : name_(name), function_(function), constants_(constants), options_(options), survey_(function) {
    for (const NamedType& input : function.inputs) scope_.Define(input);
    for (const Operation& op : function.body.operations)
      for (const NamedType& output : op.outputs)
        scope_.Define(output, op.type == "const" ? &op.attributes.at("val") : nullptr);
  }

  Plan Make() && {
    place_ = "inputs";
    try {
      AddInputs();
      const auto& ops = function_.body.operations;
      for (size_t i = 0; i < ops.size(); ++i) {
        place_ = fmt::format("op {} ({}{})", i, ops[i].type,
                             ops[i].outputs.empty() ? "" : " '" + ops[i].outputs[0].name + "'");
        Visit(ops[i], i);
      }
      place_ = "outputs";
      AddOutputs();
      place_ = "memory";
      AssignMemory();
    } catch (const Error& error) {
      throw Fail(error.kind(), "function {}: {}: {}", name_, place_, error.what());
    }
    return std::move(plan_);
  }

 private:
  // A tensor in a storage, or a part of one.
  struct Tensor {
    TensorType type;
    size_t storage = 0;
    Layout layout;
  };

  // ---- resolving names ----

  void AddInputs() {
    for (const NamedType& input : function_.inputs) {
      CheckType(input.type);
      auto& all = input.state ? plan_.states : plan_.inputs;
      const Storage storage{input.state ? Storage::Kind::kState : Storage::Kind::kInput, all.size(),
                            mil::ByteSize(input.type)};
      all.push_back(input);
      (input.state ? states_ : tensors_)[input.name] = AddTensor(input.type, storage);
    }
  }

  Tensor AddTensor(const TensorType& type, const Storage& storage) {
    plan_.storages.push_back(storage);
    return {type, plan_.storages.size() - 1, {type.shape, DenseStrides(type.shape), 0}};
  }

  void CheckType(const TensorType& type) const {
    if (!IsRunTimeType(type.dtype))
      throw Fail(ErrorKind::kUnsupported, "a tensor of type {}, which the interpreter does not support",
                 mil::Name(type.dtype));
    if (std::find(type.shape.begin(), type.shape.end(), mil::kUnknown) != type.shape.end())
      throw Fail(ErrorKind::kUnsupported, "{}: its shape is known only at run time", ToString(type));
    if (type.shape.size() > kMostAxes)
      throw Fail(ErrorKind::kUnsupported, "{}: its rank is above {}", ToString(type), kMostAxes);
    if (mil::ByteSize(type) > options_.memory_limit)
      throw Fail(ErrorKind::kOutOfMemory, "{} is larger than the {} MB that tensors may take", ToString(type),
                 options_.memory_limit >> 20);
  }

  const Constant* FindConstant(const mil::Binding& binding) {
    if (const auto* name = std::get_if<std::string>(&binding)) {
      const auto it = known_.find(*name);
      return it == known_.end() ? nullptr : &it->second;
    }
    literals_.push_back(std::make_unique<Constant>(Constants::Of(std::get<mil::Value>(binding))));
    return literals_.back().get();
  }

  // What a parameter is bound to, as a tensor in memory.
  Tensor TensorOf(const mil::Binding& binding) {
    if (const auto* name = std::get_if<std::string>(&binding))
      if (const auto it = tensors_.find(*name); it != tensors_.end()) return it->second;
    const Constant* constant = FindConstant(binding);
    PD_CHECK(constant);
    CheckType(constant->type);
    ConstantBytes owner;
    const auto bytes = constant->Bytes(owner);
    if (bytes.size() != mil::ByteSize(constant->type))
      throw Fail(ErrorKind::kCorruptFile, "the data of {} are missing", ToString(constant->type));
    if (owner) plan_.constants.push_back(owner);
    return AddTensor(constant->type, {Storage::Kind::kConstant, 0, bytes.size(), 0, bytes.data()});
  }

  // ---- ops ----

  void Visit(const Operation& op, size_t index) {
    if (IsConstant(op)) return AddConstant(op);
    if (!op.blocks.empty()) throw Fail(ErrorKind::kUnsupported, "control flow is not supported");
    for (const NamedType& output : op.outputs) CheckType(output.type);
    if (op.type == "read_state") return ReadState(op, index);
    if (op.type == "write_state") return WriteState(op);
    if (!mil::IsKnownOp(op.type)) throw Unknown();
    RequireKnownShape(op);
    if (Look(op)) return;
    if (op.type == "concat" || op.type == "stack") return Join(op);
    if (KeepsOrder(op)) return Move(op);
    Compute(op);
  }
  // For a result whose shape comes from run-time numbers, a program may declare any shape.
  void RequireKnownShape(const Operation& op) const {
    static const std::map<std::string_view, const char*> parameters = {
        {"reshape", "shape"}, {"slice_by_size", "size"},         {"tile", "reps"}, {"fill", "shape"},
        {"topk", "k"},        {"one_hot", "one_hot_vector_size"}};
    const auto it = parameters.find(op.type);
    if (it == parameters.end()) return;
    const mil::Operands operands = scope_.Resolve(op);
    const mil::Given given(operands);
    if (given.Find(it->second) && !given.IntsIfKnown(it->second))
      throw Fail(ErrorKind::kUnsupported, "'{}' is known only at run time", it->second);
  }
  static Error Unknown() { return Fail(ErrorKind::kUnsupported, "the interpreter does not know this op"); }

  void AddConstant(const Operation& op) {
    if (op.type == "const") {
      known_.emplace(op.outputs.front().name, Constants::Of(op.attributes.at("val")));
      return;
    }
    ConstantOperands operands;
    for (const auto& [key, value] : op.attributes)
      if (key != "name") operands.emplace(key, Constants::Of(value));
    for (const auto& [parameter, bindings] : op.inputs) {
      const Constant* operand = FindConstant(bindings.front());
      if (!operand) throw Fail(ErrorKind::kCorruptFile, "'{}' is not a constant", parameter);
      operands.insert_or_assign(parameter, *operand);
    }
    for (size_t i = 0; i < op.outputs.size(); ++i)
      known_.emplace(op.outputs[i].name, constants_.Of(op.type, operands, i, op.outputs[i].type));
  }

  void ReadState(const Operation& op, size_t index) {
    const std::string& state = std::get<std::string>(*op.Find("input"));
    const NamedType& result = op.outputs.front();
    const Tensor& held = states_.at(state);
    if (survey_.OutlivesReads(result.name, state, index)) {
      tensors_[result.name] = held;
      return;
    }
    AddCopy(held, Define(result));
  }

  void WriteState(const Operation& op) {
    AddCopy(TensorOf(*op.Find("data")), states_.at(std::get<std::string>(*op.Find("input"))));
  }

  // Defines the results as views of the operand, if possible.
  bool Look(const Operation& op) {
    const mil::Operands operands = scope_.Resolve(op);
    const mil::Given given(operands);
    if (!MayView(op)) return false;
    const TensorType& result = op.outputs.front().type;
    const Tensor x = TensorOf(*op.Find("x"));
    std::optional<Layout> layout;
    if (op.type == "split") return Split(op, given, x);
    if (KeepsOrder(op)) layout = Reshape(x.layout, result.shape);
    if (op.type == "transpose")
      layout = Permute(x.layout, mil::Axes(given.Ints("perm"), x.type.shape.size()));
    if (op.type == "slice_by_size")
      if (auto begin = given.IntsIfKnown("begin")) {
        for (size_t a = 0; a < begin->size(); ++a)
          if ((*begin)[a] < 0) (*begin)[a] += x.type.shape[a];  // inference checked the range
        layout = SliceBySize(x.layout, *begin, result.shape);
      }
    if (op.type == "slice_by_index")
      if (const auto begin = given.IntsIfKnown("begin"), end = given.IntsIfKnown("end"); begin && end)
        layout = SliceByIndex(x.layout,
                              {given.IntsOr("stride", {}), given.IntsOr("begin_mask", {}),
                               given.IntsOr("end_mask", {}), given.IntsOr("squeeze_mask", {})},
                              *begin, *end);
    if (!layout) return false;
    PD_CHECK(layout->shape == result.shape);
    tensors_[op.outputs[0].name] = {result, x.storage, *layout};
    return true;
  }

  bool Split(const Operation& op, const mil::Given& given, const Tensor& x) {
    const size_t axis = mil::Axis(given.Int("axis"), x.type.shape.size());
    Dims begin(x.type.shape.size());
    for (const NamedType& output : op.outputs) {
      tensors_[output.name] = {output.type, x.storage, SliceBySize(x.layout, begin, output.type.shape)};
      begin[axis] += output.type.shape[axis];
    }
    return true;
  }

  // Ops that keep the order but are not views: elements must be made contiguous.
  void Move(const Operation& op) {
    const Tensor x = TensorOf(*op.Find("x"));
    Tensor y = Define(op.outputs.front());
    std::optional<Layout> target = Reshape(y.layout, x.type.shape);
    if (!target) {
      y = Redefine(op.outputs.front());
      target = Reshape(y.layout, x.type.shape);
    }
    AddCopy(x, {x.type, y.storage, *target});
  }

  // Copies operands that are not yet in place.
  void Join(const Operation& op) {
    const Tensor whole = Define(op.outputs.front());
    const auto& values = op.inputs.at("values");
    for (size_t i = 0; i < values.size(); ++i) {
      const Tensor part = TensorOf(values[i]);
      const Layout target = PartOf(op, i, whole.layout);
      const bool in_place = part.storage == whole.storage && part.layout.shape == target.shape &&
                            SameElements(part.layout, target);
      if (!in_place) AddCopy(part, {part.type, whole.storage, target});
    }
  }
  static bool SameElements(const Layout& a, const Layout& b) {
    for (size_t i = 0; i < a.shape.size(); ++i)
      if (a.shape[i] != 1 && a.strides[i] != b.strides[i]) return false;
    return a.offset == b.offset;
  }

  // Where operand i of a concat or stack goes in its result.
  Layout PartOf(const Operation& op, size_t i, const Layout& whole) {
    const mil::Operands operands = scope_.Resolve(op);
    const mil::Given given(operands);
    const auto& values = *given.FindAll("values");
    const size_t axis = mil::Axis(given.Int("axis"), whole.shape.size());
    Layout part = whole;
    if (op.type == "stack") {
      part.offset += int64_t(i) * whole.strides[axis];
      part.shape.erase(part.shape.begin() + std::ptrdiff_t(axis));
      part.strides.erase(part.strides.begin() + std::ptrdiff_t(axis));
      return part;
    }
    part.shape[axis] = values[i].type.shape[axis];
    if (given.IntOr("interleave", 0)) {
      part.offset += int64_t(i) * whole.strides[axis];
      part.strides[axis] *= int64_t(values.size());
      return part;
    }
    for (size_t j = 0; j < i; ++j) part.offset += values[j].type.shape[axis] * whole.strides[axis];
    return part;
  }

  void Compute(const Operation& op) {
    const bool empty = std::all_of(op.outputs.begin(), op.outputs.end(),
                                   [](const NamedType& o) { return mil::Elements(o.type) == 0; });
    const Maker maker = FindMaker(op.type);
    if (!maker) throw Unknown();
    const mil::Operands operands = scope_.Resolve(op);
    std::map<std::string, std::vector<const Constant*>, std::less<>> known;
    for (const auto& [parameter, bindings] : op.inputs)
      for (const mil::Binding& binding : bindings) known[parameter].push_back(FindConstant(binding));
    PlannedOp step;
    if (!empty) {
      Site site(op, operands, std::move(known), constants_, options_.plain);
      step.kernel = maker(site);
      for (const auto& [parameter, i] : site.asked())
        step.in.push_back(PlaceOf(TensorOf(op.inputs.at(parameter).at(i))));
    }
    for (const NamedType& output : op.outputs) step.out.push_back(PlaceOf(Define(output)));
    if (!empty) AddStep(std::move(step));
  }

  // ---- results ----

  // Memory for a result: inside a concat's result, or its own.
  const Tensor& Define(const NamedType& result) {
    const auto made = tensors_.find(result.name);
    if (made != tensors_.end()) return made->second;  // made earlier, as operand of a later op
    if (const Survey::Home* home = survey_.HomeOf(result.name); home && IsSound(*home->concat)) {
      const Tensor& whole = Define(home->concat->outputs.front());
      const auto place = Reshape(PartOf(*home->concat, home->operand, whole.layout), result.type.shape);
      if (place) return tensors_[result.name] = {result.type, whole.storage, *place};
    }
    return Redefine(result);
  }
  const Tensor& Redefine(const NamedType& result) {
    return tensors_[result.name] =
               AddTensor(result.type, {Storage::Kind::kArena, 0, mil::ByteSize(result.type)});
  }

  // Whether all types of a later op will be accepted when it is visited.
  bool IsSound(const Operation& op) const {
    std::vector<TensorType> types;
    const mil::Operands operands = scope_.Resolve(op);
    for (const mil::Operand& value : operands.at("values")) types.push_back(value.type);
    for (const NamedType& output : op.outputs) types.push_back(output.type);
    return std::all_of(types.begin(), types.end(), [](const TensorType& type) {
      return IsRunTimeType(type.dtype) &&
             std::find(type.shape.begin(), type.shape.end(), mil::kUnknown) == type.shape.end();
    });
  }

  // ---- steps ----

  static TensorPlace PlaceOf(const Tensor& t) {
    TensorPlace place;
    place.storage = t.storage;
    place.view = MakeView(t.type.dtype, t.layout.shape, t.layout.strides, nullptr);
    place.offset = t.layout.offset * int64_t(ElementBytes(t.type.dtype));
    return place;
  }

  void AddStep(PlannedOp step) {
    step.place = fmt::format("function {}: {}", name_, place_);
    plan_.steps.push_back(std::move(step));
  }

  void AddCopy(const Tensor& from, const Tensor& to) {
    if (mil::Elements({from.type.dtype, from.layout.shape}) == 0) return;
    PlannedOp step;
    step.kernel = [](const Call& call) { CopyElements(call.machine, call.in[0], call.out[0]); };
    step.in.push_back(PlaceOf(from));
    step.out.push_back(PlaceOf(to));
    AddStep(std::move(step));
  }

  void AddOutputs() {
    for (const std::string& name : function_.body.outputs) {
      const Tensor from = TensorOf(name);
      AddCopy(from,
              AddTensor(from.type, {Storage::Kind::kOutput, plan_.outputs.size(), mil::ByteSize(from.type)}));
      plan_.outputs.push_back({name, from.type, false});
    }
  }

  // Each storage of the arena is needed from the first to the last step that names it. The largest storages
  // are placed first, each at the lowest offset that is free for that time.
  void AssignMemory() {
    struct Need {
      size_t storage = 0, first = kNever, last = 0;
    };
    std::vector<Need> needs(plan_.storages.size());
    for (size_t i = 0; i < needs.size(); ++i) needs[i].storage = i;
    for (size_t s = 0; s < plan_.steps.size(); ++s)
      for (const auto* places : {&plan_.steps[s].in, &plan_.steps[s].out})
        for (const TensorPlace& place : *places) {
          Need& need = needs[place.storage];
          need.first = std::min(need.first, s), need.last = std::max(need.last, s);
        }
    std::erase_if(needs, [&](const Need& n) {
      return n.first == kNever || plan_.storages[n.storage].kind != Storage::Kind::kArena;
    });
    const auto bytes = [&](const Need& n) { return plan_.storages[n.storage].bytes; };
    std::sort(needs.begin(), needs.end(), [&](const Need& a, const Need& b) {
      return bytes(a) != bytes(b) ? bytes(a) > bytes(b) : a.storage < b.storage;
    });
    std::vector<Need> placed;  // by offset
    for (const Need& need : needs) {
      size_t at = 0;
      for (const Need& other : placed) {
        if (other.last < need.first || need.last < other.first) continue;
        const size_t begin = plan_.storages[other.storage].offset;
        if (begin >= at + bytes(need)) break;
        at = std::max(at, begin + (bytes(other) + kAlign - 1) / kAlign * kAlign);
      }
      plan_.storages[need.storage].offset = at;
      plan_.arena_bytes = std::max(plan_.arena_bytes, at + bytes(need));
      placed.insert(std::upper_bound(placed.begin(), placed.end(), at,
                                     [&](size_t offset, const Need& n) {
                                       return offset < plan_.storages[n.storage].offset;
                                     }),
                    need);
    }
    if (plan_.arena_bytes > options_.memory_limit)
      throw Fail(ErrorKind::kOutOfMemory, "tensors take {} MB, the limit is {} MB", plan_.arena_bytes >> 20,
                 options_.memory_limit >> 20);
  }

  const std::string& name_;
  const mil::Function& function_;
  Constants& constants_;
  const PlanOptions& options_;
  const Survey survey_;
  std::string place_;
  mil::Scope scope_;
  std::map<std::string, Constant> known_;
  std::vector<std::unique_ptr<Constant>> literals_;
  std::map<std::string, Tensor> tensors_, states_;
  Plan plan_;
};

}  // namespace

Plan MakePlan(const std::string& name, const mil::Function& function, Constants& constants,
              const PlanOptions& options) {
  return FunctionPlanner(name, function, constants, options).Make();
}

}  // namespace pd::interp
