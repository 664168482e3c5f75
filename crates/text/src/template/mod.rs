//! Chat templates, rendered as transformers renders them: Jinja2 with Python's values, in a sandbox that lets
//! a template change no list and no dict.
//!
//! An interpreter of our own, since the values are what counts: tuples, generators that are read once, macros
//! that see what is assigned later, str() and repr(), format(), and the bound on every operation come from one
//! model of values (value.rs). Where Jinja2 has a value that we do not compute, the template is refused, with
//! the construct's name. A source goes through lexer.rs and parser.rs (statements.rs) to ast.rs; interpreter.rs
//! and expressions.rs run that.

mod arguments;
mod ast;
mod budget;
mod clock;
mod error;
mod expressions;
mod filters;
mod format;
mod functions;
mod interpreter;
mod lexer;
mod methods;
mod numeric;
mod ops;
mod parser;
mod predicates;
mod printf;
mod scopes;
mod statements;
mod strings;
mod text;
mod text_filters;
mod unicode;
mod value;

use crate::failure::{caught, Failure, Outcome};
use ast::Program;
use error::{Error, Kind};
use interpreter::Machine;

pub use clock::Clock;

/// Parsing and running recurse with the template's nesting: they get a stack of their own, since a caller's
/// thread may have half a megabyte.
const STACK: usize = 64 << 20;

pub struct Template {
    /// Where it comes from, for messages.
    name: String,
    program: Program,
}

impl Template {
    pub fn new(name: &str, source: &str) -> Outcome<Self> {
        on_own_stack(|| Ok(Self { name: name.to_string(), program: statements::parse(name, source)? }))
    }

    /// `arguments`: the JSON object of all variables, its order kept.
    pub fn render(&self, arguments: &[u8], clock: Clock) -> Outcome<String> {
        on_own_stack(|| {
            let arguments: serde_json::Map<_, _> = serde_json::from_slice(arguments)
                .map_err(|error| Failure::bad_request(format!("the chat's JSON: {error}")))?;
            let mut machine =
                Machine::new(&self.program, &arguments, clock).map_err(|error| self.failure(&error, 1))?;
            machine.run().map_err(|error| self.failure(&error, machine.line))
        })
    }

    fn failure(&self, error: &Error, line: u32) -> Failure {
        let place = format!("{}:{line}", self.name);
        let message = &error.message;
        match error.kind {
            Kind::Raised => Failure::bad_request(message.clone()),
            Kind::Failed => Failure::bad_request(format!("{place}: the chat template fails: {message}")),
            Kind::Refused => Failure::unsupported(format!("{place}: {message} in a chat template")),
            Kind::Limit => Failure::unsupported(format!("{place}: the chat template {message}")),
        }
    }
}

fn on_own_stack<T: Send>(work: impl FnOnce() -> Outcome<T> + Send) -> Outcome<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || caught(work));
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => Err(Failure::bad_request(format!("no thread for the chat template: {error}"))),
        }
    })
}

#[cfg(test)]
mod tests;
