//! Pre-tokenizers that split by a regular expression, with errors that are reported.
//!
//! The library's own regex splitter ends the search silently when an expression exceeds its
//! backtracking stack (a run of a million spaces does), and the rest of the text becomes one piece with
//! other ids. Here such an expression is either run without backtracking, or its failure is an error.

use crate::failure::{Failure, Outcome};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokenizers::pattern::Pattern;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::tokenizer::{PreTokenizedString, PreTokenizer, Result, SplitDelimiterBehavior};
use tokenizers::Offsets;

/// The end of nearly every published expression: all white space but the last character before a word.
const TRAILING_SPACE: &str = r"|\s+(?!\S)|\s+";

/// GPT-2's expression, which the ByteLevel pre-tokenizer applies when told to split.
pub const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// A compiled expression.
#[derive(Clone, Debug)]
pub enum Splitter {
    /// The expression without its `TRAILING_SPACE`, and with `(?P<space>\s+)` in its place: a finite
    /// automaton, linear in the text.
    Linear(regex::Regex),
    Backtracking(fancy_regex::Regex),
}

impl Splitter {
    pub fn new(expression: &str) -> Outcome<Self> {
        if let Some(head) = expression.strip_suffix(TRAILING_SPACE) {
            if let Ok(linear) = regex::Regex::new(&format!(r"{head}|(?P<space>\s+)")) {
                return Ok(Self::Linear(linear));
            }
        }
        if let Ok(plain) = regex::Regex::new(expression) {
            return Ok(Self::Linear(plain));
        }
        match fancy_regex::Regex::new(expression) {
            Ok(regex) => Ok(Self::Backtracking(regex)),
            Err(error) => Err(Failure::corrupt(format!(
                "the pre-tokenizer's regular expression does not compile: {error}"
            ))),
        }
    }

    /// Ends of the match that starts at or after `at`.
    fn find(&self, text: &str, at: usize) -> Result<Option<(usize, usize)>> {
        match self {
            Self::Backtracking(regex) => Ok(regex.find_from_pos(text, at)?.map(|m| (m.start(), m.end()))),
            Self::Linear(regex) => Ok(regex.find_at(text, at).map(|found| {
                let (start, end) = (found.start(), found.end());
                if end < text.len()
                    && found.as_str().chars().all(char::is_whitespace)
                    && regex.captures_at(text, start).is_some_and(|captures| captures.name("space").is_some())
                {
                    // `\s+(?!\S)`: what follows is not white space, so the run gives up its last
                    // character; `\s+`: unless that is all there is.
                    let last = found.as_str().chars().next_back().map_or(0, char::len_utf8);
                    if last < end - start {
                        return (start, end - last);
                    }
                }
                (start, end)
            })),
        }
    }
}

impl Pattern for &Splitter {
    fn find_matches(&self, inside: &str) -> Result<Vec<(Offsets, bool)>> {
        if inside.is_empty() {
            return Ok(vec![((0, 0), false)]);
        }
        let mut pieces = Vec::with_capacity(inside.len() / 4 + 1);
        let (mut done, mut at) = (0, 0);
        while let Some((start, end)) = self.find(inside, at)? {
            if start == end {
                // An empty match splits here; the search goes on one character later.
                let Some(next) = inside[end..].chars().next() else { break };
                at = end + next.len_utf8();
            } else {
                at = end;
            }
            if done < start {
                pieces.push(((done, start), false));
            }
            if start < end {
                pieces.push(((start, end), true));
            }
            done = end;
        }
        if done < inside.len() {
            pieces.push(((done, inside.len()), false));
        }
        Ok(pieces)
    }
}

/// A pre-tokenizer of tokenizer.json, its regular expressions replaced by ours.
#[derive(Clone, Debug)]
pub enum PreTok {
    Stock(PreTokenizerWrapper),
    Sequence(Vec<PreTok>),
    Split {
        by: Splitter,
        behavior: SplitDelimiterBehavior,
        invert: bool,
    },
    /// A space before text that has none, as ByteLevel and its expression want it.
    PrefixSpace,
}

impl PreTok {
    /// From the JSON form of a pre-tokenizer ("pre_tokenizer" of tokenizer.json).
    pub fn from_json(json: &Value) -> Outcome<Self> {
        let flag = |name: &str, default: bool| json[name].as_bool().unwrap_or(default);
        match json["type"].as_str() {
            Some("Sequence") => {
                let parts = json["pretokenizers"].as_array().map_or(&[][..], Vec::as_slice);
                Ok(Self::Sequence(parts.iter().map(Self::from_json).collect::<Outcome<_>>()?))
            }
            Some("Split") => {
                let expression = match (&json["pattern"]["Regex"], &json["pattern"]["String"]) {
                    (Value::String(regex), _) => regex.clone(),
                    (_, Value::String(literal)) => regex::escape(literal),
                    _ => return Err(Failure::corrupt("a Split pre-tokenizer has no pattern")),
                };
                let behavior = serde_json::from_value(json["behavior"].clone()).map_err(|error| {
                    Failure::corrupt(format!("a Split pre-tokenizer's behavior: {error}"))
                })?;
                let by = Splitter::new(&expression)?;
                Ok(Self::Split { by, behavior, invert: flag("invert", false) })
            }
            Some("ByteLevel") if flag("use_regex", true) => {
                let mut bytes = json.clone();
                bytes["use_regex"] = Value::Bool(false);
                bytes["add_prefix_space"] = Value::Bool(false);
                let mut parts = vec![Self::split(GPT2)?, Self::stock(bytes)?];
                if flag("add_prefix_space", true) {
                    parts.insert(0, Self::PrefixSpace);
                }
                Ok(Self::Sequence(parts))
            }
            _ => Self::stock(json.clone()),
        }
    }

    /// Every match a piece of its own, and what lies between matches too.
    pub fn split(expression: &str) -> Outcome<Self> {
        let by = Splitter::new(expression)?;
        Ok(Self::Split { by, behavior: SplitDelimiterBehavior::Isolated, invert: false })
    }

    fn stock(json: Value) -> Outcome<Self> {
        serde_json::from_value(json)
            .map(Self::Stock)
            .map_err(|error| Failure::corrupt(format!("unknown pre-tokenizer: {error}")))
    }
}

impl<'de> Deserialize<'de> for PreTok {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Self::from_json(&Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

struct Inverted<'a>(&'a Splitter);

impl Pattern for Inverted<'_> {
    fn find_matches(&self, inside: &str) -> Result<Vec<(Offsets, bool)>> {
        let pieces = self.0.find_matches(inside)?;
        Ok(pieces.into_iter().map(|(offsets, matched)| (offsets, !matched)).collect())
    }
}

impl PreTokenizer for PreTok {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> Result<()> {
        match self {
            Self::Stock(stock) => stock.pre_tokenize(text),
            Self::Sequence(parts) => parts.iter().try_for_each(|part| part.pre_tokenize(text)),
            Self::Split { by, behavior, invert: false } => text.split(|_, piece| piece.split(by, *behavior)),
            Self::Split { by, behavior, invert: true } => {
                text.split(|_, piece| piece.split(Inverted(by), *behavior))
            }
            Self::PrefixSpace => text.split(|_, mut piece| {
                if !piece.get().starts_with(' ') {
                    piece.prepend(" ");
                }
                Ok(vec![piece])
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(expression: &str, text: &str) -> Vec<String> {
        let splitter = Splitter::new(expression).unwrap();
        let found = (&splitter).find_matches(text).unwrap();
        found.iter().map(|((start, end), _)| text[*start..*end].to_string()).collect()
    }

    /// The rewritten form against the expression as written, on every short string of an alphabet
    /// that reaches all of its branches.
    #[test]
    fn linear_form_equals_the_expression_as_written() {
        let alphabet = [' ', '\n', '\t', 'a', '\'', 's', '1', '!', '\u{a0}', 'é'];
        for expression in [GPT2, crate::gguf::QWEN2] {
            let ours = Splitter::new(expression).unwrap();
            assert!(matches!(ours, Splitter::Linear(_)));
            let written = Splitter::Backtracking(fancy_regex::Regex::new(expression).unwrap());
            for code in 0..alphabet.len().pow(5) {
                let mut rest = code;
                let mut text = String::new();
                while rest > 0 {
                    text.push(alphabet[rest % alphabet.len()]);
                    rest /= alphabet.len();
                }
                assert_eq!(
                    (&ours).find_matches(&text).unwrap(),
                    (&written).find_matches(&text).unwrap(),
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn a_run_of_spaces_longer_than_any_backtracking_stack() {
        let text = " ".repeat(3_000_000) + "x";
        let found = pieces(GPT2, &text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], " x");
    }

    #[test]
    fn exceeding_the_backtracking_limit_is_an_error() {
        let splitter = Splitter::new(r"(?:a|aa)+(?=b)").unwrap();
        assert!((&splitter).find_matches(&"a".repeat(64)).is_err());
    }

    #[test]
    fn matches_and_gaps_cover_the_text() {
        assert_eq!(pieces(r"(?=\d)\d\d", "ab12c345"), ["ab", "12", "c", "34", "5"]);
        assert_eq!(pieces("x*", "axb"), ["a", "x", "b"]);
    }
}
