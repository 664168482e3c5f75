//! Jinja2's filters over lists and dicts, and those that take any value. Filters over text: text_filters.rs.

use super::arguments::{int, Args, Argument};
use super::budget::Budget;
use super::error::{failed, refused, Result};
use super::interpreter::Machine;
use super::numeric::{parse_float, parse_int, round_float, round_int, Parsed};
use super::text::{to_str, Dumps};
use super::value::{Key, Seq, Value, View};
use super::{ops, predicates, text_filters};
use std::collections::HashSet;
use std::sync::Arc;

/// All of Jinja2's.
const NAMES: [&str; 54] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
];

pub fn exists(name: &str) -> bool {
    NAMES.contains(&name)
}

pub fn apply(machine: &mut Machine, name: &str, value: Value, args: Args) -> Result<Value> {
    machine.budget.step()?;
    machine.budget.work(value.size())?;
    let budget = &machine.budget;
    Ok(match name {
        "default" | "d" => {
            let [other, boolean] = args.bind(name, ["default_value", "boolean"])?;
            let replaced = value.is_undefined() || (boolean.flag(false) && !value.truth());
            if replaced {
                other.unwrap_or_else(|| Value::str(""))
            } else {
                value
            }
        }
        "length" | "count" => {
            args.none(name)?;
            Value::int(value.len(budget)?)
        }
        "list" => {
            args.none(name)?;
            Value::list(value.items(budget)?, budget)?
        }
        "tojson" => Value::Str(to_json(&value, args, budget)?.into()),
        "first" => {
            args.none(name)?;
            let first = match &value {
                Value::Str(text) => text.chars().next().map(|c| Value::str(c.encode_utf8(&mut [0; 4]))),
                Value::Iterator(iterator) => iterator.rest.borrow_mut().pop_front(),
                _ => value.sequence(budget)?.items.first().cloned(),
            };
            first.unwrap_or_else(|| Value::undefined("the first item of nothing"))
        }
        "last" => {
            args.none(name)?;
            if matches!(value, Value::Iterator(_)) {
                return Err(failed("'generator' object is not reversible"));
            }
            let items = value.sequence(budget)?;
            items.items.last().cloned().unwrap_or_else(|| Value::undefined("the last item of nothing"))
        }
        "reverse" => {
            args.none(name)?;
            if let Value::Str(text) = &value {
                return Ok(Value::Str(text.chars().rev().collect::<String>().into()));
            }
            let mut items = value.items(budget)?;
            items.reverse();
            // Python's reversed() iterator, or a list made of what has no order of its own.
            match value {
                Value::Iterator(_) => Value::list(items, budget)?,
                Value::Undefined(_) => return Err(refused("the filter reverse of an undefined value")),
                _ => Value::iterator(items, budget)?,
            }
        }
        "items" => {
            args.none(name)?;
            match value {
                Value::Undefined(_) => Value::iterator(Vec::new(), budget)?,
                Value::Dict(dict) => Value::iterator(View::Items.items(&dict, budget)?, budget)?,
                _ => return Err(failed("Can only get item pairs from a mapping.")),
            }
        }
        "dictsort" => dictsort(&value, args, budget)?,
        "batch" => batch(&value, args, budget)?,
        "slice" => slice(&value, args, budget)?,
        "abs" => {
            args.none(name)?;
            match value {
                Value::Float(f) => Value::Float(f.abs()),
                _ => match value.as_int() {
                    Some(int) => {
                        Value::Int(int.checked_abs().ok_or_else(|| refused("an integer beyond 128 bits"))?)
                    }
                    None => {
                        return Err(failed(format!("bad operand type for abs(): '{}'", value.type_name())))
                    }
                },
            }
        }
        "int" => to_int(&value, args, budget)?,
        "float" => to_float(&value, args)?,
        "round" => round(&value, args, budget)?,
        "attr" => {
            let [attribute] = args.bind(name, ["name"])?;
            let attribute = attribute.required(name, "name")?;
            let attribute = super::arguments::text(&attribute, name)?;
            let found = machine.own_attribute(&value, &attribute)?;
            found.unwrap_or(Value::Undefined(Some(attribute)))
        }
        "join" => {
            let [separator, attribute] = args.bind(name, ["d", "attribute"])?;
            let separator = to_str(&separator.unwrap_or_else(|| Value::str("")), budget)?;
            let mut items = value.items(budget)?;
            if let Some(attribute) = attribute.filter(|attribute| !matches!(attribute, Value::None)) {
                let path = Path::new(&attribute, None)?;
                items = items.iter().map(|item| path.get(machine, item)).collect::<Result<_>>()?;
            }
            Value::str(super::strings::join(&items, &separator, budget)?)
        }
        "sum" => {
            let [attribute, start] = args.bind(name, ["attribute", "start"])?;
            let path = Path::new(&attribute.unwrap_or(Value::None), None)?;
            let mut sum = start.unwrap_or(Value::Int(0));
            if matches!(sum, Value::Str(_)) {
                return Err(failed("sum() can't sum strings [use ''.join(seq) instead]"));
            }
            for item in value.items(budget)? {
                sum = ops::binary(super::ast::Binary::Add, &sum, &path.get(machine, &item)?, budget)?;
            }
            sum
        }
        "map" => map(machine, &value, args)?,
        "select" | "reject" | "selectattr" | "rejectattr" => select(machine, name, &value, args)?,
        "sort" => {
            let [reverse, case, attribute] = args.bind(name, ["reverse", "case_sensitive", "attribute"])?;
            let attribute = attribute.unwrap_or(Value::None);
            let paths = match &attribute {
                Value::Str(text) => text.split(',').map(|part| Path::new(&Value::str(part), None)).collect(),
                _ => Path::new(&attribute, None).map(|path| vec![path]),
            };
            let (paths, case) = (paths?, case.flag(false));
            let mut keyed = Vec::new();
            for item in value.items(budget)? {
                let keys =
                    paths.iter().map(|path| key(machine, path, &item, case)).collect::<Result<Vec<_>>>()?;
                keyed.push((Value::list(keys, budget)?, item));
            }
            Value::list(sorted(keyed, reverse.flag(false), budget)?, budget)?
        }
        "unique" | "min" | "max" => {
            let [case, attribute] = args.bind(name, ["case_sensitive", "attribute"])?;
            let path = Path::new(&attribute.unwrap_or(Value::None), None)?;
            let case = case.flag(false);
            let items = value.items(budget)?;
            let mut keyed = Vec::new();
            for item in items {
                keyed.push((key(machine, &path, &item, case)?, item));
            }
            match name {
                "unique" => unique(keyed, budget)?,
                _ => extreme(keyed, name == "max", budget)?,
            }
        }
        "groupby" => groupby(machine, &value, args)?,
        _ => return text_filters::apply(name, value, args, budget),
    })
}

/// attribute="a.b.0" of an item: what make_attrgetter of Jinja2 makes.
struct Path {
    parts: Vec<Value>,
    default: Option<Value>,
}

impl Path {
    fn new(attribute: &Value, default: Option<Value>) -> Result<Self> {
        let part = |part: &str| match part.parse::<i128>() {
            Ok(index) if part.bytes().all(|b| b.is_ascii_digit()) => Value::Int(index),
            _ => Value::str(part),
        };
        let parts = match attribute {
            Value::None => Vec::new(),
            Value::Str(text) => text.split('.').map(part).collect(),
            other => vec![other.clone()],
        };
        Ok(Self { parts, default: default.filter(|default| !matches!(default, Value::None)) })
    }

    fn get(&self, machine: &Machine, item: &Value) -> Result<Value> {
        machine.budget.step()?;
        let mut value = item.clone();
        for part in &self.parts {
            value = machine.get_item(&value, part)?;
            if let (Value::Undefined(_), Some(default)) = (&value, &self.default) {
                value = default.clone();
            }
        }
        Ok(value)
    }
}

/// What items are compared by: strings in lower case unless `case`.
fn key(machine: &Machine, path: &Path, item: &Value, case: bool) -> Result<Value> {
    let value = path.get(machine, item)?;
    Ok(match &value {
        Value::Str(text) if !case => {
            machine.budget.work(text.len())?;
            Value::Str(text.to_lowercase().into())
        }
        _ => value,
    })
}

type Keyed = Vec<(Value, Value)>;

/// Python's sorted(): stable, in reverse too. Its order with NaN depends on the algorithm.
fn sorted(keyed: Keyed, reverse: bool, budget: &Budget) -> Result<Vec<Value>> {
    let nan = |value: &Value| matches!(value, Value::Float(f) if f.is_nan());
    let holds_nan = |key: &Value| match key {
        Value::List(seq) => seq.items.iter().any(nan),
        key => nan(key),
    };
    if keyed.iter().any(|(key, _)| holds_nan(key)) {
        return Err(refused("sorting nan"));
    }
    let sorted = ops::sort(
        keyed,
        |a, b| if reverse { ops::less(&b.0, &a.0, budget) } else { ops::less(&a.0, &b.0, budget) },
        budget,
    )?;
    Ok(sorted.into_iter().map(|(_, item)| item).collect())
}

fn unique(keyed: Keyed, budget: &Budget) -> Result<Value> {
    let mut seen = HashSet::new();
    let mut items = Vec::new();
    for (key, item) in keyed {
        if seen.insert(Key::of(&key)?) {
            items.push(item);
        }
    }
    Value::iterator(items, budget)
}

fn extreme(keyed: Keyed, max: bool, budget: &Budget) -> Result<Value> {
    let mut best: Option<(Value, Value)> = None;
    for (key, item) in keyed {
        let better = match &best {
            None => true,
            Some((best, _)) if max => ops::less(best, &key, budget)?,
            Some((best, _)) => ops::less(&key, best, budget)?,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or_else(|| Value::undefined("the smallest or largest of nothing"), |(_, item)| item))
}

fn dictsort(value: &Value, args: Args, budget: &Budget) -> Result<Value> {
    let [case, by, reverse] = args.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let Value::Dict(dict) = value else {
        return Err(failed(format!("dictsort: a value of type {} has no items", value.type_name())));
    };
    let by_value = match by.text("dictsort")?.as_deref() {
        None | Some("key") => false,
        Some("value") => true,
        Some(_) => return Err(failed("You can only sort by either \"key\" or \"value\"")),
    };
    let case = case.flag(false);
    let mut keyed = Vec::new();
    for (key, value) in &dict.entries {
        let by = match if by_value { value } else { key } {
            Value::Str(text) if !case => Value::Str(text.to_lowercase().into()),
            other => other.clone(),
        };
        keyed.push((by, Value::tuple(vec![key.clone(), value.clone()], budget)?));
    }
    Value::list(sorted(keyed, reverse.flag(false), budget)?, budget)
}

fn groupby(machine: &Machine, value: &Value, args: Args) -> Result<Value> {
    let budget = &machine.budget;
    let [attribute, default, case] = args.bind("groupby", ["attribute", "default", "case_sensitive"])?;
    let path = Path::new(&attribute.required("groupby", "attribute")?, default)?;
    let case = case.flag(false);
    let mut keyed = Vec::new();
    for item in value.items(budget)? {
        let by = key(machine, &path, &item, case)?;
        keyed.push((by.clone(), Value::tuple(vec![by, item], budget)?));
    }
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for pair in sorted(keyed, false, budget)? {
        let Value::Tuple(pair) = pair else { continue };
        let (by, item) = (&pair.items[0], pair.items[1].clone());
        match groups.last_mut() {
            Some((last, items)) if ops::equal(last, by, budget)? => items.push(item),
            _ => groups.push((by.clone(), vec![item])),
        }
    }
    let mut out = Vec::new();
    for (by, items) in groups {
        let by = if case { by } else { path.get(machine, &items[0])? };
        let items = Value::list(items, budget)?;
        out.push(Value::Tuple(Seq::make(vec![by, items], true, budget)?));
    }
    Value::list(out, budget)
}

/// The generators map, select and so on do nothing before they are read; here they are read at once, which
/// shows only where a template drops one that fails.
fn map(machine: &mut Machine, value: &Value, mut args: Args) -> Result<Value> {
    let items = value.items(&machine.budget)?;
    let mut out = Vec::with_capacity(items.len());
    let attribute = args.named.iter().position(|(name, _)| &**name == "attribute");
    if let (true, Some(at)) = (args.positional.is_empty(), attribute) {
        let (_, attribute) = args.named.remove(at);
        let [default] = args.bind("map", ["default"])?;
        let path = Path::new(&attribute, default)?;
        for item in items {
            out.push(path.get(machine, &item)?);
        }
    } else {
        if args.positional.is_empty() {
            return Err(failed("map requires a filter argument"));
        }
        let name = to_str(&args.positional.remove(0), &machine.budget)?;
        for item in items {
            out.push(machine.filter(&name, item, args.clone())?);
        }
    }
    Value::iterator(out, &machine.budget)
}

fn select(machine: &mut Machine, filter: &str, value: &Value, mut args: Args) -> Result<Value> {
    if !value.truth() {
        return Value::iterator(Vec::new(), &machine.budget);
    }
    let keep = filter.starts_with("select");
    let path = if filter.ends_with("attr") {
        if args.positional.is_empty() {
            return Err(failed("Missing parameter for attribute name"));
        }
        Path::new(&args.positional.remove(0), None)?
    } else {
        Path::new(&Value::None, None)?
    };
    let test = match args.positional.is_empty() {
        true => None,
        false => Some(to_str(&args.positional.remove(0), &machine.budget)?),
    };
    if let Some(test) = &test {
        predicates::check_exists(test)?;
    }
    let mut out = Vec::new();
    for item in value.items(&machine.budget)? {
        let subject = path.get(machine, &item)?;
        let holds = match &test {
            Some(test) => predicates::apply(test, &subject, args.clone(), &machine.budget)?,
            None => subject.truth(),
        };
        if holds == keep {
            out.push(item);
        }
    }
    Value::iterator(out, &machine.budget)
}

fn batch(value: &Value, args: Args, budget: &Budget) -> Result<Value> {
    let [size, fill] = args.bind("batch", ["linecount", "fill_with"])?;
    let size = int(&size.required("batch", "linecount")?, "batch")?;
    let Some(size) = usize::try_from(size).ok().filter(|size| *size > 0) else {
        return Err(refused("the filter batch with fewer than one item a row"));
    };
    let items = value.items(budget)?;
    let mut rows: Vec<Vec<Value>> = items.chunks(size).map(<[Value]>::to_vec).collect();
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    if let (Some(fill), Some(last)) = (fill, rows.last_mut()) {
        budget.values(size - last.len())?;
        last.resize(size, fill);
    }
    Value::iterator(rows.into_iter().map(|row| Value::list(row, budget)).collect::<Result<_>>()?, budget)
}

fn slice(value: &Value, args: Args, budget: &Budget) -> Result<Value> {
    let [slices, fill] = args.bind("slice", ["slices", "fill_with"])?;
    let slices = int(&slices.required("slice", "slices")?, "slice")?;
    if slices == 0 {
        return Err(failed("integer division or modulo by zero"));
    }
    let Ok(slices) = usize::try_from(slices) else {
        return Value::iterator(Vec::new(), budget);
    };
    budget.values(slices)?;
    let items = value.items(budget)?;
    let (each, longer) = (items.len() / slices, items.len() % slices);
    let fill = fill.filter(|fill| !matches!(fill, Value::None));
    let mut out = Vec::new();
    let mut at = 0;
    for slice in 0..slices {
        let end = at + each + usize::from(slice < longer);
        let mut row = items[at..end].to_vec();
        if slice >= longer {
            row.extend(fill.clone());
        }
        out.push(Value::list(row, budget)?);
        at = end;
    }
    Value::iterator(out, budget)
}

fn to_json(value: &Value, args: Args, budget: &Budget) -> Result<String> {
    let [ascii, indent, separators, sort] =
        args.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Str(text)) => Some(text.to_string()),
        Some(count) => {
            let count = usize::try_from(int(&count, "tojson")?).unwrap_or(0);
            budget.work(count)?;
            Some(" ".repeat(count))
        }
    };
    // json.dumps ends a line right after the comma.
    let (item_separator, key_separator) = match separators {
        None | Some(Value::None) => (if indent.is_some() { "," } else { ", " }.into(), ": ".into()),
        Some(pair) => match pair.items(budget)?.as_slice() {
            [Value::Str(item), Value::Str(key)] => (item.clone(), key.clone()),
            _ => return Err(failed("tojson: separators are two strings")),
        },
    };
    let dumps = Dumps {
        ensure_ascii: ascii.flag(false),
        indent,
        item_separator,
        key_separator,
        sort_keys: sort.flag(false),
    };
    dumps.write(value, budget)
}

/// int(default=0, base=10): what cannot be read is the default.
fn to_int(value: &Value, args: Args, budget: &Budget) -> Result<Value> {
    let [default, base] = args.bind("int", ["default", "base"])?;
    let (default, base) = (default.unwrap_or(Value::Int(0)), base.int("int", 10)?);
    let cut = |number: f64| -> Result<Value> {
        if number.abs() >= 1e38 {
            return Err(refused("an integer beyond 128 bits"));
        }
        Ok(Value::Int(number.trunc() as i128))
    };
    match value {
        Value::Undefined(name) => Err(ops::undefined(name)),
        Value::Float(f) if f.is_infinite() => Err(failed("cannot convert float infinity to integer")),
        Value::Float(f) if f.is_nan() => Ok(default),
        Value::Float(f) => cut(*f),
        Value::Str(text) | Value::Markup(text) => {
            budget.work(text.len())?;
            if !text.is_ascii() && text.chars().any(super::unicode::is_decimal) {
                return Err(refused("the filter int of digits that are not ASCII"));
            }
            let parsed = match u32::try_from(base) {
                Ok(base @ (0 | 2..=36)) => parse_int(text, base),
                _ => Parsed::Bad,
            };
            match (parsed, parse_float(text)) {
                (Parsed::Int(int), _) => Ok(Value::Int(int)),
                (Parsed::Large, _) => Err(refused("an integer beyond 128 bits")),
                (Parsed::Bad, Some(number)) if number.is_finite() => cut(number),
                _ => Ok(default),
            }
        }
        _ => Ok(value.as_int().map_or(default, Value::Int)),
    }
}

/// float(default=0.0).
fn to_float(value: &Value, args: Args) -> Result<Value> {
    let [default] = args.bind("float", ["default"])?;
    let read = match value {
        Value::Undefined(name) => return Err(ops::undefined(name)),
        Value::Str(text) | Value::Markup(text)
            if !text.is_ascii() && text.chars().any(super::unicode::is_decimal) =>
        {
            return Err(refused("the filter float of digits that are not ASCII"))
        }
        Value::Str(text) | Value::Markup(text) => parse_float(text),
        _ => value.as_float(),
    };
    Ok(read.map_or_else(|| default.unwrap_or(Value::Float(0.0)), Value::Float))
}

fn round(value: &Value, args: Args, budget: &Budget) -> Result<Value> {
    let [precision, method] = args.bind("round", ["precision", "method"])?;
    let precision = precision.int("round", 0)?;
    let method = method.text("round")?.unwrap_or_else(|| Arc::from("common"));
    if let Value::Undefined(name) = value {
        return Err(ops::undefined(name));
    }
    let bad = || failed(format!("type {} doesn't define __round__ method", value.type_name()));
    match &*method {
        "common" => Ok(match (value.as_int(), value.as_float()) {
            (Some(int), _) => Value::Int(round_int(int, precision, false)),
            (None, Some(number)) => Value::Float(round_float(number, precision)),
            _ => return Err(bad()),
        }),
        "ceil" | "floor" => {
            let power =
                ops::binary(super::ast::Binary::Pow, &Value::Int(10), &Value::Int(precision.into()), budget)?;
            let scaled = ops::binary(super::ast::Binary::Mul, value, &power, budget)?;
            let whole = match &scaled {
                Value::Int(int) => Value::Int(*int),
                Value::Float(f) if f.abs() < 1e37 => {
                    Value::Int(if &*method == "ceil" { f.ceil() } else { f.floor() } as i128)
                }
                Value::Float(_) => return Err(refused("the filter round of so large a number")),
                _ => return Err(failed("must be real number")),
            };
            ops::binary(super::ast::Binary::Div, &whole, &power, budget)
        }
        _ => Err(failed("method must be common, ceil or floor")),
    }
}
