#include "tests/formats/tiny_checkpoints.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/error.h"

namespace pd::test {
namespace {

constexpr int64_t kWidth = 32, kVocab = 40, kHidden = 64, kLayers = 2;

// Fills in what all families share; `head_dim` is theirs.
class Builder {
 public:
  Builder(std::string model_type, std::string architecture, int heads, int kv_heads, int head_dim)
      : architecture_(std::move(architecture)), heads_(heads), kv_heads_(kv_heads), head_dim_(head_dim) {
    model_.config = {{"architectures", {"ForTests"}},
                     {"model_type", model_type},
                     {"vocab_size", kVocab},
                     {"hidden_size", kWidth},
                     {"intermediate_size", kHidden},
                     {"num_hidden_layers", kLayers},
                     {"num_attention_heads", heads},
                     {"num_key_value_heads", kv_heads},
                     {"head_dim", head_dim},
                     {"max_position_embeddings", 128},
                     {"rms_norm_eps", 1e-6},
                     {"torch_dtype", "float32"},
                     {"use_cache", true}};
    model_.heads = heads, model_.kv_heads = kv_heads;
    model_.metadata = {Text("general.architecture", architecture_), Text("general.name", "tiny"),
                       Text("tokenizer.ggml.model", "gpt2")};
    Meta(U32("block_count", kLayers));
    Meta(U32("context_length", 128));
    Meta(U32("embedding_length", kWidth));
    Meta(U32("feed_forward_length", kHidden));
    Meta(U32("attention.head_count", uint32_t(heads)));
    Meta(U32("attention.head_count_kv", uint32_t(kv_heads)));
    Meta(U32("attention.key_length", uint32_t(head_dim)));
    Meta(U32("attention.value_length", uint32_t(head_dim)));
    Meta(Float("attention.layer_norm_rms_epsilon", 1e-6f));
    Tensor("model.embed_tokens.weight", {kVocab, kWidth});
    Tensor("model.norm.weight", {kWidth});
    for (int64_t i = 0; i < kLayers; ++i) {
      Layer(i, "input_layernorm.weight", {kWidth});
      Layer(i, "post_attention_layernorm.weight", {kWidth});
      Layer(i, "self_attn.q_proj.weight", {heads * head_dim, kWidth});
      Layer(i, "self_attn.k_proj.weight", {kv_heads * head_dim, kWidth});
      Layer(i, "self_attn.v_proj.weight", {kv_heads * head_dim, kWidth});
      Layer(i, "self_attn.o_proj.weight", {kWidth, heads * head_dim});
      Layer(i, "mlp.gate_proj.weight", {kHidden, kWidth});
      Layer(i, "mlp.up_proj.weight", {kHidden, kWidth});
      Layer(i, "mlp.down_proj.weight", {kWidth, kHidden});
    }
  }

  void Meta(GgufEntry entry) {
    entry.key = architecture_ + "." + entry.key;
    model_.metadata.push_back(std::move(entry));
  }
  void Tensor(const std::string& name, std::vector<int64_t> shape) {
    size_t count = 1;
    for (const int64_t size : shape) count *= size_t(size);
    std::vector<float> values(count);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random_);
    model_.tensors[name] = {std::move(shape), std::move(values)};
  }
  void Layer(int64_t layer, const std::string& name, std::vector<int64_t> shape) {
    Tensor(fmt::format("model.layers.{}.{}", layer, name), std::move(shape));
  }
  void Head() { Tensor("lm_head.weight", {kVocab, kWidth}); }
  void QkvBiases() {
    for (int64_t i = 0; i < kLayers; ++i) {
      Layer(i, "self_attn.q_proj.bias", {heads_ * head_dim_});
      Layer(i, "self_attn.k_proj.bias", {kv_heads_ * head_dim_});
      Layer(i, "self_attn.v_proj.bias", {kv_heads_ * head_dim_});
    }
  }
  void OtherBiases() {
    for (int64_t i = 0; i < kLayers; ++i) {
      Layer(i, "self_attn.o_proj.bias", {kWidth});
      Layer(i, "mlp.gate_proj.bias", {kHidden});
      Layer(i, "mlp.up_proj.bias", {kHidden});
      Layer(i, "mlp.down_proj.bias", {kWidth});
    }
  }
  void QkNorms() {
    for (int64_t i = 0; i < kLayers; ++i) {
      Layer(i, "self_attn.q_norm.weight", {head_dim_});
      Layer(i, "self_attn.k_norm.weight", {head_dim_});
    }
  }
  TinyCheckpoint& model() { return model_; }

 private:
  std::string architecture_;
  int64_t heads_, kv_heads_, head_dim_;
  std::mt19937 random_{7};
  TinyCheckpoint model_;
};

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The converters' order: within each head, row i of the first half, row i of the second, row i + 1 of the
// first, ...
std::vector<float> Permuted(const TinyTensor& tensor, int heads) {
  const size_t columns = tensor.shape.size() == 2 ? size_t(tensor.shape[1]) : 1;
  const size_t head_rows = size_t(tensor.shape[0]) / size_t(heads), half = head_rows / 2;
  std::vector<float> result;
  for (size_t h = 0; h < size_t(heads); ++h)
    for (size_t i = 0; i < half; ++i)
      for (const size_t side : {size_t(0), size_t(1)}) {
        const auto row = tensor.values.begin() + std::ptrdiff_t((h * head_rows + side * half + i) * columns);
        result.insert(result.end(), row, row + std::ptrdiff_t(columns));
      }
  return result;
}

std::string Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

TinyCheckpoint TinyLlama() {
  Builder b("llama", "llama", 4, 2, 8);
  b.Head();
  b.QkvBiases();
  b.OtherBiases();
  b.model().config.update({{"hidden_act", "silu"},
                           {"rope_theta", 500000.0},
                           {"attention_bias", true},
                           {"mlp_bias", true},
                           {"tie_word_embeddings", false},
                           {"pretraining_tp", 1}});
  b.Meta(U32("vocab_size", kVocab));
  b.Meta(U32("rope.dimension_count", 8));
  b.Meta(Float("rope.freq_base", 500000));
  for (const char* layer : {"blk.0.", "blk.1."})
    for (const char* part : {"attn_q.weight", "attn_q.bias", "attn_k.weight", "attn_k.bias"})
      b.model().permuted.push_back(std::string(layer) + part);
  return b.model();
}

TinyCheckpoint TinyQwen2() {
  Builder b("qwen2", "qwen2", 4, 1, 8);
  b.QkvBiases();
  b.model().config.update({{"hidden_act", "silu"},
                           {"rope_theta", 1000000.0},
                           {"use_sliding_window", false},
                           {"sliding_window", 64},
                           {"max_window_layers", 1},
                           {"tie_word_embeddings", true}});
  b.Meta(Float("rope.freq_base", 1000000));
  return b.model();
}

TinyCheckpoint TinyQwen3() {
  Builder b("qwen3", "qwen3", 2, 2, 24);
  b.Head();
  b.QkNorms();
  b.model().config.update({{"hidden_act", "silu"},
                           {"attention_bias", false},
                           {"rope_theta", 1000000.0},
                           {"use_sliding_window", false},
                           {"sliding_window", nullptr},
                           {"max_window_layers", 2},
                           {"tie_word_embeddings", false}});
  b.Meta(Float("rope.freq_base", 1000000));
  return b.model();
}

TinyCheckpoint TinyGemma3() {
  Builder b("gemma3_text", "gemma3", 4, 2, 16);
  b.QkNorms();
  for (int64_t i = 0; i < kLayers; ++i) {
    b.Layer(i, "pre_feedforward_layernorm.weight", {kWidth});
    b.Layer(i, "post_feedforward_layernorm.weight", {kWidth});
  }
  b.model().config.update({{"hidden_activation", "gelu_pytorch_tanh"},
                           {"rope_theta", 1000000.0},
                           {"rope_local_base_freq", 10000.0},
                           {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                           {"sliding_window", 16},
                           {"sliding_window_pattern", 2},
                           {"query_pre_attn_scalar", 16},
                           {"attn_logit_softcapping", nullptr},
                           {"final_logit_softcapping", 30.0},
                           {"attention_bias", false}});
  b.Meta(Float("rope.freq_base", 1000000));
  b.Meta(Text("rope.scaling.type", "linear"));
  b.Meta(Float("rope.scaling.factor", 8));
  b.Meta(U32("attention.sliding_window", 16));
  b.Meta(U32("attention.sliding_window_pattern", 2));
  b.Meta(Float("final_logit_softcapping", 30));
  b.model().gain_offset = 1;
  return b.model();
}

SafetensorsSpec AsSafetensors(const TinyCheckpoint& model) {
  SafetensorsSpec file;
  for (const auto& [name, tensor] : model.tensors)
    file.tensors.push_back({name, "F32", tensor.shape, Bytes(tensor.values)});
  return file;
}

std::string GgufName(const std::string& name) {
  static const std::vector<std::pair<std::string, std::string>> kParts = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"model.layers.", "blk."},
      {"input_layernorm", "attn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"}};
  std::string result = name;
  for (const auto& [part, instead] : kParts)
    if (const size_t at = result.find(part); at != std::string::npos)
      result.replace(at, part.size(), instead);
  return result;
}

GgufSpec AsGguf(const TinyCheckpoint& model) {
  GgufSpec file;
  file.entries = model.metadata;
  const bool sandwich = model.tensors.count("model.layers.0.pre_feedforward_layernorm.weight") > 0;
  for (const auto& [name, tensor] : model.tensors) {
    std::string gguf_name = GgufName(name);
    const std::string pre_mlp = "post_attention_layernorm";
    if (const size_t at = gguf_name.find(pre_mlp); at != std::string::npos)
      gguf_name.replace(at, pre_mlp.size(), sandwich ? "post_attention_norm" : "ffn_norm");
    TinyTensor stored = tensor;
    if (std::find(model.permuted.begin(), model.permuted.end(), gguf_name) != model.permuted.end())
      stored.values = Permuted(tensor, Contains(gguf_name, "attn_q") ? model.heads : model.kv_heads);
    if (Contains(name, "norm"))
      for (float& value : stored.values) value += model.gain_offset;
    file.tensors.push_back({gguf_name, std::vector<uint64_t>(tensor.shape.rbegin(), tensor.shape.rend()),
                            kTensorF32, Bytes(stored.values)});
  }
  return file;
}

void WriteFolder(const TinyCheckpoint& model, const TempFolder& folder) {
  folder.Write("config.json", model.config.dump(2));
  folder.Write("model.safetensors", AsSafetensors(model).Bytes());
}

}  // namespace pd::test
