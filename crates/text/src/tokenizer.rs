//! A loaded tokenizer: text to ids, ids to text, and what one id adds to a text.

use crate::decode::{Pieces, Start};
use crate::failure::{Failure, Outcome};
use crate::scored::Scored;
use crate::split::PreTok;
use serde_json::Value;
use std::sync::OnceLock;
use tokenizers::{
    DecoderWrapper, Model, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, TokenizerImpl,
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
    /// Encodes in the place of `inner`, which then only decodes.
    scored: Option<Scored>,
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
        Ok(Self { inner, literal: OnceLock::new(), scored: None, pieces, size, prefix, suffix })
    }

    pub fn encoding_with(self, scored: Scored) -> Self {
        // A padded vocabulary ends in pieces that have no spelling.
        let size = self.size.max(scored.size());
        Self { scored: Some(scored), size, ..self }
    }

    /// Bytes that are not UTF-8 become U+FFFD, as Python's errors="replace" has it. `parse_special`: a
    /// special token spelled in the text is that token.
    pub fn encode(&self, text: &[u8], parse_special: bool) -> Outcome<Vec<u32>> {
        let text = String::from_utf8_lossy(text);
        if let Some(scored) = &self.scored {
            return scored.encode(&text, parse_special);
        }
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
