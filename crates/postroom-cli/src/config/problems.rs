//! What is wrong with a configuration: all of it, in the order of the file.

use std::fmt;
use std::ops::Range;

/// One thing that is wrong. It names the key and the line, and never quotes a value that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Problem {
    /// The key, with the tables that it is in: `server.bind`, `target[0].http.url`.
    pub(crate) key: String,
    /// 0 when it is not about one line.
    pub(crate) line: usize,
    /// A sentence that can stand alone.
    pub(crate) problem: String,
}

/// A configuration that is refused.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) file: String,
    pub(crate) problems: Vec<Problem>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = match self.problems.len() {
            1 => "a problem".to_owned(),
            count => format!("{count} problems"),
        };
        write!(f, "{} has {count}", self.file)?;
        for problem in &self.problems {
            write!(f, "\n  {}", problem.problem)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}

/// Problems as they are found in a text.
pub(super) struct Problems<'t> {
    text: &'t str,
    found: Vec<Problem>,
}

impl<'t> Problems<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        Self {
            text,
            found: Vec::new(),
        }
    }

    /// A key whose value is not what it should be.
    pub(super) fn add(&mut self, key: &str, place: &Range<usize>, says: impl fmt::Display) {
        let line = self.line(place);
        self.found.push(Problem {
            key: key.to_owned(),
            line,
            problem: format!("`{key}` in line {line}: {says}"),
        });
    }

    /// A key that nobody knows.
    pub(super) fn unknown(&mut self, key: &str, place: &Range<usize>, advice: impl fmt::Display) {
        let line = self.line(place);
        self.found.push(Problem {
            key: key.to_owned(),
            line,
            problem: format!("unknown key `{key}` in line {line}; {advice}"),
        });
    }

    /// Something that is not TOML.
    pub(super) fn syntax(&mut self, place: &Range<usize>, says: impl fmt::Display) {
        let line = self.line(place);
        self.found.push(Problem {
            key: String::new(),
            line,
            problem: format!("line {line} is not TOML: {says}"),
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|problem| problem.line);
        self.found
    }

    fn line(&self, place: &Range<usize>) -> usize {
        let start = place.start.min(self.text.len());
        1 + self.text.as_bytes()[..start]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
    }
}
