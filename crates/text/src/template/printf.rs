//! Python's `format % values`, which the filter `format` is too.

use super::budget::Budget;
use super::error::{failed, refused, Result};
use super::numeric::{fixed, general, scientific};
use super::text::{escape, to_repr, to_str};
use super::value::Value;
use std::iter::Peekable;
use std::str::Chars;

#[derive(Default)]
struct Spec {
    key: Option<String>,
    left: bool,
    zero: bool,
    plus: bool,
    blank: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
}

struct Source<'a> {
    /// What the format takes one after the other, or by name.
    values: std::slice::Iter<'a, Value>,
    named: Option<&'a Value>,
}

/// `format % value`: a tuple gives its items.
pub fn modulo(format: &str, value: &Value, budget: &Budget) -> Result<Value> {
    let values = match value {
        Value::Tuple(seq) => &seq.items[..],
        _ => std::slice::from_ref(value),
    };
    // Python takes everything with [] for a mapping, and then does not mind values that are left.
    let mapping = matches!(value, Value::Dict(_) | Value::List(_) | Value::Range(_) | Value::Undefined(_));
    let mut source = Source { values: values.iter(), named: mapping.then_some(value) };
    let mut out = String::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let spec = spec(&mut chars, &mut source)?;
        let conversion = chars.next().ok_or_else(|| failed("incomplete format"))?;
        if conversion == '%' {
            out.push('%');
            continue;
        }
        let value = match (&spec.key, source.named) {
            (Some(key), Some(Value::Dict(dict))) => match dict.get(&Value::str(key))? {
                Some(value) => value.clone(),
                None => return Err(failed(format!("the format's key '{key}' is missing"))),
            },
            (Some(_), _) => return Err(failed("format requires a mapping")),
            (None, _) => source.next()?,
        };
        budget.work(spec.width + spec.precision.unwrap_or(0))?;
        let text = convert(&spec, conversion, &value, budget)?;
        budget.work(text.len())?;
        out.push_str(&text);
    }
    if source.values.next().is_some() && source.named.is_none() {
        return Err(failed("not all arguments converted during string formatting"));
    }
    Ok(Value::Str(out.into()))
}

impl Source<'_> {
    fn next(&mut self) -> Result<Value> {
        self.values.next().cloned().ok_or_else(|| failed("not enough arguments for format string"))
    }
}

fn spec(chars: &mut Peekable<Chars>, source: &mut Source) -> Result<Spec> {
    let mut spec = Spec::default();
    if chars.next_if_eq(&'(').is_some() {
        let mut depth = 1;
        let key = chars.by_ref().take_while(|c| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            depth > 0
        });
        spec.key = Some(key.collect());
    }
    while let Some(flag) = chars.next_if(|c| "-0+ #".contains(*c)) {
        match flag {
            '-' => spec.left = true,
            '0' => spec.zero = true,
            '+' => spec.plus = true,
            '#' => spec.alternate = true,
            _ => spec.blank = true,
        }
    }
    if let Some(width) = count(chars, source)? {
        spec.left |= width < 0;
        spec.width = size(width.unsigned_abs())?;
    }
    if chars.next_if_eq(&'.').is_some() {
        spec.precision = Some(size(count(chars, source)?.unwrap_or(0).max(0) as u128)?);
    }
    while chars.next_if(|c| "hlL".contains(*c)).is_some() {}
    Ok(spec)
}

/// Digits, or * for a value.
fn count(chars: &mut Peekable<Chars>, source: &mut Source) -> Result<Option<i128>> {
    if chars.next_if_eq(&'*').is_some() {
        let value = source.next()?;
        return value.as_int().map(Some).ok_or_else(|| failed("* wants int"));
    }
    let mut value: Option<i128> = None;
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        let digit = i128::from(digit.to_digit(10).unwrap_or(0));
        value = Some((value.unwrap_or(0) * 10 + digit).min(1 << 40));
    }
    Ok(value)
}

fn size(width: u128) -> Result<usize> {
    match usize::try_from(width) {
        Ok(width) if width <= u32::MAX as usize => Ok(width),
        _ => Err(refused("a format's width beyond 32 bits")),
    }
}

fn convert(spec: &Spec, conversion: char, value: &Value, budget: &Budget) -> Result<String> {
    let mut sign = "";
    let body = match conversion {
        's' | 'r' | 'a' => {
            let text = match conversion {
                's' => to_str(value, budget)?.to_string(),
                'r' => to_repr(value, budget)?,
                _ => to_repr(value, budget)?
                    .chars()
                    .map(|c| if c.is_ascii() { c.to_string() } else { escape(c) })
                    .collect(),
            };
            match spec.precision {
                Some(count) => text.chars().take(count).collect(),
                None => text,
            }
        }
        'c' => match (value, value.as_int()) {
            (Value::Str(text), _) if text.chars().count() == 1 => text.to_string(),
            (_, Some(code)) => match u32::try_from(code).ok().and_then(char::from_u32) {
                Some(c) => c.to_string(),
                None => return Err(failed("%c arg not in range(0x110000)")),
            },
            _ => return Err(failed("%c requires int or char")),
        },
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
            let number = match value {
                Value::Float(f) if "diu".contains(conversion) && f.is_finite() => {
                    if f.abs() >= 1e38 {
                        return Err(refused("%d of a float beyond 128 bits"));
                    }
                    f.trunc() as i128
                }
                _ => value.as_int().ok_or_else(|| {
                    let found = value.type_name();
                    failed(format!("%{conversion} format: a number is required, not {found}"))
                })?,
            };
            sign = if number < 0 { "-" } else { "" };
            let number = number.unsigned_abs();
            let (prefix, digits) = match conversion {
                'x' => ("0x", format!("{number:x}")),
                'X' => ("0X", format!("{number:X}")),
                'o' => ("0o", format!("{number:o}")),
                _ => ("", number.to_string()),
            };
            let zeros = "0".repeat(spec.precision.unwrap_or(0).saturating_sub(digits.len()));
            let prefix = if spec.alternate { prefix } else { "" };
            if spec.zero && !spec.left && !prefix.is_empty() {
                return Err(refused("a format with both # and 0"));
            }
            format!("{prefix}{zeros}{digits}")
        }
        'f' | 'F' | 'e' | 'E' | 'g' | 'G' => {
            let number = value
                .as_float()
                .ok_or_else(|| failed(format!("must be real number, not {}", value.type_name())))?;
            sign = if number.is_sign_negative() && !number.is_nan() { "-" } else { "" };
            if spec.alternate {
                return Err(refused(format!("the format %#{conversion}")));
            }
            let (number, precision) = (number.abs(), spec.precision.unwrap_or(6));
            let text = match conversion.to_ascii_lowercase() {
                'f' => fixed(number, precision),
                'e' => scientific(number, precision),
                _ => general(number, precision, false),
            };
            if conversion.is_ascii_uppercase() {
                text.to_uppercase()
            } else {
                text
            }
        }
        _ => return Err(failed(format!("unsupported format character '{conversion}'"))),
    };
    let numeric = !matches!(conversion, 's' | 'r' | 'a' | 'c');
    if numeric && sign.is_empty() {
        sign = if spec.plus {
            "+"
        } else if spec.blank {
            " "
        } else {
            ""
        };
    }
    let missing = spec.width.saturating_sub(sign.len() + body.chars().count());
    Ok(if spec.left {
        format!("{sign}{body}{}", " ".repeat(missing))
    } else if spec.zero && numeric {
        format!("{sign}{}{body}", "0".repeat(missing))
    } else {
        format!("{}{sign}{body}", " ".repeat(missing))
    })
}
