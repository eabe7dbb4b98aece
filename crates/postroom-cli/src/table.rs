//! Tables for people.

use std::io::Write;

/// Writes a table to stdout: a heading, and one line per row.
pub(crate) fn print<const N: usize>(
    heading: [&str; N],
    rows: &[[String; N]],
) -> std::io::Result<()> {
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| row.clone().map(|cell| cut(&plain(&cell))))
        .collect();
    let mut widths = heading.map(|cell| cell.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = std::io::stdout().lock();
    let mut line = |cells: [&str; N]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        writeln!(out, "{}", padded.join("  ").trim_end())
    };
    line(heading)?;
    rows.iter()
        .try_for_each(|row| line(row.each_ref().map(String::as_str)))
}

/// Writes one thing to stdout: a line per fact, and none for facts that are missing. Nothing is cut.
pub(crate) fn facts(facts: &[(&str, Option<String>)]) -> std::io::Result<()> {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut out = std::io::stdout().lock();
    for (name, value) in facts {
        if let Some(value) = value {
            writeln!(out, "{name:<width$}  {}", plain(value))?;
        }
    }
    Ok(())
}

/// One line of ordinary characters. What is stored came from elsewhere, and a terminal would obey it.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|character| {
            if is_ordinary(character) {
                character
            } else {
                ' '
            }
        })
        .collect()
}

/// Lines of ordinary characters.
pub(crate) fn plain_lines(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// Control characters steer a terminal; invisible ones that turn the writing direction make a text look
/// like another.
fn is_ordinary(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn cut(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut characters = text.chars();
    let mut cut: String = characters.by_ref().take(LONGEST).collect();
    if characters.next().is_some() {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_text_cannot_steer_a_terminal() {
        assert_eq!(plain("a\x1b[31mb\nc"), "a [31mb c");
        assert_eq!(plain("a\u{202e}b\u{9b}c"), "a b c");
        assert_eq!(plain_lines("a\r\n\tb\x07"), "a\n b ");
    }

    #[test]
    fn a_cell_is_cut() {
        assert_eq!(cut(&"x".repeat(90)).chars().count(), 81);
    }
}
