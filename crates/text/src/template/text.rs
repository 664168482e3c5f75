//! Values as Python writes them: str(), repr() and json.dumps().

use super::budget::Budget;
use super::error::{failed, refused, Result};
use super::ops;
use super::unicode::is_printable;
use super::value::{Object, Value, View};
use std::sync::Arc;

/// str(value); the empty string for an undefined value, as Jinja2 has it.
pub fn to_str(value: &Value, budget: &Budget) -> Result<Arc<str>> {
    if let Value::Str(text) | Value::Markup(text) = value {
        return Ok(text.clone());
    }
    let mut out = String::new();
    write_str(value, &mut out, budget)?;
    Ok(out.into())
}

/// Appends str(value).
pub fn write_str(value: &Value, out: &mut String, budget: &Budget) -> Result<()> {
    match value {
        Value::Str(text) | Value::Markup(text) => {
            budget.work(text.len())?;
            out.push_str(text);
            Ok(())
        }
        Value::Undefined(_) => Ok(()),
        _ => repr(value, out, budget, 0),
    }
}

pub fn to_repr(value: &Value, budget: &Budget) -> Result<String> {
    let mut out = String::new();
    repr(value, &mut out, budget, 0)?;
    Ok(out)
}

/// Namespaces inside each other are the only values that can hold themselves.
const NAMESPACES: u32 = 16;

fn repr(value: &Value, out: &mut String, budget: &Budget, namespaces: u32) -> Result<()> {
    budget.work(8)?;
    let group = |out: &mut String, items: &[Value], open: char, close: char| -> Result<()> {
        out.push(open);
        for (i, item) in items.iter().enumerate() {
            out.push_str(if i > 0 { ", " } else { "" });
            repr(item, out, budget, namespaces)?;
        }
        out.push(close);
        Ok(())
    };
    match value {
        Value::Undefined(_) => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(b) => out.push_str(if *b { "True" } else { "False" }),
        Value::Int(i) => out.push_str(&i.to_string()),
        Value::Float(f) => out.push_str(&float(*f)),
        Value::Str(text) => repr_str(text, out, budget)?,
        Value::Markup(text) => {
            out.push_str("Markup(");
            repr_str(text, out, budget)?;
            out.push(')');
        }
        Value::List(seq) => group(out, &seq.items, '[', ']')?,
        Value::Tuple(seq) if seq.items.len() == 1 => {
            out.push('(');
            repr(&seq.items[0], out, budget, namespaces)?;
            out.push_str(",)");
        }
        Value::Tuple(seq) => group(out, &seq.items, '(', ')')?,
        Value::Dict(dict) => {
            out.push('{');
            for (i, (key, item)) in dict.entries.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(key, out, budget, namespaces)?;
                out.push_str(": ");
                repr(item, out, budget, namespaces)?;
            }
            out.push('}');
        }
        Value::View(view, dict) => {
            out.push_str(match view {
                View::Keys => "dict_keys(",
                View::Values => "dict_values(",
                View::Items => "dict_items(",
            });
            group(out, &view.items(dict, budget)?, '[', ']')?;
            out.push(')');
        }
        Value::Range(range) if range.step == 1 => {
            out.push_str(&format!("range({}, {})", range.start, range.stop))
        }
        Value::Range(range) => {
            out.push_str(&format!("range({}, {}, {})", range.start, range.stop, range.step))
        }
        Value::Object(object) => match &**object {
            Object::Loop(state) => {
                let (at, count) = (state.at.get() + 1, state.items.items.len());
                out.push_str(&format!("<LoopContext {at}/{count}>"));
            }
            Object::Macro { decl, .. } => out.push_str(&format!("<Macro '{}'>", decl.name)),
            Object::Namespace(attributes) => {
                if namespaces >= NAMESPACES {
                    return Err(refused("printing a namespace that holds itself"));
                }
                out.push_str("<Namespace {");
                for (i, (name, item)) in attributes.borrow().iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    repr_str(name, out, budget)?;
                    out.push_str(": ");
                    repr(item, out, budget, namespaces + 1)?;
                }
                out.push_str("}>");
            }
            _ => return Err(prints_address(value)),
        },
        Value::Iterator(_) => return Err(prints_address(value)),
    }
    Ok(())
}

fn prints_address(value: &Value) -> super::error::Error {
    refused(format!("printing a {}, for which Python prints an address,", value.type_name()))
}

pub fn repr_str(text: &str, out: &mut String, budget: &Budget) -> Result<()> {
    budget.work(text.len())?;
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if !is_printable(c) => out.push_str(&escape(c)),
            c => out.push(c),
        }
    }
    out.push(quote);
    Ok(())
}

/// \xe9, \u20ac, \U0001f600.
pub fn escape(c: char) -> String {
    match c as u32 {
        code @ 0..=0xFF => format!("\\x{code:02x}"),
        code @ 0x100..=0xFFFF => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

/// repr() of a float: the shortest digits that read back, with an exponent from 1e16 up and below 1e-4.
pub fn float(number: f64) -> String {
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
    pub item_separator: Arc<str>,
    pub key_separator: Arc<str>,
    pub sort_keys: bool,
}

impl Dumps {
    pub fn write(&self, value: &Value, budget: &Budget) -> Result<String> {
        let mut out = String::new();
        self.dump(value, &mut out, 0, budget)?;
        Ok(out)
    }

    fn dump(&self, value: &Value, out: &mut String, level: usize, budget: &Budget) -> Result<()> {
        budget.work(8)?;
        match value {
            Value::Str(text) | Value::Markup(text) => self.quote(text, out, budget)?,
            Value::List(seq) | Value::Tuple(seq) => {
                self.group(('[', ']'), seq.items.len(), out, level, budget, |out, i| {
                    self.dump(&seq.items[i], out, level + 1, budget)
                })?
            }
            Value::Dict(dict) => {
                let mut entries: Vec<&(Value, Value)> = dict.entries.iter().collect();
                if self.sort_keys {
                    entries = ops::sort(entries, |a, b| ops::less(&a.0, &b.0, budget), budget)?;
                }
                self.group(('{', '}'), entries.len(), out, level, budget, |out, i| {
                    let key = match &entries[i].0 {
                        Value::Str(text) | Value::Markup(text) => text.clone(),
                        key => Arc::from(scalar(key).ok_or_else(|| {
                            let found = key.type_name();
                            failed(format!("keys must be str, int, float, bool or None, not {found}"))
                        })?),
                    };
                    self.quote(&key, out, budget)?;
                    out.push_str(&self.key_separator);
                    self.dump(&entries[i].1, out, level + 1, budget)
                })?
            }
            _ => match scalar(value) {
                Some(text) => out.push_str(&text),
                None => {
                    let found = value.type_name();
                    return Err(failed(format!("Object of type {found} is not JSON serializable")));
                }
            },
        }
        Ok(())
    }

    fn group(
        &self,
        (open, close): (char, char),
        count: usize,
        out: &mut String,
        level: usize,
        budget: &Budget,
        mut item: impl FnMut(&mut String, usize) -> Result<()>,
    ) -> Result<()> {
        let new_line = |out: &mut String, level: usize| -> Result<()> {
            if let Some(indent) = &self.indent {
                budget.work(indent.len().saturating_mul(level))?;
                out.push('\n');
                (0..level).for_each(|_| out.push_str(indent));
            }
            Ok(())
        };
        out.push(open);
        for i in 0..count {
            if i > 0 {
                budget.work(self.item_separator.len())?;
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

    fn quote(&self, text: &str, out: &mut String, budget: &Budget) -> Result<()> {
        budget.work(text.len())?;
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
                c if c < ' ' || (self.ensure_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
        Ok(())
    }
}

/// null, true, a number.
fn scalar(value: &Value) -> Option<String> {
    Some(match value {
        Value::None => "null".into(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Float(f) if f.is_nan() => "NaN".into(),
        Value::Float(f) if f.is_infinite() => if *f > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        Value::Float(f) => float(*f),
        _ => return None,
    })
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
            assert_eq!(float(value), text);
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
            ("\u{a0}\u{200b}\u{e000}\u{378}", "'\\xa0\\u200b\\ue000\\u0378'"),
        ];
        for (value, text) in cases {
            assert_eq!(to_repr(&Value::str(value), &Budget::new()).unwrap(), text);
        }
    }
}
