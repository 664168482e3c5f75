//! A parsed template. Nodes that values refer to at run time (macros, recursive loops) are shared.

use std::sync::Arc;

/// A variable's name: its index in `Program::names`.
pub type Symbol = u32;

pub struct Program {
    pub names: Vec<Arc<str>>,
    pub body: Block,
}

/// Statements with variables of their own.
pub struct Block {
    pub statements: Vec<Stmt>,
    /// Names without a value until they are set: scopes.rs.
    pub unset: Vec<Symbol>,
}

pub struct Stmt {
    pub line: u32,
    pub kind: StmtKind,
}

pub enum StmtKind {
    Data(String),
    Emit(Expr),
    For(Arc<For>),
    If(Vec<(Expr, Vec<Stmt>)>, Vec<Stmt>),
    Set(Target, Expr),
    /// The filters are applied to `Expr::Captured`.
    SetBlock(Target, Expr, Block),
    With(Vec<(Target, Expr)>, Block),
    Macro(Arc<Macro>),
    /// The call, and its body as the macro "caller".
    CallBlock(Expr, Arc<Macro>),
    Filter(Expr, Block),
    /// {% generation %}: Jinja2 calls its body as a macro without arguments.
    Generation(Arc<Macro>),
    Break,
    Continue,
}

pub enum Target {
    Name(Symbol),
    /// Of a namespace.
    Attribute(Symbol, Arc<str>),
    Tuple(Vec<Target>),
}

pub struct For {
    pub target: Target,
    pub iter: Expr,
    pub test: Option<Expr>,
    pub recursive: bool,
    pub body: Block,
    pub otherwise: Block,
}

pub struct Macro {
    pub name: Arc<str>,
    pub symbol: Symbol,
    pub parameters: Vec<Parameter>,
    pub body: Block,
    /// Which of the special names the body reads, and where they are bound.
    pub varargs: Option<Symbol>,
    pub kwargs: Option<Symbol>,
    pub caller: Option<Symbol>,
}

pub struct Parameter {
    pub name: Arc<str>,
    pub symbol: Symbol,
    pub default: Option<Expr>,
}

pub enum Expr {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    Name(Symbol),
    /// The text of the block that a filter is applied to.
    Captured,
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Positive(Box<Expr>),
    And(Box<(Expr, Expr)>),
    Or(Box<(Expr, Expr)>),
    Binary(Binary, Box<(Expr, Expr)>),
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    /// test, then, otherwise.
    If(Box<(Expr, Expr, Option<Expr>)>),
    Attribute(Box<Expr>, Arc<str>),
    Item(Box<(Expr, Expr)>),
    /// start, stop, step.
    Slice(Box<(Expr, [Option<Expr>; 3])>),
    Call(Box<Expr>, Box<Arguments>),
    Filter(Box<Expr>, Arc<str>, Box<Arguments>),
    Test(Box<Expr>, Arc<str>, Box<Arguments>),
}

#[derive(Default)]
pub struct Arguments {
    pub positional: Vec<Expr>,
    pub named: Vec<(Arc<str>, Expr)>,
    /// *list and **dict.
    pub rest: Option<Expr>,
    pub named_rest: Option<Expr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}
