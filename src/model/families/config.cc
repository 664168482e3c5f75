#include "model/families/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace pd {

Sizes ReadSizes(JsonReader& config, const SizeDefaults& defaults) {
  constexpr int64_t kMaxWidth = 1 << 24;
  Sizes s;
  s.vocab = int(config.Int("vocab_size", defaults.vocab, 1, 1 << 28));
  s.width = int(config.Int("hidden_size", defaults.width, 1, kMaxWidth));
  s.hidden = int(config.Int("intermediate_size", defaults.hidden, 1, kMaxWidth));
  s.layers = int(config.Int("num_hidden_layers", defaults.layers, 1, 4096));
  s.heads = int(config.Int("num_attention_heads", defaults.heads, 1, 1 << 16));
  s.kv_heads = int(config.Int("num_key_value_heads", defaults.kv_heads.value_or(s.heads), 1, 1 << 16));
  s.max_positions = int(config.Int("max_position_embeddings", defaults.max_positions, 1, INT32_MAX));
  const bool has_head_dim = config.Has("head_dim") || defaults.head_dim;
  if (!has_head_dim && s.width % s.heads != 0)
    throw Fail(ErrorKind::kCorruptFile, "{}: \"hidden_size\" {} is no multiple of \"num_attention_heads\" {}",
               config.where(), s.width, s.heads);
  s.head_dim = int(config.Int("head_dim", defaults.head_dim.value_or(s.width / s.heads), 1, 4096));
  s.eps = float(PositiveNumber(config, "rms_norm_eps", 1e-6, 1));
  return s;
}

void ReadBookkeeping(JsonReader& config) {
  // Who wrote it, which class, which tokens.
  config.Ignore({"architectures", "model_type", "_name_or_path", "transformers_version",
                 "transformers.js_config", "torch_dtype", "dtype", "bos_token_id", "eos_token_id",
                 "pad_token_id", "sep_token_id", "unk_token_id", "tokenizer_class", "is_llama_config",
                 "unsloth_fixed", "unsloth_version"});
  // Training.
  config.Ignore({"initializer_range", "attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop",
                 "gradient_checkpointing", "problem_type", "finetuning_task", "task_specific_params",
                 "id2label", "label2id", "num_labels"});
  // How transformers runs it. pretraining_tp splits a product into parts with the same sum.
  config.Ignore({"use_cache", "pretraining_tp", "output_attentions", "output_hidden_states", "return_dict",
                 "use_return_dict", "torchscript", "use_bfloat16", "_attn_implementation",
                 "_attn_implementation_autoset", "max_sequence_length", "attn_implementation",
                 "cache_implementation", "chunk_size_feed_forward", "tf_legacy_loss"});
  // Generation settings, which belong in generation_config.json.
  config.Ignore({"max_length",
                 "min_length",
                 "do_sample",
                 "early_stopping",
                 "num_beams",
                 "num_beam_groups",
                 "diversity_penalty",
                 "temperature",
                 "top_k",
                 "top_p",
                 "typical_p",
                 "repetition_penalty",
                 "length_penalty",
                 "no_repeat_ngram_size",
                 "encoder_no_repeat_ngram_size",
                 "bad_words_ids",
                 "num_return_sequences",
                 "output_scores",
                 "return_dict_in_generate",
                 "forced_bos_token_id",
                 "forced_eos_token_id",
                 "remove_invalid_values",
                 "exponential_decay_length_penalty",
                 "suppress_tokens",
                 "begin_suppress_tokens",
                 "prefix",
                 "decoder_start_token_id"});
  config.Expect("is_decoder", false);
  config.Expect("is_encoder_decoder", false);
  config.Expect("add_cross_attention", false);
  config.Expect("tie_encoder_decoder", false);
  config.Ignore({"cross_attention_hidden_size"});
  config.Expect("pruned_heads", Json::object());
  config.Expect("partial_rotary_factor", 1.0);  // no family here defines what a part would mean
  config.Expect("rope_interleaved", false);
  for (const char* key : {"quantization_config", "compression_config"})
    if (config.Has(key))
      throw Fail(ErrorKind::kUnsupported,
                 "{}: \"{}\": the weights are quantised in a way that is not supported; take the original "
                 "model or a "
                 "GGUF file of it",
                 config.where(), key);
  if (config.Has("auto_map"))
    throw Fail(ErrorKind::kUnsupported,
               "{}: \"auto_map\": the model brings code of its own, which is never run", config.where());
  config.Ignore({"quantization_config", "compression_config", "auto_map"});  // null
}

Activation ReadActivation(JsonReader& config, std::string_view key, const std::string& fallback) {
  static constexpr std::pair<std::string_view, Activation> kNames[] = {
      {"silu", Activation::kSilu},
      {"gelu", Activation::kGelu},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh}};
  const std::string name = config.StringOr(key, fallback);
  for (const auto& [known, activation] : kNames)
    if (name == known) return activation;
  throw Fail(ErrorKind::kUnsupported,
             "{}: \"{}\" is \"{:.40}\"; known are silu, gelu, gelu_pytorch_tanh, gelu_new", config.where(),
             key, name);
}

double PositiveNumber(JsonReader& config, std::string_view key, std::optional<double> fallback, double max) {
  const double value = config.Has(key) || !fallback ? config.Number(key) : config.NumberOr(key, *fallback);
  if (!(value > 0 && value <= max))
    throw Fail(ErrorKind::kCorruptFile, "{}: \"{}\" must be above 0 and at most {}, found {}", config.where(),
               key, max, value);
  return value;
}

std::optional<float> OptionalPositive(JsonReader& config, std::string_view key) {
  if (config.Has(key)) return float(PositiveNumber(config, key, std::nullopt));
  config.Ignore({key});
  return std::nullopt;
}

std::vector<bool> ReadLocalLayers(JsonReader& config, int layers, const std::function<bool(int)>& local) {
  std::vector<bool> result;
  if (!config.Has("layer_types")) {
    config.Ignore({"layer_types"});
    for (int i = 0; i < layers; ++i) result.push_back(local(i));
    return result;
  }
  const Json& types = config.Value("layer_types");
  if (!types.is_array() || types.size() != size_t(layers))
    throw Fail(ErrorKind::kCorruptFile, "{}: \"layer_types\" is not a list of {} names", config.where(),
               layers);
  for (const Json& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      throw Fail(ErrorKind::kUnsupported,
                 "{}: \"layer_types\" has {:.40}; known are \"full_attention\" and \"sliding_attention\"",
                 config.where(), type.dump());
    result.push_back(type == "sliding_attention");
  }
  return result;
}

std::string HuggingFaceName(const WeightInfo& info, NormStyle style) {
  struct Entry {
    Part part;
    std::string_view name;
  };
  static constexpr Entry kModel[] = {{Part::kEmbed, "model.embed_tokens.weight"},
                                     {Part::kFinalNorm, "model.norm.weight"},
                                     {Part::kHead, "lm_head.weight"}};
  static constexpr Entry kLayer[] = {
      {Part::kQ, "self_attn.q_proj"},     {Part::kK, "self_attn.k_proj"},
      {Part::kV, "self_attn.v_proj"},     {Part::kO, "self_attn.o_proj"},
      {Part::kQNorm, "self_attn.q_norm"}, {Part::kKNorm, "self_attn.k_norm"},
      {Part::kGate, "mlp.gate_proj"},     {Part::kUp, "mlp.up_proj"},
      {Part::kDown, "mlp.down_proj"},     {Part::kPreMixer, "input_layernorm"}};
  // The same name is the MLP's norm in one style and the attention output's in the other.
  static constexpr Entry kPre[] = {{Part::kPreBranch, "post_attention_layernorm"}};
  static constexpr Entry kSandwich[] = {{Part::kPostMixer, "post_attention_layernorm"},
                                        {Part::kPreBranch, "pre_feedforward_layernorm"},
                                        {Part::kPostBranch, "post_feedforward_layernorm"}};
  const auto find = [&](std::span<const Entry> entries) -> const Entry* {
    for (const Entry& entry : entries)
      if (entry.part == info.part) return &entry;
    return nullptr;
  };
  if (const Entry* entry = find(kModel)) return std::string(entry->name);
  const Entry* entry = find(kLayer);
  if (!entry) entry = style == NormStyle::kPre ? find(kPre) : find(kSandwich);
  PD_CHECK(entry && info.layer >= 0);
  return fmt::format("model.layers.{}.{}.{}", info.layer, entry->name,
                     info.piece == Piece::kBias ? "bias" : "weight");
}

ModelSpec DecoderSpec(JsonReader& config, const Sizes& sizes, const LayerSpec& layer) {
  ModelSpec spec;
  spec.width = sizes.width;
  spec.vocab = sizes.vocab;
  const auto& rope = AttentionOf(layer).rope;
  spec.max_context = rope ? MaxContext(*rope, sizes.max_positions) : sizes.max_positions;
  spec.layers.assign(size_t(sizes.layers), layer);
  spec.final_norm = {.eps = sizes.eps};
  spec.tied_head = config.BoolOr("tie_word_embeddings", false);
  return spec;
}

AttentionSpec ReadAttention(JsonReader& config, const Sizes& sizes) {
  AttentionSpec a;
  a.heads = sizes.heads;
  a.kv_heads = sizes.kv_heads;
  a.head_dim = sizes.head_dim;
  a.scale = 1 / std::sqrt(float(sizes.head_dim));
  a.rope = ReadRope(config, sizes);
  return a;
}

void SetBiases(AttentionSpec& a, bool biased) { a.q_bias = a.kv_bias = a.out_bias = biased; }

MlpSpec ReadMlp(JsonReader& config, const Sizes& sizes) {
  return {.hidden = sizes.hidden, .gate = {.act = ReadActivation(config, "hidden_act", "silu")}};
}

}  // namespace pd
