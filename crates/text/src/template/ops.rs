//! Python's operators, comparisons and slices.

use super::ast::{Binary, Comparison};
use super::budget::Budget;
use super::error::{failed, refused, Error, Result};
use super::printf::modulo;
use super::value::{Dict, Value, View};
use std::rc::Rc;

pub fn binary(operator: Binary, a: &Value, b: &Value, budget: &Budget) -> Result<Value> {
    if let (Binary::Mod, Value::Str(format)) = (operator, a) {
        return modulo(format, b, budget);
    }
    for value in [a, b] {
        if let Value::Undefined(name) = value {
            return Err(undefined(name));
        }
        if matches!(value, Value::Markup(_)) {
            return Err(refused(format!("{} on the result of escape or safe", sign(operator))));
        }
    }
    match operator {
        Binary::Add => add(a, b, budget),
        Binary::Mul => mul(a, b, budget),
        _ => arithmetic(operator, a, b),
    }
}

pub fn undefined(name: &Option<std::sync::Arc<str>>) -> Error {
    match name {
        Some(name) => failed(format!("'{name}' is undefined")),
        None => failed("an undefined value is used"),
    }
}

fn sign(operator: Binary) -> &'static str {
    match operator {
        Binary::Add => "+",
        Binary::Sub => "-",
        Binary::Mul => "*",
        Binary::Div => "/",
        Binary::FloorDiv => "//",
        Binary::Mod => "%",
        Binary::Pow => "**",
    }
}

fn operands(operator: Binary, a: &Value, b: &Value) -> Error {
    let (a, b) = (a.type_name(), b.type_name());
    failed(format!("unsupported operand type(s) for {}: '{a}' and '{b}'", sign(operator)))
}

fn too_large(operator: Binary) -> Error {
    refused(format!("{} with an integer beyond 128 bits", sign(operator)))
}

fn arithmetic(operator: Binary, a: &Value, b: &Value) -> Result<Value> {
    let ints = a.as_int().zip(b.as_int());
    let Some((x, y)) = a.as_float().zip(b.as_float()) else { return Err(operands(operator, a, b)) };
    let divides = matches!(operator, Binary::Div | Binary::FloorDiv | Binary::Mod);
    if divides && y == 0.0 {
        return Err(failed("division by zero"));
    }
    if let (Some((x, y)), false) = (ints, operator == Binary::Div) {
        let floor = |x: i128, y: i128| {
            let (quotient, rest) = (x.checked_div(y)?, x.checked_rem(y)?);
            Some(quotient - i128::from(rest != 0 && (rest < 0) != (y < 0)))
        };
        let result = match operator {
            Binary::Add => x.checked_add(y),
            Binary::Sub => x.checked_sub(y),
            Binary::Mul => x.checked_mul(y),
            Binary::FloorDiv => floor(x, y),
            Binary::Mod => floor(x, y).and_then(|quotient| x.checked_sub(quotient.checked_mul(y)?)),
            Binary::Pow if y >= 0 => match (x, u32::try_from(y)) {
                (0 | 1, _) if y > 0 => Some(x),
                (_, Ok(y)) => x.checked_pow(y),
                _ => None,
            },
            _ => return power(x as f64, y as f64),
        };
        return result.map(Value::Int).ok_or_else(|| too_large(operator));
    }
    if let (Binary::Div, Some((x, y))) = (operator, ints) {
        const EXACT: u128 = 1 << 53;
        if x.unsigned_abs() > EXACT || y.unsigned_abs() > EXACT {
            return Err(refused("/ with integers beyond 53 bits"));
        }
    }
    Ok(Value::Float(match operator {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::FloorDiv => float_divmod(x, y).0,
        Binary::Mod => float_divmod(x, y).1,
        Binary::Pow => return power(x, y),
    }))
}

fn power(x: f64, y: f64) -> Result<Value> {
    if x == 0.0 && y < 0.0 {
        return Err(failed("0.0 cannot be raised to a negative power"));
    }
    if x < 0.0 && y.fract() != 0.0 && x.is_finite() && y.is_finite() {
        return Err(refused("** with a complex result"));
    }
    let result = x.powf(y);
    if result.is_infinite() && x.is_finite() && y.is_finite() {
        return Err(failed("Result too large"));
    }
    Ok(Value::Float(result))
}

/// CPython's float floor division and modulo.
fn float_divmod(x: f64, y: f64) -> (f64, f64) {
    let mut rest = x % y;
    let mut quotient = (x - rest) / y;
    if rest != 0.0 {
        if (y < 0.0) != (rest < 0.0) {
            rest += y;
            quotient -= 1.0;
        }
    } else {
        rest = 0.0f64.copysign(y);
    }
    let floor = if quotient != 0.0 {
        let floor = quotient.floor();
        if quotient - floor > 0.5 {
            floor + 1.0
        } else {
            floor
        }
    } else {
        0.0f64.copysign(x / y)
    };
    (floor, rest)
}

pub fn add(a: &Value, b: &Value, budget: &Budget) -> Result<Value> {
    match (a, b) {
        (Value::Str(left), Value::Str(right)) => {
            budget.work(left.len() + right.len())?;
            let mut out = String::with_capacity(left.len() + right.len());
            out.push_str(left);
            out.push_str(right);
            Ok(Value::Str(out.into()))
        }
        (Value::List(left), Value::List(right)) => {
            budget.values(left.items.len() + right.items.len())?;
            Value::list(left.items.iter().chain(&right.items).cloned().collect(), budget)
        }
        (Value::Tuple(left), Value::Tuple(right)) => {
            budget.values(left.items.len() + right.items.len())?;
            Value::tuple(left.items.iter().chain(&right.items).cloned().collect(), budget)
        }
        _ => arithmetic(Binary::Add, a, b),
    }
}

fn mul(a: &Value, b: &Value, budget: &Budget) -> Result<Value> {
    let (value, times) = match (a.as_int(), b.as_int()) {
        (Some(times), None) => (b, times),
        (None, Some(times)) => (a, times),
        _ => return arithmetic(Binary::Mul, a, b),
    };
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    let repeat = |items: &[Value]| -> Result<Vec<Value>> {
        budget.values(items.len().saturating_mul(times))?;
        Ok(items.iter().cycle().take(items.len() * times).cloned().collect())
    };
    match value {
        Value::Str(text) => {
            budget.work(text.len().saturating_mul(times))?;
            Ok(Value::Str(if text.is_empty() { text.clone() } else { text.repeat(times).into() }))
        }
        Value::List(seq) => Value::list(repeat(&seq.items)?, budget),
        Value::Tuple(seq) => Value::tuple(repeat(&seq.items)?, budget),
        _ => arithmetic(Binary::Mul, a, b),
    }
}

pub fn negative(value: &Value) -> Result<Value> {
    match value {
        Value::Float(f) => Ok(Value::Float(-f)),
        Value::Undefined(name) => Err(undefined(name)),
        _ => match value.as_int() {
            Some(int) => int.checked_neg().map(Value::Int).ok_or_else(|| too_large(Binary::Sub)),
            None => Err(failed(format!("bad operand type for unary -: '{}'", value.type_name()))),
        },
    }
}

pub fn positive(value: &Value) -> Result<Value> {
    match value {
        Value::Float(_) => Ok(value.clone()),
        Value::Undefined(name) => Err(undefined(name)),
        _ => match value.as_int() {
            Some(int) => Ok(Value::Int(int)),
            None => Err(failed(format!("bad operand type for unary +: '{}'", value.type_name()))),
        },
    }
}

pub fn compare(operator: Comparison, a: &Value, b: &Value, budget: &Budget) -> Result<bool> {
    match operator {
        Comparison::Eq => equal(a, b, budget),
        Comparison::Ne => equal(a, b, budget).map(|equal| !equal),
        Comparison::Lt => ordered("<", a, b, budget),
        Comparison::Gt => ordered(">", a, b, budget),
        Comparison::Le => ordered("<=", a, b, budget),
        Comparison::Ge => ordered(">=", a, b, budget),
        Comparison::In => contains(a, b, budget),
        Comparison::NotIn => contains(a, b, budget).map(|found| !found),
    }
}

pub fn less(a: &Value, b: &Value, budget: &Budget) -> Result<bool> {
    ordered("<", a, b, budget)
}

pub fn equal(a: &Value, b: &Value, budget: &Budget) -> Result<bool> {
    budget.work(4)?;
    if let Some((x, y)) = a.as_int().zip(b.as_int()) {
        return Ok(x == y);
    }
    if let Some((x, y)) = a.as_float().zip(b.as_float()) {
        return Ok(x == y);
    }
    let all = |x: &[Value], y: &[Value]| -> Result<bool> {
        if x.len() != y.len() {
            return Ok(false);
        }
        for (x, y) in x.iter().zip(y) {
            if !equal(x, y, budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    Ok(match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Str(x) | Value::Markup(x), Value::Str(y) | Value::Markup(y)) => {
            budget.work(x.len().min(y.len()))?;
            x == y
        }
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => all(&x.items, &y.items)?,
        (Value::Dict(x), Value::Dict(y)) => equal_dicts(x, y, budget)?,
        (Value::View(View::Values, _), _) | (_, Value::View(View::Values, _)) => {
            return Err(refused("comparing dict_values"))
        }
        (Value::View(..), Value::View(..)) => return Err(refused("comparing views of dicts")),
        (Value::Range(x), Value::Range(y)) => {
            x.len == y.len && (x.len == 0 || x.start == y.start && (x.len == 1 || x.step == y.step))
        }
        (Value::Iterator(x), Value::Iterator(y)) => Rc::ptr_eq(x, y),
        (Value::Object(x), Value::Object(y)) => Rc::ptr_eq(x, y),
        _ => false,
    })
}

fn equal_dicts(x: &Dict, y: &Dict, budget: &Budget) -> Result<bool> {
    if x.entries.len() != y.entries.len() {
        return Ok(false);
    }
    for (key, value) in &x.entries {
        match y.get(key)? {
            Some(other) if equal(value, other, budget)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn ordered(operator: &str, a: &Value, b: &Value, budget: &Budget) -> Result<bool> {
    budget.work(4)?;
    fn by<T: PartialOrd>(operator: &str, x: T, y: T) -> bool {
        match operator {
            "<" => x < y,
            ">" => x > y,
            "<=" => x <= y,
            _ => x >= y,
        }
    }
    if let Some((x, y)) = a.as_int().zip(b.as_int()) {
        return Ok(by(operator, x, y));
    }
    if let Some((x, y)) = a.as_float().zip(b.as_float()) {
        return Ok(by(operator, x, y));
    }
    match (a, b) {
        (Value::Str(x) | Value::Markup(x), Value::Str(y) | Value::Markup(y)) => {
            budget.work(x.len().min(y.len()))?;
            Ok(by(operator, x, y))
        }
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => {
            for (x, y) in x.items.iter().zip(&y.items) {
                if !equal(x, y, budget)? {
                    return ordered(operator, x, y, budget);
                }
            }
            Ok(by(operator, x.items.len(), y.items.len()))
        }
        (Value::Undefined(name), _) | (_, Value::Undefined(name)) => Err(undefined(name)),
        (Value::View(..), _) | (_, Value::View(..)) => Err(refused("ordering views of dicts")),
        _ => {
            let (a, b) = (a.type_name(), b.type_name());
            Err(failed(format!("'{operator}' not supported between instances of '{a}' and '{b}'")))
        }
    }
}

/// `a in b`.
pub fn contains(a: &Value, b: &Value, budget: &Budget) -> Result<bool> {
    budget.work(b.size())?;
    match b {
        Value::Str(text) | Value::Markup(text) => match a {
            Value::Str(part) | Value::Markup(part) => Ok(text.contains(&**part)),
            _ => {
                let found = a.type_name();
                Err(failed(format!("'in <string>' requires string as left operand, not {found}")))
            }
        },
        Value::Dict(dict) | Value::View(View::Keys, dict) => Ok(dict.get(a)?.is_some()),
        Value::List(seq) | Value::Tuple(seq) => any_equal(a, &seq.items, budget),
        Value::Range(range) => {
            let offset = a.as_float().map(|number| number - range.start as f64);
            let at = offset.map(|offset| offset / range.step as f64);
            Ok(at.is_some_and(|at| at.fract() == 0.0 && at >= 0.0 && at < range.len as f64))
        }
        Value::Iterator(iterator) => loop {
            let next = iterator.rest.borrow_mut().pop_front();
            match next {
                Some(item) if equal(a, &item, budget)? => return Ok(true),
                Some(_) => {}
                None => return Ok(false),
            }
        },
        Value::Undefined(_) | Value::View(..) => any_equal(a, &b.items(budget)?, budget),
        _ => Err(failed(format!("argument of type '{}' is not iterable", b.type_name()))),
    }
}

fn any_equal(a: &Value, items: &[Value], budget: &Budget) -> Result<bool> {
    for item in items {
        if equal(a, item, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A stable sort that stops at the first comparison that fails.
pub fn sort<T: Clone>(
    items: Vec<T>,
    less: impl Fn(&T, &T) -> Result<bool> + Copy,
    budget: &Budget,
) -> Result<Vec<T>> {
    if items.len() < 2 {
        return Ok(items);
    }
    budget.values(items.len())?;
    let mut left = items;
    let right = left.split_off(left.len() / 2);
    let (left, right) = (sort(left, less, budget)?, sort(right, less, budget)?);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let from = if less(b, a)? { right.next() } else { left.next() };
        merged.extend(from);
    }
    merged.extend(left);
    merged.extend(right);
    Ok(merged)
}

fn bound(value: &Value) -> Result<Option<i64>> {
    match (value, value.as_int()) {
        (Value::None, _) => Ok(None),
        (_, Some(int)) => Ok(Some(int.clamp(i64::MIN.into(), i64::MAX.into()) as i64)),
        _ => Err(failed("slice indices must be integers or None")),
    }
}

/// `value[start:stop:step]`.
pub fn slice(value: &Value, bounds: [Value; 3], budget: &Budget) -> Result<Value> {
    budget.work(value.size())?;
    let [start, stop, step] = &bounds;
    let indices = |len: usize| -> Result<Vec<usize>> {
        let step = bound(step)?.unwrap_or(1);
        if step == 0 {
            return Err(failed("slice step cannot be zero"));
        }
        let picked = indices(len, bound(start)?, bound(stop)?, step).collect();
        Ok(picked)
    };
    let pick = |items: &[Value]| -> Result<Vec<Value>> {
        Ok(indices(items.len())?.into_iter().map(|at| items[at].clone()).collect())
    };
    match value {
        Value::Str(text) => {
            let chars: Vec<char> = text.chars().collect();
            Ok(Value::Str(indices(chars.len())?.into_iter().map(|at| chars[at]).collect::<String>().into()))
        }
        Value::List(seq) => Value::list(pick(&seq.items)?, budget),
        Value::Tuple(seq) => Value::tuple(pick(&seq.items)?, budget),
        Value::Undefined(name) => Err(undefined(name)),
        Value::Range(_) => Err(refused("a slice of a range")),
        Value::Markup(_) => Err(refused("a slice of the result of escape or safe")),
        Value::Dict(_) => Err(failed("unhashable type: 'slice'")),
        _ => Err(failed(format!("'{}' object is not subscriptable", value.type_name()))),
    }
}

/// The positions that Python's slice.indices() gives.
pub fn indices(len: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
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

    #[test]
    fn numbers_divide_as_in_python() {
        // (a, b, a // b, a % b), from Python
        for (a, b, quotient, rest) in
            [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, -3, -2, 0), (-6, 3, -2, 0)]
        {
            let of =
                |operator| binary(operator, &Value::Int(a), &Value::Int(b), &Budget::new()).unwrap().as_int();
            assert_eq!(of(Binary::FloorDiv), Some(quotient), "{a} // {b}");
            assert_eq!(of(Binary::Mod), Some(rest), "{a} % {b}");
        }
        assert_eq!(float_divmod(-7.5, 2.0), (-4.0, 0.5));
        assert_eq!(float_divmod(7.5, -2.0), (-4.0, -0.5));
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
