#include "mlx/gpu_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "base/error.h"
#include "mlx/gpu_kernel.h"
#include "mlx/gpu_sources.h"

namespace pd {
namespace {

constexpr int kAttendRows = 64;   // above this many rows, neighbouring runs of one slot use matrix products
constexpr int kShortRun = 16;     // shorter runs join them
constexpr int kProjectRows = 32;  // project.kernel holds this many rows of x
constexpr int kWide = 4096;       // from this many columns and rows of plain values on, MLX multiplies
constexpr int kNormedRows = 2;    // project.kernel norms this many rows; a kernel before it norms more, once
constexpr int kAttendWarps = 4;
constexpr int kAttendGroups =
    264;  // threadgroups that keep a large GPU busy: keys are split until there are as many
constexpr int kSmallestPart = 64;       // keys
constexpr int kTickets = 4096;          // for join.kernel, one per row and group of heads
constexpr int kSharedBytes = 47 << 10;  // limit per threadgroup, below CUDA's 48 KB

bool IsHalf(mx::Dtype type) { return type == mx::float16 || type == mx::bfloat16; }

int Divide(int a, int b) { return (a + b - 1) / b; }

// Whether attend.kernel supports heads of this width.
bool AttendsHeads(const AttentionSpec& a) {
  return a.head_dim >= 8 && a.head_dim <= 256 && std::has_single_bit(unsigned(a.head_dim));
}

// Query heads per threadgroup: they share a KV head, and their state is in registers.
int HeadsTogether(int sharing) {
  if (sharing <= 8 && sharing % 4 != 0) return sharing;
  for (int n = 4; n > 1; --n)
    if (sharing % n == 0) return n;
  return 1;
}

class GpuKernels final : public MlxKernels {
 public:
  explicit GpuKernels(GpuLanguage language)
      : language_(language),
        header_(language == GpuLanguage::kCuda ? gpu_source::kDialectCuda : gpu_source::kDialectMetal),
        place_(Make("pd_place",
                    {"q_source", "k_source", "v_source", "q_gain", "k_gain", "angles", "angle", "slot", "pos",
                     "numbers", "cache_k", "cache_v"},
                    {"q_out"}, gpu_source::kPlace, gpu_source::kHead)),
        attend_(Make("pd_attend",
                     {"q_source", "k_source", "v_source", "q_gain", "k_gain", "angles", "angle", "slot",
                      "pos", "numbers", "cache_k", "cache_v"},
                     {"out", "weight"}, std::string("#define parts out\n") + gpu_source::kAttend,
                     gpu_source::kHead)),
        attend_joined_(Make("pd_attend_joined",
                            {"q_source", "k_source", "v_source", "q_gain", "k_gain", "angles", "angle",
                             "slot", "pos", "numbers", "cache_k", "cache_v", "tickets"},
                            {"out", "parts", "weight"}, std::string(gpu_source::kAttend) + gpu_source::kJoin,
                            gpu_source::kHead)),
        combine_(Make("pd_combine", {"part", "weight"}, {"out"}, gpu_source::kCombine)),
        greedy_(Make("pd_greedy", {"logits"}, {"tokens", "report"}, gpu_source::kGreedy)),
        gate_(Make("pd_gate", {"x"}, {"out"}, gpu_source::kGate)),
        take_rows_(Make("pd_take_rows", {"table", "scales", "biases", "ids", "numbers"}, {"out"},
                        gpu_source::kTakeRows)),
        project_(Make("pd_project", {"x", "gain", "w", "scales", "biases", "offset", "residual", "numbers"},
                      {"out"}, gpu_source::kProject,
                      language == GpuLanguage::kCuda ? gpu_source::kMatrixCuda : "")) {}

  mx::array Project(const MlxProjection& p) override;
  mx::array Gate(const mx::array& x, Activation activation) override;
  bool WritesInPlace() const override { return true; }
  mx::array Place(const MlxPlacement& p, const MlxPlan& plan, MlxLayerCache& cache) override;
  mx::array Attend(const AttentionSpec& a, const mx::array& q, const MlxPlan& plan,
                   const MlxLayerCache& cache) override;
  std::optional<mx::array> PlaceAndAttend(const MlxPlacement& p, const MlxPlan& plan,
                                          MlxLayerCache& cache) override;
  MlxChoice Greedy(const mx::array& logits) override;
  mx::array Rows(const MlxWeight& table, const mx::array& ids, float scale, mx::Dtype activations) override;

 private:
  GpuKernel Make(const char* name, std::vector<std::string> inputs, std::vector<std::string> outputs,
                 const std::string& body, const std::string& more = "") const {
    return {language_, name, std::move(inputs), std::move(outputs), body, header_ + more};
  }

  bool Projects(const MlxProjection& p) const;
  // Queries that are ready, or the rows that a step places: then each is its sequence's newest token.
  struct Queries {
    const MlxPlacement* placement = nullptr;
    const mx::array* q = nullptr;
    mx::array slot, pos;  // [N] i32
    int longest;
  };
  mx::array AttendRows(const AttentionSpec& a, const Queries& queries, const MlxLayerCache& cache);

  // Constants that are not template arguments: uploaded once.
  using Constants = std::array<float, 5>;
  const mx::array& Numbers(const Constants& values) {
    const auto it = numbers_.find(values);
    return it != numbers_.end()
               ? it->second
               : numbers_.emplace(values, mx::array(values.begin(), {int(values.size())}, mx::float32))
                     .first->second;
  }
  const mx::array& Tickets() {
    if (!tickets_) tickets_ = mx::array(std::vector<int32_t>(kTickets).begin(), {kTickets}, mx::int32);
    return *tickets_;
  }

  const GpuLanguage language_;
  const std::string header_;
  std::map<Constants, mx::array> numbers_;
  std::optional<mx::array> tickets_;
  GpuKernel place_, attend_, attend_joined_, combine_, greedy_, gate_, take_rows_, project_;
};

// How project.kernel divides a threadgroup's memory.
struct ProjectLayout {
  int warps, depth;
};

// The largest number of chunks in flight that fits in memory besides `kept` bytes; no warps if nothing fits.
ProjectLayout LayOut(const MlxWeight& w, int strips, int kept) {
  // As in project.kernel.
  const int width = w.bits == 0 ? 16 : w.bits, row = width * 16 + (width == 4 ? 16 : width == 8 ? 32 : 64);
  const int scales = w.bits == 0 ? 0 : std::max(4, 128 / w.group * 2);
  const int stage = strips * 16 * (row + 2 * scales), stages = (kSharedBytes - kept) / stage;
  ProjectLayout best{0, 1};
  for (const int warps : {8, 4, 2}) {
    const int depth = std::min(stages / warps, 4);
    if (depth >= 2 && warps * (depth - 1) > best.warps * (best.depth - 1)) best = {warps, depth};
  }
  return best;
}

bool GpuKernels::Projects(const MlxProjection& p) const {
  const MlxWeight& w = p.weights.weight;
  const int rows = w.out() / (p.gate ? 2 : 1);
  // Where reading the values takes much longer than a launch, MLX's product reads them faster.
  if (w.bits == 0 && p.x.shape(1) >= kWide && w.out() >= kWide) return false;
  return language_ == GpuLanguage::kCuda && IsHalf(p.x.dtype()) && p.x.shape(0) <= kProjectRows &&
         p.x.shape(1) % 128 == 0 && rows % 16 == 0 && (w.bits == 0 || w.bits == 4 || w.bits == 8) &&
         (w.bits == 0 || w.group == 32 || w.group == 64 || w.group == 128) &&
         (!p.gate || *p.gate != Activation::kGelu);
}

mx::array GpuKernels::Project(const MlxProjection& p) {
  if (!Projects(p)) return MlxKernels::Project(p);
  const MlxWeight& w = p.weights.weight;
  const int m = p.x.shape(0), in = p.x.shape(1), rows = w.out();
  const int strips = p.gate || (m > 8 && rows % 32 == 0) ? 2 : 1;
  bool normed = p.norm && m <= kNormedRows;
  ProjectLayout layout = LayOut(w, strips, normed ? m * (in + 32) * 2 : 0);
  if (layout.warps == 0) layout = LayOut(w, strips, 0), normed = false;
  const mx::array x = p.norm && !normed ? RmsNorm(p.x, *p.norm, 1) : p.x;
  const mx::array& numbers = Numbers({normed ? p.norm->eps : 0});
  return project_({x, normed ? p.norm->gain : numbers, *w.values, w.bits ? *w.scales : numbers,
                   w.bits ? *w.biases : numbers, p.weights.bias ? *p.weights.bias->values : numbers,
                   p.residual ? *p.residual : numbers, numbers},
                  {{m, p.gate ? rows / 2 : rows}}, {x.dtype()},
                  {{rows / (16 * strips), 1, 1},
                   32 * layout.warps,
                   {{"T", x.dtype()},
                    {"BITS", w.bits},
                    {"GROUP", w.bits ? w.group : 128},
                    {"ROWS", rows},
                    {"IN", in},
                    {"STRIPS", strips},
                    {"TILES", Divide(m, 8)},
                    {"WARPS", layout.warps},
                    {"DEPTH", layout.depth},
                    {"NORMED", normed},
                    {"KEPT_ROWS", normed ? m : 1},
                    {"GATED", p.gate != nullptr},
                    {"ACTIVATION", p.gate ? int(*p.gate) : 0},
                    {"BIASED", p.weights.bias.has_value()},
                    {"ADDED", p.residual != nullptr}}})[0];
}

mx::array GpuKernels::Gate(const mx::array& x, Activation activation) {
  const int half = x.shape(1) / 2;
  if (activation == Activation::kGelu || half % 8 != 0) return MlxKernels::Gate(x, activation);
  return gate_({x}, {{x.shape(0), half}}, {x.dtype()},
               {{Divide(half, 8 * 128), x.shape(0), 1},
                128,
                {{"T", x.dtype()}, {"HALF", half}, {"ACTIVATION", int(activation)}}})[0];
}

mx::array GpuKernels::Place(const MlxPlacement& p, const MlxPlan& plan, MlxLayerCache& cache) {
  const AttentionSpec& a = p.attention;
  const mx::Dtype type = cache.k.dtype();
  PD_CHECK(cache.k.flags().row_contiguous && cache.v.flags().row_contiguous && p.k.matrix.dtype() == type);
  const int heads = p.q ? a.heads : 0;
  const MlxColumns& q = p.q ? *p.q : p.k;
  const mx::array& numbers = Numbers({p.q_norm ? p.q_norm->eps : 0, p.k_norm ? p.k_norm->eps : 0});
  return place_({q.matrix, p.k.matrix, p.v.matrix, p.q_norm ? p.q_norm->gain : numbers,
                 p.k_norm ? p.k_norm->gain : numbers, p.angles ? *p.angles : numbers,
                 p.angles ? *p.angle : plan.pos, plan.slot, plan.pos, numbers, cache.k, cache.v},
                {p.q ? mx::Shape{plan.count, a.q_width()} : mx::Shape{1}}, {type},
                {{Divide(heads + 2 * a.kv_heads, 4), plan.count, 1},
                 128,
                 {{"T", type},
                  {"D", a.head_dim},
                  {"HEADS", heads},
                  {"KV_HEADS", a.kv_heads},
                  {"DIMS", p.angles ? p.angles->shape(1) : 0},
                  {"Q_STRIDE", q.matrix.shape(1)},
                  {"Q_FIRST", q.first},
                  {"K_STRIDE", p.k.matrix.shape(1)},
                  {"K_FIRST", p.k.first},
                  {"V_STRIDE", p.v.matrix.shape(1)},
                  {"V_FIRST", p.v.first},
                  {"Q_NORM", p.q_norm != nullptr},
                  {"K_NORM", p.k_norm != nullptr}}})[0];
}

mx::array GpuKernels::AttendRows(const AttentionSpec& a, const Queries& queries, const MlxLayerCache& cache) {
  const MlxPlacement* p = queries.placement;
  const mx::array& q = p ? p->q->matrix : *queries.q;
  const mx::array &k = p ? p->k.matrix : q, &v = p ? p->v.matrix : q;
  const int rows = queries.slot.shape(0), together = HeadsTogether(a.heads / a.kv_heads);
  // Parts begin at multiples of their size, so a row's sums do not depend on the other rows' contents: only
  // on how many rows there are and how long the longest is.
  const int most = std::max(1, kAttendGroups / (rows * a.heads / together));
  const int size = int(std::bit_ceil(unsigned(std::max(kSmallestPart, Divide(queries.longest, most))))),
            parts = Divide(queries.longest, size);
  // Only one kernel per step and layer may use the tickets: the one for the rows that place themselves.
  const bool joined =
      parts > 1 && p && language_ == GpuLanguage::kCuda && rows * a.heads / together <= kTickets;
  const MlxNorm *q_norm = p ? p->q_norm : nullptr, *k_norm = p ? p->k_norm : nullptr;
  const mx::array& numbers = Numbers(
      {a.scale, a.soft_cap.value_or(0), q_norm ? q_norm->eps : 0, k_norm ? k_norm->eps : 0, float(size)});
  std::vector<mx::array> inputs = {q,
                                   k,
                                   v,
                                   q_norm ? q_norm->gain : numbers,
                                   k_norm ? k_norm->gain : numbers,
                                   p && p->angles ? *p->angles : numbers,
                                   p && p->angles ? *p->angle : queries.pos,
                                   queries.slot,
                                   queries.pos,
                                   numbers,
                                   cache.k,
                                   cache.v};
  const GpuKernel::Launch launch{{a.heads / together, rows, parts},
                                 32 * kAttendWarps,
                                 {{"T", q.dtype()},
                                  {"O", parts == 1 ? q.dtype() : mx::float32},
                                  {"D", a.head_dim},
                                  {"HEADS", a.heads},
                                  {"KV_HEADS", a.kv_heads},
                                  {"HG", together},
                                  {"WARPS", kAttendWarps},
                                  {"WINDOW", a.window ? a.window->size : 0},
                                  {"CAPPED", a.soft_cap.has_value()},
                                  {"ONE_PART", parts == 1},
                                  {"PLACES", p != nullptr},
                                  {"DIMS", p && p->angles ? p->angles->shape(1) : 0},
                                  {"Q_STRIDE", q.shape(1)},
                                  {"Q_FIRST", p ? p->q->first : 0},
                                  {"K_STRIDE", k.shape(1)},
                                  {"K_FIRST", p ? p->k.first : 0},
                                  {"V_STRIDE", v.shape(1)},
                                  {"V_FIRST", p ? p->v.first : 0},
                                  {"Q_NORM", q_norm != nullptr},
                                  {"K_NORM", k_norm != nullptr}}};
  const mx::Shape whole{rows, a.q_width()}, by_part{rows, a.heads, parts, a.head_dim},
      weights{rows, a.heads, parts, 2};
  if (parts == 1) return attend_(std::move(inputs), {whole, {1}}, {q.dtype(), mx::float32}, launch)[0];
  if (joined) {
    inputs.push_back(Tickets());
    return attend_joined_(std::move(inputs), {whole, by_part, weights}, {q.dtype(), mx::float32, mx::float32},
                          launch)[0];
  }
  const auto out = attend_(std::move(inputs), {by_part, weights}, {mx::float32, mx::float32}, launch);
  return combine_(
      {out[0], out[1]}, {whole}, {q.dtype()},
      {{rows * a.heads, 1, 1}, Divide(a.head_dim, 32) * 32, {{"T", q.dtype()}, {"D", a.head_dim}}})[0];
}

std::optional<mx::array> GpuKernels::PlaceAndAttend(const MlxPlacement& p, const MlxPlan& plan,
                                                    MlxLayerCache& cache) {
  const bool newest = int(plan.runs.size()) == plan.count;  // one row per sequence
  if (!newest || plan.count > kAttendRows || !AttendsHeads(p.attention)) return std::nullopt;
  PD_CHECK(cache.k.flags().row_contiguous && cache.v.flags().row_contiguous &&
           p.k.matrix.dtype() == cache.k.dtype());
  return AttendRows(p.attention, {&p, nullptr, plan.slot, plan.pos, plan.longest}, cache);
}

mx::array GpuKernels::Attend(const AttentionSpec& a, const mx::array& q, const MlxPlan& plan,
                             const MlxLayerCache& cache) {
  if (!AttendsHeads(a)) return MlxKernels::Attend(a, q, plan, cache);
  if (plan.count <= kAttendRows)
    return AttendRows(a, {nullptr, &q, plan.slot, plan.pos, plan.longest}, cache);
  // Long runs one by one; the runs between them together.
  std::vector<mx::array> outputs;
  for (size_t from = 0, to; from < plan.runs.size(); from = to) {
    const bool is_short = plan.runs[from].count < kShortRun;
    for (to = from + 1; is_short && to < plan.runs.size() && plan.runs[to].count < kShortRun;) ++to;
    const int first = plan.runs[from].row, end = plan.runs[to - 1].row + plan.runs[to - 1].count;
    const mx::array rows = mx::slice(q, {first, 0}, {end, a.q_width()});
    if (is_short) {
      outputs.push_back(AttendRows(a,
                                   {nullptr, &rows, mx::slice(plan.slot, {first}, {end}),
                                    mx::slice(plan.pos, {first}, {end}), plan.longest},
                                   cache));
    } else {
      MlxPlan one;
      one.count = end - first;
      one.runs = {plan.runs[from]};
      one.runs[0].row = 0;
      outputs.push_back(MlxKernels::Attend(a, rows, one, cache));
    }
  }
  return outputs.size() == 1 ? outputs[0] : mx::concatenate(std::move(outputs), 0);
}

MlxChoice GpuKernels::Greedy(const mx::array& logits) {
  const int rows = logits.shape(0);
  auto out = greedy_({logits}, {{rows}, {rows, 2}}, {mx::int32, mx::int32},
                     {{rows, 1, 1}, 1024, {{"T", logits.dtype()}}});
  return {out[0], out[1]};
}

mx::array GpuKernels::Rows(const MlxWeight& table, const mx::array& ids, float scale, mx::Dtype activations) {
  const bool kernel = (table.bits == 4 || table.bits == 8) && table.scales->dtype() == activations;
  if (!kernel) return MlxKernels::Rows(table, ids, scale, activations);
  const int n = ids.shape(0), words = table.values->shape(1), width = words * 32 / table.bits;
  return take_rows_(
      {*table.values, *table.scales, *table.biases, ids, Numbers({scale})}, {{n, width}}, {activations},
      {{Divide(words, 128), n, 1},
       128,
       {{"T", activations}, {"BITS", table.bits}, {"GROUP", table.group}, {"WIDTH", width}}})[0];
}

}  // namespace

std::unique_ptr<MlxKernels> MakeKernels() {
  if (mx::default_device() != mx::Device::gpu) return std::make_unique<MlxKernels>();
  return std::make_unique<GpuKernels>(mx::metal::is_available() ? GpuLanguage::kMetal : GpuLanguage::kCuda);
}

}  // namespace pd
