//! The specification as tests: one suite of modules, mounted once per database. A test's doc comment
//! names the requirements that it shows; `cargo xtask spec` collects them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod outbox_enqueue;
