//! A trace: what each step of a generation drafted, kept and took.
//!
//! `pawl generate --trace` writes it, `pawl trace` reads it. What a writer does not know is left out.

use super::wrong::told;
use crate::limits::TRACE_PARTS;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Raised when what a field holds changes its meaning.
pub(crate) const VERSION: u32 = 1;

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object with the keys of a trace")]
pub(crate) struct Trace {
    pub(crate) version: u32,
    /// The model folder, as it was given.
    pub(crate) model: String,
    pub(crate) settings: Settings,
    pub(crate) steps: Vec<Step>,
}

/// How it was generated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object with speculation and draft_policy")]
pub(crate) struct Settings {
    /// The effective speculation, in words.
    pub(crate) speculation: String,
    /// The policy of drafts.
    pub(crate) draft_policy: String,
}

/// One step of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a step: an object with index, seconds and rows")]
pub(crate) struct Step {
    /// From 0, over all steps of the engine.
    pub(crate) index: usize,
    pub(crate) seconds: Seconds,
    pub(crate) rows: Vec<Row>,
}

/// Where the time of a step went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object with run and commit")]
pub(crate) struct Seconds {
    /// Running the decoder.
    pub(crate) run: f64,
    /// Making drafts for the next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) draft: Option<f64>,
    /// Keeping what was accepted.
    pub(crate) commit: f64,
}

/// What one request did in a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a row: an object with request, past, accepted and drawn")]
pub(crate) struct Row {
    pub(crate) request: u64,
    /// Tokens of the request whose state was there before.
    pub(crate) past: usize,
    /// Whether it read a prompt or a part of one.
    #[serde(default)]
    pub(crate) prompt: bool,
    /// Tokens that its own row ran.
    #[serde(default)]
    pub(crate) run: usize,
    /// Further rows of the step, one per branch of its drafts.
    #[serde(default)]
    pub(crate) branches: usize,
    /// The row whose tokens were kept: 0 its own, else a branch.
    #[serde(default)]
    pub(crate) winner: usize,
    /// The drafts, a parent always before its children.
    #[serde(default)]
    pub(crate) drafted: Vec<Draft>,
    /// How many drafts, from the root down, were accepted.
    pub(crate) accepted: usize,
    /// The tokens that the request drew: the accepted drafts, then its own.
    pub(crate) drawn: Vec<Token>,
    /// Where the drafts came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// Why it drafted as it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

/// One node of the drafts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a draft: an object with token")]
pub(crate) struct Draft {
    /// The index of the node above; none below the last known token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<usize>,
    pub(crate) token: Token,
}

/// A token and its text; empty without a tokenizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a token: an object with id")]
pub(crate) struct Token {
    pub(crate) id: u32,
    #[serde(default)]
    pub(crate) text: String,
}

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// What is wrong and where, for one that is damaged or of another version.
    pub(crate) fn from_json(text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(expecting = "an object with the keys of a trace")]
        struct Versioned {
            version: u64,
        }
        let versioned: Versioned = serde_json::from_slice(text).map_err(|e| told(&e))?;
        if versioned.version != u64::from(VERSION) {
            let found = versioned.version;
            return Err(format!("version: expected {VERSION}, found {found}"));
        }
        let trace: Self = serde_json::from_slice(text).map_err(|e| told(&e))?;
        let parts = trace.steps.iter().map(Step::parts);
        let parts = parts.fold(0, usize::saturating_add);
        if parts > TRACE_PARTS {
            return Err(format!(
                "steps: {parts} bars, rows and tokens, at most {TRACE_PARTS} are drawn"
            ));
        }
        for (index, step) in trace.steps.iter().enumerate() {
            step.check().map_err(|e| format!("steps[{index}].{e}"))?;
        }
        Ok(trace)
    }
}

impl Step {
    /// Rows of the step: of the requests, and of branches.
    pub(crate) fn width(&self) -> usize {
        let rows = self.rows.iter();
        rows.map(|row| row.branches.saturating_add(1))
            .fold(0, usize::saturating_add)
    }

    /// What of it is drawn. A step itself has bars and dots.
    fn parts(&self) -> usize {
        const BARS: usize = 4;
        let rows = self.rows.iter();
        BARS + rows
            .map(|row| 1 + row.drafted.len() + row.drawn.len())
            .sum::<usize>()
    }

    fn check(&self) -> Result<(), String> {
        let Seconds { run, draft, commit } = self.seconds;
        for (key, seconds) in [
            ("run", run),
            ("draft", draft.unwrap_or(0.0)),
            ("commit", commit),
        ] {
            if !(0.0..=1e9).contains(&seconds) {
                return Err(format!(
                    "seconds.{key}: expected a duration, found {seconds}"
                ));
            }
        }
        let rows = self.rows.iter().enumerate();
        for (index, row) in rows {
            row.check().map_err(|e| format!("rows[{index}].{e}"))?;
        }
        Ok(())
    }
}

impl Row {
    fn check(&self) -> Result<(), String> {
        let drafted = self.drafted.len();
        for (index, draft) in self.drafted.iter().enumerate() {
            if let Some(parent) = draft.parent.filter(|parent| *parent >= index) {
                return Err(format!(
                    "drafted[{index}].parent: expected a node before it, found {parent}"
                ));
            }
        }
        let most = drafted.min(self.drawn.len());
        if self.accepted > most {
            let accepted = self.accepted;
            return Err(format!(
                "accepted: expected at most {most}, as many as were drafted and drawn, found {accepted}"
            ));
        }
        Ok(())
    }

    /// Whether a token has several drafts.
    pub(crate) fn is_tree(&self) -> bool {
        let mut drafted = self.drafted.iter().enumerate();
        drafted.any(|(index, draft)| draft.parent != index.checked_sub(1))
    }

    /// The nodes that were accepted, from the root down.
    pub(crate) fn path(&self) -> Vec<usize> {
        let mut path: Vec<usize> = Vec::new();
        if self.accepted == 0 {
            return path;
        }
        let mut nodes = HashMap::with_capacity(self.drafted.len());
        for (node, draft) in self.drafted.iter().enumerate() {
            nodes.entry((draft.parent, draft.token.id)).or_insert(node);
        }
        for token in self.drawn.iter().take(self.accepted) {
            let Some(node) = nodes.get(&(path.last().copied(), token.id)) else {
                break;
            };
            path.push(*node);
        }
        path
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::trace) fn token(id: u32, text: &str) -> Token {
        Token {
            id,
            text: text.to_owned(),
        }
    }

    pub(in crate::trace) fn trace() -> Trace {
        let draft = |parent, id, text| Draft {
            parent,
            token: token(id, text),
        };
        let row = Row {
            request: 0,
            past: 4,
            prompt: false,
            run: 3,
            branches: 1,
            winner: 1,
            drafted: vec![
                draft(None, 1, "<b>"),
                draft(None, 2, "\n"),
                draft(Some(1), 3, "wrong&"),
            ],
            accepted: 1,
            drawn: vec![token(2, "\n"), token(9, "\"own\"")],
            source: Some("mtp".to_owned()),
            why: Some("fastest <".to_owned()),
        };
        Trace {
            version: VERSION,
            model: "demo/<m>".to_owned(),
            settings: Settings {
                speculation: "mtp, up to 3 drafts".to_owned(),
                draft_policy: "fixed".to_owned(),
            },
            steps: vec![Step {
                index: 7,
                seconds: Seconds {
                    run: 0.02,
                    draft: Some(0.005),
                    commit: 0.001,
                },
                rows: vec![row],
            }],
        }
    }

    #[test]
    fn a_written_trace_is_read_again() {
        let text = serde_json::to_vec(&trace()).unwrap();
        assert_eq!(Trace::from_json(&text), Ok(trace()));
    }

    #[test]
    fn the_accepted_path_is_found_in_the_tree() {
        let trace = trace();
        assert_eq!(trace.steps[0].rows[0].path(), [1]);
    }

    #[test]
    fn what_a_page_cannot_hold_is_refused() {
        let mut trace = trace();
        let row = &mut trace.steps[0].rows[0];
        row.drawn = vec![token(1, ""); TRACE_PARTS - 8];
        let text = serde_json::to_vec(&trace).unwrap();
        assert!(Trace::from_json(&text).is_ok());
        trace.steps[0].rows[0].drawn.push(token(1, ""));
        let text = serde_json::to_vec(&trace).unwrap();
        let refused = Trace::from_json(&text).unwrap_err();
        assert!(
            refused.starts_with("steps: 524289 bars, rows and tokens"),
            "{refused}"
        );
    }

    #[test]
    fn what_a_trace_leaves_out_is_nothing() {
        let text = r#"{"version": 1, "model": "m", "settings": {"speculation": "", "draft_policy": ""},
            "steps": [{"index": 0, "seconds": {"run": 1, "commit": 0},
                "rows": [{"request": 0, "past": 0, "accepted": 0, "drawn": [{"id": 1}]}]}]}"#;
        let trace = Trace::from_json(text.as_bytes()).unwrap();
        assert_eq!(trace.steps[0].width(), 1);
        assert_eq!(trace.steps[0].rows[0].branches, 0);
    }

    #[test]
    fn what_is_damaged_is_named() {
        let damage = |change: fn(&mut Trace)| {
            let mut trace = trace();
            change(&mut trace);
            Trace::from_json(&serde_json::to_vec(&trace).unwrap()).unwrap_err()
        };
        assert_eq!(damage(|t| t.version = 2), "version: expected 1, found 2");
        let parent = damage(|t| t.steps[0].rows[0].drafted[1].parent = Some(1));
        assert!(
            parent.starts_with("steps[0].rows[0].drafted[1].parent: "),
            "{parent}"
        );
        let accepted = damage(|t| t.steps[0].rows[0].accepted = 3);
        assert!(
            accepted.starts_with("steps[0].rows[0].accepted: expected at most 2"),
            "{accepted}"
        );
        let seconds = damage(|t| t.steps[0].seconds.commit = -1.0);
        assert!(
            seconds.starts_with("steps[0].seconds.commit: "),
            "{seconds}"
        );
        for text in [
            "",
            "{}",
            "[1]",
            "{\"version\": 1}",
            "{\"version\": 1, \"steps\": 3}",
        ] {
            assert!(Trace::from_json(text.as_bytes()).is_err(), "{text}");
        }
    }
}
