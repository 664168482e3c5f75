//! Jinja2's grammar: statements.

use super::ast::{Block, Expr, For, Macro, Parameter, Program, Stmt, StmtKind, Symbol, Target};
use super::lexer::{tokenize, Token};
use super::parser::Parser;
use super::scopes;
use crate::failure::{Failure, Outcome};
use std::sync::Arc;

/// The largest published chat templates have 30 KB.
const SOURCE_LIMIT: usize = 512 << 10;

pub fn parse(name: &str, source: &str) -> Outcome<Program> {
    if source.len() > SOURCE_LIMIT {
        return Err(Failure::unsupported(format!(
            "{name}: the chat template has {} bytes, the limit is {SOURCE_LIMIT}",
            source.len()
        )));
    }
    let mut parser = Parser::new(name, tokenize(name, source)?);
    let body = parser.block(&[])?;
    match parser.peek() {
        Token::End => {
            let mut program = Program { names: parser.names, body: own(body) };
            scopes::resolve(&mut program);
            Ok(program)
        }
        _ => parser.fail("unexpected end of a tag"),
    }
}

fn own(statements: Vec<Stmt>) -> Block {
    Block { statements, unset: Vec::new() }
}

const NOT_A_NAME: [&str; 6] = ["true", "false", "none", "True", "False", "None"];

impl Parser<'_> {
    /// Statements up to a tag that begins with one of `ends`, which is left to be read.
    fn block(&mut self, ends: &[&str]) -> Outcome<Vec<Stmt>> {
        let mut statements = Vec::new();
        loop {
            let line = self.line();
            let kind = match self.peek() {
                Token::Data(_) => {
                    let Token::Data(text) = self.next() else { continue };
                    StmtKind::Data(text)
                }
                Token::VariableBegin => {
                    self.next();
                    let value = self.tuple(true, false, &[])?;
                    self.expect_token(&Token::VariableEnd)?;
                    StmtKind::Emit(value)
                }
                Token::BlockBegin => {
                    self.next();
                    if ends.iter().any(|end| self.is_word(end)) {
                        return Ok(statements);
                    }
                    let kind = self.nested(Self::statement)?;
                    self.expect_token(&Token::BlockEnd)?;
                    kind
                }
                Token::End if ends.is_empty() => return Ok(statements),
                Token::End => return self.fail(format!("{{% {} %}} is missing", ends[ends.len() - 1])),
                _ => return self.fail("unexpected end of a tag"),
            };
            statements.push(Stmt { line, kind });
        }
    }

    /// The rest of a tag's head, then its body up to one of `ends`.
    fn body(&mut self, ends: &[&str]) -> Outcome<Vec<Stmt>> {
        self.skip(":");
        self.expect_token(&Token::BlockEnd)?;
        self.block(ends)
    }

    /// As `body`, and the end is read.
    fn whole_body(&mut self, end: &str) -> Outcome<Vec<Stmt>> {
        let body = self.body(&[end])?;
        self.name()?;
        Ok(body)
    }

    fn statement(&mut self) -> Outcome<StmtKind> {
        let word = match self.peek() {
            Token::Name(word) => word.clone(),
            _ => return self.fail("a tag's name is missing"),
        };
        self.next();
        match word.as_str() {
            "for" => self.for_loop(),
            "if" => self.if_else(),
            "set" => self.set(),
            "with" => self.with(),
            "macro" => {
                let name = self.target_name()?;
                let parameters = self.signature()?;
                self.macro_body(&name, parameters, "endmacro").map(StmtKind::Macro)
            }
            "call" => {
                let parameters = if self.is("(") { self.signature()? } else { Vec::new() };
                let call = self.expression()?;
                if !matches!(call, Expr::Call(..)) {
                    return self.fail("{% call %} needs a call");
                }
                Ok(StmtKind::CallBlock(call, self.macro_body("caller", parameters, "endcall")?))
            }
            "filter" => {
                let filter = self.filters(Expr::Captured, true)?;
                Ok(StmtKind::Filter(filter, own(self.whole_body("endfilter")?)))
            }
            "print" => self.tuple(true, false, &[]).map(StmtKind::Emit),
            // Marks an assistant's words for training, and prints its body.
            "generation" => self.macro_body("caller", Vec::new(), "endgeneration").map(StmtKind::Generation),
            "break" | "continue" if self.loops == 0 => self.fail(format!("{{% {word} %}} outside of a loop")),
            "break" => Ok(StmtKind::Break),
            "continue" => Ok(StmtKind::Continue),
            "autoescape" | "block" | "extends" | "from" | "import" | "include" => {
                self.refuse(format!("{{% {word} %}}"))
            }
            _ => self.fail(format!("unknown tag '{word}'")),
        }
    }

    fn for_loop(&mut self) -> Outcome<StmtKind> {
        let target = self.target(&["in"], false)?;
        if !self.skip_word("in") {
            return self.fail("'in' is missing");
        }
        let iter = self.tuple(false, false, &["recursive"])?;
        let test = if self.skip_word("if") { Some(self.expression()?) } else { None };
        let recursive = self.skip_word("recursive");
        self.loops += 1;
        let body = self.body(&["else", "endfor"])?;
        self.loops -= 1;
        let otherwise = if self.skip_word("else") { self.body(&["endfor"])? } else { Vec::new() };
        self.name()?;
        Ok(StmtKind::For(Arc::new(For {
            target,
            iter,
            test,
            recursive,
            body: own(body),
            otherwise: own(otherwise),
        })))
    }

    fn if_else(&mut self) -> Outcome<StmtKind> {
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        loop {
            let test = self.tuple(false, false, &[])?;
            branches.push((test, self.body(&["elif", "else", "endif"])?));
            if self.skip_word("elif") {
                continue;
            }
            if self.skip_word("else") {
                otherwise = self.body(&["endif"])?;
            }
            self.name()?;
            return Ok(StmtKind::If(branches, otherwise));
        }
    }

    fn set(&mut self) -> Outcome<StmtKind> {
        let target = self.target(&[], true)?;
        if self.skip("=") {
            return Ok(StmtKind::Set(target, self.tuple(true, false, &[])?));
        }
        let filter = self.filters(Expr::Captured, false)?;
        Ok(StmtKind::SetBlock(target, filter, own(self.whole_body("endset")?)))
    }

    fn with(&mut self) -> Outcome<StmtKind> {
        let mut values = Vec::new();
        while *self.peek() != Token::BlockEnd {
            if !values.is_empty() {
                self.expect(",")?;
            }
            let target = self.target(&[], false)?;
            self.expect("=")?;
            values.push((target, self.expression()?));
        }
        Ok(StmtKind::With(values, own(self.whole_body("endwith")?)))
    }

    fn target_name(&mut self) -> Outcome<String> {
        let name = self.name()?;
        if NOT_A_NAME.contains(&name.as_str()) {
            return self.fail(format!("'{name}' cannot be assigned to"));
        }
        Ok(name)
    }

    /// Names with commas between them; `with_namespace`: ns.name too.
    fn target(&mut self, ends: &[&str], with_namespace: bool) -> Outcome<Target> {
        let mut targets = Vec::new();
        let mut comma = false;
        loop {
            if !targets.is_empty() {
                self.expect(",")?;
            }
            let end = *self.peek() == Token::BlockEnd || self.is(")");
            if end || ends.iter().any(|word| self.is_word(word)) {
                break;
            }
            targets.push(self.one_target(with_namespace)?);
            if !self.is(",") {
                break;
            }
            comma = true;
        }
        match targets.pop() {
            Some(only) if !comma => Ok(only),
            Some(last) => {
                targets.push(last);
                Ok(Target::Tuple(targets))
            }
            None => self.fail("a name to assign to is missing"),
        }
    }

    fn one_target(&mut self, with_namespace: bool) -> Outcome<Target> {
        if self.skip("(") {
            let inner = self.nested(|parser| parser.target(&[], false))?;
            self.expect(")")?;
            return Ok(inner);
        }
        let name = self.target_name()?;
        let symbol = self.symbol(&name);
        if with_namespace && self.skip(".") {
            return Ok(Target::Attribute(symbol, self.name()?.into()));
        }
        Ok(Target::Name(symbol))
    }

    fn signature(&mut self) -> Outcome<Vec<Parameter>> {
        self.expect("(")?;
        let mut parameters: Vec<Parameter> = Vec::new();
        while !self.is(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            let name = self.target_name()?;
            if parameters.iter().any(|before| *before.name == *name) {
                return self.fail(format!("two parameters are called '{name}'"));
            }
            let symbol = self.symbol(&name);
            let default = if self.skip("=") { Some(self.expression()?) } else { None };
            if default.is_none() && parameters.last().is_some_and(|before| before.default.is_some()) {
                return self.fail("a parameter without default follows one with a default");
            }
            parameters.push(Parameter { name: name.into(), symbol, default });
        }
        self.expect(")")?;
        Ok(parameters)
    }

    fn macro_body(&mut self, name: &str, parameters: Vec<Parameter>, end: &str) -> Outcome<Arc<Macro>> {
        let loops = std::mem::take(&mut self.loops);
        let body = own(self.whole_body(end)?);
        self.loops = loops;
        let mut special = |word: &str| {
            let symbol = self.symbol(word);
            let own = parameters.iter().any(|parameter| parameter.symbol == symbol);
            (!own && Reads(symbol).block(&body.statements)).then_some(symbol)
        };
        let (varargs, kwargs, caller) = (special("varargs"), special("kwargs"), special("caller"));
        let symbol = self.symbol(name);
        Ok(Arc::new(Macro { name: name.into(), symbol, parameters, body, varargs, kwargs, caller }))
    }
}

/// Whether a name is read.
struct Reads(Symbol);

impl Reads {
    fn block(&self, body: &[Stmt]) -> bool {
        body.iter().any(|statement| match &statement.kind {
            StmtKind::Data(_) | StmtKind::Break | StmtKind::Continue => false,
            StmtKind::Emit(expr) | StmtKind::Set(_, expr) => self.expr(expr),
            StmtKind::For(node) => {
                self.expr(&node.iter)
                    || node.test.as_ref().is_some_and(|test| self.expr(test))
                    || self.block(&node.body.statements)
                    || self.block(&node.otherwise.statements)
            }
            StmtKind::If(branches, otherwise) => {
                branches.iter().any(|(test, body)| self.expr(test) || self.block(body))
                    || self.block(otherwise)
            }
            StmtKind::SetBlock(_, expr, body) | StmtKind::Filter(expr, body) => {
                self.expr(expr) || self.block(&body.statements)
            }
            StmtKind::With(values, body) => {
                values.iter().any(|(_, value)| self.expr(value)) || self.block(&body.statements)
            }
            StmtKind::Macro(decl) | StmtKind::Generation(decl) => self.decl(decl),
            StmtKind::CallBlock(call, decl) => self.expr(call) || self.decl(decl),
        })
    }

    fn decl(&self, decl: &Macro) -> bool {
        let defaults = decl.parameters.iter().filter_map(|parameter| parameter.default.as_ref());
        self.exprs(defaults) || self.block(&decl.body.statements)
    }

    fn exprs<'e>(&self, mut exprs: impl Iterator<Item = &'e Expr>) -> bool {
        exprs.any(|expr| self.expr(expr))
    }

    fn expr(&self, expr: &Expr) -> bool {
        let mut found = false;
        scopes::each_name(expr, &mut |symbol| found |= symbol == self.0);
        found
    }
}
