//! Classes of characters, as Python's str methods have them.

use regex::Regex;
use std::sync::LazyLock;

/// str.isspace(): Unicode's white space and the four separators of ASCII.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn in_class(class: &Regex, c: char) -> bool {
    class.is_match(c.encode_utf8(&mut [0; 4]))
}

fn class(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{pattern}: {error}"))
}

/// str.isalpha(): letters, and not the marks that Unicode calls alphabetic.
pub fn is_alpha(c: char) -> bool {
    static LETTER: LazyLock<Regex> = LazyLock::new(|| class(r"^\p{L}$"));
    if c.is_ascii() {
        return c.is_ascii_alphabetic();
    }
    in_class(&LETTER, c)
}

/// str.isdecimal().
pub fn is_decimal(c: char) -> bool {
    static DECIMAL: LazyLock<Regex> = LazyLock::new(|| class(r"^\p{Nd}$"));
    if c.is_ascii() {
        return c.is_ascii_digit();
    }
    in_class(&DECIMAL, c)
}

/// str.isdigit(), without the rare digits of other scripts that are no decimals.
pub fn is_digit(c: char) -> bool {
    is_decimal(c)
        || matches!(c, '\u{b2}' | '\u{b3}' | '\u{b9}' | '\u{2070}' | '\u{2074}'..='\u{2079}' | '\u{2080}'..='\u{2089}'
            | '\u{2460}'..='\u{2468}' | '\u{2474}'..='\u{247c}' | '\u{2488}'..='\u{2490}' | '\u{24ea}'
            | '\u{24f5}'..='\u{24fd}' | '\u{24ff}' | '\u{2776}'..='\u{277e}' | '\u{2780}'..='\u{2788}'
            | '\u{278a}'..='\u{2792}')
}

/// str.isalnum(), and with _ the \w of a regular expression.
pub fn is_alnum(c: char) -> bool {
    is_alpha(c) || is_numeric(c)
}

/// str.isnumeric(): numbers, and the ideographs that stand for one.
pub fn is_numeric(c: char) -> bool {
    c.is_numeric() || "一二三四五六七八九十百千万億兆零〇壹貳參肆伍陸柒捌玖拾".contains(c)
}

/// str.isprintable().
pub fn is_printable(c: char) -> bool {
    static OTHER: LazyLock<Regex> = LazyLock::new(|| class(r"^[\p{C}\p{Z}]$"));
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    !in_class(&OTHER, c)
}

/// Python's title case of one character.
fn title_char(c: char, out: &mut String) {
    let digraph = match c {
        '\u{1c4}'..='\u{1c6}' => Some('\u{1c5}'),
        '\u{1c7}'..='\u{1c9}' => Some('\u{1c8}'),
        '\u{1ca}'..='\u{1cc}' => Some('\u{1cb}'),
        '\u{1f1}'..='\u{1f3}' => Some('\u{1f2}'),
        _ => None,
    };
    if let Some(digraph) = digraph {
        out.push(digraph);
        return;
    }
    let mut upper = c.to_uppercase();
    out.extend(upper.next());
    upper.for_each(|c| out.extend(c.to_lowercase())); // ß: Ss
}

/// str.capitalize().
pub fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let mut out = String::with_capacity(text.len());
    if let Some(first) = chars.next() {
        title_char(first, &mut out);
        // The lower case of a final sigma depends on what stands before it.
        let lower = text.to_lowercase();
        let first_lower: usize = first.to_lowercase().map(char::len_utf8).sum();
        out.push_str(&lower[first_lower..]);
    }
    out
}

/// str.title(): every run of cased letters starts with a capital.
pub fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            title_char(c, &mut out);
        }
        inside = c.is_lowercase() || c.is_uppercase();
    }
    out
}
