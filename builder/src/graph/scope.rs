//! Names of nodes and initializers, from the part of the model they belong to.

/// The path of scopes that is open while a graph is built.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    parts: Vec<String>,
}

impl Scope {
    pub(super) fn push(&mut self, part: &str) {
        self.parts.push(part.to_owned());
    }

    pub(super) fn pop(&mut self) {
        self.parts.pop();
    }

    /// `/layers.3/attention/qkv`.
    pub(super) fn node(&self, name: &str) -> String {
        let mut path = String::new();
        for part in self.parts.iter().map(String::as_str).chain([name]) {
            path.push('/');
            path.push_str(part);
        }
        path
    }

    /// `layers.3.attention.qkv`.
    pub(super) fn initializer(&self, name: &str) -> String {
        let parts: Vec<&str> = self
            .parts
            .iter()
            .map(String::as_str)
            .chain([name])
            .collect();
        parts.join(".")
    }
}
