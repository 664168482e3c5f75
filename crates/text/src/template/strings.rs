//! Methods of Python's str.

use super::arguments::{text, Args, Argument};
use super::budget::Budget;
use super::error::{failed, refused, Result};
use super::text::write_str;
use super::unicode::{
    capitalize, is_alnum, is_alpha, is_decimal, is_digit, is_numeric, is_printable, is_space, title,
};
use super::value::Value;
use std::sync::Arc;

/// Every method of str; format and format_map are in format.rs.
pub const METHODS: [&str; 47] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];

pub fn call(subject: &str, name: &str, args: Args, budget: &Budget) -> Result<Value> {
    budget.work(subject.len())?;
    args.positional.iter().try_for_each(|value| budget.work(value.size()))?;
    let made = |text: String| -> Result<Value> {
        budget.work(text.len())?;
        Ok(Value::Str(text.into()))
    };
    match name {
        "replace" => {
            let [old, new, count] = args.positional(name)?;
            let old = text(&old.required(name, "old")?, name)?;
            let new = text(&new.required(name, "new")?, name)?;
            Ok(Value::str(replace(subject, &old, &new, count.int(name, -1)?, budget)?))
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = args.positional(name)?;
            let chars = chars.text(name)?;
            Ok(Value::str(strip(subject, chars.as_deref(), name != "rstrip", name != "lstrip")))
        }
        "removeprefix" | "removesuffix" => {
            let [part] = args.positional(name)?;
            let part = text(&part.required(name, "prefix")?, name)?;
            let cut = if name == "removeprefix" {
                subject.strip_prefix(&*part)
            } else {
                subject.strip_suffix(&*part)
            };
            Ok(Value::str(cut.unwrap_or(subject)))
        }
        "split" | "rsplit" => {
            let [separator, limit] = args.bind(name, ["sep", "maxsplit"])?;
            let limit = usize::try_from(limit.int(name, -1)?).unwrap_or(usize::MAX);
            split(subject, separator.text(name)?.as_deref(), limit, name == "rsplit", budget)
        }
        "splitlines" => {
            let [keep] = args.bind(name, ["keepends"])?;
            strings(split_lines(subject, keep.flag(false)), budget)
        }
        "partition" | "rpartition" => {
            let [separator] = args.positional(name)?;
            let separator = text(&separator.required(name, "sep")?, name)?;
            if separator.is_empty() {
                return Err(failed("empty separator"));
            }
            let first = name == "partition";
            let found =
                if first { subject.split_once(&*separator) } else { subject.rsplit_once(&*separator) };
            let parts = match found {
                Some((before, after)) => [before, &*separator, after],
                None if first => [subject, "", ""],
                None => ["", "", subject],
            };
            Value::tuple(parts.iter().map(Value::str).collect(), budget)
        }
        "join" => {
            let [items] = args.positional(name)?;
            let items = items.required(name, "iterable")?.items(budget)?;
            if let Some(at) = items.iter().position(|item| !matches!(item, Value::Str(_) | Value::Markup(_)))
            {
                let found = items[at].type_name();
                return Err(failed(format!("sequence item {at}: expected str instance, {found} found")));
            }
            Ok(Value::str(join(&items, subject, budget)?))
        }
        "find" | "rfind" | "index" | "rindex" | "count" => search(subject, name, args),
        "startswith" | "endswith" => {
            let [parts, start, end] = args.positional(name)?;
            let window = Window::of(subject, start, end, name)?;
            let matches = |part: &Value| -> Result<bool> {
                let part = text(part, name)?;
                Ok(window.as_ref().is_some_and(|window| match name {
                    "startswith" => window.text.starts_with(&*part),
                    _ => window.text.ends_with(&*part),
                }))
            };
            match parts.required(name, "prefix")? {
                Value::Tuple(parts) => {
                    for part in &parts.items {
                        if matches(part)? {
                            return Ok(Value::Bool(true));
                        }
                    }
                    Ok(Value::Bool(false))
                }
                part => matches(&part).map(Value::Bool),
            }
        }
        "zfill" | "ljust" | "rjust" | "center" => {
            let [width, fill] = args.positional(name)?;
            let width =
                width.required(name, "width").and_then(|width| super::arguments::int(&width, name))?;
            made(pad(subject, name, width, fill.text(name)?, budget)?)
        }
        "expandtabs" => {
            let [size] = args.bind(name, ["tabsize"])?;
            made(expand_tabs(subject, size.int(name, 8)?, budget)?)
        }
        "encode" | "maketrans" | "translate" => Err(refused(format!("str.{name}()"))),
        _ => {
            args.none(name)?;
            plain(subject, name, made)
        }
    }
}

/// Methods without arguments.
fn plain(subject: &str, name: &str, made: impl Fn(String) -> Result<Value>) -> Result<Value> {
    let all = |class: fn(char) -> bool| Value::Bool(!subject.is_empty() && subject.chars().all(class));
    let (lower, upper) = (subject.chars().any(char::is_lowercase), subject.chars().any(char::is_uppercase));
    Ok(match name {
        "upper" => return made(subject.to_uppercase()),
        "lower" => return made(subject.to_lowercase()),
        "casefold" if subject.is_ascii() => return made(subject.to_lowercase()),
        "casefold" => return Err(refused("casefold() of what is not ASCII")),
        "capitalize" => return made(capitalize(subject)),
        "title" => return made(title(subject)),
        "swapcase" => {
            let swap = |c: char| -> String {
                if c.is_uppercase() {
                    c.to_lowercase().collect()
                } else {
                    c.to_uppercase().collect()
                }
            };
            return made(subject.chars().map(swap).collect());
        }
        "isalpha" => all(is_alpha),
        "isalnum" => all(is_alnum),
        "isspace" => all(is_space),
        "isdecimal" => all(is_decimal),
        "isdigit" => all(is_digit),
        "isnumeric" => all(is_numeric),
        "isascii" => Value::Bool(subject.is_ascii()),
        "isprintable" => Value::Bool(subject.chars().all(is_printable)),
        "islower" => Value::Bool(lower && !upper),
        "isupper" => Value::Bool(upper && !lower),
        "istitle" => Value::Bool((lower || upper) && title(subject) == subject),
        "isidentifier" if subject.is_ascii() => {
            let word = |c: char| c == '_' || c.is_ascii_alphanumeric();
            Value::Bool(
                !subject.starts_with(|c: char| c.is_ascii_digit())
                    && !subject.is_empty()
                    && subject.chars().all(word),
            )
        }
        "isidentifier" => return Err(refused("isidentifier() of what is not ASCII")),
        _ => return Err(refused(format!("str.{name}()"))),
    })
}

/// The part of a text between two positions, which count characters and may be negative.
struct Window<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> Window<'a> {
    /// None: it begins beyond the end.
    fn of(text: &'a str, start: Option<Value>, end: Option<Value>, name: &str) -> Result<Option<Self>> {
        let bound = |value: Option<Value>, default: i64| match value {
            Some(Value::None) => Ok(default),
            value => value.int(name, default),
        };
        let (start, end) = (bound(start, 0)?, bound(end, i64::MAX)?);
        if start == 0 && end == i64::MAX {
            return Ok(Some(Self { text, start: 0 }));
        }
        let len = text.chars().count() as i64;
        let place = |at: i64| if at < 0 { (at.saturating_add(len)).max(0) } else { at };
        let (start, end) = (place(start), place(end).min(len));
        if start > end {
            return Ok(None);
        }
        let byte = |at: i64| text.char_indices().nth(at as usize).map_or(text.len(), |(byte, _)| byte);
        Ok(Some(Self { text: &text[byte(start)..byte(end)], start: start as usize }))
    }
}

fn search(subject: &str, name: &str, args: Args) -> Result<Value> {
    let [part, start, end] = args.positional(name)?;
    let part = text(&part.required(name, "sub")?, name)?;
    let window = Window::of(subject, start, end, name)?;
    if name == "count" {
        let count = window.map_or(0, |window| match part.is_empty() {
            true => window.text.chars().count() + 1,
            false => window.text.matches(&*part).count(),
        });
        return Ok(Value::int(count));
    }
    let found = window.and_then(|window| {
        let at = if name.starts_with('r') { window.text.rfind(&*part) } else { window.text.find(&*part) };
        at.map(|at| window.start + window.text[..at].chars().count())
    });
    match found {
        Some(at) => Ok(Value::int(at)),
        None if name.ends_with("find") => Ok(Value::Int(-1)),
        None => Err(failed("substring not found")),
    }
}

pub fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let strips = |c: char| match chars {
        Some(set) => set.contains(c),
        None => is_space(c),
    };
    let text = if left { text.trim_start_matches(strips) } else { text };
    if right {
        text.trim_end_matches(strips)
    } else {
        text
    }
}

fn strings(parts: Vec<&str>, budget: &Budget) -> Result<Value> {
    Value::list(parts.into_iter().map(Value::str).collect(), budget)
}

fn split(
    text: &str,
    separator: Option<&str>,
    limit: usize,
    from_right: bool,
    budget: &Budget,
) -> Result<Value> {
    let pieces = limit.saturating_add(1);
    let Some(separator) = separator else { return strings(split_space(text, limit, from_right), budget) };
    if separator.is_empty() {
        return Err(failed("empty separator"));
    }
    let mut parts: Vec<&str> = if from_right {
        text.rsplitn(pieces, separator).collect()
    } else {
        text.splitn(pieces, separator).collect()
    };
    if from_right {
        parts.reverse();
    }
    strings(parts, budget)
}

/// Without a separator: by runs of white space, none at the ends.
fn split_space(text: &str, limit: usize, from_right: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = strip(text, None, !from_right, from_right);
    while !rest.is_empty() {
        let cut = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(at) = cut.filter(|_| parts.len() < limit) else {
            parts.push(rest);
            break;
        };
        let (head, tail) = rest.split_at(at);
        if from_right {
            parts.push(strip(tail, None, true, false));
            rest = strip(head, None, false, true);
        } else {
            parts.push(head);
            rest = strip(tail, None, true, false);
        }
    }
    if from_right {
        parts.reverse();
    }
    parts
}

/// Python's line boundaries: more than \n.
pub fn split_lines(text: &str, keep: bool) -> Vec<&str> {
    let ends = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let end = &rest[at..];
        let width = if end.starts_with("\r\n") { 2 } else { end.chars().next().map_or(1, char::len_utf8) };
        lines.push(&rest[..if keep { at + width } else { at }]);
        rest = &rest[at + width..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

pub fn replace(text: &str, old: &str, new: &str, count: i64, budget: &Budget) -> Result<String> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let found = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
    budget.work(text.len().saturating_add(found.min(count).saturating_mul(new.len())))?;
    Ok(text.replacen(old, new, count))
}

/// Joins str() of each item.
pub fn join(items: &[Value], separator: &str, budget: &Budget) -> Result<String> {
    let mut out = String::new();
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            budget.work(separator.len())?;
            out.push_str(separator);
        }
        write_str(item, &mut out, budget)?;
    }
    Ok(out)
}

pub fn pad(text: &str, name: &str, width: i64, fill: Option<Arc<str>>, budget: &Budget) -> Result<String> {
    let zeros = name == "zfill";
    let fill = fill.unwrap_or_else(|| Arc::from(if zeros { "0" } else { " " }));
    let mut fills = fill.chars();
    let (Some(fill), None) = (fills.next(), fills.next()) else {
        return Err(failed("The fill character must be exactly one character long"));
    };
    let width = usize::try_from(width).unwrap_or(0);
    let missing = width.saturating_sub(text.chars().count());
    budget.work(missing.saturating_mul(4))?;
    let left = match name {
        "ljust" => 0,
        // CPython's rounding: the odd one goes left when the width is odd.
        "center" => missing / 2 + (missing & width & 1),
        _ => missing,
    };
    let run = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) if zeros => (&text[..1], digits),
        _ => ("", text),
    };
    Ok(format!("{sign}{}{digits}{}", run(left), run(missing - left)))
}

fn expand_tabs(text: &str, size: i64, budget: &Budget) -> Result<String> {
    let size = usize::try_from(size).unwrap_or(0);
    budget.work(text.matches('\t').count().saturating_mul(size))?;
    let (mut out, mut column) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '\t' if size == 0 => {}
            '\t' => {
                let count = size - column % size;
                out.extend(std::iter::repeat_n(' ', count));
                column += count;
            }
            _ => {
                out.push(c);
                column = if c == '\n' || c == '\r' { 0 } else { column + 1 };
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::text::to_repr;
    use super::*;

    fn on(subject: &str, name: &str, args: &[Value]) -> String {
        let budget = Budget::new();
        let args = Args { positional: args.to_vec(), named: Vec::new() };
        match call(subject, name, args, &budget) {
            Ok(value) => to_repr(&value, &budget).unwrap(),
            Err(error) => error.message,
        }
    }

    fn s(text: &str) -> Value {
        Value::str(text)
    }

    /// The right-hand sides are what Python 3.11 prints.
    #[test]
    fn splitting() {
        let limit = |n: i128| [Value::None, Value::Int(n)];
        assert_eq!(on("  a  b c ", "split", &[]), "['a', 'b', 'c']");
        assert_eq!(on("  a  b c ", "split", &limit(1)), "['a', 'b c ']");
        assert_eq!(on("  a  b c ", "rsplit", &limit(1)), "['  a  b', 'c']");
        assert_eq!(on("  a  b c ", "split", &limit(0)), "['a  b c ']");
        assert_eq!(on("a,b,,c", "split", &[s(",")]), "['a', 'b', '', 'c']");
        assert_eq!(on("a,b,,c", "rsplit", &[s(","), Value::Int(1)]), "['a,b,', 'c']");
        assert_eq!(on("", "split", &[s(",")]), "['']");
        assert_eq!(on("", "split", &[]), "[]");
        assert!(on("a", "split", &[s("")]).contains("empty separator"));
        assert_eq!(on("a\r\nb\u{2028}c\n", "splitlines", &[]), "['a', 'b', 'c']");
        assert_eq!(on("a=b=c", "rpartition", &[s("=")]), "('a=b', '=', 'c')");
        assert_eq!(on("abc", "rpartition", &[s("=")]), "('', '', 'abc')");
    }

    #[test]
    fn changing() {
        assert_eq!(on("they're bill's", "title", &[]), "\"They'Re Bill'S\"");
        assert_eq!(on("ÉTÉ", "capitalize", &[]), "'Été'");
        assert_eq!(on("ßa", "title", &[]), "'Ssa'");
        assert_eq!(on("aaa", "replace", &[s("a"), s("b"), Value::Int(2)]), "'bba'");
        assert_eq!(on("ab", "replace", &[s(""), s("-")]), "'-a-b-'");
        assert_eq!(on("-7", "zfill", &[Value::Int(4)]), "'-007'");
        assert_eq!(on("ab", "center", &[Value::Int(5), s("*")]), "'**ab*'");
        assert_eq!(on("abc", "center", &[Value::Int(6), s("*")]), "'*abc**'");
        assert_eq!(on("a\tb", "expandtabs", &[Value::Int(4)]), "'a   b'");
        assert!(on("a", "ljust", &[Value::Int(9_000_000_000)]).contains("512 MiB"));
    }

    #[test]
    fn asking() {
        assert_eq!(on("한국어", "find", &[s("어")]), "2");
        assert_eq!(on("abcabc", "find", &[s("a"), Value::Int(1)]), "3");
        assert_eq!(on("abcabc", "rfind", &[s("a"), Value::Int(0), Value::Int(-1)]), "3");
        assert_eq!(on("abc", "find", &[s(""), Value::Int(9)]), "-1");
        assert!(on("abc", "index", &[s("z")]).contains("not found"));
        assert_eq!(on("aXbX", "count", &[s("X"), Value::Int(2)]), "1");
        assert_eq!(on("abc", "startswith", &[s("b"), Value::Int(1)]), "True");
        assert_eq!(on("", "isdigit", &[]), "False");
        assert!(on("abc", "encode", &[]).contains("str.encode() is not supported"));
    }
}
