//! Jinja2's filters over text.

use super::arguments::{Args, Argument};
use super::budget::Budget;
use super::error::{failed, refused, Result};
use super::numeric::fixed;
use super::printf::modulo;
use super::strings::{pad, replace, split_lines, strip};
use super::text::to_str;
use super::unicode::{capitalize, is_alnum, is_space};
use super::value::{Dict, Value};
use std::sync::Arc;

pub fn apply(name: &str, value: Value, args: Args, budget: &Budget) -> Result<Value> {
    if matches!(value, Value::Markup(_)) && !matches!(name, "escape" | "e" | "safe" | "string" | "replace") {
        return match name {
            "lower" | "upper" | "trim" | "capitalize" => {
                let plain = Value::Str(to_str(&value, budget)?);
                Ok(Value::Markup(to_str(&apply(name, plain, args, budget)?, budget)?))
            }
            _ => Err(refused(format!("the filter {name} of the result of escape or safe"))),
        };
    }
    let made = |text: String| -> Result<Value> {
        budget.work(text.len())?;
        Ok(Value::Str(text.into()))
    };
    match name {
        "string" => {
            args.none(name)?;
            match value {
                Value::Markup(_) => Ok(value),
                _ => Ok(Value::Str(to_str(&value, budget)?)),
            }
        }
        "lower" | "upper" | "capitalize" | "title" | "wordcount" => {
            args.none(name)?;
            let text = to_str(&value, budget)?;
            match name {
                "lower" => made(text.to_lowercase()),
                "upper" => made(text.to_uppercase()),
                "capitalize" => made(capitalize(&text)),
                "title" => made(title(&text)),
                _ => Ok(Value::int(
                    text.split(|c| c != '_' && !is_alnum(c)).filter(|word| !word.is_empty()).count(),
                )),
            }
        }
        "trim" => {
            let [chars] = args.bind(name, ["chars"])?;
            Ok(Value::str(strip(&to_str(&value, budget)?, chars.text(name)?.as_deref(), true, true)))
        }
        "replace" => {
            let [old, new, count] = args.bind(name, ["old", "new", "count"])?;
            let old = to_str(&old.required(name, "old")?, budget)?;
            let new = to_str(&new.required(name, "new")?, budget)?;
            let count = match count {
                Some(Value::None) => -1,
                count => count.int(name, -1)?,
            };
            made(replace(&to_str(&value, budget)?, &old, &new, count, budget)?)
        }
        "center" => {
            let [width] = args.bind(name, ["width"])?;
            made(pad(&to_str(&value, budget)?, name, width.int(name, 80)?, None, budget)?)
        }
        "format" => {
            let format = to_str(&value, budget)?;
            if !args.positional.is_empty() && !args.named.is_empty() {
                return Err(failed("can't handle positional and keyword arguments at the same time"));
            }
            let values = if args.named.is_empty() {
                Value::tuple(args.positional, budget)?
            } else {
                let pairs = args.named.into_iter().map(|(name, value)| (Value::Str(name), value)).collect();
                Value::Dict(Dict::new(pairs, budget)?)
            };
            modulo(&format, &values, budget)
        }
        "indent" => indent(&value, args, budget),
        "truncate" => truncate(&value, args, budget),
        "escape" | "e" => {
            args.none(name)?;
            match value {
                Value::Markup(_) => Ok(value),
                _ => Ok(Value::Markup(escape(&to_str(&value, budget)?, budget)?)),
            }
        }
        "safe" => {
            args.none(name)?;
            Ok(Value::Markup(to_str(&value, budget)?))
        }
        "urlencode" => {
            args.none(name)?;
            urlencode(&value, budget)
        }
        "filesizeformat" => {
            let [binary] = args.bind(name, ["binary"])?;
            file_size(&value, binary.flag(false))
        }
        _ if super::filters::exists(name) => Err(refused(format!("the filter {name}"))),
        _ => Err(refused(format!("the filter {name}, which Jinja2 does not know either,"))),
    }
}

/// Jinja2's title: a word starts after white space or one of -({[<.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    let end_word = |word: &mut String, out: &mut String| {
        let mut chars = word.chars();
        if let Some(first) = chars.next() {
            out.extend(first.to_uppercase());
            out.push_str(&chars.as_str().to_lowercase());
        }
        word.clear();
    };
    for c in text.chars() {
        if is_space(c) || "-({[<".contains(c) {
            end_word(&mut word, &mut out);
            out.push(c);
        } else {
            word.push(c);
        }
    }
    end_word(&mut word, &mut out);
    out
}

/// indent(width=4, first=False, blank=False); the width may be a string.
fn indent(value: &Value, args: Args, budget: &Budget) -> Result<Value> {
    let [width, first, blank] = args.bind("indent", ["width", "first", "blank"])?;
    let Value::Str(text) = value else {
        let found = value.type_name();
        return Err(failed(format!("indent: expected a string, not {found}")));
    };
    let text = format!("{text}\n"); // so that a line's end at the end begins one more line
    let lines = split_lines(&text, false);
    let by = match width {
        Some(Value::Str(by)) => by.to_string(),
        width => {
            let count = usize::try_from(width.int("indent", 4)?).unwrap_or(0);
            budget.work(count)?;
            " ".repeat(count)
        }
    };
    budget.work(lines.len().saturating_mul(by.len() + 1))?;
    let mut out = if first.flag(false) { by.clone() } else { String::new() };
    let blank = blank.flag(false);
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(&by);
            }
        }
        out.push_str(line);
    }
    Ok(Value::Str(out.into()))
}

/// truncate(length=255, killwords=False, end="...", leeway=5).
fn truncate(value: &Value, args: Args, budget: &Budget) -> Result<Value> {
    let [length, kill, end, leeway] = args.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    let length = length.int("truncate", 255)?;
    let end = end.text("truncate")?.unwrap_or_else(|| Arc::from("..."));
    let leeway = match leeway {
        Some(Value::None) => 5,
        leeway => leeway.int("truncate", 5)?,
    };
    let ending = end.chars().count() as i64;
    if length < ending || leeway < 0 {
        return Err(failed(format!("truncate: expected length >= {ending} and leeway >= 0")));
    }
    let Value::Str(text) = value else {
        return match value {
            Value::Undefined(_) => Ok(value.clone()),
            _ => Err(refused(format!("the filter truncate of a value of type {}", value.type_name()))),
        };
    };
    if text.chars().count() as i64 <= length.saturating_add(leeway) {
        return Ok(value.clone());
    }
    let cut: String = text.chars().take((length - ending) as usize).collect();
    let kept =
        if kill.flag(false) { &cut[..] } else { cut.rsplit_once(' ').map_or(&cut[..], |(before, _)| before) };
    budget.work(kept.len() + end.len())?;
    Ok(Value::str(format!("{kept}{end}")))
}

fn escape(text: &str, budget: &Budget) -> Result<Arc<str>> {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    budget.work(out.len())?;
    Ok(out.into())
}

/// A text with / kept, or a query of the pairs in a dict or list.
fn urlencode(value: &Value, budget: &Budget) -> Result<Value> {
    if matches!(value, Value::Str(_) | Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_)) {
        return Ok(Value::str(quote(&to_str(value, budget)?, "/", budget)?));
    }
    let pairs = match value {
        Value::Dict(dict) => super::value::View::Items.items(dict, budget)?,
        _ => value.items(budget)?,
    };
    let mut out = String::new();
    for (i, pair) in pairs.iter().enumerate() {
        let pair = pair.items(budget)?;
        let [key, value] = pair.as_slice() else { return Err(failed("urlencode: expected pairs")) };
        out.push_str(if i > 0 { "&" } else { "" });
        out.push_str(&quote(&to_str(key, budget)?, "", budget)?.replace("%20", "+"));
        out.push('=');
        out.push_str(&quote(&to_str(value, budget)?, "", budget)?.replace("%20", "+"));
    }
    Ok(Value::str(out))
}

fn quote(text: &str, safe: &str, budget: &Budget) -> Result<String> {
    budget.work(text.len().saturating_mul(3))?;
    let mut out = String::new();
    for byte in text.bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || "_.-~".contains(c) || safe.contains(c) {
            out.push(c);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(out)
}

fn file_size(value: &Value, binary: bool) -> Result<Value> {
    let bytes = match value {
        Value::Str(text) => super::numeric::parse_float(text),
        _ => value.as_float(),
    };
    let bytes = bytes.ok_or_else(|| failed("filesizeformat: could not convert to float"))?;
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    if bytes == 1.0 {
        return Ok(Value::str("1 Byte"));
    }
    if bytes < base {
        return Ok(Value::str(format!("{} Bytes", bytes.trunc() as i128)));
    }
    let mut unit = base * base;
    let prefixes = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    for (i, prefix) in prefixes.iter().enumerate() {
        if bytes < unit || i + 1 == prefixes.len() {
            let prefix = if binary { format!("{}iB", prefix.to_uppercase()) } else { format!("{prefix}B") };
            return Ok(Value::str(format!("{} {prefix}", fixed(base * bytes / unit, 1))));
        }
        unit *= base;
    }
    Ok(Value::None)
}
