//! Chat templates, rendered as transformers renders them: Jinja with Python's values.

mod budget;
mod clock;
mod filters;
mod methods;
mod ops;
mod printf;
mod program;
mod python;

use crate::failure::{caught, Failure, Outcome};
use budget::{Budget, Exhausted, FUEL};
use filters::Raised;
use minijinja::machinery::{make_string_output, Vm};
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use std::error::Error as _;

pub use clock::Clock;

/// Compiling and running recurse with the template's nesting: they get a stack of their own, since a
/// caller's thread may have half a megabyte.
const STACK: usize = 32 << 20;

pub struct Template {
    /// Where it comes from, for messages.
    name: String,
    source: String,
}

impl Template {
    /// Compiles once, to report errors early.
    pub fn new(name: &str, source: &str) -> Outcome<Self> {
        on_own_stack(|| {
            let source = program::prepare(name, source)?;
            program::compile(name, &source)?;
            Ok(Self { name: name.to_string(), source })
        })
    }

    /// `arguments`: the JSON object of all variables, its order kept.
    pub fn render(&self, arguments: &[u8], clock: Clock) -> Outcome<String> {
        on_own_stack(|| {
            let json: serde_json::Value = serde_json::from_slice(arguments)
                .map_err(|error| Failure::bad_request(format!("the chat's JSON: {error}")))?;
            let program = program::compile(&self.name, &self.source)?;
            let mut env = Environment::empty();
            env.set_fuel(Some(FUEL));
            filters::install(&mut env, &Budget::new(), clock);
            let mut text = String::new();
            let done = Vm::new(&env).eval(
                &program.instructions,
                Value::from_serialize(&json),
                &program.blocks,
                &mut make_string_output(&mut text),
                AutoEscape::None,
            );
            match done {
                Ok(_) => Ok(text),
                Err(error) => Err(self.failure(&error)),
            }
        })
    }

    fn failure(&self, error: &Error) -> Failure {
        let mut innermost = error; // one inside a macro comes wrapped
        let mut exhausted = false;
        let mut next = error.source();
        while let Some(cause) = next {
            if let Some(Raised(words)) = cause.downcast_ref() {
                return Failure::bad_request(words.clone());
            }
            exhausted |= cause.is::<Exhausted>();
            innermost = cause.downcast_ref().unwrap_or(innermost);
            next = cause.source();
        }
        let place = format!("{}:{}", self.name, innermost.line().unwrap_or(0));
        if exhausted || innermost.kind() == ErrorKind::OutOfFuel {
            return Failure::unsupported(format!(
                "{place}: the chat template does more work than any chat needs"
            ));
        }
        let detail = innermost.detail().map_or_else(|| innermost.kind().to_string(), String::from);
        let message = format!("{place}: the chat template fails: {detail}");
        match innermost.kind() {
            ErrorKind::UnknownFilter
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownFunction
            | ErrorKind::UnknownMethod => Failure::unsupported(message),
            _ => Failure::bad_request(message),
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
