//! `postroom completions`.

use super::*;

#[test]
fn every_shell_gets_a_script() {
    for (shell, sign) in [
        ("bash", "_postroom()"),
        ("zsh", "#compdef postroom"),
        ("fish", "complete -c postroom"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "edit:completion:arg-completer[postroom]"),
    ] {
        let script = postroom(&["completions", shell]).ok();
        assert!(script.contains(sign), "{shell}");
        assert!(script.contains("doctor"), "{shell}");
    }
    postroom(&["completions", "cmd"]).misused("powershell");
}

#[test]
fn bash_understands_its_script() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("postroom.bash");
    std::fs::write(&file, postroom(&["completions", "bash"]).ok()).expect("write");
    let checked = std::process::Command::new("bash")
        .arg("-n")
        .arg(&file)
        .output();
    let checked = checked.expect("bash runs");
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
}
