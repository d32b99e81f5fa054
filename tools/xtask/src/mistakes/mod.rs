//! Deliberate mistakes, and the test that must fail for each.
//!
//! A test that cannot fail proves nothing. Each entry of the tables changes a few lines of a copy of the tree; the test it
//! names must pass before and fail after. The tables' texts are checked against the tree by this crate's own tests, so
//! that they cannot rot; running them takes some builds and is done by hand.

mod copy;
mod engine;
mod grammar;
mod graphs;
mod ngram;
mod owed;
mod run;
mod state;
mod step;
mod together;
mod traps;

pub(crate) use run::run;

use crate::ChoreError;
use traps::Guard;

/// One change of the source and the test that must notice it.
#[derive(Clone, Copy, Debug)]
struct Mistake {
    /// Short name, with dashes.
    name: &'static str,
    /// File from the workspace root.
    file: &'static str,
    /// What stands there, exactly once.
    text: &'static str,
    /// What the mistake makes of it.
    replacement: &'static str,
    /// The test that must fail.
    test: Test,
}

/// One test of the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    /// Package.
    package: &'static str,
    /// An integration test by name; `None` for the library's own tests.
    target: Option<&'static str>,
    /// Full name.
    name: &'static str,
}

/// A test of the runtime's library.
const fn unit(name: &'static str) -> Test {
    Test {
        package: "pawl",
        target: None,
        name,
    }
}

/// A case over exported models, of one of the programs in `tests/cases`.
const fn case(program: &'static str, name: &'static str) -> Test {
    Test {
        package: "pawl-tests",
        target: Some(program),
        name,
    }
}

/// Every mistake.
fn all() -> impl Iterator<Item = &'static Mistake> {
    let tables = [
        state::SELECTION,
        state::BANKS,
        state::REPLAYS,
        owed::OWED,
        step::CACHE,
        step::BRANCHES,
        step::TRANSACTION,
        step::INVARIANTS,
        engine::ACCEPTANCE,
        engine::DRAFTS,
        engine::TREES,
        grammar::GRAMMARS,
        graphs::KERNELS,
        graphs::EXPORTS,
        graphs::COMMITS,
        ngram::HISTORIES,
        ngram::WHOLE_MODELS,
    ];
    tables.into_iter().flatten()
}

/// Mistakes with these names, all where none are given.
fn chosen(names: &[String]) -> Result<Vec<&'static Mistake>, ChoreError> {
    let unknown = names.iter().find(|name| all().all(|m| m.name != **name));
    if let Some(name) = unknown {
        let message = format!("no mistake is called `{name}`; --list names them");
        return Err(ChoreError::Command(message));
    }
    let wanted = |m: &&Mistake| names.is_empty() || names.iter().any(|name| name == m.name);
    Ok(all().filter(wanted).collect())
}

/// Prints the tables and what cannot be written at all.
pub(crate) fn list() {
    for mistake in all() {
        println!("{:<32} {}", mistake.name, mistake.file);
        println!("{:<32} caught by {}", "", mistake.test.name);
    }
    println!("\nTraps, and what keeps them shut:");
    for (trap, guard) in traps::all() {
        match guard {
            Guard::Caught(names) => println!("* {trap}: {}", names.join(", ")),
            Guard::Impossible(why) => println!("* {trap}: {why}"),
        }
    }
}

impl Mistake {
    /// The file with the mistake in it.
    fn apply(&self, text: &str) -> Result<String, ChoreError> {
        let found = text.matches(self.text).count();
        if found == 1 && self.text != self.replacement {
            return Ok(text.replacen(self.text, self.replacement, 1));
        }
        let Self { name, file, .. } = self;
        Err(ChoreError::Command(format!(
            "{name}: its text stands {found} times in {file}, expected once; adapt the table to the code"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source;
    use std::collections::BTreeSet;

    #[test]
    fn every_mistake_applies_to_the_tree() {
        let root = crate::workspace_root();
        for mistake in all() {
            let text = std::fs::read_to_string(root.join(mistake.file)).unwrap();
            mistake.apply(&text).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    #[test]
    fn every_test_that_is_named_exists() {
        let files = source::read_all(&crate::workspace_root()).unwrap();
        for mistake in all() {
            let function = mistake.test.name.rsplit("::").next().unwrap();
            let header = format!("fn {function}(");
            let exists = files.iter().any(|file| file.text.contains(&header));
            assert!(exists, "{}: no {}", mistake.name, mistake.test.name);
        }
    }

    #[test]
    fn traps_and_invariants_have_mistakes() {
        let names: BTreeSet<&str> = all().map(|mistake| mistake.name).collect();
        for (trap, guard) in traps::all() {
            match guard {
                Guard::Caught(of) => {
                    assert!(!of.is_empty(), "{trap}");
                    let unknown: Vec<_> = of.iter().filter(|name| !names.contains(*name)).collect();
                    assert!(unknown.is_empty(), "{trap}: {unknown:?}");
                }
                Guard::Impossible(why) => assert!(!why.is_empty(), "{trap}"),
            }
        }
        for invariant in 1..=8 {
            let of = format!("i{invariant}-");
            let count = names.iter().filter(|name| name.starts_with(&of)).count();
            assert!(
                count >= 2 && names.contains(&*format!("{of}unseen")),
                "{of}"
            );
        }
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = all().map(|mistake| mistake.name).collect();
        assert_eq!(names.len(), all().count());
        assert_eq!(chosen(&[]).unwrap().len(), names.len());
        let (some, none) = (["banks-not-flipped".to_owned()], ["x".to_owned()]);
        assert_eq!(chosen(&some).unwrap().len(), 1);
        assert!(chosen(&none).unwrap_err().to_string().contains("`x`"));
    }

    #[test]
    fn a_text_that_is_gone_or_stands_twice_is_an_error() {
        let mistake = Mistake {
            name: "x",
            file: "f",
            text: "a",
            replacement: "b",
            test: unit("t"),
        };
        assert_eq!(mistake.apply("cac").unwrap(), "cbc");
        assert!(mistake.apply("aca").is_err());
        assert!(mistake.apply("ccc").is_err());
    }
}
