//! The functions that a template finds without being given them.

use super::arguments::{int, text, Args, Argument};
use super::error::{failed, refused, Error, Kind, Result};
use super::interpreter::Machine;
use super::methods::from_keys;
use super::text::to_str;
use super::value::{Dict, Object, Range, Seq, Value};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    Cycler,
    Dict,
    FromKeys,
    Joiner,
    Lipsum,
    Namespace,
    RaiseException,
    Range,
    StrftimeNow,
}

/// Jinja2's sandbox makes no longer range.
const RANGE: usize = 100_000;

pub fn builtin(name: &str) -> Option<Builtin> {
    Some(match name {
        "cycler" => Builtin::Cycler,
        "dict" => Builtin::Dict,
        "joiner" => Builtin::Joiner,
        "lipsum" => Builtin::Lipsum,
        "namespace" => Builtin::Namespace,
        "raise_exception" => Builtin::RaiseException,
        "range" => Builtin::Range,
        "strftime_now" => Builtin::StrftimeNow,
        _ => return None,
    })
}

impl Machine<'_> {
    pub fn call_builtin(&mut self, function: Builtin, args: Args) -> Result<Value> {
        match function {
            Builtin::Range => range(args),
            Builtin::Dict => Ok(Value::Dict(self.dict(args)?)),
            Builtin::FromKeys => from_keys(args, &self.budget),
            Builtin::Namespace => self.namespace(args),
            Builtin::Cycler => {
                if args.positional.is_empty() || !args.named.is_empty() {
                    return Err(failed("at least one item has to be provided"));
                }
                let items = Seq::new(args.positional, &self.budget)?;
                Ok(Value::object(Object::Cycler { items, at: Cell::new(0) }))
            }
            Builtin::Joiner => {
                let [separator] = args.bind("joiner", ["sep"])?;
                let separator = separator.unwrap_or_else(|| Value::str(", "));
                // As deep as what it holds.
                Seq::new(vec![separator.clone()], &self.budget)?;
                Ok(Value::object(Object::Joiner { separator, used: Cell::new(false) }))
            }
            Builtin::Lipsum => Err(refused("lipsum()")),
            Builtin::RaiseException => {
                let [message] = args.bind("raise_exception", ["message"])?;
                let message = message.required("raise_exception", "message")?;
                let message =
                    if message.is_undefined() { Arc::from("") } else { to_str(&message, &self.budget)? };
                Err(Error { kind: Kind::Raised, message: message.to_string() })
            }
            Builtin::StrftimeNow => {
                let [format] = args.bind("strftime_now", ["format"])?;
                let format = text(&format.required("strftime_now", "format")?, "strftime_now")?;
                self.budget.work(format.len().saturating_mul(16))?;
                Ok(Value::str(self.clock.strftime(&format)?))
            }
        }
    }

    /// dict(mapping or pairs, **named).
    fn dict(&self, args: Args) -> Result<Rc<Dict>> {
        let budget = &self.budget;
        if args.positional.len() > 1 {
            return Err(failed("dict expected at most 1 argument"));
        }
        let mut pairs = Vec::new();
        match args.positional.first() {
            None => {}
            Some(Value::Undefined(name)) => return Err(super::ops::undefined(name)),
            Some(Value::Dict(dict)) => pairs.extend(dict.entries.iter().cloned()),
            Some(items) => {
                for pair in items.items(budget)? {
                    let pair = pair.items(budget)?;
                    let [key, value] = <[Value; 2]>::try_from(pair).map_err(|pair| {
                        failed(format!(
                            "dict update sequence element has length {}; 2 is required",
                            pair.len()
                        ))
                    })?;
                    pairs.push((key, value));
                }
            }
        }
        pairs.extend(args.named.into_iter().map(|(name, value)| (Value::Str(name), value)));
        Dict::new(pairs, budget)
    }

    fn namespace(&mut self, args: Args) -> Result<Value> {
        let mut attributes = Vec::new();
        for (key, value) in &self.dict(args)?.entries {
            let Value::Str(name) = key else {
                return Err(refused("a namespace with names that are no strings"));
            };
            check_attribute(name)?;
            attributes.push((name.clone(), value.clone()));
        }
        self.budget.work(256)?;
        let namespace = Rc::new(Object::Namespace(RefCell::new(attributes)));
        self.namespaces.push(namespace.clone());
        Ok(Value::Object(namespace))
    }
}

/// transformers' namespaces keep names with an underscore to themselves.
pub fn check_attribute(name: &str) -> Result<()> {
    if name.starts_with('_') {
        return Err(failed(format!("a namespace may not hold '{name}': the name begins with an underscore")));
    }
    Ok(())
}

fn range(args: Args) -> Result<Value> {
    let [first, second, third] = args.positional("range")?;
    let first = int(&first.required("range", "stop")?, "range")?;
    let (start, stop) = match second {
        Some(stop) => (first, int(&stop, "range")?),
        None => (0, first),
    };
    let step = third.int("range", 1)?;
    if step == 0 {
        return Err(failed("range() arg 3 must not be zero"));
    }
    let span =
        if step > 0 { i128::from(stop) - i128::from(start) } else { i128::from(start) - i128::from(stop) };
    let count = if span <= 0 { 0 } else { (span - 1) / i128::from(step).abs() + 1 };
    match usize::try_from(count) {
        Ok(len) if len <= RANGE => Ok(Value::Range(Range { start, stop, step, len })),
        _ => {
            Err(failed(format!("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({RANGE}).")))
        }
    }
}
