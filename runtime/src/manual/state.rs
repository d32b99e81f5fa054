//! State that cannot be lost: what a request keeps between steps, and how a step changes it.
//!
//! A speculative step runs more tokens than it keeps. After it, every piece of state must be exactly where running the
//! kept tokens one by one would have left it, for every request of a ragged batch; and if anything goes wrong before,
//! exactly where it was. This chapter defines the words; the modules `state`, `kv` and `txn` use them.
//!
//! # Definitions
//!
//! * **Row**: one token sequence of a step. It starts from one committed state and runs `n` tokens. An ordinary request
//!   is one row. A *candidate row*, or branch, starts from the same state as its request's own row and does not write a
//!   final state.
//! * **Fixed state**: tensors of constant size per request, whatever the number of tokens: the samples a convolution
//!   looks back on, the matrix of a recurrent layer, the last token ids of a layer that hashes n-grams.
//! * **Slot**: the place of one request in every fixed tensor: `Free`, `Reserved` by an admission, or `Committed`.
//! * **Bank**: one of the two copies of a slot's row. The *active* bank holds the committed state; the *inactive* one is
//!   free for what the operators of the next step write. The **zero row** is read by a request that has no state yet,
//!   and is never written. For a history of ids it is full of the id that stands for what lies before a text.
//! * **Paged cache**: keys and values in blocks. A request's *block table* says which; its *committed length* says how
//!   many positions are valid. What lies beyond is never read, so nothing needs to be rolled back.
//! * **Checkpoint**: what an operator writes beside its state on a step that captures: for each of the first `c` tokens
//!   of a row either the full state after the token (form `state`) or the token's *transition* (form `update`).
//! * **Kept**: how many of a row's tokens stay: the known ones and the accepted drafts. Never zero; to keep nothing is
//!   to drop the step.
//! * **Kept state**: a resident whose request has ended. It is read by nobody and does not grow; it is handed to the request
//!   that continues it, or released.
//! * **Participant**: anything that changes with a step: fixed state, the paged cache and that of a draft head, sources of
//!   drafts and what governs them, and the requests (tokens, text, cursors of stop strings and of a grammar). A sampler has
//!   nothing that changes: its noise is keyed by position. **Step**: one transaction over all participants.
//!
//! # The memory of one fixed tensor
//!
//! `[2 * slots + 1, row...]`, bound to the operator as input and output at once. The operator is told, per row, which
//! row of the tensor to read and which other one to write:
//!
//! ```text
//!            bank 0              bank 1          zero row
//!   +-----+-----+-----+  +-----+-----+-----+    +---------+
//!   |  0  |  1  |  2  |  |  3  |  4  |  5  |    |    6    |     slots = 3
//!   +-----+-----+-----+  +-----+-----+-----+    +---------+
//!      ^                    |                       |
//!      +--- slot 0, bank 1 is active: reads 3,      +--- an admission to slot 1 reads 6,
//!           writes 0                                     writes 1
//! ```
//!
//! # A step, from reservation to publication
//!
//! ```text
//!                 visible to others                      hidden
//!  reserve        admissions' slots are Reserved         blocks for every position the rows may write
//!  run            -                                      inactive rows, checkpoints, positions beyond the lengths
//!  accept         -                                      kept per row
//!  validate       -                                      - (asks everybody, changes nothing)
//!  prepare        -                                      partial rows: checked, and the zero row copied for admissions,
//!                                                        or made beside the old one by graphs
//!  publish        partial rows: the state after `kept`   -
//!                 is owed; other banks flip, tables and
//!                 lengths grow, text and counters move
//!  next run       -                                      operators make what is owed, then read it
//! ```
//!
//! Each phase consumes the one before (`Step<Reserved>` to `Step<Prepared>`), so no other order compiles. Publishing has
//! no way to fail: it computes nothing, and what it leaves to be made reads memory that was checked. Dropping a step
//! in any phase before frees its slots and blocks; nothing else had changed, but that states which were owed may be made.
//!
//! The phases are types of a file of their own, which is all that this example knows:
//!
//! ```
//! # #![allow(dead_code)]
//! # mod phase { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/txn/phase.rs")); }
//! # use phase::*;
//! let prepared = In::<Reserved>::start().accept().validate().prepare();
//! let published: Published = prepared.publish();
//! ```
//!
//! Nothing is published before it is prepared,
//!
//! ```compile_fail,E0599
//! # #![allow(dead_code)]
//! # mod phase { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/txn/phase.rs")); }
//! # use phase::*;
//! let validated = In::<Reserved>::start().accept().validate();
//! let published: Published = validated.publish();
//! ```
//!
//! prepared before everybody has agreed,
//!
//! ```compile_fail,E0599
//! # #![allow(dead_code)]
//! # mod phase { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/txn/phase.rs")); }
//! # use phase::*;
//! let prepared = In::<Reserved>::start().accept().prepare();
//! ```
//!
//! or published twice:
//!
//! ```compile_fail,E0382
//! # #![allow(dead_code)]
//! # mod phase { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/txn/phase.rs")); }
//! # use phase::*;
//! let prepared = In::<Reserved>::start().accept().validate().prepare();
//! let published: Published = prepared.publish();
//! let again: Published = prepared.publish();
//! ```
//!
//! Where the state of a row comes from is decided by one pure function, `select`, the only place that knows alignment:
//!
//! ```text
//!   one row, n = 4 tokens (1 known, 3 drafts), W = 8 slots, 3 captured, 2 kept
//!
//!   tokens             t0   t1   t2   t3
//!                      known, drafts ...
//!   kept               ##   ##   --   --
//!
//!   form state, left   [S0][S1][S2][  ][  ][  ][  ][  ]     slot kept - 1         = 1: copy S1
//!   form state, right  [  ][  ][  ][  ][S0][S1][S2][  ]     slot W - n + kept - 1 = 5: copy S1
//!   form update        [u0][u1][u2][  ][  ][  ][  ][  ]     the state before the step, then u0, u1
//!   all four kept                                           the final state, already in the inactive row
//! ```
//!
//! A step that captures nothing binds no checkpoint outputs, and all its rows keep everything they ran.
//!
//! # Candidate rows
//!
//! A tree of drafts is its request's own row, the *spine*, directly followed in the batch by a row per branch. Every one
//! of them runs the known tokens again and then its own path, at positions by depth:
//!
//! ```text
//!   committed: 6 tokens, blocks of 4            batch                reads   writes   captures   block table
//!                      +-- d1 -- d2 (spine)     t d1 d2              slot    slot     2          A  B  C
//!   A: 0123  B: 45 -- t                         t e1 e2 e3           slot    -1       4          A  B' D
//!                      +-- e1 -- e2 -- e3       t d1 f2              slot    -1       3          A  B" E
//!                      (d1 -- f2)
//! ```
//!
//! * **Fixed state** is shared for nothing: all rows read the active row of the slot. A branch captures all of its tokens,
//!   so it runs at most as many as checkpoints hold; its state is always made from them, also when all are kept.
//! * **Full blocks** are shared and counted, the **block that is filled in part** is copied before the run (`B'`, `B"`), and
//!   what a branch runs goes to blocks of its own. When the committed length is a multiple of the block, nothing is copied.
//! * **Adoption**: `accept` names for every request one row and how many of its tokens are kept. That row's state is made
//!   like that of any partial row, whatever final state the spine wrote. Publishing turns the blocks of a branch that won
//!   into the request's table, gives back the request's former tail, the spine's blocks and those of all other branches, and
//!   allocates nothing: a `Candidate` owns its blocks until it is adopted or discarded, and builds with debug assertions
//!   refuse one that is neither.
//! * **Room**: own rows take their blocks first. The planner grants a branch only rows, tokens and free blocks that
//!   nothing else in the step needs. All of it is given back when the step ends, or is growth of the request itself.
//! * **Branches of a draft head** are drawn while the head runs: their tail is copied during the step, after the kept
//!   tokens were read into the request's own one. They are scratch, and never kept; they get what the cache has left.
//!
//! A row without branches takes none of this, and its step is the same down to the bits.
//!
//! # Who makes the states of partial rows
//!
//! What is done with what `select` names depends on what a slot holds, the *kind* of checkpoint (`state::capture`): a
//! series of states or a history is copied, the values of a convolution are appended, the transitions of Gated DeltaNet
//! are replayed. Who does it depends on where the memory is (`state::commit`):
//!
//! * **operators**, in banks that the host can reach. What makes such a state cannot fail, so publication only notes that it is
//!   *owed* (`FixedBuffers::owed`): which row, and which transitions or which checkpoint. It is made over the one before,
//!   so that the bank stays active, and by the operator that reads it next, in the next step that runs. That operator has
//!   to fetch the memory in any case and has ONNX Runtime's threads awake; on its own the same pass would wait for memory
//!   and leave nothing in the caches. Gated DeltaNet makes each head just before reading it, where one row alone reads
//!   the state. An admission, which has no state of its own yet, is given the zero row's first;
//! * the **host** makes what is owed with the same arithmetic where no operator will: before a fork copies a row, before the next
//!   partial commit of a step that did not run, and for graphs whose state other operators read (`exec::debts` sees by the
//!   `Ledger` of the session which banks Pawl's operators had in the run before). Whoever only looks (an observer, a saved
//!   state) is given a copy with what is owed, and changes nothing;
//! * **commit graphs** elsewhere: one per kind and geometry of state, written by the builder, run once per tensor that
//!   has partial rows, on the device that holds the bank. A graph may fail, so it runs before publication and writes the
//!   inactive row. The bank is bound as input and output at once, all partial rows of the step are committed in one
//!   run, and no other row is touched.
//!
//! What a graph makes is compared with what the host makes of the same transitions when an export is verified, on the CPU.
//!
//! Either way strides come from the capacity of the checkpoint output, never from what is kept, and nothing beyond the
//! kept prefix is read: graphs replace it before any arithmetic, because zero times NaN is NaN.
//!
//! The checkpoints that owed states are made of stay as they are until then: a step that captures writes them anew only
//! after its operators have made those states, or copied the transitions out.
//!
//! # Histories of token ids
//!
//! Layers that embed n-grams look back on the last `N - 1` ids of their own path. That window is a state like the others,
//! int64 or int32, the latest id last, and an operator such as ONNX Runtime's `VarlenNGramHashMapping` reads and writes
//! it: `past_ids` and `present_ids` are the rows of the bank, `state_update` is the checkpoint output, a history per
//! token, so that a partial row copies the one of its last kept token and a branch has the ids of its own path.
//!
//! The ids stay as they came, also where a text ends among them: which of them still count is a function of the window,
//! and the operator's to say (`reset_on_eos`). So there is nothing more to keep, nothing to reset when a draft that ends
//! the text is rejected, and rows that go on behind one are hashed like any other.
//!
//! # Invariants
//!
//! Checked by `state::audit` over a snapshot, between steps and during one: in tests, in builds with debug assertions, and
//! wherever [`EngineOptions::audit`](crate::EngineOptions::audit) or `PAWL_AUDIT` asks for it. An engine that finds one
//! broken fails its requests and stops.
//!
//! * **I1** Slots add up: free, reserved and committed ones are all of them, and no more requests are resident than fit.
//! * **I2** A request owns at most one slot. A free slot keeps nothing of a request, and states are owed only where a slot
//!   has its committed one. The zero row reads zero, or the fresh id of a history.
//! * **I3** Residents, owners of committed slots and owners of block tables are the same requests, also during a step.
//! * **I4** Fixed state, paged cache and the engine's books have committed the same number of tokens. (The cache of a
//!   draft head has its own length.)
//! * **I5** Every block is free, reserved by exactly one row of a live step, or used by as many tables (and live forks and
//!   branches) as it counts. A table has exactly the blocks its committed length needs.
//! * **I6** Committed lengths never fall. Going back is releasing and running again.
//! * **I7** Every publication ran to its end. If one panics against its promise, in a foreign participant, the composite says
//!   so and refuses further steps. If an operator panics in the middle of states that it makes, the
//!   rows of those are lost: the step fails, and so does everything that would read one of them until its slot is released.
//!   No other row is concerned.
//! * **I8** A block that several tables use is full in each of them: no operator writes what another request reads.
//!
//! # Between steps
//!
//! Two operations change residents without a step, and neither moves a token: *release* frees a slot and its blocks, and
//! *transfer* gives a resident to a request that is not one. Both check everything first and cannot fail after that.
//! A *fork* and a *restore* are steps of one row whose run is a copy: they admit a request with the state of another, or with
//! one that was saved, and pass through the same phases. A fork shares the blocks that are full and copies the one that is
//! not, the row of every bank, and the cache of a draft head likewise. A head that is behind its decoder has other blocks
//! filled in part, so a fork that takes no block of the decoder's cache may take one of the head's.
//!
//! Kept states count against slots and the blocks of both caches: a request is admitted, and a state kept, only when all
//! residents at their ceilings fit beside it in either of them (`Limits::unclaimed`). Where a request would fit without kept
//! states, they are released, oldest first. That is done between steps and stands, whatever becomes of the step after it.
//!
//! A request takes its own state over as part of its first step: the transfer is made before the step and undone if the step
//! is discarded, so no state is lost to a request that never ran.
//!
//! # Who may commit
//!
//! Pools are owned by the composite and reachable through a step only. Their committing methods ask for a permit, which
//! the transaction alone can make: for a step from the proof that only the prepared phase gives, and between steps for a
//! release and a transfer. A participant leaves a step by exactly one of two exits, publish or discard. Sources of drafts and
//! what governs them act before the decisions are made, so they are given their exits first and are seated later: what a
//! source has staged, and what was chosen for the next step, is taken back with the step.
//!
//! # Grammars
//!
//! Where a text has come to in its grammar is part of its request's progress, beside the cursors of stop strings and of
//! characters. Deciding a step copies it and takes the copy along the tokens drawn, so that every node of a tree of drafts
//! is masked as decoding one by one would mask it; publishing puts the copy in the place of the original, and discarding
//! drops it. Masks are a function of the grammar and the tokens of the text: nothing is forced, and what copies share is
//! what was found out about the grammar alone. Guesses are cut where the copy forbids them, before the next step is planned.
//!
//! A state keeps no grammar, as it keeps no stop strings and no sampler. A request that continues a fork, or one that was
//! rewound or restored, makes its place again from the tokens of its prompt that the grammar has begun with
//! ([`Grammar::begun_at`](crate::Grammar::begun_at)).
//!
//! # Assumptions
//!
//! * One thread owns the composite; a live step borrows it, so there is never a second one.
//! * Operators write the rows, checkpoints and positions they are told to, and nothing else. A row's result does not
//!   depend on its neighbours, and a token's in a row of up to 16 tokens not on those that run with it, down to the bits
//!   where the platform's matrix products keep to that: what verifies drafts computes what decoding computes.
//! * The host can read and write the tensors, or there is a commit graph for each that captures; a pool is not built
//!   otherwise.
//! * The planner admits a request only when the blocks of all residents at their ceilings fit both caches, so growing
//!   tables does not fail; if it did, the step would not be reserved and nothing would change.
//! * In builds with debug assertions, rows a step must write and checkpoints it may not read are filled with NaN, or -1 for ids.
