// RAII over ffi.h.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/ffi.h"

namespace pd {

struct FfiBytes : PdTextBytes {
  FfiBytes() : PdTextBytes{} {}
  ~FfiBytes() { pd_text_bytes_free(this); }
  FfiBytes(const FfiBytes&) = delete;
  FfiBytes& operator=(const FfiBytes&) = delete;
  std::string_view view() const { return {data, size}; }
};

struct FfiIds : PdTextIds {
  FfiIds() : PdTextIds{} {}
  ~FfiIds() { pd_text_ids_free(this); }
  FfiIds(const FfiIds&) = delete;
  FfiIds& operator=(const FfiIds&) = delete;
};

struct FfiFree {
  void operator()(PdTokenizer* tokenizer) const { pd_text_tokenizer_free(tokenizer); }
  void operator()(PdTemplate* tmpl) const { pd_text_template_free(tmpl); }
};
using TokenizerHandle = std::unique_ptr<PdTokenizer, FfiFree>;
using TemplateHandle = std::unique_ptr<PdTemplate, FfiFree>;

inline PdTextView FfiView(std::string_view text) { return {text.data(), text.size()}; }

// The error of a failed call as ours: "where: what; remedy". Empty parts are left out.
Error FfiError(int32_t status, const FfiBytes& error, std::string_view where, std::string_view remedy);

}  // namespace pd
