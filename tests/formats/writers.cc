#include "tests/formats/writers.h"

namespace pd::test {

std::string RawString(std::string_view text) { return Raw(uint64_t(text.size())) + std::string(text); }

GgufEntry U32(std::string key, uint32_t value) { return {std::move(key), kU32, Raw(value)}; }
GgufEntry Float(std::string key, float value) { return {std::move(key), kF32, Raw(value)}; }
GgufEntry Text(std::string key, std::string_view value) {
  return {std::move(key), kString, RawString(value)};
}
GgufEntry Flag(std::string key, bool value) { return {std::move(key), kBool, Raw(uint8_t(value))}; }
GgufEntry List(std::string key, uint32_t element, uint64_t count, std::string elements) {
  return {std::move(key), kArray, Raw(element) + Raw(count) + std::move(elements)};
}

std::string GgufSpec::Bytes() const {
  const auto align = [&](uint64_t at) { return (at + alignment - 1) / alignment * alignment; };
  std::string bytes = magic + Raw(version) + Raw(tensor_count.value_or(tensors.size())) +
                      Raw(entry_count.value_or(entries.size()));
  for (const GgufEntry& entry : entries) bytes += RawString(entry.key) + Raw(entry.type) + entry.value;
  uint64_t end = 0;
  std::string data;
  for (const GgufTensorSpec& tensor : tensors) {
    const uint64_t offset = tensor.offset.value_or(align(end));
    bytes += RawString(tensor.name) + Raw(uint32_t(tensor.sizes.size()));
    for (const uint64_t size : tensor.sizes) bytes += Raw(size);
    bytes += Raw(tensor.type) + Raw(offset);
    data.resize(align(data.size()));
    data += tensor.data;
    end = data.size();
  }
  bytes.resize(align(bytes.size()));
  return bytes + data;
}

Json SafetensorsSpec::Header() const {
  Json header = Json::object();
  size_t at = 0;
  for (const Tensor& t : tensors) {
    header[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {at, at + t.data.size()}}};
    at += t.data.size();
  }
  return header;
}

std::string SafetensorsSpec::Bytes(std::string_view header) const {
  std::string bytes = RawString(header);
  for (const Tensor& t : tensors) bytes += t.data;
  return bytes;
}

}  // namespace pd::test
