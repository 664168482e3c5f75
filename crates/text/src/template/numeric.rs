//! Python's numbers as text and back: the conversions of % and format(), round(), int() and float().

/// Digits after the point, rounded half to even as Python does.
pub fn fixed(number: f64, precision: usize) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    format!("{number:.precision$}")
}

/// d.ddde+XX.
pub fn scientific(number: f64, precision: usize) -> String {
    if !number.is_finite() {
        return fixed(number, 0);
    }
    let text = format!("{number:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// The conversion g: `precision` significant digits, zeros at the end dropped unless `alternate`.
pub fn general(number: f64, precision: usize, alternate: bool) -> String {
    if !number.is_finite() {
        return fixed(number, 0);
    }
    let precision = precision.max(1);
    let text = format!("{number:.*e}", precision - 1);
    let exponent: i32 = text.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let strip = |text: String| {
        if alternate || !text.contains('.') {
            return text;
        }
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    };
    if number != 0.0 && (exponent < -4 || exponent >= precision as i32) {
        let text = scientific(number, precision - 1);
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
        return format!("{}e{exponent}", strip(digits.to_string()));
    }
    strip(fixed(number, (precision as i32 - 1 - exponent).max(0) as usize))
}

/// round(number, digits), half to even on the number's exact value.
pub fn round_float(number: f64, digits: i64) -> f64 {
    if !number.is_finite() || digits > 323 || number == 0.0 {
        return number;
    }
    if digits >= 0 {
        return fixed(number, digits as usize).parse().unwrap_or(number);
    }
    if digits < -308 || number.abs() >= 1e37 {
        return if digits < -308 { 0.0f64.copysign(number) } else { number };
    }
    let whole = number.trunc() as i128;
    let rounded = round_int(whole, digits, number.fract() != 0.0);
    (rounded as f64).copysign(number)
}

/// round(number, digits) of an int; `more`: something beyond the point decides a tie upwards.
pub fn round_int(number: i128, digits: i64, more: bool) -> i128 {
    if digits >= 0 {
        return number;
    }
    let Some(unit) = u32::try_from(-digits).ok().and_then(|digits| 10i128.checked_pow(digits)) else {
        return 0;
    };
    let (quotient, rest) = (number / unit, (number % unit).unsigned_abs() * 2);
    let up = rest > unit.unsigned_abs() || (rest == unit.unsigned_abs() && (more || quotient % 2 != 0));
    (quotient
        + if up {
            if number < 0 {
                -1
            } else {
                1
            }
        } else {
            0
        })
        * unit
}

/// Digits with single _ between them.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let lonely = |at: usize| {
        let near = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_alphanumeric);
        near(at.checked_sub(1)) && near(Some(at + 1))
    };
    let good = (0..bytes.len()).all(|at| bytes[at] != b'_' || lonely(at));
    good.then(|| text.replace('_', ""))
}

pub enum Parsed {
    Int(i128),
    Bad,
    /// A valid integer that does not fit.
    Large,
}

/// int(text, base).
pub fn parse_int(text: &str, base: u32) -> Parsed {
    let text = text.trim_matches(super::unicode::is_space);
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let prefix = |letter: char| {
        let tail = digits.strip_prefix('0')?.strip_prefix([letter, letter.to_ascii_uppercase()])?;
        Some(tail.strip_prefix('_').unwrap_or(tail))
    };
    let prefixed = [('x', 16), ('b', 2), ('o', 8)]
        .into_iter()
        .find_map(|(letter, of)| prefix(letter).filter(|_| base == of || base == 0).map(|tail| (tail, of)));
    let (digits, base) = prefixed.unwrap_or((digits, if base == 0 { 10 } else { base }));
    let Some(digits) = without_underscores(digits) else { return Parsed::Bad };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        return Parsed::Bad;
    }
    match i128::from_str_radix(&digits, base) {
        Ok(value) => Parsed::Int(if negative { -value } else { value }),
        Err(_) => Parsed::Large,
    }
}

/// float(text).
pub fn parse_float(text: &str) -> Option<f64> {
    let text = without_underscores(text.trim_matches(super::unicode::is_space))?;
    text.parse().ok()
}

/// Digits of an int in groups of `size` with `separator` between them.
pub fn grouped(digits: &str, size: usize, separator: char) -> String {
    let mut out = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % size == 0 {
            out.push(separator);
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The right-hand sides are Python 3.11's.
    #[test]
    fn rounding() {
        for (number, digits, expected) in [
            (2.5, 0, 2.0),
            (3.5, 0, 4.0),
            (-2.5, 0, -2.0),
            (0.5, 0, 0.0),
            (1.005, 2, 1.0),
            (2.675, 2, 2.67),
            (1234.5, -2, 1200.0),
            (1250.0, -2, 1200.0),
            (1350.0, -2, 1400.0),
            (1250.5, -2, 1300.0),
            (-25.0, -1, -20.0),
        ] {
            assert_eq!(round_float(number, digits), expected, "{number} {digits}");
        }
        assert_eq!([25, 35, -25, 26].map(|n| round_int(n, -1, false)), [20, 40, -20, 30]);
    }

    #[test]
    fn conversions() {
        assert_eq!(general(1234567.0, 6, false), "1.23457e+06");
        assert_eq!(general(0.0001, 6, false), "0.0001");
        assert_eq!(general(100000.0, 6, false), "100000");
        assert_eq!(general(0.0, 6, false), "0");
        assert_eq!(general(1.5, 6, true), "1.50000");
        assert_eq!(scientific(12345.678, 2), "1.23e+04");
        assert_eq!(fixed(0.125, 2), "0.12");
        assert_eq!(grouped("1234567", 3, ','), "1,234,567");
        assert!(matches!(parse_int(" -0x_1F ", 16), Parsed::Int(-31)));
        assert!(matches!(parse_int("1__0", 10), Parsed::Bad));
        assert_eq!(parse_float("1_0.5e1 "), Some(105.0));
    }
}
