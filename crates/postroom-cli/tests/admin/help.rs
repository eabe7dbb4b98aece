//! `--help` of every command teaches.

use super::*;

/// Every command that `help` lists, and the commands below it.
#[test]
fn every_command_teaches_by_example() {
    let mut seen = Vec::new();
    visit(&mut Vec::new(), &mut seen);
    for command in [
        "enqueue",
        "dead purge",
        "inbox revive",
        "join cancel",
        "doctor",
    ] {
        assert!(
            seen.iter().any(|seen| seen == command),
            "{command} in {seen:?}"
        );
    }
}

fn visit(path: &mut Vec<String>, seen: &mut Vec<String>) {
    let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
    arguments.push("--help");
    let help = postroom(&arguments).ok();
    assert!(help.contains("Examples:"), "{path:?}");
    seen.push(path.join(" "));
    let Some((_, commands)) = help.split_once("Commands:\n") else {
        return;
    };
    for line in commands.lines().take_while(|line| !line.is_empty()) {
        // A description may go on in the next line, further to the right.
        let name = line
            .strip_prefix("  ")
            .filter(|name| !name.starts_with(' '));
        let Some(name) = name.and_then(|name| name.split(' ').next()) else {
            continue;
        };
        // The daemon's configuration has its own tests.
        if name == "help" || name == "config" {
            continue;
        }
        path.push(name.to_owned());
        visit(path, seen);
        path.pop();
    }
}

/// Every example, of `--help` and of the guide, is understood as it stands. Adding `--help` keeps it
/// from doing anything.
#[test]
fn every_example_is_understood() {
    let mut texts = vec![include_str!("../../../../docs/commands.md").to_owned()];
    let mut seen = Vec::new();
    visit(&mut Vec::new(), &mut seen);
    for path in &seen {
        let mut arguments: Vec<&str> = path.split_whitespace().collect();
        arguments.push("--help");
        texts.push(postroom(&arguments).ok());
    }
    let mut tried = std::collections::BTreeSet::new();
    for line in texts.iter().flat_map(|text| text.lines()) {
        let command = line.find("postroom ").filter(|start| {
            // A command stands at the start of its line, or after a pipe.
            let before = line[..*start].trim_end();
            before.is_empty() || before.ends_with('|')
        });
        let Some(start) = command else { continue };
        let mut words = words(&line[start..]);
        words.remove(0);
        words.push("--help".to_owned());
        if tried.insert(words.clone()) {
            let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
            let run = postroom(&arguments);
            assert_eq!(run.code, 0, "{line}: {}", run.err);
        }
    }
    assert!(tried.len() > 60, "{}", tried.len());
}

/// The words of an example up to its remark, pipe or redirection, quotes taken off.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quoted, mut spaces) = (false, 0);
    for character in line.chars() {
        match character {
            '\'' => quoted = !quoted,
            '|' | '<' | '>' | '&' | '#' if !quoted => break,
            ' ' if !quoted => {
                spaces += 1;
                if spaces == 2 {
                    break;
                }
                words.push(String::new());
                continue;
            }
            _ => words.last_mut().expect("a word").push(character),
        }
        spaces = 0;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn exit_codes_are_explained() {
    let help = postroom(&["--help"]).ok();
    assert!(help.contains("Exit codes: 0"), "{help}");
    assert!(postroom(&["doctor", "--help"]).ok().contains("Exit code 0"));
    postroom(&["nonsense"]).misused("nonsense");
}
