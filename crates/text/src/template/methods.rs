//! Attributes and methods of values, as Jinja2's sandbox looks them up.

use super::arguments::{int, Args, Argument};
use super::budget::Budget;
use super::error::{failed, refused, Result};
use super::functions::Builtin;
use super::interpreter::Machine;
use super::ops;
use super::value::{Dict, Object, Value, View};
use super::{format, strings};
use std::sync::Arc;

/// What the sandbox hides, because it changes its object.
const CHANGES_DICT: [&str; 5] = ["clear", "pop", "popitem", "setdefault", "update"];
const CHANGES_LIST: [&str; 8] = ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];
/// Attributes of numbers, none of which a chat needs.
const OF_NUMBERS: [&str; 14] = [
    "as_integer_ratio",
    "bit_count",
    "bit_length",
    "conjugate",
    "denominator",
    "from_bytes",
    "fromhex",
    "hex",
    "imag",
    "is_integer",
    "numerator",
    "real",
    "to_bytes",
    "mapping",
];

impl Machine<'_> {
    /// `value.name`: an attribute, else an item, else undefined.
    pub fn get_attribute(&self, value: &Value, name: &Arc<str>) -> Result<Value> {
        if let Some(found) = self.own_attribute(value, name)? {
            return Ok(found);
        }
        if let Value::Dict(dict) = value {
            if let Some(found) = dict.get_str(name).filter(|_| !CHANGES_DICT.contains(&&**name)) {
                return Ok(found.clone());
            }
        }
        Ok(Value::Undefined(Some(name.clone())))
    }

    /// `value[key]`: an item, else an attribute, else undefined.
    pub fn get_item(&self, value: &Value, key: &Value) -> Result<Value> {
        let at = |len: usize| -> Option<usize> {
            let index = key.as_int()?;
            usize::try_from(if index < 0 { index + len as i128 } else { index }).ok().filter(|at| *at < len)
        };
        let found = match value {
            Value::Undefined(name) => return Err(ops::undefined(name)),
            Value::Str(text) if key.as_int().is_some() => {
                self.budget.work(text.len())?;
                let character = at(text.chars().count()).and_then(|at| text.chars().nth(at));
                character.map(|c| Value::str(c.encode_utf8(&mut [0; 4])))
            }
            Value::List(seq) | Value::Tuple(seq) => at(seq.items.len()).map(|at| seq.items[at].clone()),
            Value::Range(range) => at(range.len).map(|at| range.at(at)),
            Value::Dict(dict) => dict.get(key).unwrap_or(None).cloned(),
            Value::Markup(_) => return Err(refused("an item of the result of escape or safe")),
            _ => None,
        };
        if let Some(found) = found {
            return Ok(found);
        }
        let Value::Str(name) = key else { return Ok(Value::Undefined(None)) };
        Ok(self.own_attribute(value, name)?.unwrap_or_else(|| Value::Undefined(Some(name.clone()))))
    }

    /// Python's getattr; None where it raises AttributeError, or where the sandbox hides what there is.
    pub fn own_attribute(&self, value: &Value, name: &Arc<str>) -> Result<Option<Value>> {
        let method = || Some(Value::object(Object::Method { receiver: value.clone(), name: name.clone() }));
        let known = |names: &[&str]| names.contains(&&**name);
        Ok(match value {
            Value::Undefined(missing) if !name.starts_with("__") => return Err(ops::undefined(missing)),
            Value::Str(_) if known(&strings::METHODS) => method(),
            Value::Markup(_) if known(&strings::METHODS) => {
                return Err(refused(format!("{name}() of the result of escape or safe")))
            }
            Value::Dict(_) if known(&["copy", "fromkeys", "get", "items", "keys", "values"]) => method(),
            Value::List(_) if known(&["copy", "count", "index"]) => method(),
            Value::Tuple(seq) if seq.group && known(&["grouper", "list"]) => {
                seq.items.get(usize::from(&**name == "list")).cloned()
            }
            Value::Tuple(_) if known(&["count", "index"]) => method(),
            Value::View(..) if known(&["isdisjoint", "mapping"]) => {
                return Err(refused(format!("dict view.{name}")))
            }
            Value::Range(_) if known(&["count", "index", "start", "stop", "step"]) => {
                return Err(refused(format!("range.{name}")))
            }
            Value::Int(_) | Value::Bool(_) | Value::Float(_) if known(&OF_NUMBERS) => {
                return Err(refused(format!("{}.{name}", value.type_name())))
            }
            Value::Iterator(_) if known(&["close", "send", "throw"]) => {
                return Err(refused(format!("generator.{name}")))
            }
            Value::Object(object) => match &**object {
                Object::Namespace(attributes) => {
                    let attributes = attributes.borrow();
                    let found = attributes.iter().find(|(known, _)| known == name);
                    found.map(|(_, value)| value.clone())
                }
                Object::Loop(state) => loop_attribute(state, name, method)?,
                Object::Cycler { items, at } => match &**name {
                    "current" => Some(items.items[at.get()].clone()),
                    "next" | "reset" => method(),
                    "items" | "pos" => return Err(refused(format!("cycler.{name}"))),
                    _ => None,
                },
                Object::Joiner { separator, used } => match &**name {
                    "sep" => Some(separator.clone()),
                    "used" => Some(Value::Bool(used.get())),
                    _ => None,
                },
                Object::Macro { decl, .. } => match &**name {
                    "name" => Some(Value::Str(decl.name.clone())),
                    "arguments" => {
                        let names =
                            decl.parameters.iter().map(|parameter| Value::Str(parameter.name.clone()));
                        Some(Value::tuple(names.collect(), &self.budget)?)
                    }
                    "catch_kwargs" => Some(Value::Bool(decl.kwargs.is_some())),
                    "catch_varargs" => Some(Value::Bool(decl.varargs.is_some())),
                    "caller" => Some(Value::Bool(decl.caller.is_some())),
                    "explicit_caller" => return Err(refused("macro.explicit_caller")),
                    _ => None,
                },
                Object::Function(Builtin::Dict) if &**name == "fromkeys" => {
                    Some(Value::object(Object::Function(Builtin::FromKeys)))
                }
                _ => None,
            },
            _ => None,
        })
    }

    pub fn call_method(&self, receiver: &Value, name: &str, args: Args) -> Result<Value> {
        let budget = &self.budget;
        budget.work(receiver.size())?;
        match receiver {
            Value::Str(text) => match name {
                "format" => format::format(self, text, &args),
                "format_map" => {
                    let [map] = args.positional(name)?;
                    let Value::Dict(dict) = map.required(name, "mapping")? else {
                        return Err(refused("format_map() with something else than a dict"));
                    };
                    let pair = |(key, value): &(Value, Value)| Some((key.as_str()?.into(), value.clone()));
                    let named = dict.entries.iter().filter_map(pair).collect();
                    format::format(self, text, &Args { positional: Vec::new(), named })
                }
                _ => strings::call(text, name, args, budget),
            },
            Value::Dict(dict) => dict_method(dict, name, args, budget),
            Value::List(seq) | Value::Tuple(seq) => list_method(receiver, &seq.items, name, args, budget),
            Value::Object(object) => match (&**object, name) {
                (Object::Cycler { items, at }, "next") => {
                    args.none(name)?;
                    let now = at.get();
                    at.set((now + 1) % items.items.len());
                    Ok(items.items[now].clone())
                }
                (Object::Cycler { at, .. }, "reset") => {
                    args.none(name)?;
                    at.set(0);
                    Ok(Value::None)
                }
                (Object::Loop(state), "cycle") => {
                    if args.positional.is_empty() || !args.named.is_empty() {
                        return Err(failed("no items for cycling given"));
                    }
                    Ok(args.positional[state.at.get() % args.positional.len()].clone())
                }
                (Object::Loop(state), "changed") => {
                    if args.positional.iter().any(|value| matches!(value, Value::Object(_))) {
                        return Err(refused("loop.changed() of a namespace, macro or function"));
                    }
                    let now = Value::tuple(args.positional.clone(), budget)?;
                    let before = match &*state.changed.borrow() {
                        Some(before) => Some(Value::tuple(before.clone(), budget)?),
                        None => None,
                    };
                    let same = before.map_or(Ok(false), |before| ops::equal(&before, &now, budget))?;
                    *state.changed.borrow_mut() = Some(args.positional);
                    Ok(Value::Bool(!same))
                }
                _ => Err(failed(format!("no method named {name}"))),
            },
            _ => Err(failed(format!("no method named {name}"))),
        }
    }

    /// Why what has no value cannot be called: the sandbox may hide it.
    pub fn not_callable(&self, name: &Option<Arc<str>>) -> super::error::Error {
        match name {
            Some(name) if CHANGES_LIST.contains(&&**name) || CHANGES_DICT.contains(&&**name) => {
                failed(format!("{name}() changes its object, which a chat template may not"))
            }
            _ => ops::undefined(name),
        }
    }
}

fn loop_attribute(
    state: &super::value::Loop,
    name: &str,
    method: impl Fn() -> Option<Value>,
) -> Result<Option<Value>> {
    let (at, len) = (state.at.get(), state.items.items.len());
    let neighbour = |at: Option<usize>, what: &str| {
        let item = at.and_then(|at| state.items.items.get(at));
        Some(item.cloned().unwrap_or_else(|| Value::undefined(what)))
    };
    Ok(match name {
        "index" => Some(Value::int(at + 1)),
        "index0" => Some(Value::int(at)),
        "revindex" => Some(Value::int(len - at)),
        "revindex0" => Some(Value::int(len - at - 1)),
        "first" => Some(Value::Bool(at == 0)),
        "last" => Some(Value::Bool(at + 1 == len)),
        "length" => Some(Value::int(len)),
        "depth" => Some(Value::int(state.depth0 + 1)),
        "depth0" => Some(Value::int(state.depth0)),
        "previtem" => neighbour(at.checked_sub(1), "there is no previous item"),
        "nextitem" => neighbour(Some(at + 1), "there is no next item"),
        "cycle" | "changed" => method(),
        _ => None,
    })
}

fn dict_method(dict: &std::rc::Rc<Dict>, name: &str, args: Args, budget: &Budget) -> Result<Value> {
    let view = |view: View| Ok(Value::View(view, dict.clone()));
    match name {
        "get" => {
            let [key, default] = args.positional(name)?;
            let found = dict.get(&key.required(name, "key")?)?.cloned();
            Ok(found.unwrap_or_else(|| default.unwrap_or(Value::None)))
        }
        "fromkeys" => from_keys(args, budget),
        _ => {
            args.none(name)?;
            match name {
                "keys" => view(View::Keys),
                "values" => view(View::Values),
                "items" => view(View::Items),
                _ => Ok(Value::Dict(Dict::new(dict.entries.clone(), budget)?)),
            }
        }
    }
}

pub fn from_keys(args: Args, budget: &Budget) -> Result<Value> {
    let [keys, value] = args.positional("fromkeys")?;
    let value = value.unwrap_or(Value::None);
    let keys = keys.required("fromkeys", "iterable")?.items(budget)?;
    Ok(Value::Dict(Dict::new(keys.into_iter().map(|key| (key, value.clone())).collect(), budget)?))
}

fn list_method(receiver: &Value, items: &[Value], name: &str, args: Args, budget: &Budget) -> Result<Value> {
    match name {
        "count" => {
            let [wanted] = args.positional(name)?;
            let wanted = wanted.required(name, "value")?;
            let mut count = 0;
            for item in items {
                count += usize::from(ops::equal(item, &wanted, budget)?);
            }
            Ok(Value::int(count))
        }
        "index" => {
            let [wanted, start, stop] = args.positional(name)?;
            let wanted = wanted.required(name, "value")?;
            let place = |value: Option<Value>, default: i64| -> Result<i64> {
                let at = value.map_or(Ok(default), |value| int(&value, name))?;
                Ok(if at < 0 { at.saturating_add(items.len() as i64).max(0) } else { at })
            };
            let (start, stop) = (place(start, 0)?, place(stop, i64::MAX)?);
            for (at, item) in items.iter().enumerate() {
                if at as i64 >= start && (at as i64) < stop && ops::equal(item, &wanted, budget)? {
                    return Ok(Value::int(at));
                }
            }
            Err(failed(format!("the value is not in the {}", receiver.type_name())))
        }
        _ => {
            args.none(name)?;
            Value::list(items.to_vec(), budget)
        }
    }
}
