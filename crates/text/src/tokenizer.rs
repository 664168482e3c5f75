//! A loaded tokenizer: text to ids, ids to text, and what one id adds to a text.

use crate::decode::{Pieces, Start};
use crate::failure::{Failure, Outcome};
use crate::split::PreTok;
use serde_json::Value;
use std::sync::OnceLock;
use tokenizers::{
    AddedToken, DecoderWrapper, Model, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, TokenizerImpl,
};

pub type Inner = TokenizerImpl<ModelWrapper, NormalizerWrapper, PreTok, PostProcessorWrapper, DecoderWrapper>;

/// The numbers are part of the ABI (`PdTextTokenKind` in ffi.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    Ordinary = 0,
    /// Matched whole in a text, and part of it.
    Added = 1,
    /// Matched whole in a text, and left out of what people read.
    Special = 2,
}

pub struct Tokenizer {
    /// Without post-processor, truncation and padding: what goes around a text is `prefix` and `suffix`.
    inner: Inner,
    /// The same, reading special tokens that a text spells as plain text; made when first asked for.
    literal: OnceLock<Inner>,
    pieces: Pieces,
    size: u32,
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
}

impl Tokenizer {
    /// `decoder` is the JSON form of the decoder in `inner`.
    pub fn new(inner: Inner, decoder: &Value) -> Outcome<Self> {
        let pieces = Pieces::from_json(decoder)?;
        let size = vocabulary_size(&inner)?;
        let (prefix, suffix) = (Vec::new(), Vec::new());
        Ok(Self { inner, literal: OnceLock::new(), pieces, size, prefix, suffix })
    }

    /// From tokenizer.json; `more` are the tokens that tokenizer_config.json adds, with their ids.
    pub fn from_json(json: &[u8], more: &[(u32, AddedToken)]) -> Outcome<Self> {
        let corrupt = |error: &dyn std::fmt::Display| Failure::corrupt(error.to_string());
        let mut inner = Inner::from_bytes(json).map_err(|error| corrupt(&error))?;
        let decoder = serde_json::to_value(inner.get_decoder()).map_err(|error| corrupt(&error))?;
        // What would make encoding something else than a function of the text: cutting it to the length
        // of a training batch, filling it up, dropping merges at random.
        inner.with_truncation(None).map_err(|error| corrupt(&error))?;
        inner.with_padding(None);
        if let ModelWrapper::BPE(bpe) = inner.get_model() {
            if bpe.dropout.is_some() {
                let mut certain = bpe.clone();
                certain.dropout = None;
                inner.with_model(certain);
            }
        }
        add(&mut inner, more)?;
        let (prefix, suffix) = affixes(&mut inner)?;
        Ok(Self { prefix, suffix, ..Self::new(inner, &decoder)? })
    }

    /// Bytes that are not UTF-8 become U+FFFD, as Python's errors="replace" has it. `parse_special`: a
    /// special token spelled in the text is that token.
    pub fn encode(&self, text: &[u8], parse_special: bool) -> Outcome<Vec<u32>> {
        let text = String::from_utf8_lossy(text);
        let inner = if parse_special {
            &self.inner
        } else {
            self.literal.get_or_init(|| {
                let mut literal = self.inner.clone();
                literal.set_encode_special_tokens(true);
                literal
            })
        };
        let encoding = inner.encode_fast(text.as_ref(), false).map_err(|error| {
            Failure::bad_request(format!("the tokenizer cannot split this text: {error}"))
        })?;
        Ok(encoding.get_ids().to_vec())
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Outcome<String> {
        self.inner.decode(ids, skip_special).map_err(|error| Failure::bad_request(error.to_string()))
    }

    /// One more than the largest id.
    pub fn size(&self) -> u32 {
        self.size
    }

    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token as the vocabulary spells it. None: no such id.
    pub fn token(&self, id: u32) -> Option<(String, Kind)> {
        let token = self.inner.id_to_token(id)?;
        let added = self.inner.get_added_vocabulary();
        let kind = if added.is_special_token(&token) {
            Kind::Special
        } else if added.get_vocab().contains_key(&token) {
            Kind::Added
        } else {
            Kind::Ordinary
        };
        Some((token, kind))
    }

    pub fn start(&self) -> Start {
        self.pieces.start
    }

    pub fn piece(&self, token: &str, first: bool) -> Vec<u8> {
        self.pieces.bytes(token, first)
    }
}

fn vocabulary_size(inner: &Inner) -> Outcome<u32> {
    let added = inner.get_added_vocabulary().get_added_tokens_decoder();
    let added = added.keys().max().map_or(0, |id| u64::from(*id) + 1);
    let mut size = added.max(inner.get_model().get_vocab_size() as u64);
    // A vocabulary with holes has ids beyond its number of tokens.
    while u32::try_from(size).is_ok_and(|id| inner.id_to_token(id).is_some()) {
        size += 1;
    }
    u32::try_from(size).map_err(|_| Failure::corrupt("a token id is beyond 32 bits"))
}

/// Adds what is missing, and marks as special what the configuration calls special.
fn add(inner: &mut Inner, more: &[(u32, AddedToken)]) -> Outcome<()> {
    let known = inner.get_added_vocabulary();
    let news = |(_, token): &&(u32, AddedToken)| {
        !known.get_vocab().contains_key(&token.content)
            || (token.special && !known.is_special_token(&token.content))
    };
    let tokens: Vec<AddedToken> = more.iter().filter(news).map(|(_, token)| token.clone()).collect();
    if !tokens.is_empty() {
        inner.add_tokens(&tokens);
    }
    for (id, token) in more {
        if inner.token_to_id(&token.content) != Some(*id) {
            return Err(Failure::corrupt(format!(
                "added_tokens_decoder gives '{}' the id {id}, tokenizer.json another",
                token.content
            )));
        }
    }
    Ok(())
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
