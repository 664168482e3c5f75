//! Runs a parsed template: statements, scopes and macros. Expressions are in expressions.rs.

use super::arguments::Args;
use super::ast::{Block, Expr, For, Macro, Program, Stmt, StmtKind, Symbol, Target};
use super::budget::Budget;
use super::clock::Clock;
use super::error::{failed, Result};
use super::functions::check_attribute;
use super::text::write_str;
use super::value::{Dict, Loop, Object, Seq, Value};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// What a statement does to the loop around it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Next,
    Break,
    Continue,
}

/// Variables of one block. A macro sees the scope that it is defined in, as that is when it is called.
struct Scope {
    variables: Vec<(Symbol, Value)>,
    parent: Option<usize>,
    /// A macro refers to it: it must outlive its block.
    captured: bool,
}

pub struct Machine<'p> {
    pub budget: Budget,
    pub clock: Clock,
    /// Of the statement that runs.
    pub line: u32,
    /// Every namespace made: they are emptied in the end, since they may hold one another.
    pub namespaces: Vec<Rc<Object>>,
    /// Text of the blocks that filters are applied to.
    pub captured: Vec<Value>,
    pub program: &'p Program,
    arguments: Vec<Option<Value>>,
    scopes: Vec<Scope>,
    scope: usize,
    out: String,
    loop_symbol: Option<Symbol>,
}

impl<'p> Machine<'p> {
    /// `arguments`: the template's variables.
    pub fn new(
        program: &'p Program,
        arguments: &serde_json::Map<String, serde_json::Value>,
        clock: Clock,
    ) -> Result<Self> {
        let budget = Budget::new();
        let argument =
            |name: &Arc<str>| arguments.get(&**name).map(|json| Value::from_json(json, &budget)).transpose();
        let arguments = program.names.iter().map(argument).collect::<Result<_>>()?;
        Ok(Self {
            budget,
            clock,
            line: 1,
            namespaces: Vec::new(),
            captured: Vec::new(),
            program,
            arguments,
            scopes: vec![Scope { variables: Vec::new(), parent: None, captured: false }],
            scope: 0,
            out: String::new(),
            loop_symbol: program.names.iter().position(|name| &**name == "loop").map(|at| at as Symbol),
        })
    }

    pub fn run(&mut self) -> Result<String> {
        let program = self.program;
        self.own_block(&program.body)?;
        Ok(std::mem::take(&mut self.out))
    }

    // Scopes.

    pub fn lookup(&self, symbol: Symbol) -> Option<Value> {
        let mut at = Some(self.scope);
        while let Some(index) = at {
            let scope = &self.scopes[index];
            if let Some((_, value)) = scope.variables.iter().find(|(name, _)| *name == symbol) {
                return Some(value.clone());
            }
            at = scope.parent;
        }
        self.arguments[symbol as usize].clone()
    }

    fn define(&mut self, symbol: Symbol, value: Value) {
        let variables = &mut self.scopes[self.scope].variables;
        match variables.iter_mut().find(|(name, _)| *name == symbol) {
            Some((_, slot)) => *slot = value,
            None => variables.push((symbol, value)),
        }
    }

    /// Runs `inner` with a new scope inside of `parent`.
    fn scoped<T>(&mut self, parent: usize, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.budget.enter()?;
        let before = self.scope;
        self.scope = self.scopes.len();
        self.scopes.push(Scope { variables: Vec::new(), parent: Some(parent), captured: false });
        let result = inner(self);
        let last = self.scope + 1 == self.scopes.len();
        if last && !self.scopes[self.scope].captured {
            self.scopes.pop();
        } else {
            self.budget.work(256)?;
        }
        self.scope = before;
        self.budget.leave();
        result
    }

    /// Keeps the current scope, and those around it, until the end.
    fn capture_scope(&mut self) -> usize {
        let mut at = Some(self.scope);
        while let Some(index) = at {
            if self.scopes[index].captured {
                break;
            }
            self.scopes[index].captured = true;
            at = self.scopes[index].parent;
        }
        self.scope
    }

    /// What `inner` prints.
    fn captured_text(&mut self, inner: impl FnOnce(&mut Self) -> Result<()>) -> Result<Value> {
        let before = std::mem::take(&mut self.out);
        let result = inner(self);
        let text = std::mem::replace(&mut self.out, before);
        result?;
        self.budget.work(text.len())?;
        Ok(Value::Str(text.into()))
    }

    // Statements.

    fn block(&mut self, statements: &[Stmt]) -> Result<Flow> {
        for statement in statements {
            self.budget.step()?;
            self.line = statement.line;
            let flow = self.statement(&statement.kind)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// A block in the scope that has been made for it.
    fn own_block(&mut self, block: &Block) -> Result<Flow> {
        for symbol in &block.unset {
            let name = self.program.names[*symbol as usize].clone();
            self.define(*symbol, Value::Undefined(Some(name)));
        }
        self.block(&block.statements)
    }

    fn emit(&mut self, value: &Value) -> Result<()> {
        let before = self.out.len();
        write_str(value, &mut self.out, &self.budget)?;
        self.budget.emit(self.out.len() - before)
    }

    /// Where Jinja2 prints without str().
    fn emit_text(&mut self, value: &Value) -> Result<()> {
        if !matches!(value, Value::Str(_) | Value::Markup(_)) {
            return Err(failed(format!("expected str instance, {} found", value.type_name())));
        }
        self.emit(value)
    }

    fn statement(&mut self, kind: &StmtKind) -> Result<Flow> {
        match kind {
            StmtKind::Data(text) => {
                self.budget.emit(text.len())?;
                self.out.push_str(text);
            }
            StmtKind::Emit(expr) => {
                let value = self.eval(expr)?;
                self.emit(&value)?;
            }
            StmtKind::For(node) => {
                let items = self.eval(&node.iter)?;
                if node.recursive {
                    self.capture_scope();
                }
                self.for_loop(node, &items, 0, self.scope)?;
            }
            StmtKind::If(branches, otherwise) => {
                for (test, body) in branches {
                    if self.eval(test)?.truth() {
                        return self.block(body);
                    }
                }
                return self.block(otherwise);
            }
            StmtKind::Set(target, expr) => {
                let value = self.eval(expr)?;
                self.assign(target, value)?;
            }
            StmtKind::SetBlock(target, filter, body) => {
                let value = self.filtered(filter, body)?;
                self.assign(target, value)?;
            }
            StmtKind::Filter(filter, body) => {
                let value = self.filtered(filter, body)?;
                self.emit_text(&value)?;
            }
            StmtKind::With(values, body) => {
                let evaluated = values.iter().map(|(_, expr)| self.eval(expr)).collect::<Result<Vec<_>>>()?;
                return self.scoped(self.scope, |machine| {
                    for ((target, _), value) in values.iter().zip(evaluated) {
                        machine.assign(target, value)?;
                    }
                    machine.own_block(body)
                });
            }
            StmtKind::Generation(decl) => {
                let text = self.call_macro(decl, self.scope, Args::default())?;
                self.emit(&text)?;
            }
            StmtKind::Macro(decl) => {
                let value = self.macro_value(decl);
                self.define(decl.symbol, value);
            }
            StmtKind::CallBlock(call, decl) => {
                let caller = self.macro_value(decl);
                let Expr::Call(function, arguments) = call else { return Err(failed("expected a call")) };
                let function = self.eval(function)?;
                let mut args = self.args(arguments)?;
                args.named.push((Arc::from("caller"), caller));
                let value = self.call(&function, args)?;
                self.emit_text(&value)?;
            }
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn filtered(&mut self, filter: &Expr, body: &Block) -> Result<Value> {
        let text = self.captured_text(|machine| {
            machine.scoped(machine.scope, |machine| machine.own_block(body)).map(drop)
        })?;
        self.captured.push(text);
        let value = self.eval(filter);
        self.captured.pop();
        value
    }

    pub fn assign(&mut self, target: &Target, value: Value) -> Result<()> {
        match target {
            Target::Name(symbol) => self.define(*symbol, value),
            Target::Attribute(symbol, name) => {
                let object = self.lookup(*symbol);
                let Some(Value::Object(object)) = object else { return Err(self.no_namespace()) };
                let Object::Namespace(attributes) = &*object else { return Err(self.no_namespace()) };
                check_attribute(name)?;
                let mut attributes = attributes.borrow_mut();
                match attributes.iter_mut().find(|(known, _)| known == name) {
                    Some((_, slot)) => *slot = value,
                    None => attributes.push((name.clone(), value)),
                }
            }
            Target::Tuple(targets) => {
                let values = value.items(&self.budget)?;
                if values.len() != targets.len() {
                    let (found, wanted) = (values.len(), targets.len());
                    return Err(failed(format!("cannot unpack {found} values into {wanted}")));
                }
                for (target, value) in targets.iter().zip(values) {
                    self.assign(target, value)?;
                }
            }
        }
        Ok(())
    }

    fn no_namespace(&self) -> super::error::Error {
        failed("cannot assign attribute on non-namespace object")
    }

    /// `outer`: the scope around the loop.
    fn for_loop(&mut self, node: &Arc<For>, items: &Value, depth0: usize, outer: usize) -> Result<()> {
        let mut seq = items.sequence(&self.budget)?;
        let with_loop = self.loop_symbol.is_some() || node.recursive;
        if let (Some(test), true) = (&node.test, with_loop) {
            let mut kept = Vec::new();
            for item in &seq.items {
                if self.passes(node, test, item, outer)? {
                    kept.push(item.clone());
                }
            }
            seq = Seq::new(kept, &self.budget)?;
        }
        let state = match self.loop_symbol {
            Some(symbol) => {
                let recursion = node.recursive.then(|| (node.clone(), outer));
                let (at, changed) = (Cell::new(0), RefCell::new(None));
                let object =
                    Rc::new(Object::Loop(Loop { items: seq.clone(), at, depth0, changed, recursion }));
                Some((symbol, object))
            }
            None => None,
        };
        let mut completed = false;
        for (at, item) in seq.items.iter().enumerate() {
            self.budget.step()?;
            if let (Some(test), false) = (&node.test, with_loop) {
                if !self.passes(node, test, item, outer)? {
                    continue;
                }
            }
            let flow = self.scoped(outer, |machine| {
                if let Some((symbol, object)) = &state {
                    if let Object::Loop(state) = &**object {
                        state.at.set(at);
                    }
                    machine.define(*symbol, Value::Object(object.clone()));
                }
                machine.assign(&node.target, item.clone())?;
                machine.own_block(&node.body)
            })?;
            if flow == Flow::Break {
                break;
            }
            completed |= flow == Flow::Next;
        }
        // As Jinja2 has it: also when every turn broke off.
        if !completed {
            self.scoped(outer, |machine| machine.own_block(&node.otherwise))?;
        }
        Ok(())
    }

    fn passes(&mut self, node: &For, test: &Expr, item: &Value, outer: usize) -> Result<bool> {
        self.scoped(outer, |machine| {
            machine.assign(&node.target, item.clone())?;
            Ok(machine.eval(test)?.truth())
        })
    }

    /// loop(items) in a recursive loop.
    pub fn call_loop(&mut self, state: &Loop, args: Args) -> Result<Value> {
        let [items] = args.bind("loop", ["iterable"])?;
        let items = items.ok_or_else(|| failed("loop() lacks what to loop over"))?;
        let Some((node, outer)) = &state.recursion else {
            return Err(failed("The loop must have the 'recursive' marker to be called recursively."));
        };
        self.captured_text(|machine| machine.for_loop(node, &items, state.depth0 + 1, *outer))
    }

    // Macros.

    fn macro_value(&mut self, decl: &Arc<Macro>) -> Value {
        let scope = self.capture_scope();
        Value::object(Object::Macro { decl: decl.clone(), scope })
    }

    pub fn call_macro(&mut self, decl: &Macro, scope: usize, args: Args) -> Result<Value> {
        let name = &decl.name;
        let Args { positional, mut named } = args;
        let count = decl.parameters.len();
        let mut values = positional.into_iter();
        let mut bound: Vec<Option<Value>> = values.by_ref().take(count).map(Some).collect();
        for parameter in &decl.parameters[bound.len()..] {
            let at = named.iter().position(|(name, _)| *name == parameter.name);
            bound.push(at.map(|at| named.remove(at).1));
        }
        let rest: Vec<Value> = values.collect();
        let caller = decl.caller.map(|symbol| {
            let at = named.iter().position(|(name, _)| &**name == "caller");
            let given = at.map(|at| named.remove(at).1).filter(|caller| !matches!(caller, Value::None));
            (symbol, given.unwrap_or_else(|| Value::undefined("caller")))
        });
        if let (None, Some((extra, _))) = (decl.kwargs, named.first()) {
            return Err(failed(format!("macro '{name}' takes no keyword argument '{extra}'")));
        }
        if decl.varargs.is_none() && !rest.is_empty() {
            return Err(failed(format!("macro '{name}' takes not more than {count} argument(s)")));
        }
        let line = self.line;
        let text = self.captured_text(|machine| {
            machine.scoped(scope, |machine| {
                for (parameter, value) in decl.parameters.iter().zip(&bound) {
                    let missing = || Value::Undefined(Some(parameter.name.clone()));
                    machine.define(parameter.symbol, value.clone().unwrap_or_else(missing));
                }
                for (parameter, value) in decl.parameters.iter().zip(&bound) {
                    if let (None, Some(default)) = (value, &parameter.default) {
                        let value = machine.eval(default)?;
                        machine.define(parameter.symbol, value);
                    }
                }
                if let Some((symbol, caller)) = caller {
                    machine.define(symbol, caller);
                }
                if let Some(symbol) = decl.kwargs {
                    let pairs = named.into_iter().map(|(name, value)| (Value::Str(name), value)).collect();
                    let dict = Dict::new(pairs, &machine.budget)?;
                    machine.define(symbol, Value::Dict(dict));
                }
                if let Some(symbol) = decl.varargs {
                    let rest = Value::tuple(rest, &machine.budget)?;
                    machine.define(symbol, rest);
                }
                machine.own_block(&decl.body).map(drop)
            })
        })?;
        self.line = line;
        Ok(text)
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            if let Object::Namespace(attributes) = &**namespace {
                let held = std::mem::take(&mut *attributes.borrow_mut());
                drop(held);
            }
        }
    }
}
