//! Doors for fuzzing. Not part of the interface.

/// Plays the script of admissions, steps, drafts, discards, releases and transfers that `bytes` stand for on real pools,
/// and compares with token-by-token state and with the invariants after each turn. Panics where they disagree.
pub fn step_script(bytes: &[u8]) {
    crate::txn::play(bytes);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn step_script() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let inputs = std::fs::read_dir(root.join("../tests/fuzz/corpus/step_script")).unwrap();
        let count = inputs
            .map(|input| super::step_script(&std::fs::read(input.unwrap().path()).unwrap()))
            .count();
        assert!(count >= 8, "{count} inputs");
    }
}
