//! stub
use super::ngram::propose;
#[derive(Debug, Default)]
pub(crate) struct Suffixes(Vec<u32>);
impl Suffixes {
    pub(crate) fn push(&mut self, t: u32) {
        self.0.push(t);
    }
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * 4
    }
    pub(crate) fn propose(&self, fresh: &[u32], most: usize) -> Vec<u32> {
        let all: Vec<u32> = self.0.iter().chain(fresh).copied().collect();
        propose(&all, most)
    }
}
