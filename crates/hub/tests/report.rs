//! What `linchpin` shows without a command.

use std::process::Command;

fn linchpin(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_linchpin")).args(arguments).output().expect("the program starts")
}

#[test]
fn the_report_is_readable() {
    let output = linchpin(&[]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in ["linchpin-demo", "revision   2026-07-28", "countdown", "\"sum\":42.0", "linchpin demo"] {
        assert!(text.contains(expected), "{expected} is missing in:\n{text}");
    }
}

#[test]
fn the_report_is_one_json_object_for_programs() {
    let output = linchpin(&["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["server"]["name"], "linchpin-demo");
    assert_eq!(report["revision"], "2026-07-28");
    assert_eq!(report["tools"][0]["name"], "add");
    assert_eq!(report["call"]["answer"], "{\"sum\":42.0}");
}

#[test]
fn a_wrong_command_says_what_is_right() {
    let output = linchpin(&["dmeo"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("dmeo") && text.contains("demo"), "{text}");
}
