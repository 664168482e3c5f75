#include "formats/gguf_model.h"

#include <cstring>

#include "base/error.h"
#include "base/json.h"
#include "formats/claims.h"
#include "formats/gguf_config.h"

namespace pd {
namespace {

// A bias of interleaved heads as an own copy in canonical order. Matrices stay where they are:
// TensorView::Row undoes the order of rows.
TensorView Deinterleaved(const TensorView& view, int heads, const std::string& where) {
  if (IsQuantised(view.type))
    throw Fail(ErrorKind::kUnsupported,
               "{}: tensor \"{}\" is a quantised bias; readable are F32, F16 and BF16", where, view.name);
  const size_t bytes_each = size_t(Info(view.type).block_bytes);
  const int64_t head_values = view.columns() / heads, half = head_values / 2;
  auto copy = std::make_shared<std::vector<std::byte>>(view.bytes.size());
  for (int64_t i = 0; i < view.columns(); ++i) {
    const int64_t head = i / head_values, within = i % head_values;
    const int64_t from = head * head_values + within % half * 2 + within / half;
    std::memcpy(copy->data() + size_t(i) * bytes_each, view.bytes.data() + size_t(from) * bytes_each,
                bytes_each);
  }
  TensorView result = view;
  result.bytes = *copy;
  result.owner = std::move(copy);
  result.mapped = false;
  return result;
}

}  // namespace

ModelSource OpenGgufModel(std::shared_ptr<const GgufFile> gguf) {
  const GgufConfig read = ReadGgufConfig(*gguf);
  const std::string model_type = read.config["model_type"].get<std::string>();
  const Family* family = FindFamily(model_type);
  PD_CHECK(family);
  JsonReader config(read.config, gguf->where() + ": metadata as config.json");
  ModelSource source;
  source.path = gguf->where();
  source.family = family->name;
  source.spec = family->read_config(config);
  source.gguf = gguf;
  config.Done();
  CheckSpec(source.spec, gguf->where());

  TensorClaims claims(gguf->where());
  for (const GgufTensor& tensor : gguf->tensors())
    claims.Add(tensor.name, {.name = tensor.name,
                             .type = tensor.type,
                             .shape = tensor.shape,
                             .bytes = tensor.bytes,
                             .owner = gguf,
                             .mapped = gguf->mapped()});
  MakeRoom(source.spec, source.tensors);
  ForEachWeight(source.spec, source.tensors, [&](TensorView& view, const WeightInfo& info) {
    view = claims.Take(GgufTensorName(info), info.shape);
    if (!read.interleaved_heads || (info.part != Part::kQ && info.part != Part::kK)) return;
    const AttentionSpec& attention = AttentionOf(source.spec.layers[size_t(info.layer)]);
    const int heads = info.part == Part::kQ ? attention.heads : attention.kv_heads;
    if (view.shape.size() == 2) view.interleaved_heads = heads;
    if (view.shape.size() == 1) view = Deinterleaved(view, heads, gguf->where());
  });
  for (const std::string& name : read.tensors_read) claims.Ignore(name);
  claims.Done();
  return source;
}

}  // namespace pd
