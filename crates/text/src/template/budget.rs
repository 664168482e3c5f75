//! What one rendering may cost, so that no template can hang the program or fill its memory. Each bound has
//! a message of its own.

use super::error::{limit, Result};
use std::cell::Cell;

/// Expressions, statements and loop turns; about two seconds.
const STEPS: u64 = 20_000_000;
/// MiB that operations read and make, in sum: bounds time and memory.
const WORK_MIB: u64 = 512;
/// MiB printed, captured text included.
const OUTPUT_MIB: u64 = 32;
/// Lists, tuples and dicts inside each other. Freeing, printing or comparing a value recurses.
pub const VALUE_DEPTH: u16 = 128;
/// Expressions and statements being evaluated inside each other, macro calls included.
const CALL_DEPTH: u32 = 8_000;

pub struct Budget {
    steps: Cell<u64>,
    work: Cell<u64>,
    output: Cell<u64>,
    depth: Cell<u32>,
}

impl Budget {
    pub fn new() -> Self {
        Self {
            steps: Cell::new(STEPS),
            work: Cell::new(WORK_MIB << 20),
            output: Cell::new(OUTPUT_MIB << 20),
            depth: Cell::new(0),
        }
    }

    pub fn step(&self) -> Result<()> {
        take(&self.steps, 1, || format!("runs for more than {STEPS} steps"))
    }

    /// Pays for reading or making `bytes`, before it is done.
    pub fn work(&self, bytes: usize) -> Result<()> {
        take(&self.work, bytes as u64, || format!("reads and makes more than {WORK_MIB} MiB of values"))
    }

    /// Pays for `count` values of a list, or keys of a dict.
    pub fn values(&self, count: usize) -> Result<()> {
        self.work(count.saturating_mul(32))
    }

    pub fn emit(&self, bytes: usize) -> Result<()> {
        take(&self.output, bytes as u64, || format!("writes more than {OUTPUT_MIB} MiB"))
    }

    /// One level deeper, until `leave`.
    pub fn enter(&self) -> Result<()> {
        if self.depth.get() >= CALL_DEPTH {
            return Err(limit(format!("nests calls and expressions more than {CALL_DEPTH} deep")));
        }
        self.depth.set(self.depth.get() + 1);
        Ok(())
    }

    pub fn leave(&self) {
        self.depth.set(self.depth.get().saturating_sub(1));
    }
}

fn take(left: &Cell<u64>, amount: u64, says: impl FnOnce() -> String) -> Result<()> {
    match left.get().checked_sub(amount) {
        Some(rest) => {
            left.set(rest);
            Ok(())
        }
        None => Err(limit(says())),
    }
}
