//! A database that goes away in the middle, is locked by somebody else, or has no room left; and callers
//! who stop waiting. What was answered stays true, what failed may be tried again, and the same store
//! goes on by itself.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cancelled;
mod crash;
mod every;
mod sqlite;
