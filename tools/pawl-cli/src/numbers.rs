//! Numbers on the command line. What is refused is told with what may stand there.

use std::str::FromStr;

/// Reads a whole number from `least` to what the type holds.
pub(crate) fn whole<T: FromStr>(least: u64) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let large = text.parse().is_ok_and(|number: u64| number >= least);
        let number = text.parse().ok().filter(|_| large);
        number.ok_or_else(|| {
            let largest = match size_of::<T>() {
                4 => u64::from(u32::MAX),
                _ => u64::MAX,
            };
            format!("expected a whole number from {least} to {largest}")
        })
    }
}

/// Reads a number that need not be whole.
pub(crate) fn number(text: &str) -> Result<f32, String> {
    text.parse()
        .map_err(|_| "expected a number, such as 0.8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    #[test]
    fn what_is_out_of_range_is_told_with_the_range() {
        assert_eq!(whole::<u32>(1)("4294967295"), Ok(u32::MAX));
        let one = NonZeroUsize::new(1).unwrap();
        assert_eq!(whole::<NonZeroUsize>(1)("1"), Ok(one));
        for text in ["0", "-1", "4294967296", "1.5", "many", "", "1e3"] {
            let told = whole::<u32>(1)(text).unwrap_err();
            assert_eq!(told, "expected a whole number from 1 to 4294967295");
        }
        let told = whole::<NonZeroUsize>(1)("0").unwrap_err();
        assert_eq!(
            told,
            "expected a whole number from 1 to 18446744073709551615"
        );
    }

    #[test]
    fn numbers_need_not_be_whole() {
        assert_eq!(number("0.5"), Ok(0.5));
        assert!(number("much").unwrap_err().contains("expected a number"));
    }
}
