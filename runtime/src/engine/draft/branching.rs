//! Trees of a head's drafts.
//!
//! A node's children are the head's best guesses after the node's own path, so a branch is drafted for the path that it is
//! on. Open nodes are expanded best first, a few per pass. Each of them runs its whole path again, in a table of the head's
//! cache that branches off the request's own after what was read in this step: paths are short, the head is one layer, and
//! no node then depends on what another one wrote.

use super::Drafting;
use super::head::{HeadDrafter, Reading};
use crate::engine::error::EngineError;
use crate::engine::pack::{self, LogitsOf};
use crate::speculate::{Growth, TreeLimits};

/// Nodes of one request that are expanded in one pass, at most: tables that it is given.
pub(in crate::engine) const OPEN: usize = 3;

/// One request whose tree grows.
pub(super) struct Tree {
    /// Row of the step.
    row: usize,
    growth: Growth,
    /// Tables that branch off the request's own.
    tables: usize,
    /// Positions read before those of the tree.
    read: usize,
    /// The head's hidden row behind the root's guesses.
    root: Vec<f32>,
    /// By node of `growth`: the head's hidden row behind the guesses after it. Empty before it was expanded.
    hidden: Vec<Vec<f32>>,
}

/// One node in a pass.
struct Expansion {
    tree: usize,
    node: usize,
    path: Vec<u32>,
    table: usize,
}

impl HeadDrafter {
    /// Grows a tree for each reading that wants branches, and leaves it in the row's proposal.
    pub(super) fn grow(
        &mut self,
        drafting: &mut Drafting<'_, '_, '_>,
        mut trees: Vec<Tree>,
    ) -> Result<(), EngineError> {
        loop {
            let expansions = expansions(&trees);
            if expansions.is_empty() {
                break;
            }
            self.expand(drafting, &mut trees, &expansions)?;
        }
        for tree in trees {
            if let Some(row) = drafting.rows.get_mut(tree.row) {
                row.proposal.tree = tree.growth.finish();
            }
        }
        Ok(())
    }

    /// Starts the tree of one reading from the logits and the hidden row of its last position.
    pub(super) fn plant(
        &self,
        drafting: &mut Drafting<'_, '_, '_>,
        reading: &Reading,
        (logits, hidden): (&[f32], &[f32]),
    ) -> Result<Option<Tree>, EngineError> {
        let tables = drafting.step.head_branches(reading.row);
        for table in 0..tables {
            let copied = drafting.step.branch_head(reading.row, table, reading.count);
            copied.map_err(|error| EngineError::discarded(&error))?;
        }
        let Some(row) = drafting.rows.get(reading.row) else {
            return Ok(None);
        };
        let width = row.choice.width;
        let position = position(row.past + row.kept.get() + 1);
        let Ok(best) = row.sampler.best(logits, position, width, drafting.scratch) else {
            return Ok(None);
        };
        let mut growth = Growth::new(TreeLimits {
            nodes: row.choice.nodes,
            depth: reading.drafts,
            rows: width,
        });
        growth.offer(None, &best);
        Ok(Some(Tree {
            row: reading.row,
            growth,
            tables,
            read: reading.count,
            root: hidden.to_vec(),
            hidden: Vec::new(),
        }))
    }

    /// One pass over open nodes: their children's scores, and the hidden rows behind them.
    fn expand(
        &mut self,
        drafting: &mut Drafting<'_, '_, '_>,
        trees: &mut [Tree],
        expansions: &[Expansion],
    ) -> Result<(), EngineError> {
        pack::clear(&mut self.inputs);
        let (mut tables, mut written) = (Vec::new(), Vec::new());
        for expansion in expansions {
            let Some(tree) = trees.get(expansion.tree) else {
                continue;
            };
            let Some(row) = drafting.rows.get(tree.row) else {
                continue;
            };
            let first = row.past + row.kept.get();
            let path = expansion.path.iter().copied();
            pack::push_row(&mut self.inputs, first, path, LogitsOf::Last(1));
            tree.push_hidden(expansion.node, &mut self.inputs.hidden_states);
            tables.push((tree.row, Some(expansion.table)));
            written.push(tree.read);
        }
        *drafting.passes += 1;
        self.run_in(drafting.step, &tables, &written)?;
        let (vocab, width) = (self.head.vocab(), self.width());
        let ends = self.inputs.cumulative.iter().skip(1);
        let logits = self.outputs.logits.chunks_exact(vocab.max(1));
        for ((expansion, logits), end) in expansions.iter().zip(logits).zip(ends) {
            let Some(tree) = trees.get_mut(expansion.tree) else {
                continue;
            };
            let Some(row) = drafting.rows.get(tree.row) else {
                continue;
            };
            let last = usize::try_from(*end).unwrap_or(0).saturating_sub(1) * width;
            let hidden = self.outputs.hidden.get(last..last + width);
            tree.keep_hidden(expansion.node, hidden.unwrap_or_default());
            let position = position(row.past + row.kept.get() + 1 + expansion.path.len());
            let best = row
                .sampler
                .best(logits, position, row.choice.width, drafting.scratch);
            // Logits that nothing can be drawn from: the path ends there.
            tree.growth
                .offer(Some(expansion.node), &best.unwrap_or_default());
        }
        Ok(())
    }
}

impl Tree {
    /// The hidden rows that go with the tokens of the path to a node: the root's, then those behind its ancestors.
    fn push_hidden(&self, node: usize, inputs: &mut Vec<f32>) {
        inputs.extend_from_slice(&self.root);
        let nodes = self.growth.path_nodes(node);
        let ancestors = nodes.len().saturating_sub(1);
        for ancestor in nodes.into_iter().take(ancestors) {
            inputs.extend_from_slice(self.hidden.get(ancestor).map_or(&[], Vec::as_slice));
        }
    }

    fn keep_hidden(&mut self, node: usize, hidden: &[f32]) {
        if self.hidden.len() <= node {
            self.hidden.resize(node + 1, Vec::new());
        }
        if let Some(kept) = self.hidden.get_mut(node) {
            *kept = hidden.to_vec();
        }
    }
}

/// The best open nodes of every tree, one table each.
fn expansions(trees: &[Tree]) -> Vec<Expansion> {
    let of_tree = |(index, tree): (usize, &Tree)| {
        let open = tree.growth.to_expand(tree.tables);
        let open = open
            .into_iter()
            .enumerate()
            .map(move |(table, node)| Expansion {
                tree: index,
                node: node.index,
                path: tree.growth.path(node.index),
                table,
            });
        open.collect::<Vec<_>>()
    };
    trees.iter().enumerate().flat_map(of_tree).collect()
}

fn position(position: usize) -> u64 {
    u64::try_from(position).unwrap_or(u64::MAX)
}
