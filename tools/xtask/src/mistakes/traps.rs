//! What engines that keep or roll back state have fallen into, and what keeps this one out: mistakes that a test catches, or a
//! design in which there is no such thing.

/// What keeps a trap shut.
#[derive(Clone, Copy, Debug)]
pub(super) enum Guard {
    /// Tests catch these mistakes.
    Caught(&'static [&'static str]),
    /// It cannot be written here, and why.
    Impossible(&'static str),
}

use Guard::{Caught, Impossible};

/// Every trap.
pub(super) fn all() -> impl Iterator<Item = &'static (&'static str, Guard)> {
    let families = [INDEX, UNWRITTEN, HALF, SILENT, LATE, IDENTITY];
    families.into_iter().flatten()
}

/// A wrong slot, row or position.
const INDEX: &[(&str, Guard)] = &[
    (
        "a series read with the other alignment",
        Caught(&["alignment-swapped", "alignment-declared-wrong"]),
    ),
    (
        "a slot computed from the window, the batch's longest row or what was captured, not from the row's own tokens",
        Caught(&["window-without-its-length", "captured-states-one-late"]),
    ),
    (
        "one transition too many or too few",
        Caught(&[
            "one-transition-too-many",
            "one-transition-too-few",
            "captured-samples-one-early",
            "captured-history-one-early",
        ]),
    ),
    (
        "a count clamped to the history of a convolution, then used for the recurrence",
        Caught(&["recurrence-clamped-to-the-history"]),
    ),
    (
        "strides from what is kept or committed instead of what is allocated",
        Caught(&["stride-from-the-kept-count", "graph-given-other-strides"]),
    ),
    (
        "a strided index read with unit stride, so that every row hits row 0",
        Caught(&[
            "every-row-reads-row-zero",
            "head-reads-hidden-rows-of-row-zero",
        ]),
    ),
    (
        "0 as the default of an index that is not there, such as that of a request that was withdrawn",
        Caught(&["row-outside-becomes-row-zero"]),
    ),
    (
        "an accepted count that underflows, or exceeds what was run",
        Caught(&["known-tokens-dropped", "more-tokens-than-slots"]),
    ),
    ("keeping no token", Impossible("kept counts are `NonZero`")),
    (
        "randomness that depends on the schedule",
        Caught(&[
            "every-position-draws-alike",
            "position-off-by-one",
            "head-draws-for-another-position",
        ]),
    ),
    (
        "a ratio test whose draft and residual noise are shared",
        Impossible("there is no ratio test; each position is drawn once, by the target"),
    ),
    (
        "rows sorted by slot while budgets and events are in another order",
        Impossible("rows are never sorted: operators are given a list of bank rows"),
    ),
    (
        "per-token tensors of a mixed batch gathered by different maps",
        Impossible("operators take packed tokens and one list of row ends; nothing is gathered"),
    ),
    (
        "snapshots spaced in other units than requests count in",
        Impossible("lengths are tokens everywhere"),
    ),
    (
        "transitions replayed in another order, or with one decay for all keys",
        Caught(&[
            "transitions-in-the-other-order",
            "one-decay-for-all-keys",
            "graph-decays-by-its-own-token",
        ]),
    ),
    (
        "results that differ where a chunk or a vector ends, or where a chunk is filled in part and carries state in",
        Caught(&[
            "short-rows-scored-together",
            "columns-beyond-whole-vectors-left-out",
            "vectors-beyond-whole-groups-left-out",
        ]),
    ),
    (
        "an accepted count that is read before what computes it is done",
        Impossible(
            "a run has ended before its logits are looked at, and counts are values on the host",
        ),
    ),
    (
        "one length for all rows of a batch, whatever each row rejects",
        Caught(&["one-length-for-all-rows"]),
    ),
    (
        "a state kept where a chunk ends and its cache does not",
        Caught(&["less-than-the-state-forked", "i4-cache-keeps-drafts"]),
    ),
    (
        "several tokens at once that start from nothing instead of the state",
        Caught(&["several-tokens-start-afresh"]),
    ),
];

/// Entries that nobody wrote.
const UNWRITTEN: &[(&str, Guard)] = &[
    (
        "a step with prompts in which the operators capture nothing, committed all the same",
        Caught(&["drafts-beside-prompts-uncaptured", "uncaptured-slot-read"]),
    ),
    (
        "a step without drafts after one that kept many reads the first column, not the last, or leaves an index behind",
        Caught(&["no-drafts-after-many-kept", "banks-not-flipped"]),
    ),
    (
        "a final state or a slot that no operator wrote, and that holds what memory held",
        Caught(&["final-state-that-nobody-wrote", "nothing-poisoned"]),
    ),
    (
        "what was not captured is masked after the arithmetic, where zero times NaN is NaN",
        Caught(&["graph-computes-with-what-is-not-kept"]),
    ),
    (
        "padding rows taken for rows",
        Impossible("there are no padding rows"),
    ),
    (
        "masks, metadata of padding, or inputs for one step only, used by a later one",
        Impossible("every step's inputs are written anew from its reservation"),
    ),
    (
        "state read in another element type",
        Impossible("buffers know their element type and give no view in another"),
    ),
    (
        "a negative or oversized window",
        Impossible("windows are unsigned, and read into 0 to 8 or refused"),
    ),
    (
        "a piece of work that no thread does",
        Caught(&["last-part-not-made"]),
    ),
    (
        "a tail that is stale, or was not copied to where it is read",
        Caught(&["tail-not-copied", "tail-of-a-later-position-copied"]),
    ),
];

/// Only a part of what belongs together moves.
const HALF: &[(&str, Guard)] = &[
    (
        "the state goes back, the token count does not",
        Caught(&[
            "kept-ignored-by-the-token-count",
            "i4-cache-keeps-drafts",
            "cache-not-cut-to-kept",
        ]),
    ),
    (
        "the recurrence is kept, the convolution is not, or the other way round",
        Caught(&[
            "convolution-skipped",
            "recurrence-skipped",
            "conv-skipped-on-real-graphs",
            "fork-without-the-first-tensor",
        ]),
    ),
    (
        "the target's cache without the head's, or a draft context of which no copy is made",
        Caught(&[
            "i3-head-not-released",
            "head-keeps-one-too-many",
            "head-forgets-one",
            "head-not-forked",
        ]),
    ),
    ("state without cache", Caught(&["state-published-alone"])),
    (
        "a release that fails half way",
        Caught(&["released-in-part"]),
    ),
    (
        "fallible work between preparing and publishing, such as assertions in logging or inputs of the next step; statistics or text before publishing",
        Caught(&[
            "told-before-it-is-published",
            "i7-half-a-publication-unnoticed",
            "torn-step-after-step",
        ]),
    ),
    (
        "publishing before preparing, preparing before validating",
        Impossible(
            "each phase is a type that only the one before can become, and the permit to commit comes from the last; \
             examples that must not compile are in `manual::state`",
        ),
    ),
    (
        "publishing a step twice, discarding a published one",
        Impossible("a step is consumed by its exit, and a seat leaves by one of two"),
    ),
    (
        "a mask of another place than that of the draw, or of a text with drafts that were not kept",
        Caught(&["one-mask-for-all-drafts", "grammar-not-published"]),
    ),
    (
        "a place in a grammar that a discarded step has moved",
        Impossible(
            "a step decides over shared references; it moves a copy, which only publishing puts in the other's place",
        ),
    ),
    (
        "an end token in a draft taken for an end where the grammar does not let the text end",
        Caught(&["end-tokens-anywhere", "forbidden-drafts-run"]),
    ),
    (
        "text after an end token inside accepted drafts",
        Caught(&["text-goes-on-after-the-end"]),
    ),
    (
        "accepted drafts that go through the prompt's path, which forgets that an end was seen",
        Impossible(
            "there is one path: the cursor plans every drawn token, and its plan is applied by publishing",
        ),
    ),
    (
        "an end token that was drawn and is missing from what is continued",
        Caught(&["end-token-not-retained"]),
    ),
];

/// What did nothing says that it worked.
const SILENT: &[(&str, Guard)] = &[
    (
        "a rollback or a backup that says it worked and did nothing",
        Caught(&[
            "kept-ignored-by-state",
            "rejected-drafts-kept",
            "rejected-drafts-kept-on-real-graphs",
        ]),
    ),
    (
        "a prefix decided twice",
        Caught(&["decided-twice", "cache-length-decided-twice"]),
    ),
    (
        "a second rollback relative to the first",
        Impossible("every commit starts from the committed bank; there is no rolling back"),
    ),
    (
        "rewinding a wrapped ring, trimming a recurrent state",
        Impossible("committed lengths never fall, and no state is trimmed in place"),
    ),
    (
        "drafts accepted without being verified, or counted without being seen",
        Caught(&["drafts-accepted-unseen", "unverified-drafts-counted"]),
    ),
    (
        "a state that could not be made passes for one that was",
        Caught(&[
            "memory-that-does-not-fit-passes",
            "lost-states-taken-for-made",
            "lost-states-run-on",
            "dropped-but-not-discarded",
        ]),
    ),
    (
        "a contradiction that is found and ignored",
        Caught(&["contradictions-ignored"]),
    ),
    (
        "a test double that hides what real graphs do, such as a hidden output that is not bound",
        Caught(&[
            "graph-is-not-run-to-verify-it",
            "prompts-hide-drafts",
            "head-wired-one-way-only",
        ]),
    ),
    (
        "numbers that are cut to integers",
        Impossible("settings are typed integers, and the parser refuses a fraction"),
    ),
    (
        "a drafter, such as one of n-grams, whose steps do not commit state",
        Impossible(
            "a step is given drafts, not who made them: all are verified and committed on one path",
        ),
    ),
];

/// Resources or drafts decided too late.
const LATE: &[(&str, Guard)] = &[
    (
        "drafts added after resources are planned",
        Impossible("drafts are an input of planning, and rows are packed from the plan"),
    ),
    (
        "a request that grows beyond its limit, if only by the token that its prompt gives",
        Caught(&[
            "drafts-beyond-the-end",
            "drafts-beyond-capture",
            "one-token-beyond-the-limit",
        ]),
    ),
    (
        "staging allocated after the cache was sized, more snapshots than memory",
        Impossible(
            "all memory of state is allocated when the engine starts, and the plan counts it",
        ),
    ),
    (
        "admission beyond the places there are",
        Caught(&["i1-more-residents-than-places"]),
    ),
    (
        "graph warm-up that advances state",
        Impossible("operators write inactive rows only, and nothing is committed outside a step"),
    ),
    (
        "nothing left to run when a state covers the whole prompt",
        Caught(&["state-of-the-whole-prompt-continued"]),
    ),
    (
        "a shorter state that can be continued gives way to a longer one that cannot",
        Caught(&["unusable-state-preferred"]),
    ),
    (
        "a state evicted because another is kept",
        Impossible(
            "keeping evicts nothing: a state goes only for a request that waits for its room, and one that a waiting \
             request continues goes last",
        ),
    ),
    (
        "the states of all drafts made before it is known which are accepted",
        Impossible(
            "exports capture transitions unless told otherwise, and only those that are kept are replayed; slots of whole \
             states are for graphs that declare them, and the plan counts them",
        ),
    ),
    (
        "a copy of all logits for every draft",
        Impossible(
            "the logits of a step are one tensor on the host, and tokens are drawn from it in place",
        ),
    ),
];

/// Slots, handles and metadata that outlive what they were for.
const IDENTITY: &[(&str, Guard)] = &[
    (
        "a slot given to a request with the state, the counters or the index of another",
        Caught(&[
            "slot-reused-with-its-state",
            "i2-slot-not-freed",
            "zero-row-overwritten",
        ]),
    ),
    (
        "a handle of an earlier owner or another pool",
        Caught(&[
            "stale-handle-accepted",
            "foreign-handle-accepted",
            "generation-not-raised",
            "slot-released-twice",
        ]),
    ),
    (
        "a slot that has moved on since it was reserved",
        Caught(&["changed-slot-committed"]),
    ),
    (
        "final state aliased to initial state",
        Caught(&[
            "made-over-the-final-state",
            "graph-told-to-read-what-it-writes",
            "graph-reads-the-wrong-rows",
        ]),
    ),
    (
        "a neighbour's row written",
        Caught(&["graph-writes-into-neighbours", "i8-half-a-block-shared"]),
    ),
    (
        "blocks that nobody owns, or two do",
        Caught(&[
            "surplus-blocks-lost",
            "surplus-blocks-kept",
            "i5-released-blocks-lost",
            "shared-block-freed",
        ]),
    ),
    (
        "a free slot that still names a request",
        Impossible("`Slot::Free` has no fields"),
    ),
    (
        "two live steps at once, a release during a step",
        Impossible("a step borrows the composite"),
    ),
    (
        "replay lengths and capture flags that a cached graph does not know; an arena that captured graphs share with others",
        Impossible(
            "there are no captured graphs, and state lies in buffers of its own, in no arena",
        ),
    ),
    (
        "tokens that do not exist",
        Caught(&["drafts-that-do-not-exist"]),
    ),
    (
        "devices on which memory cannot be viewed from an offset",
        Impossible(
            "operators are given whole banks and the numbers of rows; no view of state begins inside a buffer",
        ),
    ),
    (
        "attributes of a kernel that threads race to read",
        Impossible(
            "attributes are read when a kernel is made and never again, and an engine runs one step at a time",
        ),
    ),
];
