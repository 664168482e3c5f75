#include "engine/cost_model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace pd {
namespace {

Json CurveJson(const Curve& curve) {
  Json json = Json::array();
  for (const auto& [count, ms] : curve) json.push_back({count, ms});
  return json;
}

double Positive(JsonReader& json, std::string_view key) {
  const double value = json.Number(key);
  if (!std::isfinite(value) || value < 0)
    throw Fail(ErrorKind::kCorruptFile, "{}: {} is {}, below zero", json.where(), key, value);
  return value;
}

Curve ReadCurve(JsonReader& json, std::string_view key) {
  Curve curve;
  const Json& points = json.Value(key);
  const auto fail = [&] {
    return Fail(ErrorKind::kCorruptFile, "{}: {} is no list of [count, milliseconds], counts ascending",
                json.where(), key);
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
  return {
      {"device", cost.device}, {"option", cost.option},         {"chunk", CurveJson(cost.chunk)},
      {"later", later},        {"handoff_ms", cost.handoff_ms}, {"handoff_token_ms", cost.handoff_token_ms},
      {"lane", cost.lane},     {"slowdown", cost.slowdown},     {"watts", cost.watts}};
}

PrefillCost ReadPrefill(JsonReader json) {
  PrefillCost cost;
  cost.device = json.String("device");
  cost.option = json.StringOr("option", "");
  cost.chunk = ReadCurve(json, "chunk");
  const Json& later = json.Value("later");
  if (!later.is_array()) throw Fail(ErrorKind::kCorruptFile, "{}: later is no list", json.where());
  for (const Json& entry : later) {
    JsonReader level(entry, json.where());
    const int above = cost.later.empty() ? 0 : cost.later.back().first;
    cost.later.push_back({int(level.Int("first", above + 1)), ReadCurve(level, "ratio")});
    level.Done();
  }
  cost.handoff_ms = Positive(json, "handoff_ms");
  cost.handoff_token_ms = Positive(json, "handoff_token_ms");
  cost.lane = int(json.Int("lane", 0, 64));
  cost.slowdown = std::max(1.0, Positive(json, "slowdown"));
  cost.watts = Positive(json, "watts");
  json.Done();
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
  return count == 0 ? 0 : At(chunk, count) * Ratio(first, count);
}

double PrefillCost::Ratio(int first, int count) const {
  const auto at = [&](const Later& level) {  // no extrapolation: a ratio has no reason to go on
    return At(level.ratio, std::min(count, level.ratio.back().first));
  };
  if (first <= 0 || later.empty()) return 1;
  const auto right = std::min(std::ranges::lower_bound(later, first, {}, &Later::first), later.end() - 1);
  const bool only = right == later.begin();
  const double from = only ? 0 : (right - 1)->first, low = only ? 1 : at(*(right - 1));
  return std::max(0.0, low + (at(*right) - low) * (first - from) / (right->first - from));
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
  if (!units.is_array()) throw Fail(ErrorKind::kCorruptFile, "{}: prefill is no list", where);
  for (const Json& unit : units) costs.units.push_back(ReadPrefill(JsonReader(unit, where)));
  costs.direct = ReadPrefill(json.Object("direct"));
  JsonReader decode = json.Object("decode");
  costs.decode.device = decode.String("device");
  costs.decode.step = ReadCurve(decode, "step");
  costs.decode.context_ms = Positive(decode, "context_ms");
  costs.decode.watts = Positive(decode, "watts");
  decode.Done();
  json.Done();
  return costs;
}

}  // namespace pd
