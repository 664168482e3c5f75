#include "planning/cost_model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace pd {
namespace {

constexpr std::string_view kRemedy = "remove or correct them";  // keys that nobody reads

Json CurveJson(const Curve& curve) {
  Json json = Json::array();
  for (const auto& [count, ms] : curve) json.push_back({count, ms});
  return json;
}

double Positive(JsonReader& json, std::string_view key) {
  const double value = json.Number(key);
  if (!std::isfinite(value) || value < 0)
    throw Fail(ErrorKind::kCorruptFile, "{}: {} is {}: it must be 0 or more", json.where(), key, value);
  return value;
}

Curve ReadCurve(JsonReader& json, std::string_view key) {
  Curve curve;
  const Json& points = json.Value(key);
  const auto fail = [&] {
    return Fail(ErrorKind::kCorruptFile,
                "{}: {} must be a list of [count, milliseconds] in ascending order of count", json.where(),
                key);
  };
  if (!points.is_array() || points.empty()) throw fail();
  for (const Json& point : points) {
    const bool shaped =
        point.is_array() && point.size() == 2 && point[0].is_number_integer() && point[1].is_number();
    if (!shaped) throw fail();
    const int64_t count = point[0];
    const double ms = point[1];
    if (count < 0 || count > INT32_MAX || !(ms >= 0) || (!curve.empty() && count <= curve.back().first))
      throw fail();
    curve.emplace_back(int(count), ms);
  }
  return curve;
}

Json ToJson(const PrefillCost& cost) {
  Json later = Json::array();
  for (const PrefillCost::Later& l : cost.later)
    later.push_back({{"first", l.first}, {"ratio", CurveJson(l.ratio)}});
  Json calls = Json::array();
  for (const PrefillCost::Call& c : cost.calls) calls.push_back({c.shape.tokens, c.shape.history, c.ms});
  Json json = {{"device", cost.device},
               {"option", cost.option},
               {"handoff_ms", cost.handoff_ms},
               {"handoff_token_ms", cost.handoff_token_ms},
               {"lane", cost.lane},
               {"slowdown", cost.slowdown},
               {"watts", cost.watts}};
  if (cost.calls.empty()) {
    json["chunk"] = CurveJson(cost.chunk);
    json["later"] = later;
  } else {
    json["calls"] = calls;
  }
  return json;
}

std::vector<PrefillCost::Later> ReadLater(JsonReader& json) {
  std::vector<PrefillCost::Later> levels;
  const Json& later = json.Value("later");
  if (!later.is_array()) throw Fail(ErrorKind::kCorruptFile, "{}: later must be a list", json.where());
  for (const Json& entry : later) {
    JsonReader level(entry, json.where());
    const int above = levels.empty() ? 0 : levels.back().first;
    levels.push_back({int(level.Int("first", above + 1)), ReadCurve(level, "ratio")});
    level.Done(kRemedy);
  }
  return levels;
}

std::vector<PrefillCost::Call> ReadCalls(const Json& list, const std::string& where) {
  std::vector<PrefillCost::Call> calls;
  const auto whole = [](const Json& n, int least) {
    return n.is_number_integer() && n.get<int64_t>() >= least && n.get<int64_t>() <= INT32_MAX;
  };
  const bool some = list.is_array() && !list.empty();
  for (const Json& call : some ? list : Json::array()) {
    const bool shaped = call.is_array() && call.size() == 3 && whole(call[0], 1) && whole(call[1], 0) &&
                        call[2].is_number() && call[2].get<double>() >= 0;
    if (!shaped) break;
    calls.push_back({{int(call[0]), int(call[1])}, double(call[2])});
  }
  if (!some || calls.size() != list.size())
    throw Fail(ErrorKind::kCorruptFile, "{}: calls must be a list of [tokens, history, milliseconds]", where);
  return calls;
}

PrefillCost ReadPrefill(JsonReader json) {
  PrefillCost cost;
  cost.device = json.String("device");
  cost.option = json.StringOr("option", "");
  if (json.Has("calls")) {
    cost.calls = ReadCalls(json.Value("calls"), json.where());
  } else {
    cost.chunk = ReadCurve(json, "chunk");
    cost.later = ReadLater(json);
  }
  cost.handoff_ms = Positive(json, "handoff_ms");
  cost.handoff_token_ms = Positive(json, "handoff_token_ms");
  cost.lane = int(json.Int("lane", 0, 64));
  cost.slowdown = std::max(1.0, Positive(json, "slowdown"));
  cost.watts = Positive(json, "watts");
  json.Done(kRemedy);
  return cost;
}

}  // namespace

double At(const Curve& curve, int count) {
  PD_CHECK(!curve.empty());
  if (count <= curve.front().first) return curve.front().second;
  if (curve.size() == 1) return curve.front().second * count / std::max(curve.front().first, 1);
  auto right = std::ranges::lower_bound(curve, count, {}, [](const auto& point) { return point.first; });
  if (right == curve.end()) --right;
  const auto left = right - 1;
  const double slope = (right->second - left->second) / (right->first - left->first);
  return std::max(0.0, left->second + slope * (count - left->first));
}

double PrefillCost::ChunkMs(int first, int count) const {
  if (count == 0) return 0;
  if (calls.empty()) return At(chunk, count) * Ratio(first, count);
  std::vector<PrefillShape> shapes;
  for (const Call& call : calls) shapes.push_back(call.shape);
  const CallCost cost = CostOfCalls();
  double ms = 0;
  const int reach = std::clamp(Reach(shapes, first), first, first + count);
  if (reach > first)
    for (const PlannedCall& call : PlanCalls(shapes, first, reach - first, cost)) ms += cost(call.shape);
  // Another device computes what they do not reach: counted as if the slowest of them went on.
  const Call& last = *std::ranges::max_element(calls, {}, &Call::ms);
  return ms + last.ms * (first + count - reach) / last.shape.tokens;
}

CallCost PrefillCost::CostOfCalls() const {
  return [known = calls](const PrefillShape& shape) {
    const auto at = std::ranges::find(known, shape, &Call::shape);
    PD_CHECK(at != known.end());
    return at->ms;
  };
}

Curve PrefillCost::FirstChunks() const {
  Curve curve = chunk;
  for (const Call& call : calls)
    if (call.shape.history == 0) curve.emplace_back(call.shape.tokens, call.ms);
  std::ranges::sort(curve);
  return curve;
}

double PrefillCost::Ratio(int first, int count) const {
  const auto at = [&](const Later& level) {  // clamped: a ratio need not keep rising
    return At(level.ratio, std::min(count, level.ratio.back().first));
  };
  if (first <= 0 || later.empty()) return 1;
  const auto right = std::min(std::ranges::lower_bound(later, first, {}, &Later::first), later.end() - 1);
  const bool only = right == later.begin();
  const double from = only ? 0 : (right - 1)->first, low = only ? 1 : at(*(right - 1));
  return std::max(0.0, low + (at(*right) - low) * (first - from) / (right->first - from));
}

void UseMeasuredCalls(PrefillDevice& device, const PrefillCost& cost) {
  const std::vector<PrefillShape> shapes = device.Shapes();
  const auto known = [&](const PrefillShape& shape) {
    return std::ranges::find(cost.calls, shape, &PrefillCost::Call::shape) != cost.calls.end();
  };
  if (std::ranges::all_of(shapes, known)) device.SetCallCost(cost.CostOfCalls());
}

double PrefillCost::PromptMs(int first, int count, int size) const {
  double ms = 0;
  for (int done = 0; done < count; done += size) ms += ChunkMs(first + done, std::min(size, count - done));
  return ms;
}

Json ToJson(const MachineCosts& costs) {
  Json units = Json::array();
  for (const PrefillCost& unit : costs.units) units.push_back(ToJson(unit));
  return {{"version", kMachineCostsVersion},
          {"machine", costs.machine},
          {"model", costs.model},
          {"prefill", units},
          {"direct", ToJson(costs.direct)},
          {"decode",
           {{"device", costs.decode.device},
            {"step", CurveJson(costs.decode.step)},
            {"context_ms", costs.decode.context_ms},
            {"watts", costs.decode.watts}}}};
}

MachineCosts ReadMachineCosts(const Json& object, const std::string& where) {
  JsonReader json(object, where);
  json.Int("version", kMachineCostsVersion, kMachineCostsVersion);
  MachineCosts costs;
  costs.machine = json.String("machine");
  costs.model = json.String("model");
  const Json& units = json.Value("prefill");
  if (!units.is_array()) throw Fail(ErrorKind::kCorruptFile, "{}: prefill must be a list", where);
  for (const Json& unit : units) costs.units.push_back(ReadPrefill(JsonReader(unit, where)));
  costs.direct = ReadPrefill(json.Object("direct"));
  JsonReader decode = json.Object("decode");
  costs.decode.device = decode.String("device");
  costs.decode.step = ReadCurve(decode, "step");
  costs.decode.context_ms = Positive(decode, "context_ms");
  costs.decode.watts = Positive(decode, "watts");
  decode.Done(kRemedy);
  json.Done(kRemedy);
  return costs;
}

}  // namespace pd
