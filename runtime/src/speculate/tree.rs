//! stub
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftTree(Vec<DraftNode>);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftNode {
    pub parent: Option<usize>,
    pub token: u32,
}
impl DraftTree {
    pub fn chain(tokens: impl IntoIterator<Item = u32>) -> Self {
        let mut t = Self::default();
        t.extend_tail(tokens);
        t
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn nodes(&self) -> &[DraftNode] {
        &self.0
    }
    pub(crate) fn spine(&self) -> Vec<u32> {
        self.0.iter().map(|n| n.token).collect()
    }
    pub(crate) fn extend_tail(&mut self, tokens: impl IntoIterator<Item = u32>) {
        for token in tokens {
            let parent = self.0.len().checked_sub(1);
            self.0.push(DraftNode { parent, token });
        }
    }
    pub(crate) fn keep(&mut self, ok: impl Fn(u32) -> bool) {
        let n = self.0.iter().take_while(|n| ok(n.token)).count();
        self.0.truncate(n);
    }
    pub(crate) fn cut(&mut self, depth: usize, nodes: usize) {
        self.0.truncate(depth.min(nodes));
    }
}
