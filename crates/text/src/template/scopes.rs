//! Which names a block sets and never reads before: inside of it they have no value until then, even where
//! the template's variables have one. Jinja2 decides so before anything runs (its idtracking.py).

use super::ast::{Block, Expr, Macro, Program, Stmt, StmtKind, Symbol, Target};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub fn resolve(program: &mut Program) {
    frame(&mut program.body, &[], &mut Vec::new());
}

/// Calls `found` with every name that an expression reads.
pub fn each_name(expr: &Expr, found: &mut dyn FnMut(Symbol)) {
    let mut all = |exprs: &mut dyn Iterator<Item = &Expr>| exprs.for_each(|expr| each_name(expr, found));
    match expr {
        Expr::Name(symbol) => found(*symbol),
        Expr::None | Expr::Bool(_) | Expr::Int(_) | Expr::Float(_) | Expr::Str(_) | Expr::Captured => {}
        Expr::Tuple(items) | Expr::List(items) | Expr::Concat(items) => all(&mut items.iter()),
        Expr::Dict(pairs) => all(&mut pairs.iter().flat_map(|(key, value)| [key, value])),
        Expr::Not(inner) | Expr::Negative(inner) | Expr::Positive(inner) | Expr::Attribute(inner, _) => {
            each_name(inner, found)
        }
        Expr::And(pair) | Expr::Or(pair) | Expr::Binary(_, pair) | Expr::Item(pair) => {
            all(&mut [&pair.0, &pair.1].into_iter())
        }
        Expr::Compare(first, rest) => {
            all(&mut std::iter::once(&**first).chain(rest.iter().map(|(_, value)| value)))
        }
        Expr::If(parts) => all(&mut [&parts.0, &parts.1].into_iter().chain(&parts.2)),
        Expr::Slice(parts) => all(&mut std::iter::once(&parts.0).chain(parts.1.iter().flatten())),
        Expr::Call(inner, arguments)
        | Expr::Filter(inner, _, arguments)
        | Expr::Test(inner, _, arguments) => {
            let named = arguments.named.iter().map(|(_, value)| value);
            let rest = arguments.rest.iter().chain(&arguments.named_rest);
            all(&mut std::iter::once(&**inner).chain(&arguments.positional).chain(named).chain(rest))
        }
    }
}

/// The names of one block so far.
#[derive(Clone, Default)]
struct Names {
    /// Whether a name has no value at first.
    unset: HashMap<Symbol, bool>,
    stored: HashSet<Symbol>,
}

impl Names {
    fn load(&mut self, expr: &Expr) {
        each_name(expr, &mut |symbol| {
            self.unset.entry(symbol).or_insert(false);
        });
    }

    fn store(&mut self, target: &Target) {
        match target {
            Target::Name(symbol) => self.store_name(*symbol),
            Target::Attribute(symbol, _) => {
                self.unset.entry(*symbol).or_insert(false);
            }
            Target::Tuple(targets) => targets.iter().for_each(|target| self.store(target)),
        }
    }

    fn store_name(&mut self, symbol: Symbol) {
        self.stored.insert(symbol);
        self.unset.entry(symbol).or_insert(true);
    }

    fn statements(&mut self, statements: &[Stmt]) {
        for statement in statements {
            match &statement.kind {
                StmtKind::Data(_) | StmtKind::Break | StmtKind::Continue | StmtKind::Generation(_) => {}
                StmtKind::Emit(expr) | StmtKind::CallBlock(expr, _) | StmtKind::Filter(expr, _) => {
                    self.load(expr)
                }
                StmtKind::For(node) => self.load(&node.iter),
                StmtKind::If(branches, otherwise) => self.branches(branches, otherwise),
                StmtKind::Set(target, expr) => {
                    self.load(expr);
                    self.store(target);
                }
                StmtKind::SetBlock(target, _, _) => self.store(target),
                StmtKind::With(values, _) => values.iter().for_each(|(_, value)| self.load(value)),
                StmtKind::Macro(decl) => self.store_name(decl.symbol),
            }
        }
    }

    /// A name that only some branches set keeps the value from outside.
    fn branches(&mut self, branches: &[(Expr, Vec<Stmt>)], otherwise: &[Stmt]) {
        let Some(((test, body), elifs)) = branches.split_first() else { return };
        self.load(test);
        let (mut first, mut middle, mut last) = (self.clone(), self.clone(), self.clone());
        first.statements(body);
        elifs.iter().for_each(|branch| middle.branches(std::slice::from_ref(branch), &[]));
        last.statements(otherwise);
        let mut counts: HashMap<Symbol, usize> = HashMap::new();
        for branch in [first, middle, last] {
            for symbol in branch.stored.difference(&self.stored) {
                *counts.entry(*symbol).or_default() += 1;
            }
            self.unset.extend(branch.unset);
        }
        for (symbol, count) in counts {
            self.stored.insert(symbol);
            if count < 3 {
                self.unset.insert(symbol, false);
            }
        }
    }
}

fn names_of(target: &Target, into: &mut Vec<Symbol>) {
    match target {
        Target::Name(symbol) => into.push(*symbol),
        Target::Attribute(..) => {}
        Target::Tuple(targets) => targets.iter().for_each(|target| names_of(target, into)),
    }
}

type Outer = Vec<HashSet<Symbol>>;

/// `bound`: names that the block begins with.
fn frame(block: &mut Block, bound: &[Symbol], outer: &mut Outer) {
    let mut names = Names::default();
    names.unset.extend(bound.iter().map(|symbol| (*symbol, false)));
    names.statements(&block.statements);
    let known = |symbol: &Symbol| outer.iter().any(|names| names.contains(symbol));
    block.unset = names
        .unset
        .iter()
        .filter(|(symbol, unset)| **unset && !known(symbol))
        .map(|(symbol, _)| *symbol)
        .collect();
    outer.push(names.unset.into_keys().collect());
    inner(&mut block.statements, outer);
    outer.pop();
}

/// The blocks inside of a block.
fn inner(statements: &mut [Stmt], outer: &mut Outer) {
    for statement in statements {
        match &mut statement.kind {
            StmtKind::For(node) => {
                let Some(node) = Arc::get_mut(node) else { continue };
                let mut bound = Vec::new();
                names_of(&node.target, &mut bound);
                frame(&mut node.body, &bound, outer);
                frame(&mut node.otherwise, &[], outer);
            }
            StmtKind::If(branches, otherwise) => {
                branches.iter_mut().for_each(|(_, body)| inner(body, outer));
                inner(otherwise, outer);
            }
            StmtKind::SetBlock(_, _, body) | StmtKind::Filter(_, body) => frame(body, &[], outer),
            StmtKind::With(values, body) => {
                let mut bound = Vec::new();
                values.iter().for_each(|(target, _)| names_of(target, &mut bound));
                frame(body, &bound, outer);
            }
            StmtKind::Macro(decl) | StmtKind::CallBlock(_, decl) | StmtKind::Generation(decl) => {
                let Some(decl) = Arc::get_mut(decl) else { continue };
                let Macro { parameters, varargs, kwargs, caller, body, .. } = decl;
                let special = [*varargs, *kwargs, *caller].into_iter().flatten();
                let bound: Vec<Symbol> =
                    parameters.iter().map(|parameter| parameter.symbol).chain(special).collect();
                frame(body, &bound, outer);
            }
            _ => {}
        }
    }
}
