//! What a misspelt word may have been.

/// Longest word that is compared.
const MAX_WORD: usize = 64;

/// ` (did you mean ...?)` when one of `known` is close to `word`, else nothing.
pub(crate) fn did_you_mean<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> String {
    if word.len() > MAX_WORD {
        return String::new();
    }
    known
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map_or_else(String::new, |(_, best)| {
            format!(" (did you mean `{best}`?)")
        })
}
