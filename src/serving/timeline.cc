#include "serving/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace pd {
namespace {

struct Style {
  const char* name;
  const char* colour;
};
// By SpanKind.
constexpr std::array<Style, 4> kStyles = {
    {{"decode step", "#3b7dd8"}, {"prefill chunk", "#e08a1e"}, {"handoff", "#3f9f5f"}, {"other", "#999999"}}};

// Which bars are drawn first, by SpanKind: other, decode steps, handoffs, prefill chunks.
constexpr std::array<int, 4> kLevels = {1, 3, 2, 0};

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

// Bars of one lane, several spans in one where they are too narrow to be seen apart.
struct Bar {
  Span first;
  double begin_ms = 0, end_ms = 0;  // clamped to the picture
  int spans = 1;
};

// Neighbours of one kind whose bars would be less than a pixel apart become one bar, if either is narrower
// than kNarrow: thousands of bars thinner than their borders would show nothing but borders. Slivers of other
// kinds between them do not count; they are bars of their own.
std::vector<Bar> BarsOf(std::vector<Span> spans, double begin_ms, double end_ms) {
  constexpr double kNarrow = 2;  // pixels
  const double pixel_ms = std::max(end_ms - begin_ms, 1e-3) / kWidth;
  std::ranges::stable_sort(spans, {}, &Span::begin_ms);
  std::vector<Bar> bars;
  std::map<std::pair<LaneId, SpanKind>, size_t> last;  // bar
  for (const Span& span : spans) {
    if (span.end_ms <= begin_ms || span.begin_ms >= end_ms) continue;
    const Bar bar{span, std::max(span.begin_ms, begin_ms), std::min(span.end_ms, end_ms)};
    const auto [at, added] = last.try_emplace({span.lane, span.kind}, bars.size());
    if (!added) {
      Bar& before = bars[at->second];
      const double width = bar.end_ms - bar.begin_ms,
                   narrowest = std::min(width, before.end_ms - before.begin_ms);
      if (bar.begin_ms - before.end_ms < pixel_ms && narrowest < kNarrow * pixel_ms) {
        before.end_ms = std::max(before.end_ms, bar.end_ms);
        ++before.spans;
        continue;
      }
      at->second = bars.size();
    }
    bars.push_back(bar);
  }
  return bars;
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
  std::vector<Bar> bars = BarsOf(spans, begin_ms, end_ms);
  // Bookkeeping below, then steps, and what is rarer above.
  std::ranges::stable_sort(bars, {}, [](const Bar& bar) { return kLevels[size_t(bar.first.kind)]; });
  for (const Bar& bar : bars) {
    const Style& style = kStyles[size_t(bar.first.kind)];
    const std::string title = bar.spans == 1 ? fmt::format("{} {}: {:.2f} ms", style.name, bar.first.request,
                                                           bar.first.end_ms - bar.first.begin_ms)
                                             : fmt::format("{} x {} in {:.2f} ms", bar.spans, style.name,
                                                           bar.end_ms - bar.begin_ms);
    svg += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\" stroke=\"white\" "
        "stroke-width=\"0.3\"><title>{}</title></rect>\n",
        kLeft + (bar.begin_ms - begin_ms) * scale, kTop + kRow * double(bar.first.lane) + (kRow - kBar) / 2,
        std::max((bar.end_ms - bar.begin_ms) * scale, 0.2), kBar, style.colour, title);
  }
  return svg + "</svg>\n";
}

}  // namespace pd
