//! The values of expressions.

use super::arguments::Args;
use super::ast::{Arguments, Expr};
use super::error::{failed, refused, Result};
use super::functions::builtin;
use super::interpreter::Machine;
use super::text::{to_str, write_str};
use super::value::{Dict, Object, Value};
use super::{filters, ops, predicates};

impl Machine<'_> {
    pub fn eval(&mut self, expr: &Expr) -> Result<Value> {
        self.budget.step()?;
        match expr {
            Expr::None => Ok(Value::None),
            Expr::Bool(b) => Ok(Value::Bool(*b)),
            Expr::Int(i) => Ok(Value::Int(*i)),
            Expr::Float(f) => Ok(Value::Float(*f)),
            Expr::Str(text) => Ok(Value::Str(text.clone())),
            Expr::Name(symbol) => self.name(*symbol),
            Expr::Captured => Ok(self.captured.last().cloned().unwrap_or(Value::None)),
            _ => {
                self.budget.enter()?;
                let value = self.compound(expr);
                self.budget.leave();
                value
            }
        }
    }

    fn name(&self, symbol: u32) -> Result<Value> {
        if let Some(value) = self.lookup(symbol) {
            return Ok(value);
        }
        let name = &self.program.names[symbol as usize];
        Ok(match builtin(name) {
            Some(function) => Value::object(Object::Function(function)),
            None if &**name == "self" => return Err(refused("the variable self")),
            None => Value::Undefined(Some(name.clone())),
        })
    }

    fn list(&mut self, items: &[Expr]) -> Result<Vec<Value>> {
        items.iter().map(|item| self.eval(item)).collect()
    }

    fn compound(&mut self, expr: &Expr) -> Result<Value> {
        match expr {
            Expr::Tuple(items) => {
                let items = self.list(items)?;
                Value::tuple(items, &self.budget)
            }
            Expr::List(items) => {
                let items = self.list(items)?;
                Value::list(items, &self.budget)
            }
            Expr::Dict(pairs) => {
                let mut values = Vec::with_capacity(pairs.len());
                for (key, value) in pairs {
                    values.push((self.eval(key)?, self.eval(value)?));
                }
                Ok(Value::Dict(Dict::new(values, &self.budget)?))
            }
            Expr::Not(inner) => Ok(Value::Bool(!self.eval(inner)?.truth())),
            Expr::Negative(inner) => ops::negative(&self.eval(inner)?),
            Expr::Positive(inner) => ops::positive(&self.eval(inner)?),
            Expr::And(pair) => {
                let left = self.eval(&pair.0)?;
                if left.truth() {
                    self.eval(&pair.1)
                } else {
                    Ok(left)
                }
            }
            Expr::Or(pair) => {
                let left = self.eval(&pair.0)?;
                if left.truth() {
                    Ok(left)
                } else {
                    self.eval(&pair.1)
                }
            }
            Expr::Binary(operator, pair) => {
                let (left, right) = (self.eval(&pair.0)?, self.eval(&pair.1)?);
                ops::binary(*operator, &left, &right, &self.budget)
            }
            Expr::Concat(parts) => {
                let parts = self.list(parts)?;
                let mut text = String::new();
                parts.iter().try_for_each(|part| write_str(part, &mut text, &self.budget))?;
                Ok(Value::Str(text.into()))
            }
            Expr::Compare(first, rest) => {
                let mut left = self.eval(first)?;
                for (operator, right) in rest {
                    let right = self.eval(right)?;
                    if !ops::compare(*operator, &left, &right, &self.budget)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            Expr::If(parts) => {
                let (test, then, otherwise) = &**parts;
                if self.eval(test)?.truth() {
                    return self.eval(then);
                }
                match otherwise {
                    Some(otherwise) => self.eval(otherwise),
                    None => Ok(Value::undefined("an if without else")),
                }
            }
            Expr::Attribute(inner, name) => {
                let value = self.eval(inner)?;
                self.get_attribute(&value, name)
            }
            Expr::Item(pair) => {
                let (value, key) = (self.eval(&pair.0)?, self.eval(&pair.1)?);
                self.get_item(&value, &key)
            }
            Expr::Slice(parts) => {
                let value = self.eval(&parts.0)?;
                let mut bounds = [Value::None, Value::None, Value::None];
                for (bound, expr) in bounds.iter_mut().zip(&parts.1) {
                    if let Some(expr) = expr {
                        *bound = self.eval(expr)?;
                    }
                }
                ops::slice(&value, bounds, &self.budget)
            }
            Expr::Call(function, arguments) => {
                let function = self.eval(function)?;
                let args = self.args(arguments)?;
                self.call(&function, args)
            }
            Expr::Filter(inner, name, arguments) => {
                let value = self.eval(inner)?;
                let args = self.args(arguments)?;
                self.filter(name, value, args)
            }
            Expr::Test(inner, name, arguments) => {
                predicates::check_exists(name)?;
                let value = self.eval(inner)?;
                let args = self.args(arguments)?;
                predicates::apply(name, &value, args, &self.budget).map(Value::Bool)
            }
            _ => Err(failed("not an expression")),
        }
    }

    pub fn args(&mut self, arguments: &Arguments) -> Result<Args> {
        let mut args = Args { positional: self.list(&arguments.positional)?, named: Vec::new() };
        for (name, value) in &arguments.named {
            args.named.push((name.clone(), self.eval(value)?));
        }
        if let Some(rest) = &arguments.rest {
            let rest = self.eval(rest)?;
            args.positional.extend(rest.items(&self.budget)?);
        }
        if let Some(rest) = &arguments.named_rest {
            let Value::Dict(dict) = self.eval(rest)? else {
                return Err(failed("the argument after ** must be a mapping"));
            };
            for (key, value) in &dict.entries {
                let name = to_str(key, &self.budget)?;
                if key.as_str().is_none() || args.named.iter().any(|(known, _)| *known == name) {
                    return Err(failed(format!(
                        "the keyword argument '{name}' is given twice, or is no string"
                    )));
                }
                args.named.push((name, value.clone()));
            }
        }
        Ok(args)
    }

    pub fn filter(&mut self, name: &str, value: Value, args: Args) -> Result<Value> {
        filters::apply(self, name, value, args)
    }

    pub fn call(&mut self, function: &Value, args: Args) -> Result<Value> {
        match function {
            Value::Undefined(name) => Err(self.not_callable(name)),
            Value::Object(object) => match &**object {
                Object::Function(function) => self.call_builtin(*function, args),
                Object::Method { receiver, name } => self.call_method(receiver, name, args),
                Object::Macro { decl, scope } => self.call_macro(decl, *scope, args),
                Object::Loop(state) => self.call_loop(state, args),
                Object::Joiner { separator, used } => {
                    args.none("joiner")?;
                    Ok(if used.replace(true) { separator.clone() } else { Value::str("") })
                }
                _ => Err(failed(format!("'{}' object is not callable", function.type_name()))),
            },
            _ => Err(failed(format!("'{}' object is not callable", function.type_name()))),
        }
    }
}
