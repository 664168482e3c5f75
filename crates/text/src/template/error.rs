//! Why a rendering stops.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// raise_exception: the template's own words.
    Raised,
    /// Jinja2 fails here too.
    Failed,
    /// Jinja2 has a value here that we do not compute.
    Refused,
    /// The template exceeds a bound of budget.rs.
    Limit,
}

#[derive(Clone, Debug)]
pub struct Error {
    pub kind: Kind,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

pub fn failed(message: impl Into<String>) -> Error {
    Error { kind: Kind::Failed, message: message.into() }
}

/// `construct`: what is not supported, so that the message names it.
pub fn refused(construct: impl std::fmt::Display) -> Error {
    Error { kind: Kind::Refused, message: format!("{construct} is not supported") }
}

pub fn limit(message: impl Into<String>) -> Error {
    Error { kind: Kind::Limit, message: message.into() }
}
