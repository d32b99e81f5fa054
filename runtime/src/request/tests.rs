use std::sync::Arc;

use proptest::prelude::*;

use super::cursor::{Finish, Rules};
use super::*;
use crate::engine::EngineId;
use crate::error::ErrorCode;
use crate::grammar::{Grammar, Grammars};
use crate::sample::SamplingParams;
use crate::text::tests::byte_level;
use crate::text::{StopSet, Tokenizer};

const EOS: u32 = 2043;
const ENGINE: EngineId = EngineId::NONE;

fn limits(tokenizer: Option<Arc<dyn Tokenizer>>) -> ModelLimits {
    ModelLimits {
        vocab_size: 2048,
        context_length: 64,
        eos: vec![EOS, 2041],
        tokenizer,
        sampling: SamplingParams::greedy(),
        grammars: Grammars::default(),
    }
}

fn cursor(request: &Request) -> Cursor {
    request
        .prepare(&limits(Some(byte_level())), 0, ENGINE)
        .unwrap()
        .cursor
}

fn ids(text: &str) -> Vec<u32> {
    byte_level().encode(text, false).unwrap()
}

/// What a run of accepted tokens would do.
fn plan(cursor: &Cursor, run: &[u32]) -> Advance {
    let mut advance = cursor.plan();
    for token in run {
        cursor.extend(&mut advance, *token).unwrap();
    }
    advance
}

/// Feeds tokens in runs of the given lengths (then one by one) until the request ends.
fn feed(cursor: &mut Cursor, tokens: &[u32], runs: &[usize]) -> (Vec<u32>, String) {
    let (mut out, mut text) = (Vec::new(), String::new());
    let mut rest = tokens;
    let mut runs = runs.iter().copied();
    while !rest.is_empty() && cursor.finish().is_none() {
        let (run, after) = rest.split_at(runs.next().unwrap_or(1).min(rest.len()));
        let advance = plan(cursor, run);
        out.extend(&advance.tokens);
        text.push_str(&advance.text);
        cursor.apply(advance);
        rest = after;
    }
    (out, text)
}

#[test]
fn an_end_token_inside_a_run_cuts_it() {
    let mut cursor = cursor(&Request::from_text("x"));
    let mut run = ids("ab");
    let kept = run.len() + 1;
    run.push(EOS);
    run.extend(ids("cd"));
    let advance = plan(&cursor, &run);
    assert_eq!((advance.tokens.len(), advance.text.as_str()), (kept, "ab"));
    assert_eq!(
        cursor.usage().generated_tokens,
        0,
        "planning changes nothing"
    );
    cursor.apply(advance);
    assert_eq!(cursor.finish(), Some(&FinishReason::Eos.into()));
    assert_eq!(
        (cursor.usage().generated_tokens, cursor.remaining()),
        (kept as u64, 0)
    );
    assert!(plan(&cursor, &run).tokens.is_empty(), "it has ended");
}

/// Guesses behind one that ends the request are of no use.
#[test]
fn guesses_are_of_use_up_to_the_end() {
    let request = || Request::from_text("x").max_new_tokens(40);
    let guesses = [ids("ab"), vec![EOS], ids("cd")].concat();
    let useful = |request: &Request, before: &[u32], guesses: &[u32]| {
        cursor(request).useful(before, guesses)
    };
    assert_eq!(useful(&request(), &[], &guesses), ids("ab").len() + 1);
    let on = request().ignore_eos(true);
    assert_eq!(useful(&on, &[], &guesses), guesses.len());
    // A stop string that begins in what was accepted.
    let stop = request().ignore_eos(true).stop("xaby");
    let (before, after) = (ids("wxa"), ids("byzz"));
    let end = ids("by").len();
    assert_eq!(useful(&stop, &before, &after), end);
    assert_eq!(useful(&stop, &ids("w"), &after), after.len());
    assert_eq!(useful(&stop, &before, &[]), 0);
    // What is accepted ends it already.
    assert_eq!(useful(&stop, &ids("xaby"), &after), 0);
}

#[test]
fn end_tokens_can_be_ignored() {
    let mut cursor = cursor(&Request::from_text("x").ignore_eos(true));
    let tokens = [ids("a"), vec![EOS], ids("b")].concat();
    assert_eq!(feed(&mut cursor, &tokens, &[]), (tokens, "ab".to_owned()));
    assert!(cursor.finish().is_none());
}

#[test]
fn a_stop_string_across_tokens_cuts_the_text_before_it() {
    let mut cursor = cursor(&Request::from_text("x").stop("c日").stop("zz"));
    let tokens = ids("ab c日 more");
    let (kept, text) = feed(&mut cursor, &tokens, &[100]);
    assert_eq!(text, "ab ");
    assert!(kept.len() < tokens.len());
    let stop = Some("c日".to_owned());
    assert_eq!(
        cursor.finish(),
        Some(&Finish {
            reason: FinishReason::StopString,
            stop
        })
    );
}

/// What a plan allows next.
fn allowed(plan: &Advance) -> Vec<u32> {
    let grammar = plan.grammar.as_ref().unwrap();
    crate::grammar::tests::allowed(grammar, 2048)
}

#[test]
fn a_token_that_the_grammar_forbids_leaves_the_plan_as_it_was() {
    let grammar = Grammar::regex("[0-4][5-9][a-c]");
    let mut cursor = cursor(&Request::from_ids([1]).grammar(grammar));
    let tokens = ids("37b");
    assert_eq!(tokens.len(), 3);
    for at in 0..tokens.len() {
        let mut advance = plan(&cursor, &tokens[..at]);
        let before = allowed(&advance);
        assert!(cursor.extend(&mut advance, ids("!")[0]).is_err());
        assert_eq!(
            (&advance.tokens[..], allowed(&advance)),
            (&tokens[..at], before)
        );
        for token in &tokens[at..] {
            cursor.extend(&mut advance, *token).unwrap();
        }
        assert_eq!(advance.text, "37b");
        assert_eq!(advance.finish, Some(FinishReason::Grammar.into()));
    }
    let advance = plan(&cursor, &tokens);
    cursor.apply(advance);
    assert_eq!(cursor.remaining(), 0);
}

#[test]
fn a_grammar_needs_a_tokenizer_and_a_beginning_within_the_prompt() {
    let refused = |grammar: Grammar, tokenizer| {
        let request = Request::from_ids([1, 2]).grammar(grammar);
        let error = request.prepare(&limits(tokenizer), 0, ENGINE).unwrap_err();
        assert_eq!(error.code(), ErrorCode::RequestInvalid);
        error.to_string()
    };
    let digits = Grammar::regex("[0-9]+");
    assert!(refused(digits.clone(), None).starts_with("a grammar: the model has no tokenizer"));
    let behind = refused(digits.clone().begun_at(3), Some(byte_level()));
    assert!(
        behind.ends_with("begin with token 3, but the prompt has 2"),
        "{behind}"
    );
    let other = refused(digits.begun_at(1), Some(byte_level()));
    assert!(
        other.starts_with("prompt token 1 is 2, which the regular expression"),
        "{other}"
    );
}

#[test]
fn a_special_token_can_be_a_stop_string() {
    let mut cursor = cursor(&Request::from_text("x").ignore_eos(true).stop("<|im_end|>"));
    let (_, text) = feed(&mut cursor, &[ids("ab"), vec![EOS], ids("c")].concat(), &[]);
    assert_eq!(
        (text.as_str(), cursor.finish().unwrap().reason),
        ("ab", FinishReason::StopString)
    );
}

#[test]
fn limits_end_inside_a_run_and_release_held_text() {
    let tokens = ids("abcdefgh ijkl mnop ");
    let mut short = cursor(&Request::from_text("x").max_new_tokens(2).stop(" never"));
    let (kept, text) = feed(&mut short, &tokens, &[9]);
    assert_eq!(kept, tokens[..2]);
    assert_eq!(text, byte_level().decode(&kept, true).unwrap());
    assert_eq!(short.finish().unwrap().reason, FinishReason::MaxNewTokens);

    let mut full = cursor(&Request::from_ids(vec![7; 61]));
    assert_eq!(full.remaining(), 3);
    assert_eq!(feed(&mut full, &[8; 9], &[9]).0, [8; 3]);
    assert_eq!(full.finish().unwrap().reason, FinishReason::ContextLength);
    assert_eq!(
        (full.usage().prompt_tokens, full.usage().generated_tokens),
        (61, 3)
    );
}

#[test]
fn ending_from_outside_releases_held_text() {
    let mut cursor = cursor(&Request::from_text("x").stop("abcdefgh"));
    assert_eq!(feed(&mut cursor, &ids("abc"), &[]).1, "");
    assert_eq!(cursor.end(FinishReason::Cancelled), "abc");
    assert_eq!(cursor.finish().unwrap().reason, FinishReason::Cancelled);
    assert_eq!(cursor.end(FinishReason::Failed), "");
    assert_eq!(cursor.finish().unwrap().reason, FinishReason::Cancelled);
}

#[test]
fn without_a_tokenizer_there_are_tokens_and_no_text() {
    let request = Request::from_ids([1, 2]);
    let mut cursor = request.prepare(&limits(None), 0, ENGINE).unwrap().cursor;
    assert_eq!(
        feed(&mut cursor, &[5, 6, EOS, 7], &[4]),
        (vec![5, 6, EOS], String::new())
    );
}

#[test]
fn requests_are_checked() {
    let error = |request: Request, tokenizer| {
        request
            .prepare(&limits(tokenizer), 0, ENGINE)
            .unwrap_err()
            .to_string()
    };
    let text = || Some(byte_level());
    for (request, tokenizer, part) in [
        (Request::from_text(""), text(), "empty"),
        (Request::from_ids([]), None, "empty"),
        (Request::from_ids([1, 2048]), None, "token 1 is 2048"),
        (Request::from_ids([1; 64]), None, "64 tokens"),
        (
            Request::from_ids([1]).max_new_tokens(0),
            None,
            "max_new_tokens is 0",
        ),
        (
            Request::from_ids([1]).stop("a").stop(""),
            text(),
            "stop string 1 is empty",
        ),
        (
            Request::from_ids([1]).stop("a".repeat(1 << 20)),
            text(),
            "1048576 bytes",
        ),
        (Request::from_ids([1]).stop("a"), None, "stop strings"),
        (Request::from_text("a"), None, "tokenizer.json"),
        (
            Request::from_ids([1]).sampling(SamplingParams::sampled(-1.0)),
            None,
            "temperature",
        ),
    ] {
        let message = error(request, tokenizer);
        assert!(message.contains(part), "{message}");
    }
}

fn rules(stops: &[String], eos: &[u32], max_new_tokens: u64, room: u64) -> Rules {
    Rules {
        eos: eos.to_vec(),
        stop_tokens: Vec::new(),
        stops: StopSet::new(stops),
        max_new_tokens,
        room,
    }
}

proptest! {
    #[test]
    fn any_grouping_gives_the_same_output(
        tokens in prop::collection::vec(prop_oneof![9 => 0u32..260, 3 => 0u32..2048, 1 => Just(EOS)], 1..40),
        stop_at in prop::collection::vec((0usize..40, 1usize..4), 0..4),
        runs in prop::collection::vec(1usize..9, 0..20),
        (max_new_tokens, room) in (1u64..40, 1u64..40),
    ) {
        // Stop strings are taken from the text, so that they do occur.
        let stops: Vec<String> = stop_at
            .iter()
            .filter_map(|&(from, count)| tokens.get(from..from + count))
            .map(|part| byte_level().decode(part, true).unwrap())
            .filter(|stop| !stop.is_empty())
            .collect();
        let cursor = || {
            Cursor::new(3, rules(&stops, &[EOS], max_new_tokens, room), Some(byte_level()), None)
        };
        let (mut one, mut many) = (cursor(), cursor());
        let single = feed(&mut one, &tokens, &[]);
        let grouped = feed(&mut many, &tokens, &runs);
        prop_assert_eq!(&single, &grouped);
        prop_assert_eq!(one.finish(), many.finish());
        prop_assert_eq!(one.usage(), many.usage());

        let (text, finish) = whole_text(&single.0, &stops);
        match one.finish() {
            None => prop_assert!(text.starts_with(&single.1)),
            Some(end) => {
                prop_assert_eq!(&single.1, &text);
                prop_assert_eq!(end.reason == FinishReason::StopString, finish);
            }
        }
    }
}

/// The text of all tokens, up to the first stop string that is complete.
fn whole_text(tokens: &[u32], stops: &[String]) -> (String, bool) {
    let tokens: Vec<u32> = tokens.iter().copied().filter(|&id| id != EOS).collect();
    let text = byte_level().decode(&tokens, true).unwrap();
    for end in 0..=text.len() {
        let ending = stops
            .iter()
            .filter(|stop| text.as_bytes()[..end].ends_with(stop.as_bytes()));
        if let Some(longest) = ending.map(String::len).max() {
            return (text[..end - longest].to_owned(), true);
        }
    }
    (text, false)
}
