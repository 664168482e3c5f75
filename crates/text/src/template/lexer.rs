//! Tokens of a template, with Jinja2's rules for white space: trim_blocks and lstrip_blocks, as transformers
//! sets them; \r\n and \r are \n; one newline at the end is dropped.

use super::unicode::is_space;
use crate::failure::{Failure, Outcome};

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Data(String),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(String),
    Str(String),
    Int(i128),
    Float(f64),
    Operator(&'static str),
    End,
}

/// With the line that it begins on.
pub type Spanned = (Token, u32);

/// Tokens between {{ or {% and its end: bounds how deep an expression nests.
const TAG_TOKENS: usize = 4096;

const OPERATORS: [&str; 26] = [
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",", ";",
];

pub fn tokenize(name: &str, source: &str) -> Outcome<Vec<Spanned>> {
    let mut source = source.replace("\r\n", "\n").replace('\r', "\n");
    if source.ends_with('\n') {
        source.pop();
    }
    let mut lexer = Lexer { name, source: &source, at: 0, line: 1, line_starting: true, tokens: Vec::new() };
    lexer.run()?;
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    name: &'a str,
    source: &'a str,
    at: usize,
    line: u32,
    /// The last piece ended a line, as far as lstrip_blocks is concerned.
    line_starting: bool,
    tokens: Vec<Spanned>,
}

/// What the piece of template text before a tag loses.
#[derive(Clone, Copy, PartialEq)]
enum Strip {
    All,
    Line,
    Nothing,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn fail<T>(&self, what: &str) -> Outcome<T> {
        let (name, line) = (self.name, self.line);
        Err(Failure::unsupported(format!("{name}:{line}: the chat template does not parse: {what}")))
    }

    fn push(&mut self, token: Token) {
        self.tokens.push((token, self.line));
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.source[self.at..self.at + bytes];
        self.line += passed.matches('\n').count() as u32;
        self.line_starting = passed.ends_with('\n');
        self.at += bytes;
    }

    fn data(&mut self, text: &str, strip: Strip) {
        let kept = match strip {
            Strip::All => text.trim_end_matches(is_space),
            Strip::Line => {
                let start = text.rfind('\n').map_or(0, |at| at + 1);
                let blank = text[start..].chars().all(is_space);
                if blank && (start > 0 || self.line_starting) {
                    &text[..start]
                } else {
                    text
                }
            }
            Strip::Nothing => text,
        };
        if !kept.is_empty() {
            self.push(Token::Data(kept.to_string()));
        }
    }

    fn run(&mut self) -> Outcome<()> {
        loop {
            let rest = self.rest();
            let open = ["{{", "{%", "{#"].iter().filter_map(|open| rest.find(open)).min();
            let Some(at) = open else {
                self.data(rest, Strip::Nothing);
                self.push(Token::End);
                return Ok(());
            };
            let (text, tag) = rest.split_at(at);
            let (sign, width) = match tag.as_bytes().get(2) {
                Some(b'-') => (Strip::All, 3),
                Some(b'+') => (Strip::Nothing, 3),
                _ if tag.starts_with("{{") => (Strip::Nothing, 2),
                _ => (Strip::Line, 2),
            };
            self.data(text, sign);
            self.advance(at);
            if let Some(raw) = raw_begin(tag) {
                self.advance(raw);
                self.raw()?;
            } else {
                self.advance(width);
                match &tag[..2] {
                    "{{" => self.tag(Token::VariableBegin, Token::VariableEnd)?,
                    "{%" => self.tag(Token::BlockBegin, Token::BlockEnd)?,
                    _ => self.comment()?,
                }
            }
        }
    }

    fn comment(&mut self) -> Outcome<()> {
        let rest = self.rest();
        let Some(end) = rest.find("#}") else { return self.fail("a comment does not end") };
        let sign = rest[..end].chars().next_back();
        let after = end + 2;
        self.advance(after + trimmed(&rest[after..], sign));
        Ok(())
    }

    /// Up to {% endraw %}.
    fn raw(&mut self) -> Outcome<()> {
        let rest = self.rest();
        for (at, _) in rest.match_indices("{%") {
            let (inner, sign) = match rest.as_bytes().get(at + 2) {
                Some(b'-') => (at + 3, Strip::All),
                Some(b'+') => (at + 3, Strip::Nothing),
                _ => (at + 2, Strip::Line),
            };
            let Some(tail) = rest[inner..].trim_start_matches(is_space).strip_prefix("endraw") else {
                continue;
            };
            let tail = tail.trim_start_matches(is_space);
            let (tail, close) = match tail.as_bytes().first() {
                Some(b @ (b'-' | b'+')) => (&tail[1..], Some(*b as char)),
                _ => (tail, None),
            };
            let Some(tail) = tail.strip_prefix("%}") else { continue };
            self.data(&rest[..at], sign);
            self.advance(rest.len() - tail.len() + trimmed(tail, close));
            return Ok(());
        }
        self.fail("{% raw %} does not end")
    }

    fn tag(&mut self, begin: Token, end: Token) -> Outcome<()> {
        self.push(begin);
        let close = if end == Token::BlockEnd { "%}" } else { "}}" };
        let mut open: Vec<&'static str> = Vec::new();
        let first = self.tokens.len();
        loop {
            let blank = self.rest().len() - self.rest().trim_start_matches(is_space).len();
            self.advance(blank);
            let rest = self.rest();
            if self.tokens.len() - first > TAG_TOKENS {
                return self.fail(&format!("one tag has more than {TAG_TOKENS} tokens"));
            }
            if open.is_empty() {
                let sign = rest.chars().next().filter(|c| *c == '-' || (*c == '+' && close == "%}"));
                if let Some(after) = rest[sign.map_or(0, char::len_utf8)..].strip_prefix(close) {
                    self.push(end);
                    let trim = match (sign, close) {
                        (None, "}}") => 0,
                        _ => trimmed(after, sign),
                    };
                    self.advance(rest.len() - after.len() + trim);
                    return Ok(());
                }
            }
            let Some(c) = rest.chars().next() else { return self.fail("a tag does not end") };
            if c.is_ascii_digit() {
                self.number()?;
            } else if c == '_' || c.is_alphanumeric() {
                let width = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
                self.push(Token::Name(rest[..width].to_string()));
                self.advance(width);
            } else if c == '\'' || c == '"' {
                self.string(c)?;
            } else {
                let Some(&operator) = OPERATORS.iter().find(|operator| rest.starts_with(**operator)) else {
                    return self.fail(&format!("unexpected character {c:?}"));
                };
                match operator {
                    "(" => open.push(")"),
                    "[" => open.push("]"),
                    "{" => open.push("}"),
                    ")" | "]" | "}" if open.pop() != Some(operator) => {
                        return self.fail(&format!("unexpected '{operator}'"));
                    }
                    _ => {}
                }
                self.push(Token::Operator(operator));
                self.advance(operator.len());
            }
        }
    }

    /// Python's literals: 1_000, 0x1f, 0b1, 0o7, 1.5, 1e3.
    fn number(&mut self) -> Outcome<()> {
        let rest = self.rest();
        let after_dot = self.source[..self.at].ends_with('.');
        let whole = digits(rest);
        let exponent = |at: usize| -> usize {
            let Some(tail) = rest[at..].strip_prefix(['e', 'E']) else { return 0 };
            let signed = tail.strip_prefix(['+', '-']).unwrap_or(tail);
            match digits(signed) {
                0 => 0,
                width => 1 + tail.len() - signed.len() + width,
            }
        };
        let fraction = match rest[whole..].strip_prefix('.').map_or(0, digits) {
            0 => 0,
            width => width + 1,
        };
        let width = whole + fraction + exponent(whole + fraction);
        if width > whole && !after_dot {
            let text = rest[..width].replace('_', "");
            self.push(Token::Float(text.parse().unwrap_or(f64::INFINITY)));
            self.advance(width);
            return Ok(());
        }
        let based = [("0x", 16), ("0b", 2), ("0o", 8)].into_iter().find_map(|(prefix, base)| {
            let head = rest.get(..2).filter(|head| head.eq_ignore_ascii_case(prefix))?;
            let tail = &rest[head.len()..];
            let width = tail.find(|c: char| c != '_' && !c.is_digit(base)).unwrap_or(tail.len());
            let width = tail[..width].trim_end_matches('_').len();
            (width > 0).then(|| (i128::from_str_radix(&tail[..width].replace('_', ""), base), width + 2))
        });
        let (value, width) = based.unwrap_or_else(|| {
            let zeros = rest.len() - rest.trim_start_matches(['0', '_']).len();
            let zeros = rest[..zeros].trim_end_matches('_').len();
            let width = if zeros > 0 { zeros } else { whole }; // 007 is 00 and 7
            (rest[..width].replace('_', "").parse(), width)
        });
        let Ok(value) = value else { return self.fail("an integer beyond 128 bits is not supported") };
        self.push(Token::Int(value));
        self.advance(width);
        Ok(())
    }

    fn string(&mut self, quote: char) -> Outcome<()> {
        let rest = self.rest();
        let mut chars = rest.char_indices().skip(1);
        let end = loop {
            match chars.next() {
                Some((_, '\\')) => drop(chars.next()),
                Some((at, c)) if c == quote => break at,
                Some(_) => {}
                None => return self.fail("a string does not end"),
            }
        };
        match unescape(&rest[1..end]) {
            Ok(text) => self.push(Token::Str(text)),
            Err(what) => return self.fail(&what),
        }
        self.advance(end + 1);
        Ok(())
    }
}

/// The length of {% raw %} at the start of `tag`.
fn raw_begin(tag: &str) -> Option<usize> {
    let inner = tag.strip_prefix("{%")?;
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner).trim_start_matches(is_space);
    let tail = inner.strip_prefix("raw")?.trim_start_matches(is_space);
    let after = match tail.strip_prefix("-%}") {
        Some(after) => after.trim_start_matches(is_space),
        None => tail.strip_prefix("%}")?,
    };
    Some(tag.len() - after.len())
}

/// How much of what follows a tag goes with it: white space after -, nothing after +, else one newline.
fn trimmed(after: &str, sign: Option<char>) -> usize {
    match sign {
        Some('-') => after.len() - after.trim_start_matches(is_space).len(),
        Some('+') => 0,
        _ => usize::from(after.starts_with('\n')),
    }
}

/// The length of digits with single _ between them.
fn digits(text: &str) -> usize {
    let mut width = 0;
    let bytes = text.as_bytes();
    while width < bytes.len() {
        match bytes[width] {
            b'0'..=b'9' => width += 1,
            b'_' if width > 0
                && bytes[width - 1] != b'_'
                && bytes.get(width + 1).is_some_and(u8::is_ascii_digit) =>
            {
                width += 1
            }
            _ => break,
        }
    }
    width
}

/// Jinja2 reads a string with Python's codec unicode-escape, after writing what is not ASCII as escapes: so
/// a backslash before such a character escapes the escape.
fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some(code) = chars.next() else { break };
        let hex = match code {
            '\n' => continue,
            '\\' | '\'' | '"' => {
                out.push(code);
                continue;
            }
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '0'..='7' => {
                let mut value = code as u32 - '0' as u32;
                for _ in 0..2 {
                    let Some(digit) = chars.next_if(|c| c.is_digit(8)) else { break };
                    value = value * 8 + (digit as u32 - '0' as u32);
                }
                out.push(char::from_u32(value).unwrap_or('\u{fffd}'));
                continue;
            }
            'x' | 'u' | 'U' => {
                let count =
                    [('x', 2), ('u', 4), ('U', 8)].iter().find(|(c, _)| *c == code).map_or(0, |(_, n)| *n);
                let digits: String =
                    (0..count).map_while(|_| chars.next_if(char::is_ascii_hexdigit)).collect();
                if digits.len() < count {
                    return Err(format!("the escape \\{code} needs {count} hexadecimal digits"));
                }
                let value = u32::from_str_radix(&digits, 16).unwrap_or(u32::MAX);
                let Some(c) = char::from_u32(value) else {
                    return Err(format!("the escape \\{code}{digits} is no character"));
                };
                c
            }
            'N' => return Err("the escape \\N{...} is not supported".into()),
            c if c.is_ascii() => {
                out.extend(['\\', c]);
                continue;
            }
            c => {
                out.push_str(&match c as u32 {
                    code @ 0..=0xFF => format!("\\x{code:02x}"),
                    code @ 0x100..=0xFFFF => format!("\\u{code:04x}"),
                    code => format!("\\U{code:08x}"),
                });
                continue;
            }
        };
        out.push(hex);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The right-hand sides are what Python's codec unicode-escape gives.
    #[test]
    fn escapes() {
        let cases = [
            (r"<\/think>", r"<\/think>"),
            (r"\U0001F600\u00e9\x41", "😀éA"),
            (r"\101\7\400", "A\u{7}Ā"),
            (r"\n\t\\\'\q", "\n\t\\'\\q"),
            ("a\\\nb", "ab"),
            ("\\é", "\\xe9"),
        ];
        for (source, expected) in cases {
            assert_eq!(unescape(source).unwrap(), expected, "{source}");
        }
        assert!(unescape(r"\x4").unwrap_err().contains("\\x"));
        assert!(unescape(r"\ud83d").unwrap_err().contains("\\ud83d"));
        assert!(unescape(r"\N{DASH}").unwrap_err().contains("\\N"));
    }

    #[test]
    fn numbers() {
        let tokens = tokenize("t", "{{ 1_000 0x1F 0b11 1.5e3 2e-1 x.0.1 0 1.real }}").unwrap();
        let numbers: Vec<String> = tokens
            .iter()
            .filter_map(|(token, _)| match token {
                Token::Int(i) => Some(i.to_string()),
                Token::Float(f) => Some(format!("{f:?}")),
                _ => None,
            })
            .collect();
        assert_eq!(numbers, ["1000", "31", "3", "1500.0", "0.2", "0", "1", "0", "1"]);
    }
}
