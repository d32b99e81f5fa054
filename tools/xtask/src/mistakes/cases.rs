//! Traps that this design does not have, and why.

/// What goes wrong elsewhere, and what rules it out here.
pub(super) const IMPOSSIBLE: &[(&str, &str)] = &[
    (
        "publishing before preparing, preparing before validating",
        "each phase is a type that only the one before can become; \
         `txn::tests::phases::only_a_prepared_step_can_be_published` pins that `publish` exists for one type alone",
    ),
    (
        "publishing a step twice, discarding a published one",
        "a step is consumed by its exit, and a seat leaves by one of two",
    ),
    (
        "two live steps at once, a release during a step",
        "a step borrows the composite",
    ),
    ("keeping no token", "kept counts are `NonZero`"),
    (
        "a free slot that still names a request",
        "`Slot::Free` has no fields",
    ),
    (
        "drafts added after resources are planned",
        "drafts are an input of planning, and rows are packed from the plan",
    ),
    (
        "accepted drafts that go through the prompt's path",
        "there is one path: the cursor plans every drawn token, and its plan is applied by publishing",
    ),
    (
        "a ratio test whose draft and residual noise are shared",
        "there is no ratio test; each position is drawn once, by the target",
    ),
    (
        "masks or step metadata of an earlier step",
        "every step's inputs are written anew from its reservation",
    ),
    (
        "graph warm-up that advances state",
        "operators write inactive rows only, and nothing is committed outside a step",
    ),
    (
        "state read in another element type",
        "buffers know their element type and give no view in another",
    ),
    (
        "staging allocated after the cache was sized",
        "all memory of state is allocated when the engine starts, and the plan counts it",
    ),
    (
        "a second rollback relative to the first",
        "every commit starts from the committed bank; there is no rolling back",
    ),
    (
        "rewinding a wrapped ring, trimming a recurrent state",
        "committed lengths never fall, and no state is trimmed in place",
    ),
    (
        "capture flags that are part of a cached graph",
        "there are no captured graphs",
    ),
];
