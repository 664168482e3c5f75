//! Tokenizers from the vocabulary that a GGUF file carries: a Hugging Face tokenizer is built from byte-level
//! ones, and scored pieces are joined by their scores.

use crate::decode::alphabet_char;
use crate::failure::{Failure, Outcome};
use crate::scored::{Piece, Role, Scored};
use crate::split::PreTok;
use crate::tokenizer::{Inner, Tokenizer};
use ahash::AHashMap;
use serde_json::{json, Value};
use tokenizers::models::bpe::BPE;
use tokenizers::{AddedToken, ModelWrapper, NormalizerWrapper};

/// `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// What the metadata says, borrowed for the time of the call.
pub struct Source<'a> {
    /// Spelled as stored: GPT-2's byte alphabet, or SentencePiece's with U+2581 for a space.
    pub tokens: Vec<&'a str>,
    /// Empty, or one per token.
    pub types: &'a [i32],
    /// Empty, or one per token. Only a SentencePiece vocabulary needs them.
    pub scores: &'a [f32],
    /// "left right", best first. Only a byte-level vocabulary needs them.
    pub merges: Vec<&'a str>,
    /// `tokenizer.ggml.pre`, for a byte-level vocabulary.
    pub pre: &'a str,
    pub unknown: Option<u32>,
    pub add_space_prefix: bool,
}

/// Qwen 2's expression; also a second shape for the tests of split.rs.
pub const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How a named pre-tokenizer splits text: a JSON list of tokenizer.json steps, before the bytes.
struct Scheme {
    steps: Value,
    nfc: bool,
    /// A word that is a token needs no merges to become it.
    ignore_merges: bool,
}

/// The pre-tokenizers whose exact form we know, by the names that GGUF files give them. None: unknown.
fn scheme(name: &str) -> Option<Scheme> {
    let split = |expressions: &[&str]| {
        let step = |e: &&str| json!({"type": "Split", "pattern": {"Regex": e}, "behavior": "Isolated", "invert": false});
        Value::Array(expressions.iter().map(step).collect())
    };
    let plain = |expressions: &[&str]| Scheme { steps: split(expressions), nfc: false, ignore_merges: false };
    let words = crate::split::GPT2;
    let llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let qwen35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let tekken = concat!(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    );
    let gpt4o = concat!(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    );
    let deepseek3 = concat!(
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+",
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    );
    Some(match name {
        "gpt-2" | "phi-2" | "olmo" => plain(&[words]),
        "default" => plain(&[r"[\p{P}\$\+<=>\^~\|]+", words, r"\p{N}+", "[0-9][0-9][0-9]"]),
        "smollm" | "starcoder" | "refact" => plain(&[r"\p{N}", words]),
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" => Scheme { ignore_merges: true, ..plain(&[llama3]) },
        "dbrx" | "smaug-bpe" => plain(&[llama3]),
        "qwen2" => Scheme { nfc: true, ..plain(&[QWEN2]) },
        "deepseek-r1-qwen" | "stablelm2" => plain(&[QWEN2]),
        "qwen35" => Scheme { nfc: true, ..plain(&[qwen35]) },
        "tekken" => Scheme { ignore_merges: true, ..plain(&[tekken]) },
        "gpt-4o" | "llama4" => plain(&[gpt4o]),
        "deepseek-coder" => plain(&[
            "[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            "[\u{4e00}-\u{9fa5}\u{0800}-\u{4e00}\u{ac00}-\u{d7ff}]+",
            r"\p{N}",
        ]),
        "deepseek-v3" => {
            plain(&[r"\p{N}{1,3}", "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+", deepseek3])
        }
        _ => return None,
    })
}

/// Byte-level BPE (`tokenizer.ggml.model` = gpt2).
pub fn byte_level(source: &Source) -> Outcome<Tokenizer> {
    let Some(scheme) = scheme(source.pre) else {
        return Err(Failure::unsupported(format!(
            "tokenizer.ggml.pre names the pre-tokenizer '{}', which this build does not know",
            source.pre
        )));
    };
    let in_alphabet = |token: &str| token.chars().all(|c| (c as u32) < 0x144 && c > ' ');
    let mut vocab = AHashMap::with_capacity(source.tokens.len());
    for (id, token) in source.tokens.iter().enumerate() {
        // An ordinary token that some converter left as plain text is respelled, so that merges reach it.
        let spelled =
            if source.type_of(id) == CONTROL || source.type_of(id) == USER_DEFINED || in_alphabet(token) {
                (*token).to_string()
            } else {
                token.bytes().map(alphabet_char).collect()
            };
        insert(&mut vocab, spelled, id)?;
    }
    let merges = source.merges.iter().map(|merge| split_merge(merge)).collect::<Outcome<Vec<_>>>()?;
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(scheme.ignore_merges)
        .build()
        .map_err(|error| Failure::corrupt(format!("tokenizer.ggml.merges: {error}")))?;

    let mut steps = scheme.steps.as_array().cloned().unwrap_or_default();
    steps.push(byte_level_json());
    let pre = PreTok::from_json(&json!({"type": "Sequence", "pretokenizers": steps}))?;
    let normalizer = if scheme.nfc { json!({"type": "NFC"}) } else { Value::Null };
    assemble(bpe, &normalizer, Some(pre), &byte_level_json(), source)
}

/// Scored pieces with byte fallback (`tokenizer.ggml.model` = llama).
pub fn sentence_piece(source: &Source) -> Outcome<Tokenizer> {
    let count = source.tokens.len();
    if source.scores.len() != count {
        return Err(Failure::corrupt("tokenizer.ggml.scores has not one score per token"));
    }
    let mut vocab = AHashMap::with_capacity(count);
    let mut pieces = Vec::with_capacity(count);
    for (id, &token) in source.tokens.iter().enumerate() {
        // A padded vocabulary has empty ones, and more than one.
        if !token.is_empty() {
            insert(&mut vocab, token.to_string(), id)?;
        }
        let role = match source.type_of(id) {
            CONTROL | UNKNOWN => Role::Control,
            USER_DEFINED => Role::UserDefined,
            BYTE => Role::Byte,
            _ => Role::Ordinary,
        };
        pieces.push(Piece { spelling: token, score: source.scores[id], role });
    }
    let scored = Scored::new(&pieces, source.unknown_id(), source.add_space_prefix)?;
    // The library decodes; what it would encode is not asked for.
    let bpe = BPE::builder().vocab_and_merges(vocab, Vec::new()).byte_fallback(true).build();
    let bpe = bpe.map_err(|error| Failure::corrupt(format!("tokenizer.ggml.tokens: {error}")))?;
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if source.add_space_prefix {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let decoder = json!({"type": "Sequence", "decoders": decoders});
    Ok(assemble(bpe, &Value::Null, None, &decoder, source)?.encoding_with(scored))
}

impl Source<'_> {
    fn type_of(&self, id: usize) -> i32 {
        self.types.get(id).copied().unwrap_or(NORMAL)
    }

    fn unknown_id(&self) -> Option<u32> {
        let typed = || self.types.iter().position(|&t| t == UNKNOWN).and_then(|id| u32::try_from(id).ok());
        self.unknown.or_else(typed)
    }

    fn added(&self) -> Vec<AddedToken> {
        let added = |(id, token): (usize, &&str)| match self.type_of(id) {
            CONTROL | UNKNOWN => Some(AddedToken::from(*token, true).normalized(false)),
            USER_DEFINED => Some(AddedToken::from(*token, false).normalized(false)),
            _ => None,
        };
        self.tokens.iter().enumerate().filter_map(added).filter(|t| !t.content.is_empty()).collect()
    }
}

fn assemble(
    bpe: BPE,
    normalizer: &Value,
    pre: Option<PreTok>,
    decoder: &Value,
    source: &Source,
) -> Outcome<Tokenizer> {
    let parse = |error: serde_json::Error| Failure::corrupt(error.to_string());
    let mut inner = Inner::new(ModelWrapper::BPE(bpe));
    let normalizer: Option<NormalizerWrapper> = serde_json::from_value(normalizer.clone()).map_err(parse)?;
    inner.with_normalizer(normalizer);
    inner.with_pre_tokenizer(pre);
    inner.with_decoder(Some(
        serde_json::from_value::<tokenizers::DecoderWrapper>(decoder.clone()).map_err(parse)?,
    ));
    inner.add_tokens(&source.added());
    Tokenizer::new(inner, decoder)
}

fn insert(vocab: &mut AHashMap<String, u32>, token: String, id: usize) -> Outcome<()> {
    let number = u32::try_from(id).map_err(|_| Failure::corrupt("tokenizer.ggml.tokens is too long"))?;
    match vocab.insert(token, number) {
        None => Ok(()),
        Some(first) => {
            Err(Failure::corrupt(format!("tokenizer.ggml.tokens lists one token twice, as {first} and {id}")))
        }
    }
}

fn split_merge(merge: &str) -> Outcome<(String, String)> {
    match merge.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() => {
            Ok((left.to_string(), right.to_string()))
        }
        _ => Err(Failure::corrupt(format!("tokenizer.ggml.merges: '{merge}' is not two tokens"))),
    }
}

fn byte_level_json() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})
}
