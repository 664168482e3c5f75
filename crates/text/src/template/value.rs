//! The values of a template: Python's, as far as Jinja2 shows them. Lists, tuples and dicts are immutable,
//! as transformers' sandbox has them.

use super::ast::{For, Macro};
use super::budget::{Budget, VALUE_DEPTH};
use super::error::{failed, limit, refused, Result};
use super::functions::Builtin;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

#[derive(Clone)]
pub enum Value {
    /// With the name that has no value, for messages.
    Undefined(Option<Arc<str>>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    /// What the filters escape and safe return.
    Markup(Arc<str>),
    List(Rc<Seq>),
    Tuple(Rc<Seq>),
    Dict(Rc<Dict>),
    View(View, Rc<Dict>),
    Range(Range),
    /// A generator or iterator: read once.
    Iterator(Rc<Iterator>),
    Object(Rc<Object>),
}

pub struct Seq {
    pub items: Vec<Value>,
    depth: u16,
    /// One of groupby's: (grouper, list) with these names.
    pub group: bool,
}

impl Seq {
    pub fn new(items: Vec<Value>, budget: &Budget) -> Result<Rc<Self>> {
        Self::make(items, false, budget)
    }

    pub fn make(items: Vec<Value>, group: bool, budget: &Budget) -> Result<Rc<Self>> {
        budget.values(items.len() + 1)?;
        let depth = depth_over(items.iter())?;
        Ok(Rc::new(Self { items, depth, group }))
    }
}

fn depth_over<'a>(values: impl std::iter::Iterator<Item = &'a Value>) -> Result<u16> {
    let depth = values.map(Value::depth).max().unwrap_or(0) + 1;
    if depth > VALUE_DEPTH {
        return Err(limit(format!("nests values more than {VALUE_DEPTH} deep")));
    }
    Ok(depth)
}

/// A dict's key: equal when Python's == and hash() say so (1, 1.0 and True are one key).
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Key {
    Undefined,
    None,
    Int(i128),
    Float(u64),
    Str(Arc<str>),
    Tuple(Vec<Key>),
    Object(usize),
}

impl Key {
    pub fn of(value: &Value) -> Result<Key> {
        Ok(match value {
            Value::Undefined(_) => Key::Undefined,
            Value::None => Key::None,
            Value::Bool(b) => Key::Int(i128::from(*b)),
            Value::Int(i) => Key::Int(*i),
            Value::Float(f) if f.trunc() == *f && f.abs() < 1e30 => Key::Int(*f as i128),
            Value::Float(f) => Key::Float(f.to_bits()),
            Value::Str(s) | Value::Markup(s) => Key::Str(s.clone()),
            Value::Tuple(t) => Key::Tuple(t.items.iter().map(Key::of).collect::<Result<_>>()?),
            Value::Object(o) => Key::Object(Rc::as_ptr(o) as usize),
            _ => return Err(failed(format!("unhashable type: '{}'", value.type_name()))),
        })
    }
}

/// In the order of insertion.
pub struct Dict {
    pub entries: Vec<(Value, Value)>,
    index: HashMap<Key, usize>,
    depth: u16,
}

impl Dict {
    /// A later value replaces an earlier one of the same key.
    pub fn new(pairs: Vec<(Value, Value)>, budget: &Budget) -> Result<Rc<Self>> {
        budget.values(2 * pairs.len() + 1)?;
        let mut index: HashMap<Key, usize> = HashMap::with_capacity(pairs.len());
        let mut entries: Vec<(Value, Value)> = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            match index.entry(Key::of(&key)?) {
                std::collections::hash_map::Entry::Occupied(at) => entries[*at.get()].1 = value,
                std::collections::hash_map::Entry::Vacant(slot) => {
                    slot.insert(entries.len());
                    entries.push((key, value));
                }
            }
        }
        let depth = depth_over(entries.iter().flat_map(|(key, value)| [key, value]))?;
        Ok(Rc::new(Self { entries, index, depth }))
    }

    pub fn get(&self, key: &Value) -> Result<Option<&Value>> {
        Ok(self.index.get(&Key::of(key)?).map(|at| &self.entries[*at].1))
    }

    pub fn get_str(&self, key: &Arc<str>) -> Option<&Value> {
        self.index.get(&Key::Str(key.clone())).map(|at| &self.entries[*at].1)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum View {
    Keys,
    Values,
    Items,
}

impl View {
    pub fn items(self, dict: &Dict, budget: &Budget) -> Result<Vec<Value>> {
        let pick = |(key, value): &(Value, Value)| {
            Ok(match self {
                View::Keys => key.clone(),
                View::Values => value.clone(),
                View::Items => Value::tuple(vec![key.clone(), value.clone()], budget)?,
            })
        };
        dict.entries.iter().map(pick).collect()
    }
}

#[derive(Clone, Copy)]
pub struct Range {
    pub start: i64,
    pub stop: i64,
    pub step: i64,
    pub len: usize,
}

impl Range {
    pub fn at(&self, index: usize) -> Value {
        Value::Int(i128::from(self.start) + index as i128 * i128::from(self.step))
    }
}

pub struct Iterator {
    pub rest: RefCell<VecDeque<Value>>,
    depth: u16,
}

pub enum Object {
    Namespace(RefCell<Vec<(Arc<str>, Value)>>),
    Macro { decl: Arc<Macro>, scope: usize },
    Loop(Loop),
    Cycler { items: Rc<Seq>, at: Cell<usize> },
    Joiner { separator: Value, used: Cell<bool> },
    Function(Builtin),
    Method { receiver: Value, name: Arc<str> },
}

pub struct Loop {
    pub items: Rc<Seq>,
    pub at: Cell<usize>,
    pub depth0: usize,
    pub changed: RefCell<Option<Vec<Value>>>,
    /// Of a recursive loop: the statement, and the scope around it.
    pub recursion: Option<(Arc<For>, usize)>,
}

impl Value {
    pub fn str(text: impl AsRef<str>) -> Value {
        Value::Str(Arc::from(text.as_ref()))
    }
    pub fn list(items: Vec<Value>, budget: &Budget) -> Result<Value> {
        Seq::new(items, budget).map(Value::List)
    }
    pub fn tuple(items: Vec<Value>, budget: &Budget) -> Result<Value> {
        Seq::new(items, budget).map(Value::Tuple)
    }
    pub fn iterator(items: Vec<Value>, budget: &Budget) -> Result<Value> {
        budget.values(items.len() + 1)?;
        let depth = depth_over(items.iter())?;
        Ok(Value::Iterator(Rc::new(Iterator { rest: RefCell::new(items.into()), depth })))
    }
    pub fn object(object: Object) -> Value {
        Value::Object(Rc::new(object))
    }
    pub fn int(number: usize) -> Value {
        Value::Int(number as i128)
    }
    pub fn undefined(name: &str) -> Value {
        Value::Undefined(Some(Arc::from(name)))
    }

    fn depth(&self) -> u16 {
        match self {
            Value::List(seq) | Value::Tuple(seq) => seq.depth,
            Value::Dict(dict) | Value::View(_, dict) => dict.depth,
            Value::Iterator(iterator) => iterator.depth,
            Value::Object(object) => match &**object {
                Object::Cycler { items, .. } => items.depth,
                Object::Loop(state) => state.items.depth,
                Object::Method { receiver, .. } => receiver.depth() + 1,
                Object::Joiner { separator, .. } => separator.depth() + 1,
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Python's type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(_) => "str",
            Value::Markup(_) => "Markup",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::View(View::Keys, _) => "dict_keys",
            Value::View(View::Values, _) => "dict_values",
            Value::View(View::Items, _) => "dict_items",
            Value::Range(_) => "range",
            Value::Iterator(_) => "generator",
            Value::Object(object) => match &**object {
                Object::Namespace(_) => "namespace",
                Object::Macro { .. } => "Macro",
                Object::Loop(_) => "LoopContext",
                Object::Cycler { .. } => "Cycler",
                Object::Joiner { .. } => "Joiner",
                Object::Function(_) => "function",
                Object::Method { .. } => "method",
            },
        }
    }

    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// An int, or a bool as the int that it is.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Value::Int(i) => Some(*i),
            Value::Bool(b) => Some(i128::from(*b)),
            _ => None,
        }
    }

    pub fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(f) => Some(*f),
            _ => self.as_int().map(|int| int as f64),
        }
    }

    pub fn truth(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(b) => *b,
            Value::Int(i) => *i != 0,
            Value::Float(f) => *f != 0.0,
            Value::Str(s) | Value::Markup(s) => !s.is_empty(),
            Value::List(seq) | Value::Tuple(seq) => !seq.items.is_empty(),
            Value::Dict(dict) | Value::View(_, dict) => !dict.entries.is_empty(),
            Value::Range(range) => range.len > 0,
            Value::Object(object) => match &**object {
                Object::Loop(state) => !state.items.items.is_empty(),
                _ => true,
            },
            Value::Iterator(_) => true,
        }
    }

    /// len().
    pub fn len(&self, budget: &Budget) -> Result<usize> {
        Ok(match self {
            Value::Undefined(_) => 0,
            Value::Str(s) | Value::Markup(s) => {
                budget.work(s.len())?;
                s.chars().count()
            }
            Value::List(seq) | Value::Tuple(seq) => seq.items.len(),
            Value::Dict(dict) | Value::View(_, dict) => dict.entries.len(),
            Value::Range(range) => range.len,
            Value::Object(object) => match &**object {
                Object::Loop(state) => state.items.items.len(),
                _ => return Err(self.no("len()")),
            },
            _ => return Err(self.no("len()")),
        })
    }

    fn no(&self, what: &str) -> super::error::Error {
        failed(format!("object of type '{}' has no {what}", self.type_name()))
    }

    /// What iter() gives, all of it. Empties an iterator.
    pub fn items(&self, budget: &Budget) -> Result<Vec<Value>> {
        Ok(match self {
            Value::Undefined(_) => Vec::new(),
            Value::Str(s) => {
                budget.values(s.len())?;
                s.chars().map(|c| Value::str(c.encode_utf8(&mut [0; 4]))).collect()
            }
            Value::Markup(_) => return Err(refused("iterating over the result of escape or safe")),
            Value::List(seq) | Value::Tuple(seq) => {
                budget.values(seq.items.len())?;
                seq.items.clone()
            }
            Value::Dict(dict) => {
                budget.values(dict.entries.len())?;
                View::Keys.items(dict, budget)?
            }
            Value::View(view, dict) => {
                budget.values(dict.entries.len())?;
                view.items(dict, budget)?
            }
            Value::Range(range) => {
                budget.values(range.len)?;
                (0..range.len).map(|index| range.at(index)).collect()
            }
            Value::Iterator(iterator) => std::mem::take(&mut *iterator.rest.borrow_mut()).into(),
            Value::Object(object) if matches!(**object, Object::Loop(_)) => {
                return Err(refused("iterating over the variable loop"))
            }
            _ => return Err(failed(format!("'{}' object is not iterable", self.type_name()))),
        })
    }

    /// For a for loop and the like: shares a list instead of copying it.
    pub fn sequence(&self, budget: &Budget) -> Result<Rc<Seq>> {
        match self {
            Value::List(seq) | Value::Tuple(seq) => Ok(seq.clone()),
            _ => Seq::new(self.items(budget)?, budget),
        }
    }

    /// What one looks at in a value must be paid for: the bytes of a text, the items of a list.
    pub fn size(&self) -> usize {
        match self {
            Value::Str(s) | Value::Markup(s) => s.len(),
            Value::List(seq) | Value::Tuple(seq) => 16 * seq.items.len(),
            Value::Dict(dict) | Value::View(_, dict) => 32 * dict.entries.len(),
            Value::Iterator(iterator) => 16 * iterator.rest.borrow().len(),
            _ => 0,
        }
    }

    pub fn from_json(json: &serde_json::Value, budget: &Budget) -> Result<Value> {
        use serde_json::Value as Json;
        Ok(match json {
            Json::Null => Value::None,
            Json::Bool(b) => Value::Bool(*b),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(i), _) => Value::Int(i.into()),
                (_, Some(u)) => Value::Int(u.into()),
                _ => Value::Float(n.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(s) => Value::str(s),
            Json::Array(a) => {
                let items = a.iter().map(|item| Value::from_json(item, budget)).collect::<Result<_>>()?;
                Value::list(items, budget)?
            }
            Json::Object(o) => {
                let pair = |(key, value): (&String, &Json)| -> Result<(Value, Value)> {
                    Ok((Value::str(key), Value::from_json(value, budget)?))
                };
                Value::Dict(Dict::new(o.iter().map(pair).collect::<Result<_>>()?, budget)?)
            }
        })
    }
}
