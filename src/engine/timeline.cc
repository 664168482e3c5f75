#include "engine/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace pd {
namespace {

struct Style {
  const char* name;
  const char* colour;
};
// By SpanKind.
constexpr std::array<Style, 4> kStyles = {
    {{"decode step", "#3b7dd8"}, {"prefill chunk", "#e08a1e"}, {"handoff", "#3f9f5f"}, {"other", "#999999"}}};

constexpr double kLeft = 110, kWidth = 1000, kRow = 44, kTop = 34, kBar = 28;

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     Escaped(text));
}

// 1, 2 or 5 times a power of ten, so that about ten fit.
double GridStep(double length) {
  double step = 1;
  while (length / step > 12) step *= length / step > 60 ? 10 : length / step > 24 ? 5 : 2;
  return step;
}

}  // namespace

SpanKind KindOf(const Job& job) {
  if (const auto* step = std::get_if<SubmitStep>(&job))
    return step->sample.empty() ? SpanKind::kPrefill : SpanKind::kStep;
  if (std::holds_alternative<PrefillChunk>(job)) return SpanKind::kPrefill;
  if (std::holds_alternative<ImportSegment>(job)) return SpanKind::kHandoff;
  return SpanKind::kOther;
}

RequestId RequestOf(const Job& job) {
  return std::visit(
      [](const auto& j) -> RequestId {
        using T = std::decay_t<decltype(j)>;
        if constexpr (std::is_same_v<T, SubmitStep>) {
          return j.request.front();
        } else if constexpr (std::is_same_v<T, CollectStep>) {
          return 0;
        } else {
          return j.request;
        }
      },
      job);
}

std::string TimelineSvg(const std::vector<Span>& spans, const std::vector<std::string>& lanes,
                        double begin_ms, double end_ms) {
  const double length = std::max(end_ms - begin_ms, 1e-3), scale = kWidth / length;
  const double bottom = kTop + kRow * double(lanes.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kLeft + kWidth + 20, bottom + 40);
  for (size_t i = 0; i < kStyles.size(); ++i) {
    const double x = kLeft + 150 * double(i);
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"8\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x,
                       kStyles[i].colour);
    svg += Text(x + 18, 18, "start", kStyles[i].name);
  }
  const double step = GridStep(length);
  for (double at = 0; at <= length; at += step) {
    const double x = kLeft + at * scale;
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"#dddddd\"/>\n", x, kTop,
        bottom);
    svg += Text(x, bottom + 16, "middle", fmt::format("{:.0f}", at));
  }
  svg += Text(kLeft + kWidth, bottom + 32, "end", "ms");
  for (size_t lane = 0; lane < lanes.size(); ++lane)
    svg += Text(kLeft - 8, kTop + kRow * double(lane) + kBar, "end", lanes[lane]);
  for (const Span& span : spans) {
    if (span.end_ms <= begin_ms || span.begin_ms >= end_ms) continue;
    const double from = std::max(span.begin_ms, begin_ms), to = std::min(span.end_ms, end_ms);
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\" stroke=\"white\" "
        "stroke-width=\"0.3\"><title>{} {}: {:.2f} ms</title></rect>\n",
        kLeft + (from - begin_ms) * scale, kTop + kRow * double(span.lane) + (kRow - kBar) / 2,
        std::max((to - from) * scale, 0.2), kBar, kStyles[size_t(span.kind)].colour,
        kStyles[size_t(span.kind)].name, span.request, span.end_ms - span.begin_ms);
  }
  return svg + "</svg>\n";
}

}  // namespace pd
