//! The arguments of a call, and their binding to names as Python binds them.

use super::error::{failed, Result};
use super::value::Value;
use std::sync::Arc;

#[derive(Clone, Default)]
pub struct Args {
    pub positional: Vec<Value>,
    pub named: Vec<(Arc<str>, Value)>,
}

impl Args {
    /// One value for each of `names`, in order; None where the call gives none.
    pub fn bind<const N: usize>(self, function: &str, names: [&str; N]) -> Result<[Option<Value>; N]> {
        let given = self.positional.len();
        if given > N {
            return Err(failed(format!("{function}() takes at most {N} arguments, but {given} were given")));
        }
        let mut values = self.positional.into_iter();
        let mut bound: [Option<Value>; N] = std::array::from_fn(|_| values.next());
        for (name, value) in self.named {
            let slot = names.iter().position(|known| **known == *name);
            match slot.map(|at| &mut bound[at]) {
                Some(slot @ None) => *slot = Some(value),
                Some(_) => return Err(failed(format!("{function}() got two values for argument '{name}'"))),
                None => return Err(failed(format!("{function}() got an unexpected argument '{name}'"))),
            }
        }
        Ok(bound)
    }

    /// As `bind`, for a function of C that takes no names.
    pub fn positional<const N: usize>(self, function: &str) -> Result<[Option<Value>; N]> {
        if !self.named.is_empty() {
            return Err(failed(format!("{function}() takes no keyword arguments")));
        }
        self.bind(function, [""; N])
    }

    pub fn none(self, function: &str) -> Result<()> {
        self.positional::<0>(function).map(drop)
    }
}

/// Reads one bound argument.
pub trait Argument {
    fn required(self, function: &str, name: &str) -> Result<Value>;
    fn int(self, function: &str, default: i64) -> Result<i64>;
    fn text(self, function: &str) -> Result<Option<Arc<str>>>;
    fn flag(self, default: bool) -> bool;
}

impl Argument for Option<Value> {
    fn required(self, function: &str, name: &str) -> Result<Value> {
        self.ok_or_else(|| failed(format!("{function}() lacks its argument '{name}'")))
    }

    /// An integer, clamped to 64 bits.
    fn int(self, function: &str, default: i64) -> Result<i64> {
        match self {
            None => Ok(default),
            Some(value) => int(&value, function),
        }
    }

    /// A string; None for None.
    fn text(self, function: &str) -> Result<Option<Arc<str>>> {
        match self {
            None | Some(Value::None) => Ok(None),
            Some(value) => text(&value, function).map(Some),
        }
    }

    fn flag(self, default: bool) -> bool {
        self.map_or(default, |value| value.truth())
    }
}

pub fn int(value: &Value, function: &str) -> Result<i64> {
    match value.as_int() {
        Some(int) => Ok(int.clamp(i64::MIN.into(), i64::MAX.into()) as i64),
        None => Err(failed(format!("{function}: '{}' object is not an integer", value.type_name()))),
    }
}

pub fn text(value: &Value, function: &str) -> Result<Arc<str>> {
    match value {
        Value::Str(text) | Value::Markup(text) => Ok(text.clone()),
        _ => Err(failed(format!("{function}: expected a string, not {}", value.type_name()))),
    }
}
