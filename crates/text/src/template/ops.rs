//! Python's operators. The compiler's instructions for them are replaced by calls of these functions
//! (program.rs), because minijinja's own differ (`/` of ints, `~` of True) and have no bound on size.

use super::budget::Budget;
use super::printf;
use super::python::{error, to_str};
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

type Answer = Result<Value, Error>;

/// Every operator by the name that program.rs calls it by.
pub const BINARY: [(&str, fn(&Budget, &Value, &Value) -> Answer); 15] = [
    ("py.add", add),
    ("py.sub", |_, a, b| arithmetic("-", a, b, i128::checked_sub, |x, y| x - y)),
    ("py.mul", mul),
    ("py.div", |_, a, b| true_div(a, b)),
    ("py.floordiv", |_, a, b| floor_div(a, b)),
    ("py.mod", modulo),
    ("py.pow", |_, a, b| pow(a, b)),
    ("py.concat", concat),
    ("py.in", contains),
    ("py.eq", |budget, a, b| compare(budget, a, b).map(|_| Value::from(a == b))),
    ("py.ne", |budget, a, b| compare(budget, a, b).map(|_| Value::from(a != b))),
    ("py.lt", |budget, a, b| ordered(budget, a, b).map(|_| Value::from(a < b))),
    ("py.le", |budget, a, b| ordered(budget, a, b).map(|_| Value::from(a <= b))),
    ("py.gt", |budget, a, b| ordered(budget, a, b).map(|_| Value::from(a > b))),
    ("py.ge", |budget, a, b| ordered(budget, a, b).map(|_| Value::from(a >= b))),
];

enum Number {
    Int(i128),
    Float(f64),
}

/// A bool is an int in Python.
fn number(value: &Value) -> Option<Number> {
    match value.kind() {
        ValueKind::Bool => Some(Number::Int(i128::from(value.is_true()))),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok().map(Number::Int),
        ValueKind::Number => f64::try_from(value.clone()).ok().map(Number::Float),
        _ => None,
    }
}

fn as_float(number: &Number) -> f64 {
    match *number {
        Number::Int(int) => int as f64,
        Number::Float(float) => float,
    }
}

fn unsupported(operator: &str, a: &Value, b: &Value) -> Error {
    if a.is_undefined() || b.is_undefined() {
        return Error::new(ErrorKind::UndefinedError, format!("{operator} of an undefined value"));
    }
    error(format!("unsupported operands for {operator}: {} and {}", a.kind(), b.kind()))
}

fn arithmetic(
    operator: &str,
    a: &Value,
    b: &Value,
    int: fn(i128, i128) -> Option<i128>,
    float: fn(f64, f64) -> f64,
) -> Answer {
    match (number(a), number(b)) {
        (Some(Number::Int(x)), Some(Number::Int(y))) => {
            int(x, y).map(Value::from).ok_or_else(|| error(format!("{operator}: an integer beyond 128 bits")))
        }
        (Some(x), Some(y)) => Ok(Value::from(float(as_float(&x), as_float(&y)))),
        _ => Err(unsupported(operator, a, b)),
    }
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

pub fn add(budget: &Budget, a: &Value, b: &Value) -> Answer {
    if let (Some(left), Some(right)) = (a.as_str(), b.as_str()) {
        budget.charge_len(left.len() + right.len())?;
        return Ok(Value::from(format!("{left}{right}")));
    }
    if is_list(a) && is_list(b) {
        budget.charge_values(&[a.clone(), b.clone()])?;
        return Ok(Value::from(a.try_iter()?.chain(b.try_iter()?).collect::<Vec<Value>>()));
    }
    arithmetic("+", a, b, i128::checked_add, |x, y| x + y)
}

fn mul(budget: &Budget, a: &Value, b: &Value) -> Answer {
    let repeated = match (number(a), number(b)) {
        (Some(Number::Int(times)), None) => Some((b, times)),
        (None, Some(Number::Int(times))) => Some((a, times)),
        _ => None,
    };
    let Some((value, times)) = repeated else {
        return arithmetic("*", a, b, i128::checked_mul, |x, y| x * y);
    };
    let times = u64::try_from(times.max(0)).unwrap_or(u64::MAX);
    if let Some(text) = value.as_str() {
        budget.charge((text.len() as u64).saturating_mul(times))?;
        return Ok(Value::from(text.repeat(times as usize)));
    }
    if !is_list(value) {
        return Err(unsupported("*", a, b));
    }
    let items: Vec<Value> = value.try_iter()?.collect();
    budget.charge((items.len() as u64 * 16).saturating_mul(times))?;
    let count = items.len() * times as usize;
    Ok(Value::from(items.into_iter().cycle().take(count).collect::<Vec<Value>>()))
}

fn zero() -> Error {
    error("division by zero")
}

fn true_div(a: &Value, b: &Value) -> Answer {
    match (number(a), number(b)) {
        (Some(_), Some(y)) if as_float(&y) == 0.0 => Err(zero()),
        (Some(x), Some(y)) => Ok(Value::from(as_float(&x) / as_float(&y))),
        _ => Err(unsupported("/", a, b)),
    }
}

fn floor_div(a: &Value, b: &Value) -> Answer {
    match number(b) {
        Some(y) if as_float(&y) == 0.0 => Err(zero()),
        _ => arithmetic(
            "//",
            a,
            b,
            |x, y| Some(x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0)),
            |x, y| (x / y).floor(),
        ),
    }
}

fn modulo(budget: &Budget, a: &Value, b: &Value) -> Answer {
    if let Some(format) = a.as_str() {
        return printf::modulo(budget, format, b);
    }
    match number(b) {
        Some(y) if number(a).is_some() && as_float(&y) == 0.0 => Err(zero()),
        _ => arithmetic(
            "%",
            a,
            b,
            |x, y| Some(x - y * x.div_euclid(y) + if y < 0 && x.rem_euclid(y) != 0 { y } else { 0 }),
            |x, y| x - y * (x / y).floor(),
        ),
    }
}

fn pow(a: &Value, b: &Value) -> Answer {
    match (number(a), number(b)) {
        (Some(Number::Int(x)), Some(Number::Int(y))) if y >= 0 => u32::try_from(y)
            .ok()
            .and_then(|y| x.checked_pow(y))
            .map(Value::from)
            .ok_or_else(|| error("**: an integer beyond 128 bits")),
        (Some(x), Some(y)) => Ok(Value::from(as_float(&x).powf(as_float(&y)))),
        _ => Err(unsupported("**", a, b)),
    }
}

fn concat(budget: &Budget, a: &Value, b: &Value) -> Answer {
    let mut text = to_str(a, budget)?;
    text.push_str(&to_str(b, budget)?);
    Ok(Value::from(text))
}

/// `a in b`.
fn contains(budget: &Budget, a: &Value, b: &Value) -> Answer {
    budget.charge_values(&[a.clone(), b.clone()])?;
    match b.kind() {
        ValueKind::String => match (a.as_str(), b.as_str()) {
            (Some(part), Some(text)) => Ok(Value::from(text.contains(part))),
            _ => Err(unsupported("in", a, b)),
        },
        ValueKind::Undefined => Ok(Value::from(false)),
        ValueKind::Map => Ok(Value::from(b.try_iter()?.any(|key| key == *a))),
        ValueKind::Seq | ValueKind::Iterable => {
            for item in b.try_iter()? {
                compare(budget, a, &item)?;
                if item == *a {
                    return Ok(Value::from(true));
                }
            }
            Ok(Value::from(false))
        }
        _ => Err(unsupported("in", a, b)),
    }
}

/// Pays for comparing two values.
fn compare(budget: &Budget, a: &Value, b: &Value) -> Result<(), Error> {
    match (a.as_str(), b.as_str()) {
        (Some(x), Some(y)) => budget.charge_len(x.len().min(y.len())),
        (None, None) => budget.charge_tree(a).and_then(|_| budget.charge_tree(b)),
        _ => Ok(()), // of two types: not looked into
    }
}

fn ordered(budget: &Budget, a: &Value, b: &Value) -> Result<(), Error> {
    compare(budget, a, b)?;
    let comparable = match (number(a), number(b)) {
        (Some(_), Some(_)) => true,
        _ => (a.as_str().is_some() && b.as_str().is_some()) || (is_list(a) && is_list(b)),
    };
    if comparable {
        Ok(())
    } else {
        Err(unsupported("<", a, b))
    }
}

/// `value[key]`: an undefined value when there is none.
pub fn item(budget: &Budget, value: &Value, key: &Value) -> Answer {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "an item of an undefined value"));
    }
    if let Some(text) = value.as_str() {
        budget.charge_len(text.len())?;
    }
    value.get_item(key)
}

/// `value[start:stop:step]` of a string or a list.
pub fn slice(budget: &Budget, args: &[Value]) -> Answer {
    let [value, start, stop, step] = args else { return Err(error("a slice takes four values")) };
    let bound = |value: &Value| -> Result<Option<i64>, Error> {
        match number(value) {
            None if value.is_none() => Ok(None),
            Some(Number::Int(int)) => Ok(Some(int.clamp(i64::MIN.into(), i64::MAX.into()) as i64)),
            _ => Err(error("slice indices must be integers")),
        }
    };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(error("slice step cannot be zero"));
    }
    budget.charge_values(std::slice::from_ref(value))?;
    if let Some(text) = value.as_str() {
        let chars: Vec<char> = text.chars().collect();
        budget.charge_len(chars.len() * 4)?;
        let picked = indices(chars.len(), start, stop, step).map(|i| chars[i]);
        return Ok(Value::from(picked.collect::<String>()));
    }
    if !is_list(value) {
        return Err(error(format!("a value of type {} cannot be sliced", value.kind())));
    }
    let items: Vec<Value> = value.try_iter()?.collect();
    let picked = indices(items.len(), start, stop, step).map(|i| items[i].clone());
    Ok(Value::from(picked.collect::<Vec<Value>>()))
}

/// The positions that Python's slice.indices() gives.
fn indices(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let len = len as i64;
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clip = |at: i64| if at < 0 { at.saturating_add(len).max(low) } else { at.min(high) };
    let first = start.map_or(if step > 0 { low } else { high }, clip);
    let end = stop.map_or(if step > 0 { high } else { low }, clip);
    std::iter::successors(Some(first), move |at| at.checked_add(step))
        .take_while(move |&at| if step > 0 { at < end } else { at > end })
        .map(|at| at as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(name: &str, a: impl Into<Value>, b: impl Into<Value>) -> String {
        let (_, function) = BINARY.iter().find(|(n, _)| *n == name).unwrap();
        let budget = Budget::new();
        match function(&budget, &a.into(), &b.into()) {
            Ok(value) => to_str(&value, &budget).unwrap(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn integers_divide_as_in_python() {
        // (a, b, a // b, a % b), from Python
        for (a, b, quotient, rest) in
            [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, -3, -2, 0), (-6, 3, -2, 0)]
        {
            assert_eq!(op("py.floordiv", a, b), quotient.to_string(), "{a} // {b}");
            assert_eq!(op("py.mod", a, b), rest.to_string(), "{a} % {b}");
        }
        assert_eq!(op("py.div", 4, 2), "2.0");
        assert_eq!(op("py.mod", -7.5, 2), "0.5");
        assert!(op("py.div", 1, 0).contains("division by zero"));
    }

    #[test]
    fn mixed_operands() {
        assert_eq!(op("py.add", true, 1), "2");
        assert_eq!(op("py.concat", "a", true), "aTrue");
        assert_eq!(op("py.mul", "ab", 3), "ababab");
        assert_eq!(op("py.mul", -1, "ab"), "");
        assert_eq!(op("py.mul", vec![1, 2], 2), "[1, 2, 1, 2]");
        assert_eq!(op("py.pow", 2, -1), "0.5");
        assert!(op("py.add", "a", 1).contains("unsupported operands"));
        assert!(op("py.lt", "a", 1).contains("unsupported operands"));
        assert!(op("py.mul", "a", 10_000_000_000i64).contains("too much text"));
    }

    #[test]
    fn slices_pick_what_python_picks() {
        let pick = |start, stop, step| indices(5, start, stop, step).collect::<Vec<_>>();
        assert_eq!(pick(None, None, 1), [0, 1, 2, 3, 4]);
        assert_eq!(pick(None, None, -1), [4, 3, 2, 1, 0]);
        assert_eq!(pick(Some(-2), None, 1), [3, 4]);
        assert_eq!(pick(Some(1), Some(-1), 2), [1, 3]);
        assert_eq!(pick(Some(3), Some(0), -2), [3, 1]);
        assert_eq!(pick(Some(-9), Some(99), 3), [0, 3]);
        assert_eq!(pick(Some(9), Some(-9), -4), [4, 0]);
        assert!(indices(0, None, None, -1).next().is_none());
    }
}
