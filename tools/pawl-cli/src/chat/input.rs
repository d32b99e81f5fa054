//! Lines from a person or a script.

use crate::error::CliError;
use pawl::Request;
use std::io::{BufRead, IsTerminal, Read, Write};

/// Standard input, line by line.
#[derive(Debug)]
pub(super) struct Input {
    terminal: bool,
    line: String,
}

/// What a line means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// There is no more.
    End,
    /// Nothing to say.
    Empty,
    /// `/name`.
    Command(&'a str),
    /// A message.
    Text(&'a str),
}

impl Input {
    pub(super) fn new() -> Self {
        Self {
            terminal: std::io::stdin().is_terminal(),
            line: String::new(),
        }
    }

    /// Whether a person types.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The next line; a person is shown a prompt.
    pub(super) fn line(&mut self) -> Result<Line<'_>, CliError> {
        if self.terminal {
            let mut output = std::io::stdout().lock();
            write!(output, "> ")?;
            output.flush()?;
        }
        let mut bytes = Vec::new();
        let most = Request::MAX_TEXT_BYTES;
        // One more than the limit, to tell a line of that length from a longer one.
        let mut bounded = std::io::stdin().lock().take(most as u64 + 1);
        let read = bounded.read_until(b'\n', &mut bytes);
        let read = read.map_err(|error| CliError::Usage(format!("standard input: {error}")))?;
        if read > most {
            let message = format!("standard input: a line is longer than {most} bytes");
            return Err(CliError::Usage(message));
        }
        if read == 0 {
            return Ok(Line::End);
        }
        self.line = String::from_utf8(bytes)
            .map_err(|_| CliError::Usage("standard input: a line is not UTF-8".to_owned()))?;
        Ok(meaning(&self.line))
    }
}

fn meaning(line: &str) -> Line<'_> {
    let line = line.trim_end_matches(['\n', '\r']);
    match line.strip_prefix('/') {
        _ if line.trim().is_empty() => Line::Empty,
        Some(text) if text.starts_with('/') => Line::Text(text),
        Some(command) => Line::Command(command.trim_end()),
        None => Line::Text(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_mean_what_they_say() {
        for (line, expected) in [
            ("\n", Line::Empty),
            ("  \r\n", Line::Empty),
            ("/quit \n", Line::Command("quit")),
            ("/\n", Line::Command("")),
            ("//etc/hosts\n", Line::Text("/etc/hosts")),
            (" indented\r\n", Line::Text(" indented")),
            ("no end of line", Line::Text("no end of line")),
        ] {
            assert_eq!(meaning(line), expected, "{line:?}");
        }
    }
}
