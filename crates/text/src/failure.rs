//! Why a call failed: the status of the C ABI and one line for people.

use std::cell::RefCell;
use std::fmt;
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::sync::Once;

/// The numbers are part of the ABI (`PdTextStatus` in ffi.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    BadRequest = 1,
    Unsupported = 2,
    Corrupt = 3,
    /// A panic: a bug here or in a library.
    Internal = 4,
}

#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub message: String,
}

pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { status: Status::BadRequest, message: message.into() }
    }
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self { status: Status::Unsupported, message: message.into() }
    }
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self { status: Status::Corrupt, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

thread_local! {
    /// Where this thread's last panic happened.
    static PANIC_AT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The outcome of `work`; a panic is a failure that says where it was, and prints nothing.
pub fn caught<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            let place = info.location().map_or_else(String::new, ToString::to_string);
            PANIC_AT.with(|at| *at.borrow_mut() = place);
            if cfg!(test) {
                before(info); // a test that fails says why
            }
        }));
    });
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text =
            panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        let place = PANIC_AT.with(RefCell::take);
        let message = format!("{} ({place})", text.unwrap_or("panic"));
        Err(Failure { status: Status::Internal, message })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_that_says_where_it_was() {
        let failure = caught(|| -> Outcome<()> { panic!("out of {}", "cheese") }).unwrap_err();
        assert_eq!(failure.status, Status::Internal);
        assert!(failure.message.starts_with("out of cheese ("), "{failure}");
        assert!(failure.message.contains("failure.rs:"), "{failure}");
    }
}
