//! str.format and Python's format specifications.

use super::arguments::Args;
use super::budget::Budget;
use super::error::{failed, refused, Result};
use super::interpreter::Machine;
use super::numeric::{fixed, general, grouped, scientific};
use super::text::{escape, float, to_repr, to_str};
use super::value::Value;

/// Levels of fields inside a field's specification, the text itself included.
const NESTING: u32 = 3;

enum Numbering {
    Unset,
    Automatic(usize),
    Manual,
}

struct Formatter<'a, 'p> {
    machine: &'a Machine<'p>,
    args: &'a Args,
    numbering: Numbering,
}

pub fn format(machine: &Machine, text: &str, args: &Args) -> Result<Value> {
    let mut formatter = Formatter { machine, args, numbering: Numbering::Unset };
    Ok(Value::Str(formatter.expand(text, NESTING)?.into()))
}

impl Formatter<'_, '_> {
    fn expand(&mut self, text: &str, nesting: u32) -> Result<String> {
        if nesting == 0 {
            return Err(failed("Max string recursion exceeded"));
        }
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            out.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            let after = &rest[at + 1..];
            if let Some(after) = after.strip_prefix(brace) {
                out.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" {
                return Err(failed("Single '}' encountered in format string"));
            }
            let end = end_of_field(after)?;
            let field = self.field(&after[..end], nesting)?;
            self.machine.budget.work(field.len())?;
            out.push_str(&field);
            rest = &after[end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn field(&mut self, field: &str, nesting: u32) -> Result<String> {
        let brackets_end = field.rfind(']').filter(|end| {
            field.find('[').is_some_and(|open| open < field.find(':').unwrap_or(usize::MAX) && open < *end)
        });
        let after = brackets_end.unwrap_or(0);
        let name_end = field[after..].find(['!', ':']).map_or(field.len(), |at| after + at);
        let (name, rest) = field.split_at(name_end);
        let (conversion, spec) = match rest.strip_prefix('!') {
            Some(rest) => {
                let (conversion, spec) = rest.split_once(':').unwrap_or((rest, ""));
                (Some(conversion), spec)
            }
            None => (None, rest.strip_prefix(':').unwrap_or("")),
        };
        let value = self.lookup(name)?;
        let spec = self.expand(spec, nesting - 1)?;
        let budget = &self.machine.budget;
        let value = match conversion {
            None => value,
            Some("s") => Value::Str(to_str(&value, budget)?),
            Some("r") => Value::str(to_repr(&value, budget)?),
            Some("a") => Value::str(
                to_repr(&value, budget)?
                    .chars()
                    .map(|c| if c.is_ascii() { c.to_string() } else { escape(c) })
                    .collect::<String>(),
            ),
            Some(other) => return Err(failed(format!("Unknown conversion specifier {other}"))),
        };
        format_value(&value, &spec, budget)
    }

    /// name.attribute[key]...
    fn lookup(&mut self, field: &str) -> Result<Value> {
        let end = field.find(['.', '[']).unwrap_or(field.len());
        let (first, mut rest) = field.split_at(end);
        let mut value = if first.is_empty() || first.bytes().all(|b| b.is_ascii_digit()) {
            let at = match (&mut self.numbering, first) {
                (Numbering::Automatic(next), "") => {
                    *next += 1;
                    *next - 1
                }
                (Numbering::Unset, "") => {
                    self.numbering = Numbering::Automatic(1);
                    0
                }
                (Numbering::Unset | Numbering::Manual, digits) if !digits.is_empty() => {
                    self.numbering = Numbering::Manual;
                    digits.parse().unwrap_or(usize::MAX)
                }
                _ => return Err(failed("cannot switch between manual and automatic field numbering")),
            };
            let value = self.args.positional.get(at).cloned();
            value.ok_or_else(|| failed(format!("Replacement index {at} out of range")))?
        } else {
            let named = self.args.named.iter().find(|(name, _)| **name == *first);
            named
                .map(|(_, value)| value.clone())
                .ok_or_else(|| failed(format!("format: no value '{first}'")))?
        };
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix('[') {
                let Some((key, after)) = tail.split_once(']') else {
                    return Err(failed("Missing ']' in format string"));
                };
                let key = match key.parse::<i128>() {
                    Ok(index) if key.bytes().all(|b| b.is_ascii_digit()) => Value::Int(index),
                    _ => Value::str(key),
                };
                value = self.machine.get_item(&value, &key)?;
                rest = after;
            } else if let Some(tail) = rest.strip_prefix('.') {
                let end = tail.find(['.', '[']).unwrap_or(tail.len());
                value = self.machine.get_attribute(&value, &tail[..end].into())?;
                rest = &tail[end..];
            } else {
                return Err(failed("Only '.' or '[' may follow ']' in format field specifier"));
            }
        }
        Ok(value)
    }
}

fn end_of_field(text: &str) -> Result<usize> {
    let (mut depth, mut brackets) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '[' => brackets = true,
            ']' => brackets = false,
            '{' if !brackets => depth += 1,
            '}' if !brackets && depth == 0 => return Ok(at),
            '}' if !brackets => depth -= 1,
            _ => {}
        }
    }
    Err(failed("expected '}' before end of string"))
}

#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

fn parse(spec: &str) -> Result<Spec> {
    let mut parsed = Spec::default();
    let mut chars: Vec<char> = spec.chars().collect();
    let aligns = |c: Option<&char>| c.is_some_and(|c| "<>=^".contains(*c));
    if aligns(chars.get(1)) {
        (parsed.fill, parsed.align) = (Some(chars[0]), Some(chars[1]));
        chars.drain(..2);
    } else if aligns(chars.first()) {
        parsed.align = Some(chars.remove(0));
    }
    let mut chars = chars.into_iter().peekable();
    parsed.sign = chars.next_if(|c| "+- ".contains(*c));
    if chars.next_if_eq(&'z').is_some() {
        return Err(refused("the option z of a format"));
    }
    parsed.alternate = chars.next_if_eq(&'#').is_some();
    parsed.zero = chars.next_if_eq(&'0').is_some();
    let number = |chars: &mut std::iter::Peekable<std::vec::IntoIter<char>>| -> Result<Option<usize>> {
        let mut value = None;
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            let next = value.unwrap_or(0) * 10 + digit.to_digit(10).unwrap_or(0) as usize;
            if next > u32::MAX as usize {
                return Err(refused("a format's width beyond 32 bits"));
            }
            value = Some(next);
        }
        Ok(value)
    };
    parsed.width = number(&mut chars)?.unwrap_or(0);
    parsed.grouping = chars.next_if(|c| ",_".contains(*c));
    if chars.next_if_eq(&'.').is_some() {
        parsed.precision =
            Some(number(&mut chars)?.ok_or_else(|| failed("Format specifier missing precision"))?);
    }
    parsed.kind = chars.next();
    if chars.next().is_some() {
        return Err(failed(format!("Invalid format specifier '{spec}'")));
    }
    Ok(parsed)
}

/// format(value, spec).
fn format_value(value: &Value, spec: &str, budget: &Budget) -> Result<String> {
    if spec.is_empty() {
        return Ok(to_str(value, budget)?.to_string());
    }
    let parsed = parse(spec)?;
    budget.work(4usize.saturating_mul(parsed.width) + parsed.precision.unwrap_or(0))?;
    let unknown = || {
        let (kind, name) = (parsed.kind.unwrap_or(' '), value.type_name());
        failed(format!("Unknown format code '{kind}' for object of type '{name}'"))
    };
    match value {
        Value::Str(text) => {
            if parsed.kind.is_some_and(|kind| kind != 's') {
                return Err(unknown());
            }
            if parsed.sign.is_some()
                || parsed.alternate
                || parsed.grouping.is_some()
                || parsed.align == Some('=')
            {
                return Err(failed("sign, '=', '#' and ',' are not allowed in a string's format"));
            }
            let cut: String = match parsed.precision {
                Some(count) => text.chars().take(count).collect(),
                None => text.to_string(),
            };
            let fill = parsed.fill.unwrap_or(if parsed.zero { '0' } else { ' ' });
            Ok(pad(&parsed, "", &cut, fill, parsed.align.unwrap_or('<')))
        }
        Value::Int(_) | Value::Bool(_) | Value::Float(_) => number(value, &parsed, unknown),
        _ => Err(failed(format!("unsupported format string passed to {}.__format__", value.type_name()))),
    }
}

fn number(value: &Value, spec: &Spec, unknown: impl Fn() -> super::error::Error) -> Result<String> {
    if let (Value::Bool(_), None) = (value, spec.kind) {
        return Err(refused("a format of a bool without a type"));
    }
    let int = value.as_int();
    let float_kind = spec.kind.map_or(int.is_none(), |kind| "eEfFgG%n".contains(kind));
    let (negative, body) = if float_kind {
        if spec.alternate || spec.kind == Some('n') {
            return Err(refused("'#' or 'n' in a number's format"));
        }
        let number = value.as_float().unwrap_or(0.0);
        let size = number.abs();
        let text = match (spec.kind, spec.precision) {
            (None, None) => float(size),
            (None, Some(_)) => return Err(refused("a float's format with a precision and without a type")),
            (Some('f' | 'F'), precision) => fixed(size, precision.unwrap_or(6)),
            (Some('e' | 'E'), precision) => scientific(size, precision.unwrap_or(6)),
            (Some('%'), precision) => fixed(size * 100.0, precision.unwrap_or(6)) + "%",
            (_, precision) => general(size, precision.unwrap_or(6), false),
        };
        let text =
            if spec.kind.is_some_and(|kind| kind.is_ascii_uppercase()) { text.to_uppercase() } else { text };
        (number.is_sign_negative() && !number.is_nan(), text)
    } else {
        let number = int.ok_or_else(&unknown)?;
        if spec.precision.is_some() {
            return Err(failed("Precision not allowed in integer format specifier"));
        }
        let size = number.unsigned_abs();
        let (prefix, digits) = match spec.kind {
            None | Some('d') => ("", size.to_string()),
            Some('x') => ("0x", format!("{size:x}")),
            Some('X') => ("0X", format!("{size:X}")),
            Some('o') => ("0o", format!("{size:o}")),
            Some('b') => ("0b", format!("{size:b}")),
            Some('c') => return Err(refused("the type c of a format")),
            Some(_) => return Err(unknown()),
        };
        if spec.grouping.is_some() && !prefix.is_empty() {
            return Err(refused("digit groups in another base"));
        }
        if spec.alternate && !prefix.is_empty() {
            if spec.zero || spec.align == Some('=') {
                return Err(refused("'#' with padding after it"));
            }
            (number < 0, format!("{prefix}{digits}"))
        } else {
            (number < 0, digits)
        }
    };
    let body = match spec.grouping {
        None => body,
        Some(_) if spec.zero => return Err(refused("digit groups with padding by zeros")),
        Some(separator) => {
            let end = body.find(|c: char| !c.is_ascii_digit()).unwrap_or(body.len());
            grouped(&body[..end], 3, separator) + &body[end..]
        }
    };
    let sign = match (negative, spec.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    };
    let fill = spec.fill.unwrap_or(if spec.zero { '0' } else { ' ' });
    let align = spec.align.unwrap_or(if spec.zero { '=' } else { '>' });
    Ok(pad(spec, sign, &body, fill, align))
}

fn pad(spec: &Spec, sign: &str, body: &str, fill: char, align: char) -> String {
    let missing = spec.width.saturating_sub(sign.len() + body.chars().count());
    let run = |count: usize| std::iter::repeat_n(fill, count).collect::<String>();
    match align {
        '<' => format!("{sign}{body}{}", run(missing)),
        '^' => format!("{}{sign}{body}{}", run(missing / 2), run(missing - missing / 2)),
        '=' => format!("{sign}{}{body}", run(missing)),
        _ => format!("{}{sign}{body}", run(missing)),
    }
}
