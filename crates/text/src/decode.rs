//! What one token adds to the text, so that a stream can be decoded in linear time.
//!
//! The library decodes whole sequences. Every decoder that language models ship maps tokens to bytes one
//! by one, but for what it does at the start of the text; `Pieces` is that map, read off the decoder of
//! tokenizer.json. Other decoders are refused when the tokenizer is loaded.

use crate::failure::{Failure, Outcome};
use serde_json::Value;

/// One decoding step on a token's string.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Replace {
        from: String,
        to: String,
    },
    /// `<0x41>` is the byte 0x41.
    ByteFallback,
    /// Characters of GPT-2's byte alphabet are bytes; a token with any other character is itself.
    ByteLevel,
    /// This character is a space; the text's first token loses it if `trim_first`.
    Metaspace {
        replacement: char,
        trim_first: bool,
    },
}

/// How the whole text differs from its tokens' bytes joined.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Start {
    /// Up to `strip_count` leading characters of this kind are dropped.
    pub strip: char,
    pub strip_count: u32,
    /// A tokenizer without a decoder puts a space between tokens.
    pub join_with_space: bool,
}

#[derive(Clone, Debug)]
pub struct Pieces {
    steps: Vec<Step>,
    pub start: Start,
    bytes_of: Vec<Option<u8>>, // by code point, the inverse of GPT-2's byte alphabet
}

impl Pieces {
    /// From the JSON form of a decoder (null: none).
    pub fn from_json(decoder: &Value) -> Outcome<Self> {
        let mut pieces = Self { steps: Vec::new(), start: Start::default(), bytes_of: byte_alphabet() };
        if decoder.is_null() {
            pieces.start.join_with_space = true;
            return Ok(pieces);
        }
        let mut fused = false;
        pieces.add(decoder, &mut fused)?;
        Ok(pieces)
    }

    fn add(&mut self, decoder: &Value, fused: &mut bool) -> Outcome<()> {
        let kind = decoder["type"].as_str().unwrap_or_default();
        let unsupported = |why: &str| {
            Err(Failure::unsupported(format!("the decoder {kind} ({why}) cannot be streamed token by token")))
        };
        if kind == "Sequence" {
            let parts = decoder["decoders"].as_array().map_or(&[][..], Vec::as_slice);
            return parts.iter().try_for_each(|part| self.add(part, fused));
        }
        if kind == "Fuse" {
            *fused = true;
            return Ok(());
        }
        if kind == "Strip" {
            let content = decoder["content"].as_str().and_then(|text| text.chars().next());
            return match (content, decoder["start"].as_u64(), decoder["stop"].as_u64()) {
                (Some(strip), Some(count), Some(0)) if *fused || count == 0 => {
                    self.start.strip = strip;
                    self.start.strip_count = u32::try_from(count).unwrap_or(u32::MAX);
                    Ok(())
                }
                _ => unsupported("it strips more than the start of the text"),
            };
        }
        if *fused {
            return unsupported("it follows Fuse");
        }
        match kind {
            "Replace" => match (&decoder["pattern"]["String"], &decoder["content"]) {
                (Value::String(from), Value::String(to)) => {
                    self.steps.push(Step::Replace { from: from.clone(), to: to.clone() });
                }
                _ => return unsupported("its pattern is a regular expression"),
            },
            "ByteFallback" => self.steps.push(Step::ByteFallback),
            "ByteLevel" => self.steps.push(Step::ByteLevel),
            "Metaspace" => {
                let replacement = decoder["replacement"].as_str().and_then(|s| s.chars().next());
                self.steps.push(Step::Metaspace {
                    replacement: replacement.unwrap_or('\u{2581}'),
                    trim_first: decoder["prepend_scheme"].as_str() != Some("never"),
                });
            }
            _ => return unsupported("not one that language models use"),
        }
        // A step that makes bytes ends the string: nothing that works on characters may follow.
        let made_bytes = |step: &Step| matches!(step, Step::ByteFallback | Step::ByteLevel);
        match self.steps.iter().position(made_bytes) {
            Some(at) if at + 1 != self.steps.len() => unsupported("it follows a byte decoder"),
            _ => Ok(()),
        }
    }

    /// The bytes of a token; `first`: it is the first of the text that was not skipped.
    pub fn bytes(&self, token: &str, first: bool) -> Vec<u8> {
        let mut text = token.to_string();
        for step in &self.steps {
            match step {
                Step::Replace { from, to } => text = text.replace(from, to),
                Step::Metaspace { replacement, trim_first } => {
                    text = if first && *trim_first {
                        text.replace(*replacement, "")
                    } else {
                        text.replace(*replacement, " ")
                    };
                }
                Step::ByteFallback => {
                    if let Some(byte) = fallback_byte(&text) {
                        return vec![byte];
                    }
                }
                Step::ByteLevel => {
                    let byte = |c: char| self.bytes_of.get(c as usize).copied().flatten();
                    if let Some(bytes) = text.chars().map(byte).collect::<Option<Vec<u8>>>() {
                        return bytes;
                    }
                }
            }
        }
        text.into_bytes()
    }
}

fn fallback_byte(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (hex.len() == 2).then(|| u8::from_str_radix(hex, 16).ok()).flatten()
}

/// GPT-2's alphabet by byte: printable Latin-1 bytes stand for themselves, the others for the characters
/// from U+0100 on, in order.
pub fn alphabet_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let others_before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + others_before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn byte_alphabet() -> Vec<Option<u8>> {
    let mut bytes_of = vec![None; 0x200];
    for byte in 0..=255u8 {
        bytes_of[alphabet_char(byte) as usize] = Some(byte);
    }
    bytes_of
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Status;
    use serde_json::json;

    fn sentence_piece() -> Value {
        json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})
    }

    #[test]
    fn sentence_piece_tokens() {
        let pieces = Pieces::from_json(&sentence_piece()).unwrap();
        assert_eq!(pieces.bytes("▁Paris", true), b" Paris");
        assert_eq!(pieces.bytes("<0xE2>", false), [0xE2]);
        assert_eq!(pieces.bytes("<0xE>", false), b"<0xE>");
        assert_eq!((pieces.start.strip, pieces.start.strip_count), (' ', 1));
    }

    #[test]
    fn byte_level_tokens() {
        let pieces = Pieces::from_json(&json!({"type": "ByteLevel"})).unwrap();
        assert_eq!(pieces.bytes("Ġhi", false), b" hi");
        assert_eq!(pieces.bytes("ðŁ", false), [0xF0, 0x9F]);
        assert_eq!(pieces.bytes("<｜end｜>", false), "<｜end｜>".as_bytes());
    }

    #[test]
    fn metaspace_and_none() {
        let json = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"});
        let pieces = Pieces::from_json(&json).unwrap();
        assert_eq!(pieces.bytes("▁a▁b", true), b"ab");
        assert_eq!(pieces.bytes("▁a▁b", false), b" a b");
        assert!(Pieces::from_json(&Value::Null).unwrap().start.join_with_space);
    }

    #[test]
    fn decoders_that_cannot_be_streamed_are_refused() {
        let regex = json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""});
        let unfused = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
        let tail = json!({"type": "Sequence", "decoders": [
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 1}]});
        let after = json!({"type": "Sequence", "decoders": [
            {"type": "ByteFallback"}, {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}]});
        for decoder in [json!({"type": "WordPiece"}), json!({"type": "CTC"}), regex, unfused, tail, after] {
            let failure = Pieces::from_json(&decoder).unwrap_err();
            assert_eq!(failure.status, Status::Unsupported, "{decoder}");
        }
    }
}
