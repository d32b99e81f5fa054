//! What a template may not hold, since the engine would compute it while it reads the template, outside of all bounds.
//!
//! The parser computes what is constant, and a list times a number is: `[1] * 100000000 ~ ''` is a text of 300 MB before
//! anything is rendered. No chat template multiplies lists.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// Words that stand between values, not for one.
const OPERATORS: [&str; 7] = ["and", "else", "if", "in", "is", "not", "or"];

/// Refuses a template that multiplies a literal list or tuple; says in which line.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "no other token is of interest"
)]
pub(super) fn screen(source: &str, syntax: SyntaxConfig) -> Result<(), String> {
    let mut open: Vec<Group> = Vec::new();
    let mut last = Last::Other;
    // A source that cannot be split into tokens is told of by the parser.
    let tokens = tokenize(source, false, syntax).map_while(Result::ok);
    for (token, span) in tokens {
        let refused = || format!("line {}: a list is multiplied", span.start_line);
        let next = match token {
            Token::BracketOpen | Token::ParenOpen => {
                let literal = matches!(token, Token::BracketOpen) && !last.is_value();
                if literal && last == Last::Times {
                    return Err(refused());
                }
                open.push(Group {
                    literal,
                    call: last.is_value(),
                    times: last == Last::Times,
                });
                Last::Other
            }
            Token::BracketClose | Token::ParenClose => match open.pop() {
                Some(group) if group.literal && !group.call => {
                    if group.times {
                        return Err(refused());
                    }
                    // Parentheses around a list are one, too.
                    if let Some(outer) = open.last_mut() {
                        outer.literal |= !outer.call;
                    }
                    Last::List
                }
                _ => Last::Value,
            },
            Token::Comma => {
                if let Some(group) = open.last_mut() {
                    group.literal |= !group.call;
                }
                Last::Other
            }
            Token::Mul if last == Last::List => return Err(refused()),
            Token::Mul => Last::Times,
            Token::Ident(word) if OPERATORS.contains(&word) => Last::Other,
            Token::Ident(_) | Token::Str(_) | Token::String(_) => Last::Value,
            Token::BraceClose => Last::Value,
            _ => Last::Other,
        };
        last = next;
    }
    Ok(())
}

/// What stands between brackets or parentheses.
struct Group {
    /// Whether it is a list or tuple, as far as it has been seen.
    literal: bool,
    /// Whether it follows a value: the arguments of a call, or an index.
    call: bool,
    /// Whether it follows `*`.
    times: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    List,
    Value,
    Times,
    Other,
}

impl Last {
    fn is_value(self) -> bool {
        matches!(self, Self::List | Self::Value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_and_tuples_are_not_multiplied() {
        for refused in [
            "{{ [1] * 5 }}",
            "{{ 5 * [1] }}",
            "{{ ([1]) * 5 }}",
            "{{ 5 * ([1]) }}",
            "{{ (1, 2) * 5 }}",
            "{% set x = [[1] * 2] %}",
            "{{ f([1] * 2) }}",
            "a\n{{ 1 if x else [1, 2]*9 }}",
        ] {
            let message = screen(refused, SyntaxConfig::default()).unwrap_err();
            assert!(message.contains("a list is multiplied"), "{refused}");
        }
        for taken in [
            "{{ x[0] * 5 }}",
            "{{ f(1, 2) * 5 }}",
            "{{ (1 + 2) * 5 }}",
            "{{ 'a' * 20 }}",
            "{{ 3 * (loop.index0 + 1) }}",
            "{{ [1, 2 * 3] }}",
            "{{ f([1], 2 * 3) * 2 }}",
            "{{ ns.a['b'][0] * 2 }}",
            "a * [b] * (c, d)",
        ] {
            assert_eq!(screen(taken, SyntaxConfig::default()), Ok(()), "{taken}");
        }
    }
}
