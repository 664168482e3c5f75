//! Values as Python writes them: str(), repr() and json.dumps().

use super::budget::Budget;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// A value nested deeper than this is not printed.
const DEPTH: u32 = 128;

pub fn error(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail.into())
}

/// str(value); the empty string for an undefined value, as Jinja has it.
pub fn to_str(value: &Value, budget: &Budget) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        budget.charge_len(text.len())?;
        return Ok(text.to_string());
    }
    let mut out = String::new();
    if !value.is_undefined() {
        repr(value, &mut out, budget, DEPTH)?;
    }
    Ok(out)
}

pub fn to_repr(value: &Value, budget: &Budget) -> Result<String, Error> {
    let mut out = String::new();
    repr(value, &mut out, budget, DEPTH)?;
    Ok(out)
}

fn repr(value: &Value, out: &mut String, budget: &Budget, depth: u32) -> Result<(), Error> {
    if depth == 0 {
        return Err(error("a value is nested too deeply to print"));
    }
    let before = out.len();
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => repr_str(value.as_str().unwrap_or_default(), out),
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(&key, out, budget, depth - 1)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, out, budget, depth - 1)?;
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(&item, out, budget, depth - 1)?;
            }
            out.push(']');
        }
        _ => out.push_str(&value.to_string()),
    }
    budget.charge_len(out.len() - before)
}

fn repr_str(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if !printable(c) => out.push_str(&match c as u32 {
                code @ 0..=0xFF => format!("\\x{code:02x}"),
                code @ 0x100..=0xFFFF => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            }),
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// str.isprintable() for the characters that text really holds: no controls, no format characters, no
/// separators but the space, no private use.
fn printable(c: char) -> bool {
    let separator = c != ' ' && c.is_whitespace();
    let format = matches!(c, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    let private = matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}');
    !(c.is_control() || separator || format || private)
}

/// repr() of an int or a float: the shortest digits that read back, with an exponent from 1e16 up and
/// below 1e-4.
pub fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(number) = f64::try_from(value.clone()) else { return value.to_string() };
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) || number == 0.0 {
        let fixed = format!("{number}");
        return if fixed.contains('.') { fixed } else { fixed + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// The arguments of json.dumps.
pub struct Dumps {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl Dumps {
    pub fn write(&self, value: &Value, budget: &Budget) -> Result<String, Error> {
        let mut out = String::new();
        self.dump(value, &mut out, 0, budget)?;
        Ok(out)
    }

    fn dump(&self, value: &Value, out: &mut String, level: u32, budget: &Budget) -> Result<(), Error> {
        if level > DEPTH {
            return Err(error("a value is nested too deeply for tojson"));
        }
        let before = out.len();
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(match number(value).as_str() {
                "nan" => "NaN",
                "inf" => "Infinity",
                "-inf" => "-Infinity",
                plain => plain,
            }),
            ValueKind::String => self.quote(value.as_str().unwrap_or_default(), out),
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.group(('{', '}'), keys.len(), out, level, budget, |out, i| {
                    self.key(&keys[i], out, budget)?;
                    out.push_str(&self.key_separator);
                    self.dump(&value.get_item(&keys[i])?, out, level + 1, budget)
                })?;
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.group(('[', ']'), items.len(), out, level, budget, |out, i| {
                    self.dump(&items[i], out, level + 1, budget)
                })?;
            }
            kind => return Err(error(format!("tojson: a value of type {kind} is not JSON"))),
        }
        budget.charge_len(out.len() - before)
    }

    fn group(
        &self,
        (open, close): (char, char),
        count: usize,
        out: &mut String,
        level: u32,
        budget: &Budget,
        mut item: impl FnMut(&mut String, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let new_line = |out: &mut String, level: u32| -> Result<(), Error> {
            if let Some(indent) = &self.indent {
                budget.charge_len(indent.len() * level as usize)?;
                out.push('\n');
                (0..level).for_each(|_| out.push_str(indent));
            }
            Ok(())
        };
        out.push(open);
        for i in 0..count {
            if i > 0 {
                out.push_str(&self.item_separator);
            }
            new_line(out, level + 1)?;
            item(out, i)?;
        }
        if count > 0 {
            new_line(out, level)?;
        }
        out.push(close);
        Ok(())
    }

    fn key(&self, key: &Value, out: &mut String, budget: &Budget) -> Result<(), Error> {
        match key.as_str() {
            Some(text) => self.quote(text, out),
            None => {
                let mut text = String::new();
                self.dump(key, &mut text, DEPTH, budget)?;
                self.quote(&text, out);
            }
        }
        Ok(())
    }

    fn quote(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' '
                    || (self.ensure_ascii && !c.is_ascii())
                    || (self.ensure_ascii && c == '\u{7f}') =>
                {
                    let mut units = [0u16; 2];
                    for unit in c.encode_utf16(&mut units) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_python_prints_them() {
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1e22, "1e+22"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (-0.0, "-0.0"),
            (123456789.125, "123456789.125"),
            (1e100, "1e+100"),
            (5e-324, "5e-324"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(number(&Value::from(value)), text);
        }
    }

    #[test]
    fn strings_print_as_python_prints_them() {
        let cases = [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("both \" '", "'both \" \\''"),
            ("\n\u{1}\u{7f}", "'\\n\\x01\\x7f'"),
            ("é 한 😀", "'é 한 😀'"),
            ("\u{a0}\u{200b}\u{e000}", "'\\xa0\\u200b\\ue000'"),
        ];
        for (value, text) in cases {
            let list = Value::from(vec![value]);
            assert_eq!(to_str(&list, &Budget::new()).unwrap(), format!("[{text}]"));
        }
    }
}
