//! Tokenizers from the files of a Hugging Face folder, as transformers 5 puts them together: which class
//! reads tokenizer.json, and which of the places that name special tokens counts.

use crate::failure::{Failure, Outcome};
use crate::tokenizer::{Inner, Tokenizer};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use tokenizers::{AddedToken, DecoderWrapper, ModelWrapper, PostProcessorWrapper};

/// Who reads tokenizer.json. The numbers are part of the ABI (`PdTextClass` in ffi.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Class {
    /// As the file is.
    AsWritten = 0,
    // These take vocabulary, merges and post-processor from the file; how text is normalised, split and put
    // together again is the class's own.
    Llama = 1,
    Gemma = 2,
    Qwen2 = 3,
    Gpt2 = 4,
}

/// A special token as some file gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// A string: flags are the reader's.
    Plain(String),
    Flagged(AddedToken),
}

impl Given {
    pub fn content(&self) -> &str {
        match self {
            Self::Plain(content) => content,
            Self::Flagged(token) => &token.content,
        }
    }
}

/// What the files beside tokenizer.json say.
pub struct Folder {
    pub class: Class,
    pub prefix_space: Option<bool>,
    /// A space before what follows a special token too. None: yes, but for LlamaTokenizer.
    pub legacy: Option<bool>,
    /// Without tokenizer.json, which has a post-processor, these say what goes around a text.
    pub add_bos: bool,
    pub add_eos: bool,
    /// tokenizer_config.json has "added_tokens_decoder", which makes it the only word on added tokens. Else
    /// `added` are those of added_tokens.json, and tokenizer.json's own go before them.
    pub has_decoder: bool,
    pub added: Vec<(u32, AddedToken)>,
    /// "bos_token" and so on; None: explicitly none.
    pub named: Vec<(String, Option<Given>)>,
    pub extra: Vec<Given>,
}

/// The order in which transformers adds named tokens; those of one model follow.
const NAMED: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

impl Folder {
    fn class_defaults(class: Class) -> &'static [(&'static str, &'static str)] {
        match class {
            Class::AsWritten => &[],
            Class::Llama => &[("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>")],
            Class::Gemma => &[
                ("bos_token", "<bos>"),
                ("eos_token", "<eos>"),
                ("unk_token", "<unk>"),
                ("pad_token", "<pad>"),
                ("mask_token", "<mask>"),
            ],
            Class::Qwen2 => &[
                ("eos_token", "<|endoftext|>"),
                ("unk_token", "<|endoftext|>"),
                ("pad_token", "<|endoftext|>"),
            ],
            Class::Gpt2 => &[
                ("bos_token", "<|endoftext|>"),
                ("eos_token", "<|endoftext|>"),
                ("unk_token", "<|endoftext|>"),
            ],
        }
    }

    /// A named token that is not none, with the class's default.
    pub fn token_named(&self, name: &str, class: Class) -> Option<Given> {
        match self.named.iter().find(|(key, _)| key == name) {
            Some((_, given)) => given.clone(),
            None => Self::class_defaults(class)
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, content)| Given::Plain((*content).to_string())),
        }
    }

    fn all_named(&self, class: Class) -> Vec<Given> {
        let others = self.named.iter().map(|(name, _)| name.as_str()).filter(|name| !NAMED.contains(name));
        NAMED.into_iter().chain(others).filter_map(|name| self.token_named(name, class)).collect()
    }

    /// Adds every token that some file names to those that `inner` has. `own`: what tokenizer.json itself
    /// adds, whether or not `inner` has it yet.
    pub fn add_tokens(
        &self,
        inner: &mut Inner,
        own: &BTreeMap<u32, AddedToken>,
        class: Class,
    ) -> Outcome<()> {
        let mut decoder: BTreeMap<u32, AddedToken> = self.added.iter().cloned().collect();
        if !self.has_decoder {
            decoder.extend(own.iter().map(|(id, token)| (*id, token.clone())));
        }
        let flags_of = |given: Given| {
            let known = decoder.values().find(|token| token.content == given.content());
            known.map_or(given, |token| Given::Flagged(token.clone()))
        };
        let named: Vec<Given> = self.all_named(class).into_iter().map(flags_of).collect();
        let existing: Vec<AddedToken> =
            inner.get_added_vocabulary().get_added_tokens_decoder().values().cloned().collect();
        let mut adding: Vec<Given> = decoder
            .values()
            .filter(|token| !existing.contains(token))
            .map(|token| Given::Flagged(token.clone()))
            .collect();
        let known: Vec<String> = existing
            .iter()
            .map(|token| token.content.clone())
            .chain(adding.iter().map(|given| given.content().to_string()))
            .collect();
        for given in named.iter().chain(&self.extra) {
            if !known.iter().any(|content| content == given.content()) && !adding.contains(given) {
                adding.push(given.clone());
            }
        }
        let is_named = |content: &str| named.iter().any(|given| given.content() == content);
        let tokens: Vec<AddedToken> = adding
            .into_iter()
            .map(|given| match given {
                Given::Plain(content) => AddedToken::from(content, true),
                Given::Flagged(mut token) => {
                    token.special |= is_named(&token.content);
                    token
                }
            })
            .collect();
        inner.add_tokens(&tokens);
        if class == Class::Qwen2 {
            let all = named.iter().chain(&self.extra);
            inner.add_tokens(&all.map(|given| AddedToken::from(given.content(), true)).collect::<Vec<_>>());
        }
        for (id, token) in &self.added {
            match inner.token_to_id(&token.content) {
                Some(found) if found != *id && decoder.contains_key(id) => {
                    return Err(Failure::corrupt(format!(
                        "{} gives '{}' the id {id}, by the vocabulary it is {found}: they are of two models",
                        if self.has_decoder { "tokenizer_config.json" } else { "added_tokens.json" },
                        token.content
                    )));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The library's form of tokenizer.json's parts for a class that has its own; the decoder as JSON too.
    pub fn reshaped(&self, class: Class, file: &Inner) -> Outcome<Option<(Inner, Value)>> {
        let ModelWrapper::BPE(bpe) = file.get_model() else { return Ok(None) };
        let mut bpe = bpe.clone();
        bpe.dropout = None;
        bpe.ignore_merges = false;
        bpe.continuing_subword_prefix = None;
        bpe.end_of_word_suffix = None;
        bpe.byte_fallback = matches!(class, Class::Llama | Class::Gemma);
        bpe.fuse_unk = bpe.byte_fallback;
        let unknown = self.token_named("unk_token", class).map(|given| given.content().to_string());
        bpe.unk_token = unknown.filter(|_| class == Class::Gemma);
        let space = |default: bool| self.prefix_space.unwrap_or(default);
        let spaces = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
        let pieces = [spaces, json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
        let byte_level = |prefix: bool, regex: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex});
        let (normalizer, pre, decoder) = match class {
            Class::AsWritten => return Ok(None),
            Class::Llama => {
                let scheme = match (space(true), self.legacy.unwrap_or(false)) {
                    (true, true) => "always",
                    (true, false) => "first",
                    (false, _) => "never",
                };
                let mut decoders = pieces.to_vec();
                if space(true) {
                    decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
                }
                let pre = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
                (Value::Null, pre, json!({"type": "Sequence", "decoders": decoders}))
            }
            Class::Gemma => (
                json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
                json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false}),
                json!({"type": "Sequence", "decoders": pieces}),
            ),
            Class::Qwen2 => (
                json!({"type": "NFC"}),
                json!({"type": "Sequence", "pretokenizers": [
                    {"type": "Split", "pattern": {"Regex": crate::gguf::QWEN2}, "behavior": "Isolated", "invert": false},
                    byte_level(space(false), false)]}),
                byte_level(true, true),
            ),
            Class::Gpt2 => (Value::Null, byte_level(space(false), true), byte_level(true, true)),
        };
        let parse = |error: serde_json::Error| Failure::corrupt(error.to_string());
        let mut inner = Inner::new(ModelWrapper::BPE(bpe));
        inner.with_normalizer(
            serde_json::from_value::<Option<tokenizers::NormalizerWrapper>>(normalizer).map_err(parse)?,
        );
        inner.with_pre_tokenizer(Some(crate::split::PreTok::from_json(&pre)?));
        inner.with_decoder(serde_json::from_value::<Option<DecoderWrapper>>(decoder.clone()).map_err(parse)?);
        inner.with_post_processor(file.get_post_processor().cloned());
        Ok(Some((inner, decoder)))
    }
}

/// LlamaTokenizer is named by many files that are none of its kind.
fn is_byte_level(file: &Inner) -> bool {
    let decoder = serde_json::to_value(file.get_decoder()).unwrap_or_default().to_string();
    decoder.contains("\"ByteLevel\"")
}

/// From tokenizer.json.
pub fn from_json(json: &[u8], folder: &Folder) -> Outcome<Tokenizer> {
    let corrupt = |error: &dyn std::fmt::Display| Failure::corrupt(error.to_string());
    let mut file = Inner::from_bytes(json).map_err(|error| corrupt(&error))?;
    let own: BTreeMap<u32, AddedToken> = file
        .get_added_vocabulary()
        .get_added_tokens_decoder()
        .iter()
        .map(|(id, token)| (*id, token.clone()))
        .collect();
    let class =
        if folder.class == Class::Llama && is_byte_level(&file) { Class::AsWritten } else { folder.class };
    if let Some((mut inner, decoder)) = folder.reshaped(class, &file)? {
        folder.add_tokens(&mut inner, &own, class)?;
        return finish(inner, &decoder);
    }
    let decoder = serde_json::to_value(file.get_decoder()).map_err(|error| corrupt(&error))?;
    // What would make encoding something else than a function of the text: cutting it to the length of a
    // training batch, filling it up, dropping merges at random.
    file.with_truncation(None).map_err(|error| corrupt(&error))?;
    file.with_padding(None);
    if let ModelWrapper::BPE(bpe) = file.get_model() {
        if bpe.dropout.is_some() {
            let mut certain = bpe.clone();
            certain.dropout = None;
            file.with_model(certain);
        }
    }
    folder.add_tokens(&mut file, &own, Class::AsWritten)?;
    finish(file, &decoder)
}

fn finish(mut inner: Inner, decoder: &Value) -> Outcome<Tokenizer> {
    let (prefix, suffix) = affixes(&mut inner)?;
    let mut tokenizer = Tokenizer::new(inner, decoder)?;
    (tokenizer.prefix, tokenizer.suffix) = (prefix, suffix);
    Ok(tokenizer)
}

/// The ids that the post-processor puts before and after a text; takes it away.
fn affixes(inner: &mut Inner) -> Outcome<(Vec<u32>, Vec<u32>)> {
    let Some(post) = inner.get_post_processor().cloned() else { return Ok((Vec::new(), Vec::new())) };
    let encode = |inner: &Inner, text: &str, special: bool| {
        let encoding = inner.encode_fast(text, special);
        encoding.map(|e| e.get_ids().to_vec()).map_err(|error| Failure::corrupt(error.to_string()))
    };
    // A small vocabulary may lack a letter, so there are several.
    for text in ["a", "e", "0", " ", "\n"] {
        inner.with_post_processor(Some(post.clone()));
        let full = encode(inner, text, true)?;
        inner.with_post_processor(None::<PostProcessorWrapper>);
        let bare = encode(inner, text, false)?;
        if bare.is_empty() {
            continue;
        }
        let at = (0..=full.len().saturating_sub(bare.len())).find(|&at| full[at..].starts_with(&bare));
        return match at {
            Some(at) => Ok((full[..at].to_vec(), full[at + bare.len()..].to_vec())),
            None => Err(Failure::unsupported("the post-processor of tokenizer.json rewrites the text")),
        };
    }
    Err(Failure::unsupported("the vocabulary of tokenizer.json encodes no common character"))
}
