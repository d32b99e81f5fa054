//! The texts of a trace's tokens, as they stand in the text that was generated.

use super::format::{Row, Step};
use pawl::Tokenizer;
use std::collections::HashMap;

/// Tokens before a token that are decoded with it: letters of several tokens, and spaces that only stand between words,
/// come out as in the whole text.
const CONTEXT: usize = 8;

/// Gives every token the text that it adds to those before it. A letter of several tokens belongs to the last of them.
pub(super) fn add(steps: &mut [Step], tokenizer: &dyn Tokenizer) {
    let mut texts: HashMap<u64, Vec<u32>> = HashMap::new();
    for row in steps.iter_mut().flat_map(|step| &mut step.rows) {
        let before = texts.entry(row.request).or_default();
        add_to_drafts(row, before, tokenizer);
        for token in &mut row.drawn {
            token.text = added(tokenizer, before, token.id);
            before.push(token.id);
            before.drain(..before.len().saturating_sub(CONTEXT));
        }
    }
}

fn add_to_drafts(row: &mut Row, before: &[u32], tokenizer: &dyn Tokenizer) {
    for node in 0..row.drafted.len() {
        let mut above = Vec::new();
        let parent = |node: usize| row.drafted.get(node).and_then(|draft| draft.parent);
        let mut next = parent(node);
        while let Some(draft) = next.and_then(|at| row.drafted.get(at)) {
            if above.len() == CONTEXT {
                break;
            }
            above.push(draft.token.id);
            next = draft.parent;
        }
        above.extend(before.iter().rev());
        above.truncate(CONTEXT);
        above.reverse();
        if let Some(draft) = row.drafted.get_mut(node) {
            draft.token.text = added(tokenizer, &above, draft.token.id);
        }
    }
}

/// What a token adds to the text of those before it.
fn added(tokenizer: &dyn Tokenizer, before: &[u32], id: u32) -> String {
    let decode = |ids: &[u32]| tokenizer.decode(ids, false).unwrap_or_default();
    // A letter that is not complete is decoded to one that says so.
    let whole = |text: String| text.trim_end_matches('\u{fffd}').to_owned();
    let (shorter, longer) = (
        whole(decode(before)),
        whole(decode(&[before, &[id]].concat())),
    );
    match longer.strip_prefix(shorter.as_str()) {
        Some(text) => text.to_owned(),
        None => decode(&[id]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::Draft;
    use super::super::format::tests::{token, trace};
    use super::*;
    use pawl::TokenizerError;

    /// A token per byte; those over 255 are words, with a space where they do not begin the text.
    #[derive(Debug)]
    struct Bytes;

    impl Tokenizer for Bytes {
        fn encode(&self, text: &str, _: bool) -> Result<Vec<u32>, TokenizerError> {
            Ok(text.bytes().map(u32::from).collect())
        }

        fn decode(&self, ids: &[u32], _: bool) -> Result<String, TokenizerError> {
            let bytes = ids.iter().flat_map(|id| match u8::try_from(*id) {
                Ok(byte) => vec![byte],
                Err(_) => b" word".to_vec(),
            });
            let text = String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned();
            Ok(text.strip_prefix(' ').unwrap_or(&text).to_owned())
        }

        fn token_to_id(&self, _: &str) -> Option<u32> {
            None
        }

        fn id_to_token(&self, _: u32) -> Option<String> {
            None
        }

        fn vocab_size(&self) -> usize {
            300
        }

        fn is_special(&self, _: u32) -> bool {
            false
        }
    }

    fn texts(row: &Row) -> (Vec<&str>, Vec<&str>) {
        let drafted = row.drafted.iter().map(|draft| draft.token.text.as_str());
        let drawn = row.drawn.iter().map(|token| token.text.as_str());
        (drafted.collect(), drawn.collect())
    }

    #[test]
    fn letters_of_several_tokens_are_whole() {
        let text = "né \u{65e5}\u{672c}\u{1f980}.";
        let ids = Bytes.encode(text, false).unwrap();
        let mut steps = trace().steps;
        // Two tokens a step, so that letters begin in one and end in another.
        steps = ids
            .chunks(2)
            .map(|ids| {
                let mut step = steps[0].clone();
                step.rows[0].drafted.clear();
                step.rows[0].drawn = ids.iter().map(|id| token(*id, "")).collect();
                step
            })
            .collect();
        add(&mut steps, &Bytes);
        let rows = steps.iter().flat_map(|step| &step.rows);
        let written: String = rows.flat_map(|row| texts(row).1).collect();
        assert_eq!(written, text);
    }

    #[test]
    fn drafts_go_on_from_those_above_them() {
        let draft = |parent, id| Draft {
            parent,
            token: token(id, ""),
        };
        let mut steps = trace().steps;
        let row = &mut steps[0].rows[0];
        row.drawn = vec![token(256, ""), token(256, "")];
        let mut second = row.clone();
        row.drafted.clear();
        second.drafted = vec![
            draft(None, 0xC3),
            draft(Some(0), 0xA9),
            draft(Some(0), 0xA8),
            draft(None, 256),
            draft(Some(1), 256),
        ];
        steps[0].rows.push(second);
        add(&mut steps, &Bytes);
        assert_eq!(texts(&steps[0].rows[0]).1, ["word", " word"]);
        let drafted = ["", "é", "è", " word", " word"];
        assert_eq!(
            texts(&steps[0].rows[1]),
            (drafted.to_vec(), vec![" word", " word"])
        );
    }
}
