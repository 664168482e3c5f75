#include "formats/gguf_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "model/tensor.h"

namespace pd {
namespace {

// Keys with a namesake in config.json, after "<architecture>.".
struct Renamed {
  const char *gguf, *config;
  enum Type { kInt, kFloat } type;
  bool required;
};
constexpr Renamed kRenamed[] = {
    {"block_count", "num_hidden_layers", Renamed::kInt, true},
    {"context_length", "max_position_embeddings", Renamed::kInt, true},
    {"embedding_length", "hidden_size", Renamed::kInt, true},
    {"feed_forward_length", "intermediate_size", Renamed::kInt, true},
    {"attention.head_count", "num_attention_heads", Renamed::kInt, true},
    {"attention.head_count_kv", "num_key_value_heads", Renamed::kInt, false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Renamed::kFloat, true},
};

// Keys that must have this value where they stand: it is the mathematics we have.
struct Fixed {
  const char* key;
  GgufValue value;
};
const std::vector<Fixed>& FixedKeys() {
  static const std::vector<Fixed> keys = {
      {"expert_count", int64_t(0)},         {"expert_used_count", int64_t(0)},
      {"attention.causal", true},           {"use_parallel_residual", false},
      {"pooling_type", int64_t(0)},         {"rope.scaling.yarn_log_multiplier", 0.0},
      {"rope.scaling.yarn_ext_factor", 1.0}};
  return keys;
}

// Keys that repeat what the tensors say, or say how the model came about.
constexpr const char* kIgnored[] = {"vocab_size", "tensor_data_layout", "rope.scaling.finetuned"};

struct Architecture {
  const char *name, *model_type, *activation;
  bool interleaved_heads;
};
constexpr Architecture kArchitectures[] = {{"llama", "llama", "silu", true},
                                           {"qwen2", "qwen2", "silu", false},
                                           {"qwen3", "qwen3", "silu", false},
                                           {"gemma3", "gemma3_text", "gelu_pytorch_tanh", false}};

const Architecture& FindArchitecture(const GgufFile& gguf) {
  const std::string& name = gguf.Get<std::string>("general.architecture");
  std::vector<std::string_view> known;
  for (const Architecture& a : kArchitectures) {
    if (name == a.name) return a;
    known.push_back(a.name);
  }
  throw Fail(ErrorKind::kUnsupported, "{}: \"general.architecture\" is \"{:.40}\"; known are {}",
             gguf.where(), name, fmt::join(known, ", "));
}

// The metadata under the architecture's prefix, each key read once.
class Metadata {
 public:
  Metadata(const GgufFile& gguf, std::string_view architecture)
      : gguf_(gguf), prefix_(std::string(architecture) + ".") {
    for (const auto& [key, value] : gguf.metadata())
      if (key.starts_with(prefix_)) unread_.insert(key);
  }

  // One number for all layers, or a list with the same for each.
  std::optional<int64_t> Int(std::string_view key) { return Same<int64_t>(key); }
  std::optional<std::string> String(std::string_view key) { return Find<std::string>(key); }
  std::optional<double> Float(std::string_view key) {
    const std::optional<double> value = Same<double>(key);
    if (value && !std::isfinite(*value))
      throw Fail(ErrorKind::kCorruptFile, "{}: \"{}{}\" is not a finite number; download or convert it again",
                 gguf_.where(), prefix_, key);
    return value;
  }
  // The value itself, whatever its type; nullptr when absent.
  const GgufValue* Any(std::string_view key) {
    const auto it = gguf_.metadata().find(prefix_ + std::string(key));
    if (it == gguf_.metadata().end()) return nullptr;
    unread_.erase(it->first);
    return &it->second;
  }

  Error Missing(std::string_view key) const {
    return Fail(ErrorKind::kCorruptFile, "{}: \"{}{}\" is missing; convert the model again", gguf_.where(),
                prefix_, key);
  }
  Error Unsupported(std::string_view key, std::string_view why) const {
    return Fail(ErrorKind::kUnsupported, "{}: \"{}{}\" {}", gguf_.where(), prefix_, key, why);
  }

  void Done() const {
    if (!unread_.empty())
      throw Fail(ErrorKind::kUnsupported,
                 "{}: unknown key(s) {:.400}: they could change the result, so they are not skipped; this "
                 "model needs a newer version",
                 gguf_.where(), fmt::format("{}", fmt::join(unread_, ", ")));
  }

 private:
  template <class T>
  std::optional<T> Find(std::string_view key) {
    Any(key);  // now read
    const T* value = gguf_.Find<T>(prefix_ + std::string(key));
    return value ? std::optional(*value) : std::nullopt;
  }

  template <class T>
  std::optional<T> Same(std::string_view key) {
    const GgufValue* value = Any(key);
    const auto* list = value ? std::get_if<std::vector<T>>(value) : nullptr;
    if (!list) return Find<T>(key);
    if (list->empty() ||
        std::adjacent_find(list->begin(), list->end(), std::not_equal_to<T>()) != list->end())
      throw Unsupported(key, "is a list of different numbers: layers of different sizes are not supported");
    return list->front();
  }

  const GgufFile& gguf_;
  std::string prefix_;
  std::set<std::string> unread_;
};

const GgufTensor* FindTensor(const GgufFile& gguf, std::string_view name) {
  for (const GgufTensor& tensor : gguf.tensors())
    if (tensor.name == name) return &tensor;
  return nullptr;
}

// Divisors of the rotated pairs, `count` of them, as a JSON list.
Json Factors(const GgufFile& gguf, const GgufTensor& tensor, int64_t count, GgufConfig& result) {
  result.tensors_read.push_back(tensor.name);
  if (tensor.shape != Shape{count})
    throw Fail(ErrorKind::kCorruptFile,
               "{}: tensor \"{}\" does not have the {} values that half a head takes", gguf.where(),
               tensor.name, count);
  auto values = std::vector<float>(size_t(count));
  DequantizeRow(tensor.type, tensor.bytes.data(), values);
  for (const float value : values)
    if (!std::isfinite(value) || value <= 0)
      throw Fail(ErrorKind::kCorruptFile, "{}: tensor \"{}\" holds {}, not a number above 0", gguf.where(),
                 tensor.name, value);
  return values;
}

void TranslateHeads(Metadata& metadata, Json& config) {
  const int64_t width = config["hidden_size"].get<int64_t>(),
                heads = config["num_attention_heads"].get<int64_t>();
  const auto key = metadata.Int("attention.key_length"), value = metadata.Int("attention.value_length");
  const int64_t head_dim = key.value_or(heads > 0 ? width / heads : 0);
  if (value.value_or(head_dim) != head_dim)
    throw metadata.Unsupported("attention.value_length", "differs from the length of a key");
  if (metadata.Int("rope.dimension_count").value_or(head_dim) != head_dim)
    throw metadata.Unsupported("rope.dimension_count",
                               "differs from the length of a key: rotating a part of each head");
  config["head_dim"] = head_dim;
}

// What all kinds of scaling share.
struct Scaling {
  double factor;
  std::optional<double> attention;  // multiplies cos and sin, on top of YaRN's own temperature
  int64_t original_context, pairs;  // tokens; rotated pairs of a head
};

// yarn_attn_factor is transformers' attention_factor, which replaces the temperature, as the converters copy
// it.
Json Yarn(Metadata& metadata, const Scaling& s, std::optional<double> whole_attention) {
  Json yarn = {
      {"rope_type", "yarn"}, {"factor", s.factor}, {"original_max_position_embeddings", s.original_context}};
  if (const auto beta = metadata.Float("rope.scaling.yarn_beta_fast")) yarn["beta_fast"] = *beta;
  if (const auto beta = metadata.Float("rope.scaling.yarn_beta_slow")) yarn["beta_slow"] = *beta;
  if (s.attention)
    yarn["attention_factor"] = *s.attention * (s.factor <= 1 ? 1 : 0.1 * std::log(s.factor) + 1);
  if (whole_attention) yarn["attention_factor"] = *whole_attention;
  return yarn;
}

Json Longrope(const GgufFile& gguf, const Scaling& s, GgufConfig& result) {
  const GgufTensor* short_factors = FindTensor(gguf, "rope_factors_short.weight");
  const GgufTensor* long_factors = FindTensor(gguf, "rope_factors_long.weight");
  if (!short_factors || !long_factors)
    throw Fail(
        ErrorKind::kCorruptFile,
        "{}: longrope without the tensors \"rope_factors_short.weight\" and \"rope_factors_long.weight\"",
        gguf.where());
  return {{"rope_type", "longrope"},
          {"short_factor", Factors(gguf, *short_factors, s.pairs, result)},
          {"long_factor", Factors(gguf, *long_factors, s.pairs, result)},
          {"original_max_position_embeddings", s.original_context},
          {"attention_factor", s.attention.value_or(1)}};
}

// The scaling as transformers would write it; null for none.
Json TranslateRope(const GgufFile& gguf, Metadata& metadata, GgufConfig& result) {
  const std::string type = metadata.String("rope.scaling.type").value_or("linear");
  const double old_factor = metadata.Float("rope.scale_linear").value_or(1);
  const Scaling s{.factor = metadata.Float("rope.scaling.factor").value_or(old_factor),
                  .attention = metadata.Float("rope.scaling.attn_factor"),
                  .original_context = metadata.Int("rope.scaling.original_context_length")
                                          .value_or(result.config["max_position_embeddings"].get<int64_t>()),
                  .pairs = result.config["head_dim"].get<int64_t>() / 2};
  const auto yarn_attention = metadata.Float("rope.scaling.yarn_attn_factor");
  if (type != "yarn" && type != "longrope" && s.attention.value_or(1) != 1)
    throw metadata.Unsupported("rope.scaling.attn_factor", "needs the scaling type yarn or longrope");
  if (type != "yarn" && yarn_attention.value_or(1) != 1)
    throw metadata.Unsupported("rope.scaling.yarn_attn_factor", "needs the scaling type yarn");

  if (const GgufTensor* factors = FindTensor(gguf, "rope_freqs.weight")) {
    if (type != "none" && (type != "linear" || s.factor != 1))
      throw metadata.Unsupported("rope.scaling.type", "together with the tensor \"rope_freqs.weight\"");
    return {{"rope_type", "factors"}, {"factors", Factors(gguf, *factors, s.pairs, result)}};
  }
  if (type == "yarn") return Yarn(metadata, s, yarn_attention);
  if (type == "longrope") return Longrope(gguf, s, result);
  if (type != "none" && type != "linear")
    throw metadata.Unsupported("rope.scaling.type", "is none of none, linear, yarn, longrope");
  if (type == "none" || s.factor == 1) return nullptr;
  return {{"rope_type", "linear"}, {"factor", s.factor}};
}

// Gemma 3's local layers: every pattern-th layer is global, or a flag per layer says so. Without a window all
// are global. The converters leave pattern and local base at the values all published models have.
void TranslateGemmaLayers(Metadata& metadata, Json& config) {
  constexpr int64_t kPattern = 6;
  constexpr double kLocalBase = 10000;
  config["rope_local_base_freq"] = metadata.Float("rope.freq_base_swa").value_or(kLocalBase);
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  if (layers < 1 || layers > 4096) return;  // the family refuses it
  const int64_t window = metadata.Int("attention.sliding_window").value_or(0);
  if (window > 0) config["sliding_window"] = window;
  std::vector<bool> local;
  const GgufValue* pattern = metadata.Any("attention.sliding_window_pattern");
  if (pattern && std::holds_alternative<std::vector<bool>>(*pattern)) {
    local = std::get<std::vector<bool>>(*pattern);
  } else {
    const int64_t* every = pattern ? std::get_if<int64_t>(pattern) : &kPattern;
    if (!every || *every < 1)
      throw metadata.Unsupported("attention.sliding_window_pattern",
                                 "is neither a number nor a flag per layer");
    for (int64_t i = 0; i < layers; ++i) local.push_back((i + 1) % *every != 0);
  }
  if (int64_t(local.size()) != layers)
    throw metadata.Unsupported("attention.sliding_window_pattern", "does not have one flag per layer");
  for (const bool is_local : local)
    config["layer_types"].push_back(is_local && window > 0 ? "sliding_attention" : "full_attention");
}

void TranslateGemma(Metadata& metadata, Json& config) {
  TranslateGemmaLayers(metadata, config);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    const std::optional<double> cap = metadata.Float(key);
    if (cap && *cap != 0) config[key] = *cap;
  }
  // The file does not say the score scale. The 27B model, known by its 62 layers, uses width / heads in the
  // place of head_dim.
  const int64_t heads = config["num_attention_heads"].get<int64_t>();
  const bool is_27b = config["num_hidden_layers"] == 62 && heads > 0;
  config["query_pre_attn_scalar"] =
      is_27b ? Json(config["hidden_size"].get<int64_t>() / heads) : config["head_dim"];
}

}  // namespace

GgufConfig ReadGgufConfig(const GgufFile& gguf) {
  const Architecture& architecture = FindArchitecture(gguf);
  Metadata metadata(gguf, architecture.name);
  const bool gemma = std::string_view(architecture.model_type) == "gemma3_text";
  GgufConfig result{.config = {{"model_type", architecture.model_type},
                               {gemma ? "hidden_activation" : "hidden_act", architecture.activation}},
                    .interleaved_heads = architecture.interleaved_heads,
                    .tensors_read = {}};
  Json& config = result.config;
  for (const Renamed& key : kRenamed) {
    Json value = nullptr;
    if (key.type == Renamed::kInt) {
      if (const auto found = metadata.Int(key.gguf)) value = *found;
    } else if (const auto found = metadata.Float(key.gguf)) {
      value = *found;
    }
    if (value.is_null() && key.required) throw metadata.Missing(key.gguf);
    if (!value.is_null()) config[key.config] = std::move(value);
  }
  for (const Fixed& key : FixedKeys()) {
    const GgufValue* value = metadata.Any(key.key);
    if (value && *value != key.value)
      throw metadata.Unsupported(key.key, "asks for what this version does not have");
  }
  for (const char* key : kIgnored) metadata.Any(key);

  const GgufTensor* embed = FindTensor(gguf, "token_embd.weight");
  if (!embed || embed->shape.size() != 2)
    throw Fail(ErrorKind::kCorruptFile,
               "{}: tensor \"token_embd.weight\" is missing or no matrix; not a whole model", gguf.where());
  config["vocab_size"] = embed->shape[0];
  config["tie_word_embeddings"] = !FindTensor(gguf, "output.weight");
  TranslateHeads(metadata, config);
  config["rope_theta"] = metadata.Float("rope.freq_base").value_or(10000);
  config["rope_scaling"] = TranslateRope(gguf, metadata, result);
  if (gemma) {
    TranslateGemma(metadata, config);
  } else if (const int64_t window = metadata.Int("attention.sliding_window").value_or(0);
             window != 0 && window < config["max_position_embeddings"].get<int64_t>()) {  // 0: none
    throw metadata.Unsupported("attention.sliding_window",
                               fmt::format("is {}: this architecture is read without local layers", window));
  }
  const std::string_view name = architecture.name;
  if (name != "qwen2") config["attention_bias"] = FindTensor(gguf, "blk.0.attn_q.bias") != nullptr;
  if (name == "llama") config["mlp_bias"] = FindTensor(gguf, "blk.0.ffn_gate.bias") != nullptr;
  metadata.Done();
  return result;
}

std::string GgufTensorName(const WeightInfo& info) {
  struct Entry {
    Part part;
    std::string_view name;
  };
  static constexpr Entry kNames[] = {{Part::kEmbed, "token_embd"},
                                     {Part::kFinalNorm, "output_norm"},
                                     {Part::kHead, "output"},
                                     {Part::kPreMixer, "attn_norm"},
                                     {Part::kQ, "attn_q"},
                                     {Part::kK, "attn_k"},
                                     {Part::kV, "attn_v"},
                                     {Part::kO, "attn_output"},
                                     {Part::kQNorm, "attn_q_norm"},
                                     {Part::kKNorm, "attn_k_norm"},
                                     {Part::kPostMixer, "post_attention_norm"},
                                     {Part::kPreBranch, "ffn_norm"},
                                     {Part::kGate, "ffn_gate"},
                                     {Part::kUp, "ffn_up"},
                                     {Part::kDown, "ffn_down"},
                                     {Part::kPostBranch, "post_ffw_norm"}};
  const auto* entry = std::ranges::find(kNames, info.part, &Entry::part);
  PD_CHECK(entry != std::end(kNames));
  const std::string prefix = info.layer < 0 ? "" : fmt::format("blk.{}.", info.layer);
  return fmt::format("{}{}.{}", prefix, entry->name, info.piece == Piece::kBias ? "bias" : "weight");
}

}  // namespace pd
