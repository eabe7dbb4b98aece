//! Tables for people.

use std::io::Write;

/// Writes a table to stdout: a heading, and one line per row.
pub(crate) fn print<const N: usize>(
    heading: [&str; N],
    rows: &[[String; N]],
) -> std::io::Result<()> {
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| row.clone().map(|cell| plain(&cell)))
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

/// One line of ordinary characters. What is stored came from elsewhere, and a terminal would obey it.
fn plain(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut characters = text.chars().map(|character| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    });
    let mut plain: String = characters.by_ref().take(LONGEST).collect();
    if characters.next().is_some() {
        plain.push('…');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_text_cannot_steer_a_terminal() {
        assert_eq!(plain("a\x1b[31mb\nc"), "a [31mb c");
        assert_eq!(plain(&"x".repeat(90)).chars().count(), 81);
    }
}
