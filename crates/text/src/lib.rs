//! Tokenizers (Hugging Face `tokenizers`) and chat templates behind the C ABI that
//! `src/text/ffi.h` declares.
//!
//! Rules of the boundary: handles are opaque and freed by their own function; buffers handed out are
//! freed by the caller with `pd_text_bytes_free` or `pd_text_ids_free`; nothing unwinds across it; no
//! state is shared between handles. A handle is immutable after it is made, so any thread may use it.

mod decode;
mod failure;
mod ffi;
mod folder;
mod gguf;
mod scored;
mod sentencepiece;
mod split;
mod template;
mod tokenizer;
