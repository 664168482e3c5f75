// Keys and values that a bundle's programs give for one text, as our interpreter computes them: kept in a
// file, so that they can be made on one machine and compared on another.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "coreml/export/bundle.h"
#include "device/device.h"
#include "model/rows.h"
#include "model/spec.h"

namespace pd {

// Of the first `length` tokens of a text, layer by layer: [K, length, D] as halves.
struct KvGolden {
  int length = 0;
  std::vector<std::vector<F16>> keys, values;
};

struct KvGoldens {
  uint64_t bundle = 0;           // BundleDigest
  std::vector<TokenId> text;     // what they are of
  std::vector<KvGolden> golden;  // by ascending length
};

uint64_t BundleDigest(const Bundle& bundle);

// Lengths of prompts that between them need each chunk size and each bucket of history of these functions, as
// far as `most` tokens allow.
std::vector<int> GoldenLengths(std::span<const mil::PrefillShape> functions, int most);

// What a device gives for the first `length` tokens of `text`.
KvGolden MakeGolden(PrefillDevice& device, const ModelSpec& spec, std::span<const TokenId> text, int length);

void WriteGoldens(const std::filesystem::path& path, const KvGoldens& goldens);
// Throws kNotFound, and kCorruptFile for a file that WriteGoldens did not write.
KvGoldens ReadGoldens(const std::filesystem::path& path, const ModelSpec& spec);

// How close keys and values are, over all layers.
struct KvDistance {
  double cosine = 1;     // the least of a layer's keys or values; NaN when all of those are zero
  double rms_ratio = 1;  // the one farthest from 1
  int layer = 0;         // of the least cosine
};
KvDistance Compare(const KvGolden& got, const KvGolden& want);

}  // namespace pd
