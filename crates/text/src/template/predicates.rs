//! Jinja2's tests: `value is name(arguments)`.

use super::arguments::{Args, Argument};
use super::ast::{Binary, Comparison};
use super::budget::Budget;
use super::error::{failed, refused, Result};
use super::ops;
use super::text::to_str;
use super::value::{Object, Value};
use std::rc::Rc;
use std::sync::Arc;

const NAMES: [&str; 39] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

pub fn apply(name: &str, value: &Value, args: Args, budget: &Budget) -> Result<bool> {
    let comparison = match name {
        "eq" | "==" | "equalto" => Some(Comparison::Eq),
        "ne" | "!=" => Some(Comparison::Ne),
        "lt" | "<" | "lessthan" => Some(Comparison::Lt),
        "le" | "<=" => Some(Comparison::Le),
        "gt" | ">" | "greaterthan" => Some(Comparison::Gt),
        "ge" | ">=" => Some(Comparison::Ge),
        "in" => Some(Comparison::In),
        _ => None,
    };
    if let Some(comparison) = comparison {
        let [other] = args.positional(name)?;
        return ops::compare(comparison, value, &other.required(name, "other")?, budget);
    }
    match name {
        "divisibleby" => {
            let [by] = args.bind(name, ["num"])?;
            let rest = ops::binary(Binary::Mod, value, &by.required(name, "num")?, budget)?;
            return ops::equal(&rest, &Value::Int(0), budget);
        }
        "sameas" => {
            let [other] = args.bind(name, ["other"])?;
            return same(value, &other.required(name, "other")?, budget);
        }
        _ => args.none(name)?,
    }
    Ok(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => value.as_float().is_some(),
        "string" => matches!(value, Value::Str(_) | Value::Markup(_)),
        "mapping" => matches!(value, Value::Dict(_)),
        "escaped" => matches!(value, Value::Markup(_)),
        "odd" | "even" => {
            let rest = ops::binary(Binary::Mod, value, &Value::Int(2), budget)?;
            ops::equal(&rest, &Value::Int(i128::from(name == "odd")), budget)?
        }
        "lower" => cased(value, budget, char::is_lowercase, char::is_uppercase)?,
        "upper" => cased(value, budget, char::is_uppercase, char::is_lowercase)?,
        "sequence" => matches!(
            value,
            Value::Undefined(_)
                | Value::Str(_)
                | Value::Markup(_)
                | Value::List(_)
                | Value::Tuple(_)
                | Value::Dict(_)
                | Value::Range(_)
        ),
        "iterable" => match value {
            Value::Object(object) => matches!(**object, Object::Loop(_)),
            Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => false,
            _ => true,
        },
        "callable" => match value {
            Value::Object(object) => !matches!(**object, Object::Namespace(_) | Object::Cycler { .. }),
            _ => value.is_undefined(),
        },
        "filter" => super::filters::exists(&to_str(value, budget)?),
        "test" => NAMES.contains(&&*to_str(value, budget)?),
        _ => return Err(refused(format!("the test {name}"))),
    })
}

/// str(value).islower() and isupper().
fn cased(value: &Value, budget: &Budget, some: fn(char) -> bool, none: fn(char) -> bool) -> Result<bool> {
    let text = to_str(value, budget)?;
    budget.work(text.len())?;
    Ok(text.chars().any(some) && !text.chars().any(none))
}

/// Python's `is`. Whether two equal numbers or texts are one object is CPython's affair.
fn same(a: &Value, b: &Value, budget: &Budget) -> Result<bool> {
    Ok(match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Bool(x), Value::Bool(y)) => x == y,
        (Value::List(x), Value::List(y)) => Rc::ptr_eq(x, y),
        (Value::Dict(x), Value::Dict(y)) => Rc::ptr_eq(x, y),
        (Value::Object(x), Value::Object(y)) => Rc::ptr_eq(x, y),
        (Value::Iterator(x), Value::Iterator(y)) => Rc::ptr_eq(x, y),
        (Value::Str(x), Value::Str(y)) if Arc::ptr_eq(x, y) => true,
        (Value::Tuple(x), Value::Tuple(y)) if Rc::ptr_eq(x, y) => true,
        _ if a.type_name() != b.type_name() || !ops::equal(a, b, budget)? => false,
        _ => return Err(refused(format!("the test sameas of two equal values of type {}", a.type_name()))),
    })
}

pub fn check_exists(name: &str) -> Result<()> {
    if NAMES.contains(&name) {
        return Ok(());
    }
    Err(failed(format!("the test {name} is unknown")))
}
