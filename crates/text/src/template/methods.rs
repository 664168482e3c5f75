//! Methods of Python's str, list and dict.

use super::budget::Budget;
use super::python::{error, to_str};
use minijinja::value::{from_args, Value, ValueKind};
use minijinja::{Error, ErrorKind};

type Answer = Result<Value, Error>;

/// What a method call on a plain value does; ErrorKind::UnknownMethod when there is no such method.
pub fn call(budget: &Budget, value: &Value, name: &str, args: &[Value]) -> Answer {
    budget.charge_values(std::slice::from_ref(value))?;
    budget.charge_values(args)?;
    match value.kind() {
        ValueKind::String => string(budget, value.as_str().unwrap_or_default(), name, args),
        ValueKind::Map => map(value, name, args),
        ValueKind::Seq | ValueKind::Iterable => list(value, name, args),
        _ => unknown(),
    }
}

fn unknown() -> Answer {
    Err(Error::from(ErrorKind::UnknownMethod))
}

/// Chat templates run in a sandbox that lets them change no list and no dict.
fn immutable(name: &str) -> Answer {
    Err(error(format!("{name}() changes its object, which a chat template may not")))
}

fn map(value: &Value, name: &str, args: &[Value]) -> Answer {
    match name {
        "keys" | "values" | "items" => {
            let () = from_args(args)?;
            let pair = |key: Value| -> Answer {
                Ok(match name {
                    "keys" => key,
                    "values" => value.get_item(&key)?,
                    _ => Value::from(vec![key.clone(), value.get_item(&key)?]),
                })
            };
            Ok(Value::from(value.try_iter()?.map(pair).collect::<Result<Vec<Value>, Error>>()?))
        }
        "get" => {
            let (key, default): (Value, Option<Value>) = from_args(args)?;
            let found = value.get_item(&key)?;
            let missing = || default.unwrap_or_else(|| Value::from(()));
            Ok(if found.is_undefined() { missing() } else { found })
        }
        "copy" => Ok(value.clone()),
        "pop" | "popitem" | "update" | "setdefault" | "clear" => immutable(name),
        _ => unknown(),
    }
}

fn list(value: &Value, name: &str, args: &[Value]) -> Answer {
    match name {
        "index" | "count" => {
            let (wanted,): (Value,) = from_args(args)?;
            let mut items = value.try_iter()?;
            if name == "count" {
                return Ok(Value::from(items.filter(|item| *item == wanted).count()));
            }
            items
                .position(|item| item == wanted)
                .map(Value::from)
                .ok_or_else(|| error("value is not in list"))
        }
        "copy" => Ok(value.clone()),
        "append" | "extend" | "insert" | "pop" | "remove" | "clear" | "sort" | "reverse" => immutable(name),
        _ => unknown(),
    }
}

fn string(budget: &Budget, text: &str, name: &str, args: &[Value]) -> Answer {
    let none = || from_args::<()>(args);
    let is = |class: fn(char) -> bool| Value::from(!text.is_empty() && text.chars().all(class));
    Ok(match name {
        "upper" => none().map(|()| text.to_uppercase().into())?,
        "lower" | "casefold" => none().map(|()| text.to_lowercase().into())?,
        "capitalize" => none().map(|()| capitalize(text).into())?,
        "title" => none().map(|()| title(text).into())?,
        "swapcase" => {
            none()?;
            let swap = |c: char| -> String {
                if c.is_uppercase() {
                    c.to_lowercase().collect()
                } else {
                    c.to_uppercase().collect()
                }
            };
            text.chars().map(swap).collect::<String>().into()
        }
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            strip(text, chars, name != "rstrip", name != "lstrip").into()
        }
        "removeprefix" => from_args(args).map(|(p,): (&str,)| text.strip_prefix(p).unwrap_or(text).into())?,
        "removesuffix" => from_args(args).map(|(p,): (&str,)| text.strip_suffix(p).unwrap_or(text).into())?,
        "startswith" => affix(text, args, |text, part| text.starts_with(part))?,
        "endswith" => affix(text, args, |text, part| text.ends_with(part))?,
        "split" | "rsplit" => {
            let (separator, limit, kwargs): (Option<&str>, Option<i64>, minijinja::value::Kwargs) =
                from_args(args)?;
            let separator = separator.or(kwargs.get("sep")?);
            let limit: i64 = limit.or(kwargs.get("maxsplit")?).unwrap_or(-1);
            kwargs.assert_all_used()?;
            split(text, separator, usize::try_from(limit).unwrap_or(usize::MAX), name == "rsplit")?
        }
        "splitlines" => {
            let (keep,): (Option<bool>,) = from_args(args)?;
            strings(split_lines(text, keep.unwrap_or(false)))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let found =
                if name == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) };
            strings(match (found, name) {
                (Some((before, after)), _) => vec![before, separator, after],
                (None, "partition") => vec![text, "", ""],
                (None, _) => vec!["", "", text],
            })
        }
        "replace" => {
            let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
            replace(budget, text, old, new, count.unwrap_or(-1))?.into()
        }
        "join" => {
            let (items,): (Value,) = from_args(args)?;
            let items: Vec<Value> = items.try_iter()?.collect();
            if let Some(item) = items.iter().find(|item| item.as_str().is_none()) {
                return Err(error(format!("join: expected a string, found a value of type {}", item.kind())));
            }
            join(budget, &items, text)?.into()
        }
        "find" | "rfind" | "index" | "rindex" => {
            let (part,): (&str,) = from_args(args)?;
            let at = if name.starts_with('r') { text.rfind(part) } else { text.find(part) };
            match at {
                Some(at) => Value::from(text[..at].chars().count()),
                None if name.ends_with("find") => Value::from(-1),
                None => return Err(error("substring not found")),
            }
        }
        "count" => {
            let (part,): (&str,) = from_args(args)?;
            let empty = part.is_empty().then(|| text.chars().count() + 1);
            Value::from(empty.unwrap_or_else(|| text.matches(part).count()))
        }
        "zfill" | "ljust" | "rjust" | "center" => {
            let (width, fill): (i64, Option<&str>) = from_args(args)?;
            pad(budget, text, name, width, fill)?.into()
        }
        "isalpha" => is(char::is_alphabetic),
        "isalnum" => is(char::is_alphanumeric),
        "isspace" => is(is_space),
        "isdigit" | "isdecimal" => is(|c| c.is_ascii_digit() || (!c.is_ascii() && c.is_numeric())),
        "isnumeric" => is(char::is_numeric),
        "isascii" => Value::from(text.is_ascii()),
        "islower" => {
            Value::from(text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase))
        }
        "isupper" => {
            Value::from(text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase))
        }
        _ => return unknown(),
    })
}

pub fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().map_or_else(String::new, |c| c.to_uppercase().collect());
    first + &chars.as_str().to_lowercase()
}

/// str.title(): every run of letters starts with a capital.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase())
        } else {
            out.extend(c.to_uppercase())
        }
        inside = c.is_lowercase() || c.is_uppercase();
    }
    out
}

/// str.isspace(): Unicode's white space and the four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
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

/// startswith and endswith take one string or several.
fn affix(text: &str, args: &[Value], matches: fn(&str, &str) -> bool) -> Answer {
    let (parts,): (Value,) = from_args(args)?;
    if let Some(part) = parts.as_str() {
        return Ok(Value::from(matches(text, part)));
    }
    for part in parts.try_iter()? {
        let part = part.as_str().ok_or_else(|| error("startswith and endswith take strings"))?;
        if matches(text, part) {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

fn split(text: &str, separator: Option<&str>, limit: usize, from_right: bool) -> Answer {
    let pieces = limit.saturating_add(1);
    let Some(separator) = separator else { return Ok(strings(split_space(text, limit, from_right))) };
    if separator.is_empty() {
        return Err(error("split: empty separator"));
    }
    let mut parts: Vec<&str> = if from_right {
        text.rsplitn(pieces, separator).collect()
    } else {
        text.splitn(pieces, separator).collect()
    };
    if from_right {
        parts.reverse();
    }
    Ok(strings(parts))
}

fn strings(parts: Vec<&str>) -> Value {
    parts.into_iter().map(Value::from).collect()
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
fn split_lines(text: &str, keep: bool) -> Vec<&str> {
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

pub fn replace(budget: &Budget, text: &str, old: &str, new: &str, count: i64) -> Result<String, Error> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let found = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
    budget.charge(
        (text.len() as u64).saturating_add((found.min(count) as u64).saturating_mul(new.len() as u64)),
    )?;
    Ok(text.replacen(old, new, count))
}

/// Joins str() of each item.
pub fn join(budget: &Budget, items: &[Value], separator: &str) -> Result<String, Error> {
    let mut out = String::new();
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            budget.charge_len(separator.len())?;
            out.push_str(separator);
        }
        out.push_str(&to_str(item, budget)?);
    }
    Ok(out)
}

fn pad(budget: &Budget, text: &str, name: &str, width: i64, fill: Option<&str>) -> Result<String, Error> {
    let zeros = name == "zfill";
    let mut fills = fill.unwrap_or(if zeros { "0" } else { " " }).chars();
    let (Some(fill), None) = (fills.next(), fills.next()) else {
        return Err(error("the fill character must be exactly one character long"));
    };
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars().count());
    budget.charge(4u64.saturating_mul(missing as u64))?;
    let left = match name {
        "ljust" => 0,
        // CPython's rounding: the odd one goes left when the width is odd.
        "center" => missing / 2 + (missing & usize::try_from(width).unwrap_or(0) & 1),
        _ => missing,
    };
    let run = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) if zeros => (&text[..1], digits),
        _ => ("", text),
    };
    Ok(format!("{sign}{}{digits}{}", run(left), run(missing - left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(text: &str, name: &str, args: &[Value]) -> String {
        let budget = Budget::new();
        match call(&budget, &Value::from(text), name, args) {
            Ok(value) => to_str(&Value::from(vec![value]), &budget).unwrap(),
            Err(error) => error.to_string(),
        }
    }

    /// The right-hand sides are what Python 3.11 prints.
    #[test]
    fn splitting() {
        let limit = |n: i64| [Value::from(()), Value::from(n)];
        assert_eq!(on("  a  b c ", "split", &[]), "[['a', 'b', 'c']]");
        assert_eq!(on("  a  b c ", "split", &limit(1)), "[['a', 'b c ']]");
        assert_eq!(on("  a  b c ", "rsplit", &limit(1)), "[['  a  b', 'c']]");
        assert_eq!(on("  a  b c ", "split", &limit(0)), "[['a  b c ']]");
        assert_eq!(on("a,b,,c", "split", &[",".into()]), "[['a', 'b', '', 'c']]");
        assert_eq!(on("a,b,,c", "split", &[",".into(), 1.into()]), "[['a', 'b,,c']]");
        assert_eq!(on("a,b,,c", "rsplit", &[",".into(), 1.into()]), "[['a,b,', 'c']]");
        assert_eq!(on("", "split", &[",".into()]), "[['']]");
        assert_eq!(on("", "split", &[]), "[[]]");
        assert!(on("a", "split", &["".into()]).contains("empty separator"));
        assert_eq!(on("a\r\nb\u{2028}c\n", "splitlines", &[]), "[['a', 'b', 'c']]");
        assert_eq!(on("a\nb", "splitlines", &[true.into()]), "[['a\\n', 'b']]");
        assert_eq!(on("a=b=c", "partition", &["=".into()]), "[['a', '=', 'b=c']]");
        assert_eq!(on("a=b=c", "rpartition", &["=".into()]), "[['a=b', '=', 'c']]");
        assert_eq!(on("abc", "rpartition", &["=".into()]), "[['', '', 'abc']]");
    }

    #[test]
    fn changing() {
        assert_eq!(on("they're bill's", "title", &[]), "[\"They'Re Bill'S\"]");
        assert_eq!(on("ÉTÉ", "capitalize", &[]), "['Été']");
        assert_eq!(on("xxhixx", "strip", &["x".into()]), "['hi']");
        assert_eq!(on("aaa", "replace", &["a".into(), "b".into(), 2.into()]), "['bba']");
        assert_eq!(on("ab", "replace", &["".into(), "-".into()]), "['-a-b-']");
        assert_eq!(on("-", "join", &[vec!["a", "b"].into()]), "['a-b']");
        assert!(on("-", "join", &[vec![1].into()]).contains("expected a string"));
        assert_eq!(on("-7", "zfill", &[4.into()]), "['-007']");
        assert_eq!(on("ab", "center", &[5.into(), "*".into()]), "['**ab*']");
        assert_eq!(on("abc", "center", &[6.into(), "*".into()]), "['*abc**']");
        assert!(on("a", "ljust", &[9_000_000_000i64.into()]).contains("too much text"));
    }

    #[test]
    fn asking() {
        assert_eq!(on("한국어", "find", &["어".into()]), "[2]");
        assert_eq!(on("abc", "find", &["z".into()]), "[-1]");
        assert!(on("abc", "index", &["z".into()]).contains("not found"));
        assert_eq!(on("abc", "startswith", &[vec!["x", "ab"].into()]), "[True]");
        assert_eq!(on("aXbX", "count", &["X".into()]), "[2]");
        assert_eq!(on("abc", "islower", &[]), "[True]");
        assert_eq!(on("", "isdigit", &[]), "[False]");
        assert!(on("abc", "encode", &[]).contains("unknown method"));
    }

    #[test]
    fn lists_and_dicts_cannot_be_changed() {
        let budget = Budget::new();
        let append = call(&budget, &Value::from(vec![1]), "append", &[2.into()]);
        assert!(append.unwrap_err().to_string().contains("may not"));
    }
}
