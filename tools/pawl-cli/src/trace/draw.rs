//! A trace as a page: the text with what was drafted, and the cost of each step.

use super::format::{Row, Seconds, Settings, Step, Token, Trace};
use super::tree::{self, Node};
use crate::limits::{TRACE_LETTERS, TRACE_REMARK};
use genai_config_schema::counted;
use minijinja::Environment;
use minijinja::value::{Serde, Value};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Pixels of a step and of its bars.
const STEP: usize = 10;
const HEIGHT: f64 = 120.0;

/// The page. Everything that comes from the trace is escaped by the template.
///
/// # Errors
/// A template that cannot be rendered.
pub(crate) fn page(trace: &Trace) -> Result<String, minijinja::Error> {
    let mut pages = Environment::new();
    pages.add_filter("counted", |count: u64, noun: &str| counted(count, noun));
    // The name tells that values are escaped.
    pages.add_template("page.html", include_str!("page.html"))?;
    let page = Page {
        model: &trace.model,
        settings: &trace.settings,
        totals: totals(trace),
        texts: texts(trace),
        bars: bars(trace),
        width: trace.steps.len() * STEP + STEP,
        height: HEIGHT,
    };
    let template = pages.get_template("page.html")?;
    template.render(Value::from(Serde(&page)))
}

/// What the template shows.
#[derive(Serialize)]
struct Page<'a> {
    model: &'a str,
    settings: &'a Settings,
    totals: Totals,
    texts: Vec<Text>,
    bars: Vec<Bar>,
    width: usize,
    height: f64,
}

#[derive(Debug, Default, Serialize)]
struct Totals {
    steps: usize,
    tokens: usize,
    drafted: usize,
    accepted: usize,
    run: f64,
    draft: f64,
    commit: f64,
    tokens_per_step: f64,
}

fn totals(trace: &Trace) -> Totals {
    let mut totals = Totals {
        steps: trace.steps.len(),
        ..Totals::default()
    };
    for step in &trace.steps {
        totals.run += step.seconds.run;
        totals.draft += step.seconds.draft.unwrap_or(0.0);
        totals.commit += step.seconds.commit;
        for row in &step.rows {
            totals.tokens += row.drawn.len();
            totals.drafted += row.drafted.len();
            totals.accepted += row.accepted;
        }
    }
    let rows = trace.steps.iter().flat_map(|step| &step.rows);
    let decoding = rows.filter(|row| !row.drawn.is_empty()).count();
    totals.tokens_per_step = totals.tokens as f64 / decoding.max(1) as f64;
    totals
}

/// What one request wrote.
#[derive(Debug, Serialize)]
struct Text {
    request: u64,
    parts: Vec<Part>,
}

/// A token of a text, one that was drafted there and rejected, or a tree of drafts.
#[derive(Debug, Serialize)]
struct Part {
    kind: &'static str,
    text: String,
    about: String,
    /// The drafts of a step that branched, kept and rejected; else none.
    tree: Vec<Node>,
}

fn texts(trace: &Trace) -> Vec<Text> {
    let mut texts: Vec<Text> = Vec::new();
    let mut places = HashMap::new();
    for step in &trace.steps {
        for row in &step.rows {
            let place = *places.entry(row.request).or_insert_with(|| {
                texts.push(Text {
                    request: row.request,
                    parts: Vec::new(),
                });
                texts.len() - 1
            });
            if let Some(text) = texts.get_mut(place) {
                text.parts.extend(parts(step, row));
            }
        }
    }
    texts
}

/// The accepted drafts, the rejected ones or the tree that they are in, then the token that the request drew itself.
fn parts(step: &Step, row: &Row) -> Vec<Part> {
    let about = remarks(step, row);
    let part = |kind, token: &Token| Part {
        kind,
        text: visible(&token.text, token.id),
        about: format!("token {}, {about}", token.id),
        tree: Vec::new(),
    };
    let path: HashSet<usize> = row.path().into_iter().collect();
    let (accepted, own) = row.drawn.split_at(row.accepted.min(row.drawn.len()));
    let accepted = accepted.iter().map(|token| part("accepted", token));
    let own = own.iter().map(|token| part("own", token));
    let drafts: Vec<Part> = if row.is_tree() {
        vec![Part {
            kind: "tree",
            text: String::new(),
            about: about.clone(),
            tree: tree::nodes(&row.drafted, &path),
        }]
    } else {
        let nodes = row.drafted.iter().enumerate();
        let rejected = nodes.filter(|(index, _)| !path.contains(index));
        let rejected = rejected.map(|(_, draft)| part("rejected", &draft.token));
        rejected.collect()
    };
    accepted.chain(drafts).chain(own).collect()
}

/// What is said of each token of a row, so it is bounded.
fn remarks(step: &Step, row: &Row) -> String {
    let remark = |before: &str, text: Option<&String>| {
        let shown = text.map(|text| begun(text, TRACE_REMARK));
        shown.map_or(String::new(), |text| before.chars().chain(text).collect())
    };
    let source = remark(", ", row.source.as_ref());
    let why = remark(": ", row.why.as_ref());
    format!("step {}{source}{why}", step.index)
}

/// A token's text with signs for what cannot be seen; its number where it has none.
pub(super) fn visible(text: &str, id: u32) -> String {
    if text.is_empty() {
        return format!("#{id}");
    }
    let letters = begun(text, TRACE_LETTERS).flat_map(|letter| match letter {
        '\n' => vec!['⏎', '\n'],
        '\t' => vec!['⇥', '\t'],
        // What would change the order or the place of other letters.
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            vec!['\u{fffd}']
        }
        letter if letter.is_control() => vec!['\u{fffd}'],
        letter => vec![letter],
    });
    letters.collect()
}

/// A text of at most so many letters; of a longer one the beginning, with a sign that there is more.
fn begun(text: &str, most: usize) -> impl Iterator<Item = char> {
    let longer = text.chars().nth(most).is_some();
    let whole = most - usize::from(longer);
    let sign = longer.then_some('…');
    text.chars().take(whole).chain(sign)
}

/// One step of the chart: bars of time from below, marks for drafts.
#[derive(Debug, Serialize)]
struct Bar {
    x: usize,
    width: usize,
    /// Top and height of running, drafting and committing.
    run: (f64, f64),
    draft: (f64, f64),
    commit: (f64, f64),
    drafted: Vec<f64>,
    accepted: Vec<f64>,
    about: String,
}

fn bars(trace: &Trace) -> Vec<Bar> {
    let of = |seconds: &Seconds| seconds.run + seconds.draft.unwrap_or(0.0) + seconds.commit;
    // A prompt takes much longer than what follows and would hide it: its bar is cut.
    let decodes = |step: &&Step| step.rows.iter().all(|row| !row.prompt);
    let longest = |steps: &mut dyn Iterator<Item = &Step>| {
        steps.map(|step| of(&step.seconds)).fold(0.0, f64::max)
    };
    let decoding = longest(&mut trace.steps.iter().filter(decodes));
    let all = longest(&mut trace.steps.iter());
    let scale = HEIGHT
        / if decoding > 0.0 {
            decoding
        } else {
            all.max(f64::MIN_POSITIVE)
        };
    trace
        .steps
        .iter()
        .enumerate()
        .map(|(index, step)| bar(index, step, scale))
        .collect()
}

fn bar(index: usize, step: &Step, scale: f64) -> Bar {
    let Seconds { run, draft, commit } = step.seconds;
    let mut top = HEIGHT;
    let mut stack = |seconds: f64| {
        let height = (seconds * scale).min(top);
        top -= height;
        (top, height)
    };
    let (run_bar, draft_bar) = (stack(run), stack(draft.unwrap_or(0.0)));
    let commit_bar = stack(commit);
    let drafted: usize = step.rows.iter().map(|row| row.drafted.len()).sum();
    let accepted: usize = step.rows.iter().map(|row| row.accepted).sum();
    let drawn: usize = step.rows.iter().map(|row| row.drawn.len()).sum();
    let marks = |count: usize| {
        (0..count.min(32))
            .map(|at| HEIGHT + 8.0 + 5.0 * at as f64)
            .collect()
    };
    let milliseconds = 1000.0 * (run + draft.unwrap_or(0.0) + commit);
    Bar {
        x: index * STEP + STEP / 2,
        width: STEP - 2,
        run: run_bar,
        draft: draft_bar,
        commit: commit_bar,
        drafted: marks(drafted),
        accepted: marks(accepted),
        about: format!(
            "step {}: {milliseconds:.2} ms, {} in {}, {}, {accepted} of {} accepted",
            step.index,
            counted(step.rows.len(), "request"),
            counted(step.width(), "row"),
            counted(drawn, "token"),
            counted(drafted, "draft"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::tests::{token, trace};
    use super::*;

    #[test]
    fn a_page_shows_what_became_of_each_draft() {
        let page = page(&trace()).unwrap();
        for part in [
            "class=\"accepted\"",
            "class=\"rejected\"",
            "class=\"own\"",
            "wrong&amp;",
            "&quot;own&quot;",
            "1 of 3 drafts accepted",
            "1 request in 2 rows",
            "<td>1 step</td>",
            "<svg",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        // The tree of a step stands as a whole in its box.
        assert_eq!(page.matches("class=\"rejected\" data-node").count(), 2);
        assert_eq!(page.matches("class=\"accepted\" data-node").count(), 1);
    }

    #[test]
    fn drafts_without_branches_are_struck_out_in_the_text() {
        let mut trace = trace();
        trace.steps[0].rows[0].drafted.remove(0);
        trace.steps[0].rows[0].drafted[1].parent = Some(0);
        let page = page(&trace).unwrap();
        assert_eq!(page.matches("class=\"rejected\" title").count(), 1);
        assert!(!page.contains("data-node"), "{page}");
    }

    #[test]
    fn nothing_of_a_trace_becomes_part_of_the_page() {
        let hostile = "<script>alert('x')</script>\"'&";
        let mut trace = trace();
        let row = &mut trace.steps[0].rows[0];
        (row.source, row.why) = (Some(hostile.to_owned()), Some(hostile.to_owned()));
        row.drawn = vec![token(2, hostile), token(3, "\u{202e}\u{1b}[31m")];
        // One in a tree, beside those that are drawn.
        row.drafted[0].token = token(1, &[hostile, "\u{202e}\u{1b}[31m"].concat());
        trace.model = hostile.to_owned();
        trace.settings.speculation = hostile.to_owned();
        let page = page(&trace).unwrap();
        assert!(
            !page.contains("<script") && !page.contains("alert('"),
            "{page}"
        );
        assert!(!page.contains(['\u{202e}', '\u{1b}']), "{page}");
        // Nothing is fetched from anywhere.
        assert!(!page.contains("http") && !page.contains("src="), "{page}");
    }

    #[test]
    fn what_is_said_of_a_token_is_short() {
        let mut trace = trace();
        let row = &mut trace.steps[0].rows[0];
        row.why = Some("why".repeat(1_000_000));
        row.source = row.why.clone();
        row.drawn = vec![token(2, "x"), token(3, &"y".repeat(1_000_000))];
        let page = page(&trace).unwrap();
        assert!(page.len() < 10_000);
        let said = "why".repeat(TRACE_REMARK);
        assert!(page.contains(&format!(": {}…\"", &said[..TRACE_REMARK - 1])));
        assert!(page.contains(&format!(">{}…<", "y".repeat(TRACE_LETTERS - 1))));
    }

    #[test]
    fn reasons_are_shown_whole() {
        let mut trace = trace();
        let row = &mut trace.steps[0].rows[0];
        row.why = Some("it is found out whether its drafts are any good".to_owned());
        let long = "y".repeat(TRACE_LETTERS);
        row.drawn = vec![token(2, &long)];
        let page = page(&trace).unwrap();
        assert!(page.contains("step 7, mtp: it is found out whether its drafts are any good\""));
        assert!(page.contains(&format!(">{long}<")) && !page.contains('…'));
    }

    #[test]
    fn a_long_trace_is_drawn_without_looking_through_it_again_and_again() {
        let mut trace = trace();
        let step = trace.steps[0].clone();
        // Every row of another request, and one row of a chain that was accepted whole.
        let rows = (0..60_000u64).map(|request| Row {
            request,
            ..step.rows[0].clone()
        });
        let mut chain = step.rows[0].clone();
        let node = |at: usize| super::super::format::Draft {
            parent: at.checked_sub(1),
            token: token(7, ""),
        };
        chain.drafted = (0..60_000).map(node).collect();
        chain.drawn = vec![token(7, ""); 60_000];
        chain.accepted = 60_000;
        trace.steps[0].rows = rows.chain([chain]).collect();
        let texts = texts(&trace);
        assert_eq!(texts.len(), 60_000);
        let tree = texts[0].parts.iter().flat_map(|part| &part.tree);
        assert_eq!(tree.filter(|node| node.kind == "rejected").count(), 2);
    }

    #[test]
    fn an_empty_trace_is_a_page_too() {
        let mut trace = trace();
        trace.steps.clear();
        assert!(page(&trace).unwrap().contains("0 steps"));
    }

    #[test]
    fn a_long_prompt_does_not_hide_the_rest() {
        let mut trace = trace();
        let mut prompt = trace.steps[0].clone();
        prompt.rows[0].prompt = true;
        prompt.seconds.run = 100.0;
        trace.steps.insert(0, prompt);
        let bars = bars(&trace);
        assert!((bars[0].run.1 - HEIGHT).abs() < 1e-9 && bars[0].commit.1 == 0.0);
        assert!((bars[1].run.1 - HEIGHT * 20.0 / 26.0).abs() < 1e-6);
        assert!(bars[1].commit.0.abs() < 1e-6);
    }
}
