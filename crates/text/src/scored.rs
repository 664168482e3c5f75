//! Encoding with a vocabulary of scored pieces, as GGUF's "llama" files carry it: the pair of neighbours whose
//! piece scores best is joined first, the leftmost of equals. A tokenizer.json ranks pairs instead of pieces
//! and so cannot say what happens among equal scores; the ids of a GGUF file are these.

use crate::failure::{Failure, Outcome};
use ahash::AHashMap;
use aho_corasick::{AhoCorasick, MatchKind};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

/// What stands for a space inside pieces.
const SPACE: &str = "\u{2581}";

/// What a piece is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Text becomes it by joining.
    Ordinary,
    /// `<0x41>`: a byte of a character that is no piece.
    Byte,
    /// Matched whole before anything is joined.
    UserDefined,
    /// The same, unless the caller wants it read as plain text.
    Control,
}

pub struct Piece<'a> {
    pub spelling: &'a str,
    pub score: f32,
    pub role: Role,
}

pub struct Scored {
    ids: AHashMap<String, u32>,
    scores: Vec<f32>,
    roles: Vec<Role>,
    bytes: Vec<Option<u32>>,
    unknown: Option<u32>,
    space_prefix: bool,
    whole: Whole,
    /// `whole` without the control pieces.
    literal: Whole,
}

impl Scored {
    /// The index of a piece is its id. Empty spellings never match.
    pub fn new(pieces: &[Piece], unknown: Option<u32>, space_prefix: bool) -> Outcome<Self> {
        let mut ids = AHashMap::with_capacity(pieces.len());
        let (mut whole, mut literal) = (Vec::new(), Vec::new());
        for (id, piece) in (0u32..).zip(pieces).filter(|(_, piece)| !piece.spelling.is_empty()) {
            ids.insert(piece.spelling.to_string(), id);
            if matches!(piece.role, Role::UserDefined | Role::Control) {
                whole.push((piece.spelling, id));
            }
            if piece.role == Role::UserDefined {
                literal.push((piece.spelling, id));
            }
        }
        let bytes = (0..=255u8).map(|byte| ids.get(&format!("<0x{byte:02X}>")).copied()).collect();
        Ok(Self {
            ids,
            scores: pieces.iter().map(|piece| piece.score + 0.0).collect(), // -0 equals 0
            roles: pieces.iter().map(|piece| piece.role).collect(),
            bytes,
            unknown,
            space_prefix,
            whole: Whole::new(whole)?,
            literal: Whole::new(literal)?,
        })
    }

    /// One more than the largest id.
    pub fn size(&self) -> u32 {
        u32::try_from(self.scores.len()).unwrap_or(u32::MAX)
    }

    /// `parse_special`: a control piece that the text spells is that piece.
    pub fn encode(&self, text: &str, parse_special: bool) -> Outcome<Vec<u32>> {
        let whole = if parse_special { &self.whole } else { &self.literal };
        let mut out = Vec::with_capacity(text.len() / 3 + 1);
        let mut after_piece = true; // a space goes before the text, and before what follows a whole piece
        for part in whole.split(text) {
            match part {
                Part::Piece(id) => out.push(id),
                Part::Text(text) => {
                    let prefix = if self.space_prefix && after_piece { SPACE } else { "" };
                    let spelled = format!("{prefix}{}", text.replace(' ', SPACE));
                    self.join(&spelled, parse_special, &mut out)?;
                }
            }
            after_piece = matches!(part, Part::Piece(_));
        }
        Ok(out)
    }

    fn find(&self, text: &str, parse_special: bool) -> Option<u32> {
        let id = *self.ids.get(text)?;
        let spelled = matches!(self.roles[id as usize], Role::Ordinary | Role::UserDefined);
        (parse_special || spelled).then_some(id)
    }

    fn join(&self, text: &str, parse_special: bool, out: &mut Vec<u32>) -> Outcome<()> {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(i, (at, c))| Symbol {
                at,
                size: c.len_utf8(),
                previous: i.checked_sub(1),
                next: (at + c.len_utf8() < text.len()).then_some(i + 1),
            })
            .collect();
        let mut queue = BinaryHeap::new();
        let offer = |queue: &mut BinaryHeap<Pair>, symbols: &[Symbol], left: usize, right: usize| {
            let size = symbols[left].size + symbols[right].size;
            let at = symbols[left].at;
            if let Some(id) = self.find(&text[at..at + size], parse_special) {
                queue.push(Pair { score: self.scores[id as usize], left: Reverse(left), right, size });
            }
        };
        for right in 1..symbols.len() {
            offer(&mut queue, &symbols, right - 1, right);
        }
        while let Some(Pair { left: Reverse(left), right, size, .. }) = queue.pop() {
            // One of the two has been joined with another since.
            if symbols[left].size == 0
                || symbols[right].size == 0
                || symbols[left].size + symbols[right].size != size
            {
                continue;
            }
            symbols[left].size = size;
            symbols[right].size = 0;
            let next = symbols[right].next;
            symbols[left].next = next;
            if let Some(previous) = symbols[left].previous {
                offer(&mut queue, &symbols, previous, left);
            }
            if let Some(next) = next {
                symbols[next].previous = Some(left);
                offer(&mut queue, &symbols, left, next);
            }
        }
        let mut unknown_before = false;
        for symbol in symbols.iter().filter(|symbol| symbol.size > 0) {
            unknown_before =
                self.emit(&text[symbol.at..][..symbol.size], parse_special, unknown_before, out)?;
        }
        Ok(())
    }

    /// A joined piece, or a character that is none: its bytes, or one unknown piece for a run of such
    /// characters. Whether that last one was written.
    fn emit(
        &self,
        text: &str,
        parse_special: bool,
        unknown_before: bool,
        out: &mut Vec<u32>,
    ) -> Outcome<bool> {
        if let Some(id) = self.find(text, parse_special) {
            out.push(id);
            return Ok(false);
        }
        let bytes: Option<Vec<u32>> = text.bytes().map(|byte| self.bytes[usize::from(byte)]).collect();
        match (bytes, self.unknown) {
            (Some(bytes), _) => {
                out.extend(bytes);
                Ok(false)
            }
            (None, Some(unknown)) => {
                if !unknown_before {
                    out.push(unknown);
                }
                Ok(true)
            }
            (None, None) => Err(Failure::bad_request(format!(
                "the vocabulary cannot spell '{}': it has neither a piece for each byte nor one for unknown text",
                text.escape_debug()
            ))),
        }
    }
}

struct Symbol {
    at: usize,
    size: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

struct Pair {
    score: f32,
    left: Reverse<usize>,
    right: usize,
    size: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| self.left.cmp(&other.left))
    }
}
impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Pair {}

enum Part<'t> {
    Text(&'t str),
    Piece(u32),
}

/// Pieces that are matched whole in the text as it is given: of all that occur the longest first, wherever it
/// stands, and not the leftmost.
struct Whole {
    any: AhoCorasick,
    /// By length in bytes, with the ids of the patterns.
    by_length: BTreeMap<Reverse<usize>, (AhoCorasick, Vec<u32>)>,
}

impl Whole {
    fn new(pieces: Vec<(&str, u32)>) -> Outcome<Self> {
        let automaton = |spellings: Vec<&str>| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .build(spellings)
                .map_err(|error| Failure::unsupported(format!("the vocabulary's special tokens: {error}")))
        };
        let mut groups: BTreeMap<Reverse<usize>, (Vec<&str>, Vec<u32>)> = BTreeMap::new();
        for (spelling, id) in &pieces {
            let group = groups.entry(Reverse(spelling.len())).or_default();
            group.0.push(spelling);
            group.1.push(*id);
        }
        let any = automaton(pieces.into_iter().map(|(spelling, _)| spelling).collect())?;
        let by_length = groups
            .into_iter()
            .map(|(length, (spellings, ids))| Ok((length, (automaton(spellings)?, ids))))
            .collect::<Outcome<_>>()?;
        Ok(Self { any, by_length })
    }

    fn split<'t>(&self, text: &'t str) -> Vec<Part<'t>> {
        let mut parts = if text.is_empty() { Vec::new() } else { vec![Part::Text(text)] };
        if !self.any.is_match(text) {
            return parts;
        }
        for (automaton, ids) in self.by_length.values() {
            if !automaton.is_match(text) {
                continue;
            }
            let mut finer = Vec::with_capacity(parts.len());
            for part in parts {
                let Part::Text(text) = part else {
                    finer.push(part);
                    continue;
                };
                let mut done = 0;
                for found in automaton.find_iter(text) {
                    if done < found.start() {
                        finer.push(Part::Text(&text[done..found.start()]));
                    }
                    finer.push(Part::Piece(ids[found.pattern().as_usize()]));
                    done = found.end();
                }
                if done < text.len() {
                    finer.push(Part::Text(&text[done..]));
                }
            }
            parts = finer;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Role::{Byte, Control, Ordinary, UserDefined};

    fn scored(pieces: &[(&str, f32, Role)], unknown: Option<u32>, space_prefix: bool) -> Scored {
        let pieces: Vec<Piece> =
            pieces.iter().map(|&(spelling, score, role)| Piece { spelling, score, role }).collect();
        Scored::new(&pieces, unknown, space_prefix).unwrap()
    }

    #[test]
    fn equal_scores_join_from_the_left_and_better_ones_first() {
        let equal = scored(
            &[("a", 0.0, Ordinary), ("b", 0.0, Ordinary), ("ab", -1.0, Ordinary), ("ba", -1.0, Ordinary)],
            None,
            false,
        );
        assert_eq!(equal.encode("bab", true).unwrap(), [3, 1]);
        assert_eq!(equal.encode("aba", true).unwrap(), [2, 0]);
        let better = scored(
            &[("a", 0.0, Ordinary), ("b", 0.0, Ordinary), ("ab", -1.0, Ordinary), ("ba", -0.5, Ordinary)],
            None,
            false,
        );
        assert_eq!(better.encode("aba", true).unwrap(), [0, 3]);
    }

    #[test]
    fn whole_pieces_match_the_text_as_given_the_longest_first() {
        let runs = scored(
            &[
                ("\u{2581}", 0.0, Ordinary),
                ("  ", 0.0, UserDefined),
                ("    ", 0.0, UserDefined),
                ("a", 0.0, Ordinary),
            ],
            None,
            false,
        );
        assert_eq!(runs.encode("a       a", true).unwrap(), [3, 2, 1, 0, 3]);
        assert_eq!(runs.encode("\u{2581}\u{2581}", true).unwrap(), [0, 0]); // no run of spaces
        let crossing = scored(
            &[
                ("a", 0.0, Ordinary),
                ("d", 0.0, Ordinary),
                ("ab", 0.0, UserDefined),
                ("bcd", 0.0, UserDefined),
            ],
            None,
            false,
        );
        assert_eq!(crossing.encode("abcd", true).unwrap(), [0, 3]);
    }

    #[test]
    fn the_space_before_a_text_and_after_whole_pieces() {
        let pieces =
            [("\u{2581}", 0.0, Ordinary), ("a", 0.0, Ordinary), ("<s>", 0.0, Control), ("<", 0.0, Ordinary)];
        let prefixed = scored(&pieces, Some(2), true);
        assert_eq!(prefixed.encode("a<s>a a", true).unwrap(), [0, 1, 2, 0, 1, 0, 1]);
        assert_eq!(prefixed.encode("<s>", true).unwrap(), [2]);
        assert!(prefixed.encode("", true).unwrap().is_empty());
    }

    #[test]
    fn plain_text_never_becomes_a_control_or_byte_piece() {
        let pieces = [
            ("<", 0.0, Ordinary),
            ("s", 0.0, Ordinary),
            (">", 0.0, Ordinary),
            ("<s", 0.0, Ordinary),
            ("<s>", 0.0, Control),
            ("<0x0A>", 0.0, Byte),
        ];
        let scored = scored(&pieces, Some(4), false);
        assert_eq!(scored.encode("<s>", true).unwrap(), [4]);
        assert_eq!(scored.encode("<s>", false).unwrap(), [3, 2]);
        assert_eq!(scored.encode("\n", false).unwrap(), [5]);
    }

    #[test]
    fn characters_without_a_piece() {
        let bytes =
            scored(&[("<0xC3>", 0.0, Byte), ("<0xA9>", 0.0, Byte), ("a", 0.0, Ordinary)], None, false);
        assert_eq!(bytes.encode("aé", true).unwrap(), [2, 0, 1]);
        let failure = bytes.encode("ü", true).unwrap_err();
        assert!(failure.message.contains("'ü'"), "{failure}");
        let unknown = scored(&[("<unk>", 0.0, Control), ("a", 0.0, Ordinary)], Some(0), false);
        assert_eq!(unknown.encode("aüüa", true).unwrap(), [1, 0, 1]);
    }
}
