//! Jinja2's grammar: expressions. Statements are in statements.rs.

use super::ast::{Arguments, Binary, Comparison, Expr, Symbol};
use super::lexer::{Spanned, Token};
use crate::failure::{Failure, Outcome};
use std::collections::HashMap;
use std::sync::Arc;

/// Brackets, and tags with an end of their own, inside each other.
const NESTING: u32 = 150;

pub struct Parser<'a> {
    name: &'a str,
    tokens: Vec<Spanned>,
    at: usize,
    depth: u32,
    pub names: Vec<Arc<str>>,
    symbols: HashMap<Arc<str>, Symbol>,
    /// Loops around this place, for break and continue.
    pub loops: u32,
}

impl<'a> Parser<'a> {
    pub fn new(name: &'a str, tokens: Vec<Spanned>) -> Self {
        Self { name, tokens, at: 0, depth: 0, names: Vec::new(), symbols: HashMap::new(), loops: 0 }
    }

    pub fn symbol(&mut self, name: &str) -> Symbol {
        if let Some(symbol) = self.symbols.get(name) {
            return *symbol;
        }
        let (symbol, name) = (self.names.len() as Symbol, Arc::<str>::from(name));
        self.names.push(name.clone());
        self.symbols.insert(name, symbol);
        symbol
    }

    pub fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)].0
    }

    fn peek_second(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].0
    }

    pub fn line(&self) -> u32 {
        self.tokens[self.at.min(self.tokens.len() - 1)].1
    }

    pub fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    pub fn fail<T>(&self, what: impl std::fmt::Display) -> Outcome<T> {
        let (name, line) = (self.name, self.line());
        Err(Failure::unsupported(format!("{name}:{line}: the chat template does not parse: {what}")))
    }

    /// What Jinja2 has and we do not.
    pub fn refuse<T>(&self, what: impl std::fmt::Display) -> Outcome<T> {
        let (name, line) = (self.name, self.line());
        Err(Failure::unsupported(format!("{name}:{line}: {what} is not supported in a chat template")))
    }

    fn unexpected<T>(&self) -> Outcome<T> {
        let what = match self.peek() {
            Token::Operator(operator) => format!("'{operator}'"),
            Token::Name(name) => format!("'{name}'"),
            Token::BlockEnd | Token::VariableEnd => "end of the tag".into(),
            Token::End => "end of the template".into(),
            _ => "literal".into(),
        };
        self.fail(format!("unexpected {what}"))
    }

    pub fn is(&self, operator: &str) -> bool {
        matches!(self.peek(), Token::Operator(found) if *found == operator)
    }

    pub fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Name(found) if found == word)
    }

    pub fn skip(&mut self, operator: &str) -> bool {
        let found = self.is(operator);
        self.at += usize::from(found);
        found
    }

    pub fn skip_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    pub fn expect(&mut self, operator: &str) -> Outcome<()> {
        if self.skip(operator) {
            return Ok(());
        }
        self.unexpected()
    }

    pub fn expect_token(&mut self, token: &Token) -> Outcome<()> {
        if self.peek() == token {
            self.at += 1;
            return Ok(());
        }
        self.unexpected()
    }

    pub fn name(&mut self) -> Outcome<String> {
        match self.peek() {
            Token::Name(name) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => self.unexpected(),
        }
    }

    pub fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        if self.depth >= NESTING {
            return self.fail(format!("brackets and tags nest more than {NESTING} deep"));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    pub fn expression(&mut self) -> Outcome<Expr> {
        self.nested(Self::conditional)
    }

    fn conditional(&mut self) -> Outcome<Expr> {
        let mut then = self.disjunction()?;
        while self.skip_word("if") {
            let test = self.disjunction()?;
            let otherwise = if self.skip_word("else") { Some(self.expression()?) } else { None };
            then = Expr::If(Box::new((test, then, otherwise)));
        }
        Ok(then)
    }

    pub fn disjunction(&mut self) -> Outcome<Expr> {
        let mut left = self.conjunction()?;
        while self.skip_word("or") {
            left = Expr::Or(Box::new((left, self.conjunction()?)));
        }
        Ok(left)
    }

    fn conjunction(&mut self) -> Outcome<Expr> {
        let mut left = self.negation()?;
        while self.skip_word("and") {
            left = Expr::And(Box::new((left, self.negation()?)));
        }
        Ok(left)
    }

    fn negation(&mut self) -> Outcome<Expr> {
        if self.skip_word("not") {
            return self.nested(|parser| Ok(Expr::Not(Box::new(parser.negation()?))));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Outcome<Expr> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let operator = match self.peek() {
                Token::Operator("==") => Comparison::Eq,
                Token::Operator("!=") => Comparison::Ne,
                Token::Operator("<") => Comparison::Lt,
                Token::Operator("<=") => Comparison::Le,
                Token::Operator(">") => Comparison::Gt,
                Token::Operator(">=") => Comparison::Ge,
                Token::Name(word) if word == "in" => Comparison::In,
                Token::Name(word) if word == "not" && *self.peek_second() == Token::Name("in".into()) => {
                    self.at += 1;
                    Comparison::NotIn
                }
                _ => break,
            };
            self.at += 1;
            rest.push((operator, self.sum()?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Compare(Box::new(first), rest) })
    }

    fn sum(&mut self) -> Outcome<Expr> {
        let operators = [("+", Binary::Add), ("-", Binary::Sub)];
        self.binary(&operators, Self::concatenation)
    }

    fn concatenation(&mut self) -> Outcome<Expr> {
        let first = self.product()?;
        if !self.is("~") {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.skip("~") {
            parts.push(self.product()?);
        }
        Ok(Expr::Concat(parts))
    }

    fn product(&mut self) -> Outcome<Expr> {
        let operators =
            [("*", Binary::Mul), ("/", Binary::Div), ("//", Binary::FloorDiv), ("%", Binary::Mod)];
        self.binary(&operators, Self::power)
    }

    /// From left to right, other than in Python: 2 ** 3 ** 2 is 64.
    fn power(&mut self) -> Outcome<Expr> {
        self.binary(&[("**", Binary::Pow)], |parser| parser.unary(true))
    }

    fn binary(
        &mut self,
        operators: &[(&str, Binary)],
        operand: impl Fn(&mut Self) -> Outcome<Expr>,
    ) -> Outcome<Expr> {
        let mut left = operand(self)?;
        while let Some((_, operator)) = operators.iter().find(|(text, _)| self.is(text)) {
            self.at += 1;
            left = Expr::Binary(*operator, Box::new((left, operand(self)?)));
        }
        Ok(left)
    }

    fn unary(&mut self, with_filter: bool) -> Outcome<Expr> {
        let node = if self.skip("-") {
            self.nested(|parser| Ok(Expr::Negative(Box::new(parser.unary(false)?))))?
        } else if self.skip("+") {
            self.nested(|parser| Ok(Expr::Positive(Box::new(parser.unary(false)?))))?
        } else {
            self.primary()?
        };
        let node = self.postfix(node)?;
        if with_filter {
            self.filters_and_tests(node)
        } else {
            Ok(node)
        }
    }

    pub fn primary(&mut self) -> Outcome<Expr> {
        Ok(match self.next() {
            Token::Name(name) => match name.as_str() {
                "true" | "True" => Expr::Bool(true),
                "false" | "False" => Expr::Bool(false),
                "none" | "None" => Expr::None,
                name => Expr::Name(self.symbol(name)),
            },
            Token::Str(mut text) => {
                while let Token::Str(more) = self.peek() {
                    text.push_str(more);
                    self.at += 1;
                }
                Expr::Str(text.into())
            }
            Token::Int(number) => Expr::Int(number),
            Token::Float(number) => Expr::Float(number),
            Token::Operator("(") => {
                let inner = self.tuple(true, true, &[])?;
                self.expect(")")?;
                inner
            }
            Token::Operator("[") => Expr::List(self.items("]", Self::expression)?),
            Token::Operator("{") => Expr::Dict(self.items("}", |parser| {
                let key = parser.expression()?;
                parser.expect(":")?;
                Ok((key, parser.expression()?))
            })?),
            _ => {
                self.at -= 1;
                return self.unexpected();
            }
        })
    }

    fn items<T>(&mut self, close: &str, item: impl Fn(&mut Self) -> Outcome<T>) -> Outcome<Vec<T>> {
        let mut items = Vec::new();
        while !self.is(close) {
            if !items.is_empty() {
                self.expect(",")?;
            }
            if self.is(close) {
                break;
            }
            items.push(item(self)?);
        }
        self.expect(close)?;
        Ok(items)
    }

    /// One expression, or several with commas: a tuple. `ends`: words that end it.
    pub fn tuple(&mut self, conditional: bool, brackets: bool, ends: &[&str]) -> Outcome<Expr> {
        let mut items = Vec::new();
        let mut comma = false;
        loop {
            if !items.is_empty() {
                self.expect(",")?;
            }
            let end = matches!(self.peek(), Token::VariableEnd | Token::BlockEnd) || self.is(")");
            if end || ends.iter().any(|word| self.is_word(word)) {
                break;
            }
            items.push(if conditional { self.expression()? } else { self.nested(Self::disjunction)? });
            if !self.is(",") {
                break;
            }
            comma = true;
        }
        if comma {
            return Ok(Expr::Tuple(items));
        }
        match items.pop() {
            Some(only) => Ok(only),
            None if brackets => Ok(Expr::Tuple(items)),
            None => self.fail("an expression is missing"),
        }
    }

    fn postfix(&mut self, mut node: Expr) -> Outcome<Expr> {
        loop {
            node = if self.skip(".") {
                match self.next() {
                    Token::Name(name) => Expr::Attribute(Box::new(node), name.into()),
                    Token::Int(index) => Expr::Item(Box::new((node, Expr::Int(index)))),
                    _ => return self.fail("a name or a number is missing after '.'"),
                }
            } else if self.skip("[") {
                self.subscript(node)?
            } else if self.is("(") {
                Expr::Call(Box::new(node), Box::new(self.arguments()?))
            } else {
                return Ok(node);
            }
        }
    }

    fn subscript(&mut self, node: Expr) -> Outcome<Expr> {
        let start = if self.is(":") { None } else { Some(self.expression()?) };
        if !self.is(":") {
            let mut items = vec![start.unwrap_or(Expr::None)];
            while self.skip(",") {
                items.push(self.expression()?);
                if self.is(":") {
                    return self.refuse("a slice beside other subscripts");
                }
            }
            self.expect("]")?;
            let key = if items.len() == 1 { items.remove(0) } else { Expr::Tuple(items) };
            return Ok(Expr::Item(Box::new((node, key))));
        }
        self.expect(":")?;
        let mut bounds = [start, None, None];
        if !self.is(":") && !self.is("]") {
            bounds[1] = Some(self.expression()?);
        }
        if self.skip(":") && !self.is("]") {
            bounds[2] = Some(self.expression()?);
        }
        if self.is(",") {
            return self.refuse("a slice beside other subscripts");
        }
        self.expect("]")?;
        Ok(Expr::Slice(Box::new((node, bounds))))
    }

    pub fn arguments(&mut self) -> Outcome<Arguments> {
        self.expect("(")?;
        let mut arguments = Arguments::default();
        let mut first = true;
        while !self.is(")") {
            if !first {
                self.expect(",")?;
                if self.is(")") {
                    break;
                }
            }
            first = false;
            let Arguments { positional, named, rest, named_rest } = &mut arguments;
            let after_all = named_rest.is_some();
            if self.skip("*") {
                if rest.is_some() || after_all {
                    return self.fail("invalid arguments of a call");
                }
                *rest = Some(self.expression()?);
            } else if self.skip("**") {
                if after_all {
                    return self.fail("invalid arguments of a call");
                }
                *named_rest = Some(self.expression()?);
            } else if matches!(self.peek(), Token::Name(_)) && *self.peek_second() == Token::Operator("=") {
                let name = self.name()?;
                self.expect("=")?;
                if after_all || named.iter().any(|(before, _)| **before == *name) {
                    return self.fail("invalid arguments of a call");
                }
                named.push((name.into(), self.expression()?));
            } else {
                if rest.is_some() || after_all || !named.is_empty() {
                    return self.fail("invalid arguments of a call");
                }
                positional.push(self.expression()?);
            }
        }
        self.expect(")")?;
        Ok(arguments)
    }

    fn filters_and_tests(&mut self, mut node: Expr) -> Outcome<Expr> {
        loop {
            node = if self.is("|") {
                self.filters(node, false)?
            } else if self.is_word("is") {
                self.test(node)?
            } else if self.is("(") {
                Expr::Call(Box::new(node), Box::new(self.arguments()?))
            } else {
                return Ok(node);
            }
        }
    }

    fn dotted(&mut self) -> Outcome<Arc<str>> {
        let mut name = self.name()?;
        while self.skip(".") {
            name = format!("{name}.{}", self.name()?);
        }
        Ok(name.into())
    }

    /// `started`: the first filter's '|' is not written.
    pub fn filters(&mut self, mut node: Expr, mut started: bool) -> Outcome<Expr> {
        while started || self.skip("|") {
            started = false;
            let name = self.dotted()?;
            let arguments = if self.is("(") { self.arguments()? } else { Arguments::default() };
            node = Expr::Filter(Box::new(node), name, Box::new(arguments));
        }
        Ok(node)
    }

    fn test(&mut self, node: Expr) -> Outcome<Expr> {
        self.at += 1;
        let negated = self.skip_word("not");
        let name = self.dotted()?;
        let word = |word| self.is_word(word);
        let argument = match self.peek() {
            Token::Name(_) => !(word("else") || word("or") || word("and")),
            Token::Str(_) | Token::Int(_) | Token::Float(_) => true,
            Token::Operator(operator) => ["[", "{"].contains(operator),
            _ => false,
        };
        let arguments = if self.is("(") {
            self.arguments()?
        } else if argument {
            if self.is_word("is") {
                return self.fail("tests cannot be chained with 'is'");
            }
            let argument = self.primary()?;
            Arguments { positional: vec![self.postfix(argument)?], ..Arguments::default() }
        } else {
            Arguments::default()
        };
        let test = Expr::Test(Box::new(node), name, Box::new(arguments));
        Ok(if negated { Expr::Not(Box::new(test)) } else { test })
    }
}
