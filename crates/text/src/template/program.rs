//! From the text of a template to a program that computes as Python does and pays for its work.
//!
//! minijinja's compiler is used as it is. In its instructions, those for operators become calls of the
//! filters "py.*" (filters.rs), raw text becomes an ordinary emitted value, and what is assigned is
//! checked, so that nothing the template does escapes the budget.

use super::budget::FUEL;
use crate::failure::{Failure, Outcome};
use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Stmt};
use minijinja::machinery::{
    parse, tokenize, CodeGenerator, Instruction, Instructions, Token, WhitespaceConfig,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use std::collections::BTreeMap;

/// The largest published chat templates have 30 KB.
const SOURCE_LIMIT: usize = 512 << 10;
/// Tokens in one {{ }} or {% %}: bounds how deep an expression nests.
const TAG_TOKENS: usize = 4096;
/// The size of a constant that the compiler may compute.
const CONSTANT_LIMIT: u64 = 64 << 10;
/// Slots for looked-up filters in minijinja's machine.
const FILTER_SLOTS: u8 = 50;

/// transformers sets both, and keeps no newline at the end of the template.
fn white_space() -> WhitespaceConfig {
    WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true }
}

/// The template with the tag {% generation %}, which marks an assistant's words for training and prints
/// its body, written as the block that Jinja knows: {% with %}, which has a scope and no effect.
pub fn prepare(name: &str, source: &str) -> Outcome<String> {
    if source.len() > SOURCE_LIMIT {
        return Err(Failure::unsupported(format!(
            "{name}: the chat template has {} bytes, the limit is {SOURCE_LIMIT}",
            source.len()
        )));
    }
    let mut out = String::with_capacity(source.len());
    let (mut copied, mut in_tag, mut opened) = (0, 0, false);
    for token in tokenize(source, false, SyntaxConfig::default(), white_space()) {
        let (token, span) = token.map_err(|error| syntax(name, &error))?;
        match token {
            Token::TemplateData(_) => in_tag = 0,
            Token::Ident(word @ ("generation" | "endgeneration")) if opened => {
                out.push_str(&source[copied..span.start_offset as usize]);
                out.push_str(if word == "generation" { "with" } else { "endwith" });
                copied = span.end_offset as usize;
            }
            _ => {}
        }
        opened = matches!(token, Token::BlockStart);
        in_tag = if matches!(token, Token::BlockStart | Token::VariableStart) { 0 } else { in_tag + 1 };
        if in_tag > TAG_TOKENS {
            return Err(Failure::unsupported(format!(
                "{name}:{}: one tag of the chat template has more than {TAG_TOKENS} words",
                span.start_line
            )));
        }
    }
    out.push_str(&source[copied..]);
    Ok(out)
}

fn syntax(name: &str, error: &minijinja::Error) -> Failure {
    let line = error.line().unwrap_or(0);
    let detail = error.detail().unwrap_or("syntax error");
    Failure::unsupported(format!("{name}:{line}: the chat template does not parse: {detail}"))
}

pub struct Program<'a> {
    pub instructions: Instructions<'a>,
    pub blocks: BTreeMap<&'a str, Instructions<'a>>,
}

pub fn compile<'a>(name: &'a str, source: &'a str) -> Outcome<Program<'a>> {
    let tree = parse(source, name, SyntaxConfig::default(), white_space()).map_err(|e| syntax(name, &e))?;
    Constants { name }.statement(&tree)?;
    let mut generator = CodeGenerator::new(name, source);
    generator.compile_stmt(&tree);
    let (instructions, blocks) = generator.finish();
    if !blocks.is_empty() {
        return Err(Failure::unsupported(format!("{name}: a chat template has no use for {{% block %}}")));
    }
    Ok(Program { instructions: Rewriter::new(&instructions).run(name, source)?, blocks })
}

/// Looks for constant products that the compiler would compute into something huge.
struct Constants<'a> {
    name: &'a str,
}

impl Constants<'_> {
    fn statements(&self, statements: &[Stmt]) -> Outcome<()> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&self, statement: &Stmt) -> Outcome<()> {
        match statement {
            Stmt::Template(s) => self.statements(&s.children),
            Stmt::EmitExpr(s) => self.expr(&s.expr),
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => Ok(()),
            Stmt::ForLoop(s) => {
                self.expr(&s.iter)?;
                self.exprs(&s.filter_expr)?;
                self.statements(&s.body)?;
                self.statements(&s.else_body)
            }
            Stmt::IfCond(s) => {
                self.expr(&s.expr)?;
                self.statements(&s.true_body)?;
                self.statements(&s.false_body)
            }
            Stmt::WithBlock(s) => {
                s.assignments.iter().try_for_each(|(_, value)| self.expr(value))?;
                self.statements(&s.body)
            }
            Stmt::Set(s) => self.expr(&s.target).and_then(|()| self.expr(&s.expr)),
            Stmt::SetBlock(s) => {
                self.exprs(&s.filter)?;
                self.statements(&s.body)
            }
            Stmt::FilterBlock(s) => {
                self.expr(&s.filter)?;
                self.statements(&s.body)
            }
            Stmt::Macro(s) => {
                self.exprs(&s.defaults)?;
                self.statements(&s.body)
            }
            Stmt::CallBlock(s) => {
                self.arguments(&s.call.args)?;
                self.expr(&s.call.expr)?;
                self.exprs(&s.macro_decl.defaults)?;
                self.statements(&s.macro_decl.body)
            }
            Stmt::Do(s) => {
                self.expr(&s.call.expr)?;
                self.arguments(&s.call.args)
            }
            Stmt::AutoEscape(_) => self.refuse("autoescape"),
            Stmt::Block(_) => self.refuse("block"),
            Stmt::Import(_) | Stmt::FromImport(_) => self.refuse("import"),
            Stmt::Extends(_) => self.refuse("extends"),
            Stmt::Include(_) => self.refuse("include"),
        }
    }

    fn refuse(&self, tag: &str) -> Outcome<()> {
        Err(Failure::unsupported(format!("{}: a chat template has no use for {{% {tag} %}}", self.name)))
    }

    fn exprs<'b, 'e: 'b>(&self, exprs: impl IntoIterator<Item = &'b Expr<'e>>) -> Outcome<()> {
        exprs.into_iter().try_for_each(|expr| self.expr(expr))
    }

    fn arguments(&self, arguments: &[CallArg]) -> Outcome<()> {
        arguments.iter().try_for_each(|argument| match argument {
            CallArg::Pos(expr) | CallArg::Kwarg(_, expr) => self.expr(expr),
            CallArg::PosSplat(expr) | CallArg::KwargSplat(expr) => self.expr(expr),
        })
    }

    fn expr(&self, expr: &Expr) -> Outcome<()> {
        match expr {
            Expr::Var(_) | Expr::Const(_) => Ok(()),
            Expr::Slice(e) => {
                self.expr(&e.expr)?;
                [&e.start, &e.stop, &e.step].into_iter().try_for_each(|bound| self.exprs(bound))
            }
            Expr::UnaryOp(e) => self.expr(&e.expr),
            Expr::BinOp(e) => {
                self.expr(&e.left)?;
                self.expr(&e.right)?;
                if matches!(e.op, BinOpKind::Mul) {
                    self.product(&e.left, &e.right)
                } else {
                    Ok(())
                }
            }
            Expr::Compare(e) => {
                self.expr(&e.expr)?;
                e.ops.iter().try_for_each(|op| self.expr(&op.expr))
            }
            Expr::IfExpr(e) => {
                self.expr(&e.test_expr)?;
                self.expr(&e.true_expr)?;
                self.exprs(&e.false_expr)
            }
            Expr::Filter(e) => {
                self.exprs(&e.expr)?;
                self.arguments(&e.args)
            }
            Expr::Test(e) => {
                self.expr(&e.expr)?;
                self.arguments(&e.args)
            }
            Expr::GetAttr(e) => self.expr(&e.expr),
            Expr::GetItem(e) => self.expr(&e.expr).and_then(|()| self.expr(&e.subscript_expr)),
            Expr::Call(e) => {
                self.expr(&e.expr)?;
                self.arguments(&e.args)
            }
            Expr::List(e) => self.exprs(&e.items),
            Expr::Map(e) => self.exprs(e.keys.iter().chain(&e.values)),
        }
    }

    /// Both operands have been checked, so computing them is cheap.
    fn product(&self, left: &Expr, right: &Expr) -> Outcome<()> {
        let (Some(left), Some(right)) = (left.as_const(), right.as_const()) else { return Ok(()) };
        let size = |value: &Value| match value.kind() {
            ValueKind::Number => i64::try_from(value.clone()).map_or(u64::MAX, i64::unsigned_abs),
            _ => value.as_str().map_or(value.len().unwrap_or(1), str::len) as u64,
        };
        let numbers = left.kind() == ValueKind::Number && right.kind() == ValueKind::Number;
        if !numbers && size(&left).saturating_mul(size(&right)) > CONSTANT_LIMIT {
            return Err(Failure::unsupported(format!(
                "{}: the chat template repeats a constant to more than {CONSTANT_LIMIT} bytes",
                self.name
            )));
        }
        Ok(())
    }
}

struct Rewriter<'p, 'a> {
    from: &'p Instructions<'a>,
    /// The slot of each operator's filter, behind those that the compiler gave away.
    slots: BTreeMap<&'static str, u8>,
    next_slot: u8,
}

impl<'p, 'a> Rewriter<'p, 'a> {
    fn new(from: &'p Instructions<'a>) -> Self {
        let slot = |pc| match from.get(pc) {
            Some(Instruction::ApplyFilter(_, _, slot)) if *slot < FILTER_SLOTS => slot + 1,
            _ => 0,
        };
        let next_slot = (0..from.len() as u32).map(slot).max().unwrap_or(0);
        Self { from, slots: BTreeMap::new(), next_slot }
    }

    fn filter(&mut self, name: &'static str, arguments: u16) -> Instruction<'a> {
        let next = &mut self.next_slot;
        let slot = *self.slots.entry(name).or_insert_with(|| {
            let slot = if *next < FILTER_SLOTS { *next } else { u8::MAX }; // no slot: looked up each time
            *next = next.saturating_add(1);
            slot
        });
        Instruction::ApplyFilter(name, Some(arguments), slot)
    }

    fn expand(&mut self, instruction: &Instruction<'a>) -> Vec<Instruction<'a>> {
        let kept = instruction.clone();
        let operator = match instruction {
            Instruction::Add => "py.add",
            Instruction::Sub => "py.sub",
            Instruction::Mul => "py.mul",
            Instruction::Div => "py.div",
            Instruction::IntDiv => "py.floordiv",
            Instruction::Rem => "py.mod",
            Instruction::Pow => "py.pow",
            Instruction::StringConcat => "py.concat",
            Instruction::In => "py.in",
            Instruction::Eq => "py.eq",
            Instruction::Ne => "py.ne",
            Instruction::Lt => "py.lt",
            Instruction::Lte => "py.le",
            Instruction::Gt => "py.gt",
            Instruction::Gte => "py.ge",
            Instruction::GetItem => "py.item",
            Instruction::Slice => return vec![self.filter("py.slice", 4)],
            Instruction::EmitRaw(text) => {
                return vec![Instruction::LoadConst(Value::from(*text)), Instruction::Emit]
            }
            Instruction::StoreLocal(_) => return vec![self.filter("py.bound", 1), kept],
            Instruction::SetAttr(_) => {
                // The namespace is on top, the value below.
                return vec![Instruction::Swap, self.filter("py.bound", 1), Instruction::Swap, kept];
            }
            Instruction::CompareAndPreserve(_) => {
                let bound = self.filter("py.bound", 1);
                return vec![Instruction::Swap, bound.clone(), Instruction::Swap, bound, kept];
            }
            Instruction::PushLoop(_) => return vec![self.filter("py.charge", 1), kept],
            _ => return vec![kept],
        };
        vec![self.filter(operator, 2)]
    }

    fn run(mut self, name: &'a str, source: &'a str) -> Outcome<Instructions<'a>> {
        let count = self.from.len() as u32;
        let mut starts = Vec::with_capacity(count as usize + 1);
        let mut to = Vec::new();
        for pc in 0..count {
            starts.push(to.len() as u32);
            if let Some(instruction) = self.from.get(pc) {
                let expanded = self.expand(instruction);
                to.extend(expanded.into_iter().map(|instruction| (pc, instruction)));
            }
        }
        starts.push(to.len() as u32);
        if to.len() as u64 > FUEL {
            return Err(Failure::unsupported(format!("{name}: the chat template is too long")));
        }
        let mut out = Instructions::new(name, source);
        for (pc, mut instruction) in to {
            match &mut instruction {
                Instruction::Iterate(target)
                | Instruction::Jump(target)
                | Instruction::JumpIfFalse(target)
                | Instruction::JumpIfFalseOrPop(target)
                | Instruction::JumpIfTrueOrPop(target)
                | Instruction::BuildMacro(_, target, _) => *target = starts[*target as usize],
                _ => {}
            }
            match (self.from.get_span(pc), self.from.get_line(pc)) {
                (Some(span), _) => out.add_with_span(instruction, span),
                (None, Some(line)) => out.add_with_line(instruction, u16::try_from(line).unwrap_or(u16::MAX)),
                (None, None) => out.add(instruction),
            };
        }
        Ok(out)
    }
}
