//! The filters, tests and functions that a template may use: those of Jinja2 that chat templates need,
//! each with Jinja2's behaviour and with its cost charged. Anything else is an unknown filter.

use super::budget::Budget;
use super::clock::Clock;
use super::methods;
use super::ops;
use super::printf::printf;
use super::python::{error, to_str, Dumps};
use minijinja::value::{from_args, Kwargs, Rest, Value, ValueKind};
use minijinja::{filters, functions, tests, Environment, Error, State};
use std::fmt;

type Answer = Result<Value, Error>;

/// The cause of an error that the template raised itself.
#[derive(Debug)]
pub struct Raised(pub String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Raised {}

pub fn install(env: &mut Environment<'_>, budget: &Budget, clock: Clock) {
    operators(env, budget);
    charged_filters(env, budget);
    own_filters(env, budget);
    for (name, test) in [
        ("defined", Value::from_function(tests::is_defined)),
        ("undefined", Value::from_function(tests::is_undefined)),
        ("none", Value::from_function(tests::is_none)),
        ("boolean", Value::from_function(tests::is_boolean)),
        ("odd", Value::from_function(tests::is_odd)),
        ("even", Value::from_function(tests::is_even)),
        ("divisibleby", Value::from_function(tests::is_divisibleby)),
        ("number", Value::from_function(|v: &Value| matches!(v.kind(), ValueKind::Number | ValueKind::Bool))),
        ("integer", Value::from_function(tests::is_integer)),
        ("float", Value::from_function(tests::is_float)),
        ("string", Value::from_function(tests::is_string)),
        ("mapping", Value::from_function(tests::is_mapping)),
        ("iterable", Value::from_function(is_container)),
        ("sequence", Value::from_function(is_container)),
        ("true", Value::from_function(tests::is_true)),
        ("false", Value::from_function(tests::is_false)),
        ("lower", Value::from_function(tests::is_lower)),
        ("upper", Value::from_function(tests::is_upper)),
        ("filter", Value::from_function(tests::is_filter)),
        ("test", Value::from_function(tests::is_test)),
        ("callable", Value::from_function(|v: &Value| v.kind() == ValueKind::Plain)),
    ] {
        env.add_test(name, move |state: &State, args: Rest<Value>| -> Result<bool, Error> {
            Ok(test.call(state, &args)?.is_true())
        });
    }
    for (operator, names) in [
        ("py.eq", &["eq", "equalto", "==", "sameas"][..]),
        ("py.ne", &["ne", "!="]),
        ("py.lt", &["lt", "lessthan", "<"]),
        ("py.le", &["le", "<="]),
        ("py.gt", &["gt", "greaterthan", ">"]),
        ("py.ge", &["ge", ">="]),
        ("py.in", &["in"]),
    ] {
        for name in names {
            env.add_test(*name, move |state: &State, args: Rest<Value>| -> Result<bool, Error> {
                Ok(state.apply_filter(operator, &args)?.is_true())
            });
        }
    }

    let own = budget.clone();
    env.add_function("range", move |from: i64, to: Option<i64>, step: Option<i64>| {
        range(&own, from, to, step)
    });
    env.add_function("dict", functions::dict);
    env.add_function("namespace", functions::namespace);
    env.add_function("raise_exception", |words: &Value| -> Answer {
        Err(error("raise_exception").with_source(Raised(words.to_string())))
    });
    env.add_function("strftime_now", move |format: &str| clock.strftime(format));
    let own = budget.clone();
    env.set_unknown_method_callback(move |_, value, name, args| methods::call(&own, value, name, args));
    let own = budget.clone();
    env.set_formatter(move |out, _, value| {
        let text = to_str(value, &own)?;
        own.emit(text.len())?;
        Ok(out.write_str(&text)?)
    });
}

/// A str, list or dict: all of them iterable, and sequences by Jinja2's test. So is an undefined value
/// iterable, but that no template asks.
fn is_container(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
}

/// What program.rs puts in place of instructions.
fn operators(env: &mut Environment<'_>, budget: &Budget) {
    for (name, function) in ops::BINARY {
        let own = budget.clone();
        env.add_filter(name, move |a: &Value, b: &Value| function(&own, a, b));
    }
    let own = budget.clone();
    env.add_filter("py.item", move |value: &Value, key: &Value| ops::item(&own, value, key));
    let own = budget.clone();
    env.add_filter("py.slice", move |args: Rest<Value>| ops::slice(&own, &args));
    let own = budget.clone();
    env.add_filter("py.bound", move |value: Value| own.charge_tree(&value).map(|()| value));
    let own = budget.clone();
    env.add_filter("py.charge", move |value: Value| {
        own.charge_values(std::slice::from_ref(&value)).map(|()| value)
    });
}

/// The library's own filters whose result is no larger than what they are given.
fn charged_filters(env: &mut Environment<'_>, budget: &Budget) {
    for (name, filter) in [
        ("lower", Value::from_function(filters::lower)),
        ("upper", Value::from_function(filters::upper)),
        ("escape", Value::from_function(filters::escape)),
        ("e", Value::from_function(filters::escape)),
        ("safe", Value::from_function(filters::safe)),
        ("length", Value::from_function(length)),
        ("count", Value::from_function(length)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("items", Value::from_function(filters::items)),
        ("reverse", Value::from_function(filters::reverse)),
        ("default", Value::from_function(filters::default)),
        ("d", Value::from_function(filters::default)),
        ("round", Value::from_function(filters::round)),
        ("abs", Value::from_function(filters::abs)),
        ("int", Value::from_function(int)),
        ("float", Value::from_function(float)),
        ("attr", Value::from_function(filters::attr)),
        ("first", Value::from_function(filters::first)),
        ("last", Value::from_function(filters::last)),
        ("min", Value::from_function(filters::min)),
        ("max", Value::from_function(filters::max)),
        ("sort", Value::from_function(filters::sort)),
        ("list", Value::from_function(list)),
        ("select", Value::from_function(filters::select)),
        ("reject", Value::from_function(filters::reject)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("map", Value::from_function(filters::map)),
        ("groupby", Value::from_function(filters::groupby)),
        ("unique", Value::from_function(filters::unique)),
    ] {
        let own = budget.clone();
        env.add_filter(name, move |state: &State, args: Rest<Value>| -> Answer {
            own.charge_values(&args)?;
            filter.call(state, &args)
        });
    }
}

/// Filters of ours: they print as Python prints, or may make more than they are given.
fn own_filters(env: &mut Environment<'_>, budget: &Budget) {
    let own = budget.clone();
    env.add_filter("tojson", move |value: &Value, ascii: Option<bool>, kwargs: Kwargs| {
        to_json(&own, value, ascii, &kwargs)
    });
    let own = budget.clone();
    env.add_filter("string", move |value: &Value| to_str(value, &own));
    let own = budget.clone();
    env.add_filter("join", move |state: &State, value: &Value, args: Rest<Value>| {
        join(&own, state, value, &args)
    });
    let own = budget.clone();
    env.add_filter("sum", move |state: &State, value: &Value, args: Rest<Value>| {
        sum(&own, state, value, &args)
    });
    let own = budget.clone();
    env.add_filter("format", move |format: &str, args: Rest<Value>| {
        let (values, kwargs): (&[Value], Value) = match args.split_last() {
            Some((last, values)) if last.is_kwargs() => (values, last.clone()),
            _ => (&args, Value::UNDEFINED),
        };
        printf(&own, format, values, &kwargs)
    });
    let own = budget.clone();
    env.add_filter("trim", move |value: &Value, chars: Option<&str>| -> Result<String, Error> {
        Ok(methods::strip(&to_str(value, &own)?, chars, true, true).to_string())
    });
    let own = budget.clone();
    env.add_filter("capitalize", move |value: &Value| -> Result<String, Error> {
        Ok(methods::capitalize(&to_str(value, &own)?))
    });
    let own = budget.clone();
    env.add_filter("title", move |value: &Value| -> Result<String, Error> {
        Ok(title(&to_str(value, &own)?))
    });
    let own = budget.clone();
    env.add_filter("replace", move |value: &Value, old: &str, new: &str, count: Option<i64>| {
        methods::replace(&own, &to_str(value, &own)?, old, new, count.unwrap_or(-1))
    });
    let own = budget.clone();
    env.add_filter("indent", move |value: &Value, args: Rest<Value>| indent(&own, value, &args));
    let own = budget.clone();
    env.add_filter("batch", move |value: &Value, size: usize, fill: Option<Value>| {
        batch(&own, value, size, fill)
    });
}

fn to_json(budget: &Budget, value: &Value, ascii: Option<bool>, kwargs: &Kwargs) -> Result<String, Error> {
    let indent: Option<Value> = kwargs.get("indent")?;
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(text) if text.as_str().is_some() => text.as_str().map(String::from),
        Some(count) => {
            let count = usize::try_from(count)?;
            budget.charge_len(count)?;
            Some(" ".repeat(count))
        }
    };
    // json.dumps ends a line right after the comma.
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(error("tojson: separators are two strings")),
        None => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
    };
    let dumps = Dumps {
        ensure_ascii: ascii.or(kwargs.get("ensure_ascii")?).unwrap_or(false),
        indent,
        item_separator: item,
        key_separator: key,
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    dumps.write(value, budget)
}

/// Positional arguments and keyword arguments.
fn arguments(args: &[Value]) -> Result<(&[Value], Kwargs), Error> {
    let positional = match args.split_last() {
        Some((last, before)) if last.is_kwargs() => before,
        _ => args,
    };
    let (_, kwargs): (Rest<Value>, Kwargs) = from_args(args)?;
    Ok((positional, kwargs))
}

/// The items of a list, or of each item the attribute that is named.
fn items_of(state: &State, value: &Value, attribute: Option<Value>) -> Result<Vec<Value>, Error> {
    let items: Vec<Value> = if value.is_undefined() { Vec::new() } else { value.try_iter()?.collect() };
    let Some(attribute) = attribute.filter(|attribute| !attribute.is_none()) else { return Ok(items) };
    let named = Kwargs::from_iter([("attribute", attribute)]);
    let mapped = state.apply_filter("map", &[Value::from(items), Value::from(named)])?;
    Ok(mapped.try_iter()?.collect())
}

/// join(d="", attribute=None).
fn join(budget: &Budget, state: &State, value: &Value, args: &[Value]) -> Answer {
    let (positional, kwargs) = arguments(args)?;
    let separator = positional.first().cloned().or(kwargs.get("d")?).unwrap_or_else(|| Value::from(""));
    let attribute = positional.get(1).cloned().or(kwargs.get("attribute")?);
    kwargs.assert_all_used()?;
    budget.charge_values(std::slice::from_ref(value))?;
    let items = items_of(state, value, attribute)?;
    Ok(Value::from(methods::join(budget, &items, &to_str(&separator, budget)?)?))
}

/// sum(attribute=None, start=0).
fn sum(budget: &Budget, state: &State, value: &Value, args: &[Value]) -> Answer {
    let (positional, kwargs) = arguments(args)?;
    let attribute = positional.first().cloned().or(kwargs.get("attribute")?);
    let start = positional.get(1).cloned().or(kwargs.get("start")?).unwrap_or_else(|| Value::from(0));
    kwargs.assert_all_used()?;
    budget.charge_values(std::slice::from_ref(value))?;
    items_of(state, value, attribute)?.iter().try_fold(start, |sum, item| ops::add(budget, &sum, item))
}

/// Jinja2's title: a word starts after white space or one of -({[<.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut start = true;
    for c in text.chars() {
        if start {
            out.extend(c.to_uppercase())
        } else {
            out.extend(c.to_lowercase())
        }
        start = c.is_whitespace() || "-({[<".contains(c);
    }
    out
}

/// indent(width=4, first=False, blank=False); the width may be a string.
fn indent(budget: &Budget, value: &Value, args: &[Value]) -> Result<String, Error> {
    let (width, first, blank, kwargs): (Option<Value>, Option<bool>, Option<bool>, Kwargs) = from_args(args)?;
    let width = width.or(kwargs.get("width")?).unwrap_or_else(|| Value::from(4));
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank = blank.or(kwargs.get("blank")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let text = value
        .as_str()
        .ok_or_else(|| error(format!("indent: a value of type {} has no lines", value.kind())))?;
    budget.charge_len(text.len())?;
    let lines = text.matches('\n').count() as u64 + 1;
    let by = match width.as_str() {
        Some(by) => by.to_string(),
        None => {
            let count = usize::try_from(width)?;
            budget.charge(lines.saturating_mul(count as u64))?;
            " ".repeat(count)
        }
    };
    budget.charge(lines.saturating_mul(by.len() as u64))?;
    let mut out = if first { by.clone() } else { String::new() };
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(&by);
            }
        }
        out.push_str(line);
    }
    Ok(out)
}

fn batch(budget: &Budget, value: &Value, size: usize, fill: Option<Value>) -> Answer {
    if size == 0 {
        return Err(error("batch: the size is zero"));
    }
    budget.charge_values(std::slice::from_ref(value))?;
    let items: Vec<Value> = value.try_iter()?.collect();
    let mut rows: Vec<Vec<Value>> = items.chunks(size).map(<[Value]>::to_vec).collect();
    if let (Some(fill), Some(last)) = (fill, rows.last_mut()) {
        budget.charge((size - last.len()) as u64 * 16)?;
        last.resize(size, fill);
    }
    Ok(Value::from(rows))
}

fn range(budget: &Budget, from: i64, to: Option<i64>, step: Option<i64>) -> Answer {
    let (from, to, step) = match to {
        Some(to) => (i128::from(from), i128::from(to), i128::from(step.unwrap_or(1))),
        None => (0, i128::from(from), 1),
    };
    if step == 0 {
        return Err(error("range: the step is zero"));
    }
    let span = if step > 0 { to - from } else { from - to };
    let count = if span <= 0 { 0 } else { (span - 1) / step.abs() + 1 };
    budget.charge(u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(24))?;
    Ok(Value::from((0..count).map(|i| Value::from(from + i * step)).collect::<Vec<Value>>()))
}

/// len(); an undefined value has none of anything.
fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| error(format!("a value of type {} has no length", value.kind())))
}

fn list(value: &Value) -> Answer {
    if value.is_undefined() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    Ok(Value::from(value.try_iter()?.collect::<Vec<Value>>()))
}

/// int(default=0): what cannot be read is the default.
fn int(value: &Value, default: Option<Value>) -> Value {
    let fallback = || default.unwrap_or_else(|| Value::from(0));
    let cut = |number: f64| number.is_finite().then(|| Value::from(number.trunc() as i128));
    match value.kind() {
        ValueKind::Bool => Value::from(i32::from(value.is_true())),
        ValueKind::Number if value.is_integer() => value.clone(),
        ValueKind::Number => f64::try_from(value.clone()).ok().and_then(cut).unwrap_or_else(fallback),
        _ => {
            let text = value.as_str().unwrap_or_default().trim();
            let whole = text.parse::<i128>().ok().map(Value::from);
            whole.or_else(|| text.parse::<f64>().ok().and_then(cut)).unwrap_or_else(fallback)
        }
    }
}

/// float(default=0.0).
fn float(value: &Value, default: Option<Value>) -> Value {
    let read = match value.as_str() {
        Some(text) => text.trim().parse::<f64>().ok(),
        None if value.kind() == ValueKind::Bool => Some(if value.is_true() { 1.0 } else { 0.0 }),
        None => f64::try_from(value.clone()).ok(),
    };
    read.map_or_else(|| default.unwrap_or_else(|| Value::from(0.0)), Value::from)
}
