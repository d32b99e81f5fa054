//! Mistakes of texts that are held to a grammar.

use super::{Mistake, unit};

const CURSOR: &str = "runtime/src/grammar/cursor.rs";
const MASKS: &str = "engine::tests::grammar::the_mask_is_that_of_decoding_one_by_one";

/// Where a text is in its grammar, and what follows from that.
pub(super) const GRAMMARS: &[Mistake] = &[
    Mistake {
        name: "one-mask-for-all-drafts",
        file: "runtime/src/engine/accept.rs",
        text: "let grammar = advance.grammar.as_deref_mut();",
        replacement: "let mut grammar = active.cursor.plan().grammar;
        let grammar = grammar.as_deref_mut();",
        test: unit(MASKS),
    },
    Mistake {
        name: "grammar-not-published",
        file: "runtime/src/request/cursor.rs",
        text: "        self.grammar = advance.grammar;
",
        replacement: "",
        test: unit(MASKS),
    },
    Mistake {
        name: "grammar-behind-a-refused-token",
        file: "runtime/src/request/cursor.rs",
        text: "if extended.is_err() && advance.grammar.is_some() {",
        replacement: "if extended.is_err() && advance.grammar.is_none() {",
        test: unit("request::tests::a_token_that_the_grammar_forbids_leaves_the_plan_as_it_was"),
    },
    Mistake {
        name: "forbidden-drafts-run",
        file: "runtime/src/engine/draft/sources.rs",
        text: "        tree.end_early(|path| row.legal(path));
",
        replacement: "",
        test: unit("engine::tests::grammar::a_chain_is_cut_where_the_grammar_forbids_it"),
    },
    Mistake {
        name: "head-given-up-for-what-a-grammar-forbids",
        file: "runtime/src/engine/draft/sources.rs",
        text: "let drawn = drafted || told.round.forbidden > 0;",
        replacement: "let drawn = drafted;",
        test: unit("engine::tests::grammar::a_head_is_not_given_up_for_what_a_grammar_forbids"),
    },
    Mistake {
        name: "end-tokens-anywhere",
        file: CURSOR,
        text: "allowed.set(*end as usize, may_end);",
        replacement: "allowed.set(*end as usize, true);",
        test: unit(
            "engine::tests::grammar::the_end_comes_where_the_grammar_lets_it_whatever_is_drafted",
        ),
    },
    Mistake {
        name: "complete-text-goes-on",
        file: CURSOR,
        text: "self.complete = self.matcher.is_stopped();",
        replacement: "self.complete = false;",
        test: unit("engine::tests::grammar::a_complete_text_ends_the_request"),
    },
    Mistake {
        name: "begun-text-not-followed",
        file: "runtime/src/grammar/vocabulary.rs",
        text: "        cursor.accept(id).map_err(|_| refused)?;
",
        replacement: "",
        test: unit("engine::tests::grammar::what_was_begun_goes_on"),
    },
];
