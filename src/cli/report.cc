#include "cli/report.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "cli/units.h"

namespace pd::cli {
namespace {

// Three decimals: microseconds of milliseconds, and nobody reads more of a rate.
Json Number(double value) { return std::round(value * 1000) / 1000; }
Json Rate(double value, const PhaseRates& rates) {
  return value > 0 && rates.impossible.empty() ? Number(value) : Json(nullptr);
}

Json Joules(std::optional<double> joules) { return joules ? Number(*joules) : Json(nullptr); }

double PerSecond(double amount, double ms) { return ms > 0 ? amount / (ms / 1000) : 0; }

std::string Row(const char* phase, const std::string& device, const std::string& amount, double ms,
                const std::string& speed, const std::string& rate) {
  std::string row =
      fmt::format("{:<12}{:<10}{:>9}{:>11.1f} ms{:>14}  {}", phase, device, amount, ms, speed, rate);
  row.erase(row.find_last_not_of(' ') + 1);
  return row + "\n";
}

std::string PhaseRow(const char* phase, const std::string& device, int tokens, double ms,
                     const PhaseRates& rates, const std::string& rate) {
  if (tokens == 0) return Row(phase, device, "0", ms, "", "");
  if (!rates.impossible.empty())
    return Row(phase, device, Grouped(tokens), ms, "", "impossible: " + rates.impossible);
  return Row(phase, device, Grouped(tokens), ms, fmt::format("{:.1f} tok/s", rates.tokens_per_s), rate);
}

// Empty when no phase that happened was measured.
std::string EnergyRow(const RequestStats& s) {
  if (!s.prefill_joules.value_or(0) && !s.handoff_joules.value_or(0) && !s.decode_joules.value_or(0))
    return "";
  const auto of = [](std::optional<double> joules) {
    return joules ? fmt::format("{:.2f} J", *joules) : "unknown";
  };
  return fmt::format("{:<12}prefill {}, handoff {}, decode {}\n", "energy", of(s.prefill_joules),
                     of(s.handoff_joules), of(s.decode_joules));
}

Json PhaseJson(const std::string& device, int tokens, double ms, const PhaseRates& rates) {
  Json json = {{"device", device},
               {"tokens", tokens},
               {"ms", Number(ms)},
               {"tokens_per_s", Rate(rates.tokens_per_s, rates)}};
  if (!rates.impossible.empty()) json["impossible"] = rates.impossible;
  return json;
}

Json LogprobJson(TokenId token, float logprob, const std::string& piece) {
  // Six decimals: a float has no more. Minus infinity is no JSON number.
  const Json value = std::isfinite(logprob) ? Json(std::round(double(logprob) * 1e6) / 1e6) : Json(nullptr);
  return {{"token", token}, {"text", piece}, {"logprob", value}};
}

}  // namespace

std::string ToTable(const RunReport& report) {
  const RequestStats& s = report.result.stats;
  std::string used;
  if (report.decode.bytes_per_s > 0) used = WithUnit(report.decode.bytes_per_s, "B/s");
  if (report.decode.bandwidth_share > 0)
    used += fmt::format(", {:.0f} % of this machine's {}", 100 * report.decode.bandwidth_share,
                        WithUnit(report.bandwidth, "B/s"));
  std::string table = Row("load", "", "", report.load_ms, "", "");
  table += PhaseRow("prefill", report.prefill_device, s.prefill_tokens, s.prefill_ms, report.prefill,
                    fmt::format("{:.3f} TFLOP/s", report.prefill.flops_per_s / 1e12));
  if (!s.prefill_why.empty()) table += fmt::format("{:<12}{}\n", "", s.prefill_why);
  if (s.cached_tokens > 0) table += fmt::format("{:<12}{:<10}{:>9}\n", "", "cache", Grouped(s.cached_tokens));
  if (s.tail_tokens > 0)
    table += Row("", report.decode_device, Grouped(s.tail_tokens), s.tail_ms, "",
                 s.fallback.empty() ? "beyond what prefill takes" : "instead of prefill: " + s.fallback);
  std::string handoff;
  if (s.handoff_bytes > 0) {
    handoff = WithUnit(PerSecond(double(s.handoff_bytes), s.handoff_ms), "B/s");
  } else if (s.direct) {
    handoff = "no handoff: same device";
  }
  table += Row("handoff", "", WithUnit(double(s.handoff_bytes), "B"), s.handoff_ms, "", handoff);
  table += PhaseRow("decode", report.decode_device, s.decode_tokens, s.decode_ms, report.decode, used);
  if (s.decode_tokens > 0)
    table += Row("first token", "", "", s.first_token_ms, "",
                 fmt::format("{:.1f} ms with loading", report.load_ms + s.first_token_ms));
  table += EnergyRow(s);
  if (report.seed) table += fmt::format("{:<12}{}\n", "seed", *report.seed);
  return table;
}

Json ToJson(const RunReport& report) {
  const RequestResult& result = report.result;
  const RequestStats& s = result.stats;
  Json prefill = PhaseJson(report.prefill_device, s.prefill_tokens, s.prefill_ms, report.prefill);
  prefill["tflop_per_s"] = Rate(report.prefill.flops_per_s / 1e12, report.prefill);
  prefill["joules"] = Joules(s.prefill_joules);
  if (!s.prefill_why.empty()) prefill["why"] = s.prefill_why;
  if (s.cached_tokens > 0) prefill["cached_tokens"] = s.cached_tokens;
  if (s.tail_tokens > 0)
    prefill["tail"] = {
        {"device", report.decode_device}, {"tokens", s.tail_tokens}, {"ms", Number(s.tail_ms)}};
  if (!s.fallback.empty()) prefill["fallback"] = s.fallback;
  Json decode = PhaseJson(report.decode_device, s.decode_tokens, s.decode_ms, report.decode);
  decode["joules"] = Joules(s.decode_joules);
  decode["gb_per_s"] = Rate(report.decode.bytes_per_s / 1e9, report.decode);
  decode["machine_gb_per_s"] = report.bandwidth > 0 ? Number(report.bandwidth / 1e9) : Json(nullptr);
  Json json = {
      {"model", report.model},
      {"text", report.text},
      {"tokens", result.tokens.size()},
      {"token_ids", result.tokens},
      {"prompt_tokens", report.prompt_tokens},
      {"finish_reason", Name(result.finish)},
      {"load", {{"ms", Number(report.load_ms)}}},
      {"prefill", prefill},
      {"handoff",
       {{"bytes", s.handoff_bytes}, {"ms", Number(s.handoff_ms)}, {"joules", Joules(s.handoff_joules)}}},
      {"decode", decode},
      {"ttft_ms", s.decode_tokens > 0 ? Number(s.first_token_ms) : Json(nullptr)},
      {"seed", report.seed ? Json(*report.seed) : Json(nullptr)}};
  if (!report.logprobs.empty()) {
    Json tokens = Json::array();
    for (const TokenReport& t : report.logprobs) {
      Json entry = LogprobJson(t.sampled.token, t.sampled.logprob, t.piece);
      entry["top"] = Json::array();
      for (size_t i = 0; i < t.sampled.top.size(); ++i)
        entry["top"].push_back(
            LogprobJson(t.sampled.top[i].token, t.sampled.top[i].logprob, t.top_pieces[i]));
      tokens.push_back(std::move(entry));
    }
    json["logprobs"] = std::move(tokens);
  }
  return json;
}

std::string ToJsonLine(const RunReport& report) { return ToLine(ToJson(report)); }

std::string ToLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pd::cli
