//! Tokenizers from tokenizer.model, SentencePiece's own file, where a folder has no tokenizer.json. What
//! transformers 5 makes of it: for LlamaTokenizer merges in the order of the pieces, for every other class
//! what the model itself encodes.

use crate::failure::{Failure, Outcome};
use crate::folder::{Class, Folder, Given};
use crate::split::PreTok;
use crate::tokenizer::{Inner, Tokenizer};
use ahash::AHashMap;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::Precompiled;
use tokenizers::{AddedToken, DecoderWrapper, ModelWrapper, NormalizerWrapper};

const NORMAL: u64 = 1;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

const UNIGRAM: u64 = 1;
const BPE_MODEL: u64 = 2;

struct Piece {
    text: String,
    score: f32,
    kind: u64,
}

/// What encoding needs of the model's file.
struct Model {
    pieces: Vec<Piece>,
    kind: u64,
    byte_fallback: bool,
    unknown: i32,
    bos: i32,
    eos: i32,
    unknown_piece: String,
    bos_piece: String,
    eos_piece: String,
    charsmap: Vec<u8>,
    dummy_prefix: bool,
    remove_spaces: bool,
    escape_spaces: bool,
}

/// A field of a protobuf message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Field<'_> {
    fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Bytes(_) => 0,
        }
    }
    fn flag(&self) -> bool {
        self.number() != 0
    }
    /// Negative ids come as 64 bits.
    fn id(&self) -> i32 {
        self.number() as i32
    }
    fn text(&self) -> Outcome<String> {
        match self {
            Self::Bytes(bytes) => String::from_utf8(bytes.to_vec())
                .map_err(|_| Failure::corrupt("a piece of the SentencePiece model is not UTF-8")),
            Self::Number(_) => Err(damaged()),
        }
    }
}

fn damaged() -> Failure {
    Failure::corrupt("not a whole SentencePiece model")
}

fn varint(bytes: &mut &[u8]) -> Outcome<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or_else(damaged)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(damaged())
}

fn take<'a>(bytes: &mut &'a [u8], size: u64) -> Outcome<&'a [u8]> {
    let size = usize::try_from(size).ok().filter(|size| *size <= bytes.len()).ok_or_else(damaged)?;
    let (taken, rest) = bytes.split_at(size);
    *bytes = rest;
    Ok(taken)
}

/// Calls `field` for each field of a message, with its number.
fn fields(mut bytes: &[u8], mut field: impl FnMut(u64, Field) -> Outcome<()>) -> Outcome<()> {
    let little = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            1 => Field::Number(little(take(&mut bytes, 8)?)),
            2 => {
                let size = varint(&mut bytes)?;
                Field::Bytes(take(&mut bytes, size)?)
            }
            5 => Field::Number(little(take(&mut bytes, 4)?)),
            _ => return Err(damaged()),
        };
        field(key >> 3, value)?;
    }
    Ok(())
}

impl Model {
    fn parse(bytes: &[u8]) -> Outcome<Self> {
        if bytes.first() == Some(&b'{') {
            return Err(Failure::unsupported("this is JSON, a tokenizer.json by another name: rename it"));
        }
        let mut model = Self {
            pieces: Vec::new(),
            kind: UNIGRAM,
            byte_fallback: false,
            unknown: 0,
            bos: 1,
            eos: 2,
            unknown_piece: "<unk>".into(),
            bos_piece: "<s>".into(),
            eos_piece: "</s>".into(),
            charsmap: Vec::new(),
            dummy_prefix: true,
            remove_spaces: true,
            escape_spaces: true,
        };
        fields(bytes, |number, field| match (number, field) {
            (1, Field::Bytes(piece)) => model.add_piece(piece),
            (2, Field::Bytes(trainer)) => model.read_trainer(trainer),
            (3, Field::Bytes(normalizer)) => model.read_normalizer(normalizer),
            _ => Ok(()),
        })?;
        if model.pieces.is_empty() {
            return Err(Failure::corrupt("not a SentencePiece model: it has no pieces"));
        }
        if model.kind != UNIGRAM && model.kind != BPE_MODEL {
            return Err(Failure::unsupported("a SentencePiece model of words or of characters"));
        }
        Ok(model)
    }

    fn add_piece(&mut self, bytes: &[u8]) -> Outcome<()> {
        let mut piece = Piece { text: String::new(), score: 0.0, kind: NORMAL };
        fields(bytes, |number, field| {
            match number {
                1 => piece.text = field.text()?,
                2 => piece.score = f32::from_bits(field.number() as u32),
                3 => piece.kind = field.number(),
                _ => {}
            }
            Ok(())
        })?;
        self.pieces.push(piece);
        Ok(())
    }

    fn read_trainer(&mut self, bytes: &[u8]) -> Outcome<()> {
        fields(bytes, |number, field| {
            match number {
                3 => self.kind = field.number(),
                35 => self.byte_fallback = field.flag(),
                40 => self.unknown = field.id(),
                41 => self.bos = field.id(),
                42 => self.eos = field.id(),
                45 => self.unknown_piece = field.text()?,
                46 => self.bos_piece = field.text()?,
                47 => self.eos_piece = field.text()?,
                _ => {}
            }
            Ok(())
        })
    }

    fn read_normalizer(&mut self, bytes: &[u8]) -> Outcome<()> {
        fields(bytes, |number, field| {
            match (number, field) {
                (2, Field::Bytes(charsmap)) => self.charsmap = charsmap.to_vec(),
                (3, field) => self.dummy_prefix = field.flag(),
                (4, field) => self.remove_spaces = field.flag(),
                (5, field) => self.escape_spaces = field.flag(),
                _ => {}
            }
            Ok(())
        })
    }

    /// A piece that the configuration gives another name has that.
    fn rename(&mut self, folder: &Folder) {
        let names: BTreeMap<usize, &str> =
            folder.added.iter().map(|(id, token)| (*id as usize, token.content.as_str())).collect();
        let kept: Vec<String> = self
            .pieces
            .iter()
            .enumerate()
            .filter(|(id, piece)| !names.contains_key(id) && names.values().any(|name| **name == piece.text))
            .map(|(_, piece)| piece.text.clone())
            .collect();
        for (id, piece) in self.pieces.iter_mut().enumerate() {
            if let Some(name) = names.get(&id).filter(|name| !kept.iter().any(|text| text == *name)) {
                piece.text = (*name).to_string();
            }
        }
    }

    fn ids(&self) -> AHashMap<String, u32> {
        (0u32..).zip(&self.pieces).map(|(id, piece)| (piece.text.clone(), id)).collect()
    }

    /// The merges of pieces that `joins` admits, each with the piece's id and both parts.
    fn merges(
        &self,
        ids: &AHashMap<String, u32>,
        joins: impl Fn(&Piece) -> bool,
    ) -> Vec<(usize, String, String)> {
        let part = |text: &str| ids.get(text).is_some_and(|id| joins(&self.pieces[*id as usize]));
        let mut merges = Vec::new();
        for (id, piece) in self.pieces.iter().enumerate().filter(|(_, piece)| joins(piece)) {
            for (at, _) in piece.text.char_indices().skip(1) {
                let (left, right) = piece.text.split_at(at);
                if part(left) && part(right) {
                    merges.push((id, left.to_string(), right.to_string()));
                }
            }
        }
        merges
    }

    /// LlamaTokenizer's: every kind of piece takes part, the first in the file is the best.
    fn llama_merges(&self, ids: &AHashMap<String, u32>) -> Vec<(String, String)> {
        let mut merges = self.merges(ids, |_| true);
        let length = |text: &str| text.chars().count();
        merges.sort_by_cached_key(|(id, left, right)| {
            (*id, length(left), length(right), ids[left.as_str()], ids[right.as_str()])
        });
        merges.into_iter().map(|(_, left, right)| (left, right)).collect()
    }

    /// The model's own: the best score first, and of equal ones the first in the file.
    fn scored_merges(&self, ids: &AHashMap<String, u32>) -> Vec<(String, String)> {
        let mut merges = self.merges(ids, |piece| piece.kind == NORMAL);
        merges.sort_by(|a, b| {
            let score = |merge: &(usize, String, String)| self.pieces[merge.0].score;
            score(b).total_cmp(&score(a)).then_with(|| a.cmp(b))
        });
        merges.into_iter().map(|(_, left, right)| (left, right)).collect()
    }

    fn special_pieces(&self, kinds: &[u64]) -> Vec<Given> {
        let special = self.pieces.iter().filter(|piece| kinds.contains(&piece.kind));
        special
            .map(|piece| {
                Given::Flagged(AddedToken::from(piece.text.as_str(), piece.kind == CONTROL).normalized(false))
            })
            .collect()
    }

    fn model(&self, user_defined: bool) -> Outcome<ModelWrapper> {
        if self.kind == UNIGRAM {
            let vocab =
                self.pieces.iter().map(|piece| (piece.text.clone(), f64::from(piece.score))).collect();
            let unknown = usize::try_from(self.unknown).ok().filter(|id| *id < self.pieces.len());
            let unigram = Unigram::from(vocab, unknown, self.byte_fallback);
            return unigram.map(ModelWrapper::Unigram).map_err(|error| Failure::corrupt(error.to_string()));
        }
        let ids = self.ids();
        let merges = self.scored_merges(&ids);
        let bpe = BPE::builder()
            .vocab_and_merges(ids, merges)
            .unk_token(self.unknown_piece.clone())
            .fuse_unk(true)
            .byte_fallback(self.byte_fallback)
            .ignore_merges(user_defined)
            .build();
        bpe.map(ModelWrapper::BPE).map_err(|error| Failure::corrupt(error.to_string()))
    }

    fn normalizer(&self, legacy: bool) -> Outcome<NormalizerWrapper> {
        let parse = |value: Value| {
            serde_json::from_value::<NormalizerWrapper>(value)
                .map_err(|error| Failure::corrupt(error.to_string()))
        };
        let replace = |pattern: &str, content: &str| {
            parse(json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": content}))
        };
        let mut steps = Vec::new();
        if !self.charsmap.is_empty() {
            let trie = self
                .charsmap
                .get(..4)
                .map_or(0, |size| u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize);
            if trie % 4 != 0 || trie > self.charsmap.len().saturating_sub(4) {
                return Err(damaged());
            }
            let charsmap = Precompiled::from(&self.charsmap).map_err(|error| {
                Failure::corrupt(format!("the SentencePiece model's normalizer: {error}"))
            })?;
            steps.push(NormalizerWrapper::Precompiled(charsmap));
        }
        if self.remove_spaces {
            steps.push(replace(r"\A +| +\z", "")?);
            steps.push(replace(" {2,}", " ")?);
        }
        if self.escape_spaces {
            steps.push(replace(" ", "▁")?);
        }
        if self.dummy_prefix && legacy {
            steps.push(replace(r"\A▁", "▁▁")?);
        }
        Ok(NormalizerWrapper::Sequence(tokenizers::normalizers::Sequence::new(steps)))
    }

    /// The library's form of what the model itself encodes; the decoder as JSON too.
    fn inner(&self, legacy: bool) -> Outcome<(Inner, Value)> {
        let mut whole: Vec<&str> = self
            .pieces
            .iter()
            .filter(|piece| piece.kind == USER_DEFINED)
            .map(|piece| piece.text.as_str())
            .collect();
        whole.sort_by_key(|text| std::cmp::Reverse(text.chars().count()));
        let mut inner = Inner::new(self.model(!whole.is_empty())?);
        inner.with_normalizer(Some(self.normalizer(legacy)?));
        let mut steps = Vec::new();
        if self.dummy_prefix {
            let scheme = if legacy { "always" } else { "first" };
            steps.push(
                json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false}),
            );
        }
        if !whole.is_empty() {
            let expression = whole.iter().map(|text| regex::escape(text)).collect::<Vec<_>>().join("|");
            steps.push(json!({"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false}));
        }
        if !steps.is_empty() {
            inner.with_pre_tokenizer(Some(PreTok::from_json(
                &json!({"type": "Sequence", "pretokenizers": steps}),
            )?));
        }
        let mut decoders = vec![json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "})];
        if self.byte_fallback {
            decoders.push(json!({"type": "ByteFallback"}));
        }
        if self.dummy_prefix || self.byte_fallback {
            decoders.push(json!({"type": "Fuse"}));
        }
        if self.dummy_prefix {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        let decoder = json!({"type": "Sequence", "decoders": decoders});
        let wrapped = serde_json::from_value::<DecoderWrapper>(decoder.clone());
        inner.with_decoder(Some(wrapped.map_err(|error| Failure::corrupt(error.to_string()))?));
        Ok((inner, decoder))
    }
}

/// From the bytes of tokenizer.model.
pub fn from_model(bytes: &[u8], mut folder: Folder) -> Outcome<Tokenizer> {
    let mut model = Model::parse(bytes)?;
    let given_extra = !folder.extra.is_empty();
    let (mut inner, decoder) = if folder.class == Class::Llama && model.kind == BPE_MODEL {
        let ids = model.ids();
        let merges = model.llama_merges(&ids);
        let bpe = BPE::builder().vocab_and_merges(ids, merges).build();
        let bpe = bpe.map_err(|error| Failure::corrupt(error.to_string()))?;
        if !given_extra {
            folder.extra = model.special_pieces(&[CONTROL, USER_DEFINED]);
        }
        folder.reshaped(Class::Llama, &Inner::new(ModelWrapper::BPE(bpe)))?.ok_or_else(damaged)?
    } else {
        folder.class = Class::AsWritten;
        if model.kind == BPE_MODEL {
            model.rename(&folder);
        }
        if !given_extra {
            folder.extra = model.special_pieces(&[CONTROL]);
        }
        let names = [
            ("bos_token", model.bos, &model.bos_piece),
            ("eos_token", model.eos, &model.eos_piece),
            ("unk_token", model.unknown, &model.unknown_piece),
        ];
        for (name, id, piece) in names {
            if id >= 0 && !folder.named.iter().any(|(key, _)| key == name) {
                folder.named.push((name.to_string(), Some(Given::Plain(piece.clone()))));
            }
        }
        if model.dummy_prefix {
            for (_, token) in &mut folder.added {
                token.normalized = false; // each chunk between them gets a prefix of its own
            }
        }
        model.inner(folder.legacy.unwrap_or(true))?
    };
    folder.add_tokens(&mut inner, &BTreeMap::new(), folder.class)?;
    let around = |name: &str, add: bool| -> Vec<u32> {
        let token = folder.token_named(name, folder.class).filter(|_| add);
        token.and_then(|given| inner.token_to_id(given.content())).into_iter().collect()
    };
    let (prefix, suffix) = (around("bos_token", folder.add_bos), around("eos_token", folder.add_eos));
    let mut tokenizer = Tokenizer::new(inner, &decoder)?;
    (tokenizer.prefix, tokenizer.suffix) = (prefix, suffix);
    Ok(tokenizer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Status;

    #[test]
    fn files_that_are_no_model() {
        let short = [0x0A, 0x05, 0x0A, 0x01, b'a'];
        for bytes in [&b""[..], b"\xff", b"hello", &short, &[0x08; 20]] {
            assert_eq!(Model::parse(bytes).err().unwrap().status, Status::Corrupt, "{bytes:?}");
        }
        assert_eq!(Model::parse(b"{\"a\": 1}").err().unwrap().status, Status::Unsupported);
        let characters = [0x0A, 0x03, 0x0A, 0x01, b'a', 0x12, 0x02, 0x18, 0x04];
        assert_eq!(Model::parse(&characters).err().unwrap().status, Status::Unsupported);
    }

    #[test]
    fn defaults_are_the_formats_own() {
        let model = Model::parse(&[0x0A, 0x03, 0x0A, 0x01, b'a']).unwrap();
        assert_eq!((model.kind, model.unknown, model.bos, model.eos), (UNIGRAM, 0, 1, 2));
        assert!(model.dummy_prefix && model.remove_spaces && model.escape_spaces && !model.byte_fallback);
        assert_eq!((model.pieces[0].text.as_str(), model.pieces[0].kind), ("a", NORMAL));
        // bos_id: -1, as ten bytes
        let without = [
            0x0A, 0x03, 0x0A, 0x01, b'a', 0x12, 0x0C, 0xC8, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
            0xFF, 0xFF, 0x01,
        ];
        assert_eq!(Model::parse(&without).unwrap().bos, -1);
    }
}
