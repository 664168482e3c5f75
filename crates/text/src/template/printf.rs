//! Python's `format % values`, which the filter `format` is too.

use super::budget::Budget;
use super::python::{error, to_repr, to_str};
use minijinja::value::{Value, ValueKind};
use minijinja::Error;
use std::iter::Peekable;
use std::str::Chars;

/// Wider fields are a mistake.
const WIDTH_LIMIT: usize = 1 << 12;

#[derive(Default)]
struct Spec {
    key: Option<String>,
    left: bool,
    zero: bool,
    plus: bool,
    blank: bool,
    width: usize,
    precision: Option<usize>,
}

/// `format % value`. A list gives its items when the format takes several: minijinja has no tuples, which is
/// what Python spreads.
pub fn modulo(budget: &Budget, format: &str, value: &Value) -> Result<Value, Error> {
    let takes = format.replace("%%", "").matches('%').count();
    if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) && takes != 1 {
        let items: Vec<Value> = value.try_iter()?.collect();
        return printf(budget, format, &items, &Value::UNDEFINED);
    }
    printf(budget, format, std::slice::from_ref(value), value)
}

/// `named`: where %(key)s looks.
pub fn printf(budget: &Budget, format: &str, values: &[Value], named: &Value) -> Result<Value, Error> {
    let mut out = String::new();
    let mut values = values.iter();
    let mut used_keys = false;
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let spec = spec(&mut chars)?;
        let conversion = chars.next().ok_or_else(|| error("incomplete format"))?;
        if conversion == '%' {
            out.push('%');
            continue;
        }
        let value = match &spec.key {
            Some(key) => {
                used_keys = true;
                named.get_item(&Value::from(key.as_str()))?
            }
            None => values.next().cloned().ok_or_else(|| error("not enough arguments for format string"))?,
        };
        let text = convert(budget, &spec, conversion, &value)?;
        budget.charge_len(text.len() + spec.width)?;
        out.push_str(&text);
    }
    if values.next().is_some() && !used_keys {
        return Err(error("not all arguments converted during string formatting"));
    }
    Ok(Value::from(out))
}

fn spec(chars: &mut Peekable<Chars>) -> Result<Spec, Error> {
    let mut spec = Spec::default();
    if chars.next_if_eq(&'(').is_some() {
        spec.key = Some(chars.by_ref().take_while(|c| *c != ')').collect());
    }
    while let Some(flag) = chars.next_if(|c| "-0+ ".contains(*c)) {
        match flag {
            '-' => spec.left = true,
            '0' => spec.zero = true,
            '+' => spec.plus = true,
            _ => spec.blank = true,
        }
    }
    spec.width = digits(chars)?;
    if chars.next_if_eq(&'.').is_some() {
        spec.precision = Some(digits(chars)?);
    }
    Ok(spec)
}

fn digits(chars: &mut Peekable<Chars>) -> Result<usize, Error> {
    let mut value = 0;
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        value = value * 10 + digit.to_digit(10).unwrap_or(0) as usize;
        if value > WIDTH_LIMIT {
            return Err(error("a format's width is too large"));
        }
    }
    Ok(value)
}

fn convert(budget: &Budget, spec: &Spec, conversion: char, value: &Value) -> Result<String, Error> {
    let cut = |text: String| match spec.precision {
        Some(count) => text.chars().take(count).collect(),
        None => text,
    };
    let numeric = !matches!(conversion, 's' | 'r');
    let body = match conversion {
        's' => cut(to_str(value, budget)?),
        'r' => cut(to_repr(value, budget)?),
        'd' | 'i' | 'u' => {
            let digits = int(value)?.unsigned_abs().to_string();
            "0".repeat(spec.precision.unwrap_or(0).saturating_sub(digits.len())) + &digits
        }
        'x' => format!("{:x}", int(value)?.unsigned_abs()),
        'X' => format!("{:X}", int(value)?.unsigned_abs()),
        'o' => format!("{:o}", int(value)?.unsigned_abs()),
        'f' | 'F' => format!("{:.*}", spec.precision.unwrap_or(6), float(value)?.abs()),
        _ => return Err(error(format!("the format %{conversion} is not supported"))),
    };
    let negative = match conversion {
        's' | 'r' => false,
        'f' | 'F' => float(value)?.is_sign_negative(),
        _ => int(value)? < 0,
    };
    let sign = match (negative, numeric) {
        (true, _) => "-",
        (_, true) if spec.plus => "+",
        (_, true) if spec.blank => " ",
        _ => "",
    };
    let missing = spec.width.saturating_sub(sign.len() + body.chars().count());
    Ok(if spec.left {
        format!("{sign}{body}{}", " ".repeat(missing))
    } else if spec.zero && numeric {
        format!("{sign}{}{body}", "0".repeat(missing))
    } else {
        format!("{}{sign}{body}", " ".repeat(missing))
    })
}

fn float(value: &Value) -> Result<f64, Error> {
    match value.kind() {
        ValueKind::Bool => Ok(if value.is_true() { 1.0 } else { 0.0 }),
        ValueKind::Number => Ok(f64::try_from(value.clone())?),
        kind => Err(error(format!("format: a number is required, not a value of type {kind}"))),
    }
}

fn int(value: &Value) -> Result<i128, Error> {
    if value.is_integer() {
        return Ok(i128::try_from(value.clone())?);
    }
    Ok(float(value)?.trunc() as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: &str, value: impl Into<Value>, expected: &str) {
        let text = match modulo(&Budget::new(), format, &value.into()) {
            Ok(text) => text.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(text, expected, "{format}");
    }

    /// Expected: what Python 3.11 prints.
    #[test]
    fn equals_python() {
        check("%s|%r|%%", vec!["a'b", "x"], "a'b|'x'|%");
        check("%5d|%-5d|%05d|%+d|% d", vec![42, 42, -42, 7, 7], "   42|42   |-0042|+7| 7");
        check(
            "%.2f %f %8.3f %x %X %o",
            Value::from_serialize((1.005, 2, -3.14159, 255, 255, 8)),
            "1.00 2.000000   -3.142 ff FF 10",
        );
        check("%.2s|%6.3s|", vec!["abc", "wxyz"], "ab|   wxy|");
        check("%d %i %d", Value::from_serialize((2.9, true, -0.5)), "2 1 0");
        check("%s", vec![1, 2], "[1, 2]");
        check("%(a)s-%(b)03d", Value::from_iter([("a", 1), ("b", 2)]), "1-002");
        check("%f", -0.0, "-0.000000");
    }

    #[test]
    fn refuses_what_python_refuses() {
        check("%d", "x", "invalid operation: format: a number is required, not a value of type string");
        check("%s %s", vec![1], "invalid operation: not enough arguments for format string");
        check("none", 1, "invalid operation: not all arguments converted during string formatting");
        check("%", 1, "invalid operation: incomplete format");
        check("%999999999d", 1, "invalid operation: a format's width is too large");
    }
}
