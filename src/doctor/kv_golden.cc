#include "doctor/kv_golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "coreml/export/sample_pass.h"
#include "model/rope.h"

namespace pd {
namespace {

constexpr int kFormat = 1;
constexpr size_t kMostBytes = size_t(4) << 30;

size_t Elements(const AttentionSpec& attn, int length) { return size_t(attn.kv_width()) * size_t(length); }

std::vector<F16> ReadAll(const KvLayerView& view, const std::byte* base, const AttentionSpec& attn, int at,
                         int count, std::vector<F16> all, int length) {
  std::vector<float> head(size_t(attn.head_dim));
  for (int h = 0; h < attn.kv_heads; ++h)
    for (int t = 0; t < count; ++t) {
      ReadHead(view, base, h, t, head);
      const size_t to = (size_t(h) * size_t(length) + size_t(at + t)) * size_t(attn.head_dim);
      std::ranges::transform(head, all.begin() + std::ptrdiff_t(to), ToF16);
    }
  return all;
}

std::vector<float> Floats(const std::vector<F16>& halves) {
  std::vector<float> floats(halves.size());
  std::ranges::transform(halves, floats.begin(), [](F16 half) { return ToFloat(half); });
  return floats;
}

Error Corrupt(const std::filesystem::path& path, std::string_view why) {
  return Fail(ErrorKind::kCorruptFile, "{}: no file of goldens: {}; remove it, and it is made again",
              path.string(), why);
}

}  // namespace

uint64_t BundleDigest(const Bundle& bundle) { return FileDigest(bundle.path / kBundleFile); }

std::vector<int> GoldenLengths(std::span<const mil::PrefillShape> functions, int most) {
  std::set<int> chunks, histories, lengths;
  for (const mil::PrefillShape& f : functions) {
    chunks.insert(f.tokens);
    histories.insert(f.history);
  }
  lengths.insert(chunks.begin(), chunks.end());
  // A prompt whose last, half-filled chunk starts behind the bucket before; of the largest chunks that fit,
  // since a larger one could start further back.
  int before = 0;
  for (const int history : histories) {
    const auto length = [&](int chunk) { return before + chunk + *chunks.begin() / 2; };
    const auto fitting =
        std::ranges::find_if(chunks.rbegin(), chunks.rend(), [&](int c) { return length(c) <= most; });
    if (history > 0 && fitting != chunks.rend()) lengths.insert(length(*fitting));
    before = history;
  }
  std::erase_if(lengths, [&](int length) { return length > most; });
  return {lengths.begin(), lengths.end()};
}

KvGolden MakeGolden(PrefillDevice& device, const ModelSpec& spec, std::span<const TokenId> text, int length) {
  KvGolden golden{length, {}, {}};
  for (const LayerSpec& layer : spec.layers) {
    golden.keys.emplace_back(Elements(AttentionOf(layer), length));
    golden.values.emplace_back(Elements(AttentionOf(layer), length));
  }
  const auto session = device.Begin(length, {FixRope(spec, length)}, {});
  for (int first = 0; first < length;) {
    const int count = std::min({length - first, device.Info().max_rows, device.Reach(first) - first});
    if (count <= 0)
      throw Fail(ErrorKind::kUnsupported, "{} takes no token {} of a prompt", device.Info().name, first);
    const KvSegment kv = session->Run(text.subspan(size_t(first), size_t(count)), first);
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      const AttentionSpec& attn = AttentionOf(spec.layers[i]);
      const KvLayerView& view = kv.kv(i);
      golden.keys[i] = ReadAll(view, view.k, attn, first, count, std::move(golden.keys[i]), length);
      golden.values[i] = ReadAll(view, view.v, attn, first, count, std::move(golden.values[i]), length);
    }
    first += count;
  }
  return golden;
}

void WriteGoldens(const std::filesystem::path& path, const KvGoldens& goldens) {
  Json lengths = Json::array();
  for (const KvGolden& golden : goldens.golden) lengths.push_back(golden.length);
  std::string bytes =
      Json{{"goldens", kFormat}, {"bundle", goldens.bundle}, {"text", goldens.text}, {"lengths", lengths}}
          .dump() +
      "\n";
  for (const KvGolden& golden : goldens.golden)
    for (size_t i = 0; i < golden.keys.size(); ++i)
      for (const std::vector<F16>* halves : {&golden.keys[i], &golden.values[i]})
        bytes.append(reinterpret_cast<const char*>(halves->data()), halves->size() * sizeof(F16));
  WriteFileAtomically(path, bytes);
}

KvGoldens ReadGoldens(const std::filesystem::path& path, const ModelSpec& spec) {
  const std::string bytes = ReadTextFile(path, kMostBytes);
  const size_t end = bytes.find('\n');
  if (end == std::string::npos || !bytes.starts_with("{\"goldens\""))
    throw Corrupt(path, "it does not begin as one");
  const Json json = ParseJson(std::string_view(bytes).substr(0, end), path.string());
  JsonReader header(json, path.string());
  if (header.Int("goldens") != kFormat) throw Corrupt(path, "another version wrote it");
  KvGoldens goldens;
  const Json &bundle = header.Value("bundle"), &text = header.Value("text"),
             &lengths = header.Value("lengths");
  header.Done();
  const auto ints = [](const Json& list) {
    return list.is_array() && std::ranges::all_of(list, [](const Json& v) { return v.is_number_integer(); });
  };
  if (!bundle.is_number_integer() || !ints(text) || !ints(lengths)) throw Corrupt(path, "its header");
  goldens.bundle = bundle.get<uint64_t>();
  goldens.text = text.get<std::vector<TokenId>>();
  size_t at = end + 1;
  const auto take = [&](size_t elements) {
    if ((bytes.size() - at) / sizeof(F16) < elements) throw Corrupt(path, "it is cut off");
    std::vector<F16> halves(elements);
    std::memcpy(halves.data(), bytes.data() + at, elements * sizeof(F16));
    at += elements * sizeof(F16);
    return halves;
  };
  for (const Json& value : lengths) {
    const auto length = value.get<int64_t>();
    if (length < 1 || size_t(length) > goldens.text.size()) throw Corrupt(path, "a length beyond its text");
    KvGolden golden{int(length), {}, {}};
    for (const LayerSpec& layer : spec.layers) {
      golden.keys.push_back(take(Elements(AttentionOf(layer), int(length))));
      golden.values.push_back(take(Elements(AttentionOf(layer), int(length))));
    }
    goldens.golden.push_back(std::move(golden));
  }
  if (at != bytes.size()) throw Corrupt(path, "it is too long");
  return goldens;
}

KvDistance Compare(const KvGolden& got, const KvGolden& want) {
  PD_CHECK(got.length == want.length && got.keys.size() == want.keys.size());
  KvDistance distance;
  for (size_t i = 0; i < want.keys.size(); ++i)
    for (const bool value : {false, true}) {
      const std::vector<float> a = Floats(value ? got.values[i] : got.keys[i]);
      const std::vector<float> b = Floats(value ? want.values[i] : want.keys[i]);
      const double cosine = Cosine(a, b), ratio = RmsRatio(a, b);
      if (!(cosine >= distance.cosine)) {  // no number: all of them are zero
        distance.cosine = cosine;
        distance.layer = int(i);
      }
      if (std::abs(ratio - 1) > std::abs(distance.rms_ratio - 1)) distance.rms_ratio = ratio;
    }
  return distance;
}

}  // namespace pd
