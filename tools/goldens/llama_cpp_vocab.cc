// Ids of llama.cpp for lines of text: llama_cpp_vocab MODEL.gguf LINES IDS. LINES holds u32 sizes, each
// followed by its bytes; IDS gets two lists for each line, u32 lengths followed by the ids: with special
// tokens read, and with them taken as plain text. Compiled by make_llama_cpp_goldens.py against llama.cpp's
// sources: its vocabulary needs no model.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "llama-arch.h"
#include "llama-impl.h"
#include "llama-model-loader.h"
#include "llama-vocab.h"

// What the loader of weights would call and a vocabulary never does.
extern "C" {
bool ggml_backend_buffer_is_meta(ggml_backend_buffer_t) { return false; }
bool ggml_backend_buft_is_meta(ggml_backend_buffer_type_t) { return false; }
ggml_backend_dev_t ggml_backend_dev_by_type(enum ggml_backend_dev_type) { return nullptr; }
ggml_backend_buffer_t ggml_backend_meta_alloc_ctx_tensors_from_buft(ggml_context*,
                                                                    ggml_backend_buffer_type_t) {
  return nullptr;
}
void ggml_backend_meta_buffer_set_usage(ggml_backend_buffer_t, enum ggml_backend_buffer_usage) {}
int32_t llama_split_path(char*, size_t, const char*, int32_t, int32_t) { return 0; }
int32_t llama_split_prefix(char*, size_t, const char*, int32_t, int32_t) { return 0; }
}

int main(int count, char** arguments) {
  if (count != 4) return 2;
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  std::vector<std::string> splits;
  llama_model_loader loader(nullptr, nullptr, nullptr, arguments[1], splits, nullptr, LLAMA_LOAD_MODE_NONE,
                            false, true, false, nullptr, nullptr);
  llama_vocab vocab;
  vocab.load(loader, LLM_KV(loader.get_arch()));
  FILE* in = std::fopen(arguments[2], "rb");
  FILE* out = std::fopen(arguments[3], "wb");
  if (!in || !out) return 2;
  uint32_t size = 0;
  while (std::fread(&size, sizeof size, 1, in) == 1) {
    std::string line(size, '\0');
    if (std::fread(line.data(), 1, size, in) != size) return 2;
    for (const bool parse_special : {true, false}) {
      const std::vector<llama_token> ids = vocab.tokenize(line, false, parse_special);
      const uint32_t length = uint32_t(ids.size());
      std::fwrite(&length, sizeof length, 1, out);
      std::fwrite(ids.data(), sizeof ids[0], length, out);
    }
  }
  return std::fclose(out) == 0 ? 0 : 1;
}
