//! What counts as caught, and what the tool does with a tree of its own.

use super::*;

#[test]
fn only_an_assertion_catches() {
    let ran = |success, stdout: &str, timed_out| {
        let (stdout, stderr) = (stdout.to_owned(), "SIGABRT".to_owned());
        let ran = Finished {
            success,
            stdout,
            stderr,
            timed_out,
        };
        verdict("a::b", &ran)
    };
    let failed = "test a::b ... FAILED\nthread 'a::b' (7) panicked at x.rs:1:1:\nleft, right\n";
    let caught = Verdict::Caught("left, right".to_owned());
    assert_eq!(ran(false, failed, false), caught);
    assert_eq!(ran(true, "test a::b ... ok\n", false), Verdict::Survived);
    for (success, text, timed_out) in [
        (false, "running 1 test", false),
        (true, "running 0 tests", false),
        (false, "", true),
    ] {
        let verdict = ran(success, text, timed_out);
        assert!(
            matches!(verdict, Verdict::NotJudged(_)),
            "{text}: {verdict:?}"
        );
    }
}

#[test]
fn the_binary_is_the_one_of_the_tests() {
    let line = r#"{"target":{"name":"pawl"},"profile":{"test":true},"executable":"/t/pawl-1"}"#;
    let found = ("pawl".to_owned(), PathBuf::from("/t/pawl-1"));
    assert_eq!(executable(line), Some(found));
    assert_eq!(executable(&line.replace("true", "false")), None);
    assert_eq!(executable("Compiling pawl"), None);
}

#[test]
fn errors_of_the_compiler_name_their_places() {
    let line = r#"{"reason":"compiler-message","message":{"level":"error","message":"no such value",
        "spans":[{"file_name":"a/b.rs","line_start":7}]}}"#;
    let found = complaint(line).unwrap();
    assert_eq!(found.message, "no such value");
    assert_eq!(found.places, [("a/b.rs".to_owned(), 7)]);
    assert!(complaint(&line.replace("error", "warning")).is_none());
    assert!(complaint("{}").is_none());
}

#[test]
#[cfg(unix)]
fn a_command_that_hangs_is_ended() {
    let mut command = Command::new("sleep");
    command.arg("60");
    let ran = finish(command, Some(Duration::ZERO)).unwrap();
    assert!(ran.timed_out && !ran.success);
}

const fn mistake(
    name: &'static str,
    text: &'static str,
    replacement: &'static str,
    test: &'static str,
) -> Mistake {
    Mistake {
        name,
        file: "sums/src/lib.rs",
        text,
        replacement,
        test: Test {
            package: "sums",
            target: None,
            name: test,
        },
    }
}

/// A workspace of small packages, built and tested as the real one is.
fn workspace(root: &Path) {
    let write = |file: String, text: &str| {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let members: Vec<_> = PROGRAMS.iter().chain(&["pawl", "sums"]).copied().collect();
    let list = format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n");
    write("Cargo.toml".to_owned(), &list);
    for name in members {
        let manifest = format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n");
        write(format!("{name}/Cargo.toml"), &manifest);
        write(format!("{name}/src/main.rs"), "fn main() {}\n");
    }
    let sums = r#"
pub const ONE: u32 = 1;
pub fn add(a: u32, b: u32) -> u32 { a + b }
pub fn twice(a: u32) -> u32 { a * 2 }
#[test] fn adds() { assert_eq!(add(ONE, 2), 3); }
#[test] fn doubles() { assert_eq!(twice(2), 4); }
"#;
    write("sums/src/lib.rs".to_owned(), sums);
}

#[test]
fn mistakes_are_caught_by_a_failing_test_only() {
    static MADE: [Mistake; 6] = [
        mistake("caught", "a + b", "a - b", "adds"),
        mistake("caught-alone", "u32 = 1", "u32 = 7", "adds"),
        mistake("survives", "a * 2", "a + a", "doubles"),
        mistake("does-not-compile", "{ a * 2 }", "{ a * two }", "doubles"),
        mistake("does-not-compile-alone", "u32 = 1", "u32 = one", "adds"),
        mistake(
            "ends-the-process",
            "a + b",
            "{ if a < b { std::process::abort() } a + b }",
            "adds",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    workspace(&root);
    let bench = |mistakes: &[&'static Mistake]| {
        let copy = Copy::of(&root, &folder.path().join("target")).unwrap();
        Bench::new(copy, PathBuf::new(), mistakes).unwrap()
    };
    let mistakes: Vec<_> = MADE.iter().collect();
    let failures = make(&bench(&mistakes), &mistakes).unwrap().failures;
    let of = |name: &str| {
        let start = format!("{name}: ");
        failures.iter().find(|failure| failure.starts_with(&start))
    };
    for (name, verdict) in [
        ("caught", None),
        ("caught-alone", None),
        ("survives", Some("SURVIVED")),
        (
            "does-not-compile",
            Some("DOES NOT COMPILE: cannot find value `two`"),
        ),
        (
            "does-not-compile-alone",
            Some("DOES NOT COMPILE: cannot find value `one`"),
        ),
    ] {
        match verdict {
            None => assert_eq!(of(name), None),
            Some(verdict) => assert!(of(name).unwrap().contains(verdict), "{failures:?}"),
        }
    }
    assert!(
        of("ends-the-process").unwrap().contains("NOT JUDGED"),
        "{failures:?}"
    );

    // A test that is not there passes nothing, with a mistake or without.
    static ABSENT: Mistake = mistake("absent", "a + b", "a - b", "subtracts");
    let refused = make(&bench(&[&ABSENT]), &[&ABSENT]).err().unwrap();
    assert!(
        refused.to_string().contains("without a mistake"),
        "{refused}"
    );
}
