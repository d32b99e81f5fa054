//! What a conversation took.

use crate::error::CliError;
use crate::generate::describe;
use genai_config_schema::counted;
use pawl::{Completion, Engine, Reuse, SpeculationStats};
use std::io::Write;

/// Sums over the turns of a conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    turns: u64,
    prompt_tokens: u64,
    reused_tokens: u64,
    generated_tokens: u64,
    seconds: f64,
    speculation: SpeculationStats,
}

impl Tally {
    /// Counts a message that was cancelled before its answer began: no turn of the conversation.
    pub(super) fn add_cancelled(
        &mut self,
        read: &Completion,
        engine: &Engine,
    ) -> Result<(), CliError> {
        self.add(read, engine)?;
        self.turns -= 1;
        Ok(())
    }

    /// Counts an answer and prints its statistics, beside the answer: it may go to a file.
    pub(super) fn add(&mut self, answer: &Completion, engine: &Engine) -> Result<(), CliError> {
        let (usage, stats) = (&answer.usage, &answer.stats);
        self.turns += 1;
        self.prompt_tokens += usage.prompt_tokens;
        self.reused_tokens += usage.reused_tokens;
        self.generated_tokens += usage.generated_tokens;
        self.seconds += stats.prefill_seconds + stats.decode_seconds;
        self.speculation.merge(&stats.speculation);
        let reuse = if matches!(usage.reuse, Reuse::NotAsked | Reuse::Continued) {
            String::new()
        } else {
            format!(": {}", usage.reuse)
        };
        let _ = writeln!(
            std::io::stderr(),
            "[{} ({} reused{reuse}) + {} generated, {}; prefill {:.3} s, decode {:.3} s, {:.1} tokens/s; \
             speculation {}]",
            counted(usage.prompt_tokens, "prompt token"),
            usage.reused_tokens,
            usage.generated_tokens,
            answer.reason,
            stats.prefill_seconds,
            stats.decode_seconds,
            stats.decode_tokens_per_second,
            describe(engine.speculation(), &stats.speculation),
        );
        Ok(())
    }

    /// The sums.
    pub(super) fn print(&self, output: &mut impl Write, engine: &Engine) -> Result<(), CliError> {
        writeln!(
            output,
            "{}, {} ({} reused) + {} generated in {:.3} s; {} kept, {} evicted; speculation {}",
            counted(self.turns, "turn"),
            counted(self.prompt_tokens, "prompt token"),
            self.reused_tokens,
            self.generated_tokens,
            self.seconds,
            counted(engine.kept_states().held, "state"),
            engine.kept_states().evicted,
            describe(engine.speculation(), &self.speculation),
        )?;
        Ok(())
    }
}
