//! What one rendering may cost, so that no template can hang the program or fill its memory.
//!
//! minijinja counts instructions (fuel). One instruction can still do any amount of work (`s ~ s` forty
//! times is a terabyte), so every operation that reads or makes something large pays for it here.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Instructions of the template's program; about a second.
pub const FUEL: u64 = 20_000_000;
/// Bytes that operations read and make, in sum: bounds time and memory.
const WORK: u64 = 512 << 20;
/// Bytes emitted, captured text included.
const OUTPUT: u64 = 32 << 20;
/// Lists and maps inside each other, in a value that a variable holds.
const DEPTH: u32 = 96;
/// What visiting a value costs, in bytes.
const LEAF: u64 = 4;
const CONTAINER: u64 = 32;

/// The cause of an error that means "too expensive".
#[derive(Debug)]
pub struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the template does more work than any chat needs")
    }
}
impl std::error::Error for Exhausted {}

/// Shared by the operations of one rendering.
#[derive(Clone, Debug)]
pub struct Budget {
    work: Arc<AtomicU64>,
    output: Arc<AtomicU64>,
}

impl Budget {
    pub fn new() -> Self {
        Self { work: Arc::new(AtomicU64::new(WORK)), output: Arc::new(AtomicU64::new(OUTPUT)) }
    }

    /// Pays for reading or making `bytes`, before it is done.
    pub fn charge(&self, bytes: u64) -> Result<(), Error> {
        take(&self.work, bytes)
    }

    pub fn charge_len(&self, bytes: usize) -> Result<(), Error> {
        self.charge(bytes as u64)
    }

    pub fn emit(&self, bytes: usize) -> Result<(), Error> {
        take(&self.output, bytes as u64)
    }

    /// Pays for going over each value once, without going into what it holds.
    pub fn charge_values(&self, values: &[Value]) -> Result<(), Error> {
        values.iter().try_for_each(|value| match value.as_str() {
            Some(text) => self.charge_len(text.len()),
            None => self.charge(CONTAINER + LEAF * value.len().unwrap_or(0) as u64),
        })
    }

    /// Pays for a value and everything in it, and refuses one that is nested too deeply or holds a
    /// namespace: with this check at every assignment, values are trees of bounded size and depth, and
    /// comparing, printing or freeing one needs no further guard.
    pub fn charge_tree(&self, value: &Value) -> Result<(), Error> {
        self.walk(value, DEPTH)
    }

    fn walk(&self, value: &Value, depth: u32) -> Result<(), Error> {
        if !matches!(value.kind(), ValueKind::Map | ValueKind::Seq | ValueKind::Iterable) {
            return self.charge(LEAF);
        }
        self.charge(CONTAINER)?;
        let nested_namespace = depth < DEPTH && is_namespace(value);
        if depth == 0 || nested_namespace {
            return Err(exhausted("a value is nested too deeply"));
        }
        let Ok(items) = value.try_iter() else { return Ok(()) };
        let map = value.kind() == ValueKind::Map;
        for item in items {
            let item = if map { value.get_item(&item)? } else { item };
            self.walk(&item, depth - 1)?;
        }
        Ok(())
    }
}

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

fn take(left: &AtomicU64, amount: u64) -> Result<(), Error> {
    match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| now.checked_sub(amount)) {
        Ok(_) => Ok(()),
        Err(_) => Err(exhausted("too much text")),
    }
}

fn exhausted(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what).with_source(Exhausted)
}
