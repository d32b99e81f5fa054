//! `pawl chat`: a conversation at the terminal, or over a pipe.

mod conversation;
mod input;
mod interrupt;
mod tally;

use crate::error::CliError;
use crate::generate::{SamplingArgs, SpeculationArgs, print_stream};
use crate::load::LoadArgs;
use crate::numbers::whole;
use conversation::Conversation;
use genai_config_schema::printable;
use input::{Input, Line};
use interrupt::Interrupts;
use pawl::{
    ChatTemplate, Completion, Engine, FinishReason, GenerateError, Kept, Request, RequestHandle,
    SamplingParams, Tokenizer,
};
use std::io::Write;
use std::path::PathBuf;
use tally::Tally;

const HELP: &str = "\
/reset  forget the conversation
/stats  show what it took so far
/help   show this
/quit   leave (also Ctrl-D)
//text  say /text
Ctrl-C  end the answer; at the prompt, twice: leave";

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The model folder, as build-model writes it; it must have a chat template.
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// A system message to begin with.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Most tokens of one answer.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1024,
        value_parser = whole::<u64>(1),
        allow_negative_numbers = true
    )]
    max_new_tokens: u64,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    speculation: SpeculationArgs,
    #[command(flatten)]
    load: LoadArgs,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let template = ChatTemplate::load(&args.model)?;
    let options = args.speculation.options()?;
    let engine = Engine::new(args.load.load(&args.model)?, &options)?;
    for warning in engine.warnings() {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    let tokenizer = engine.tokenizer().ok_or_else(|| {
        CliError::file(&args.model, "there is no tokenizer.json, so it cannot chat")
    })?;
    let mut input = Input::new();
    let mut chat = Chat {
        engine: &engine,
        tokenizer,
        conversation: Conversation::new(template, args.system.clone()),
        params: args.sampling.params(engine.default_sampling()),
        max_new_tokens: args.max_new_tokens,
        interrupts: Interrupts::install(input.is_terminal())?,
        tally: Tally::default(),
    };
    chat.run(&mut input)
}

struct Chat<'a> {
    engine: &'a Engine,
    tokenizer: &'a dyn Tokenizer,
    conversation: Conversation,
    params: SamplingParams,
    max_new_tokens: u64,
    interrupts: Interrupts,
    tally: Tally,
}

impl Chat<'_> {
    /// Takes lines until the end. A person is told of a turn that fails and can go on; a script stops there.
    fn run(&mut self, input: &mut Input) -> Result<(), CliError> {
        if input.is_terminal() {
            let _ = writeln!(std::io::stderr(), "/help lists the commands");
        }
        loop {
            self.interrupts.waiting();
            let line = input.line()?;
            self.interrupts.typed();
            let done = match line {
                Line::End | Line::Command("quit") => return Ok(()),
                Line::Empty => Ok(()),
                Line::Command(name) => self.command(name),
                Line::Text(text) => self.turn(text.to_owned()),
            };
            match done {
                Err(error) if input.is_terminal() && !matches!(error, CliError::Output(_)) => {
                    let told = error.to_string();
                    let _ = writeln!(std::io::stderr(), "error: {}", printable(&told));
                }
                done => done?,
            }
        }
    }

    fn command(&mut self, name: &str) -> Result<(), CliError> {
        let mut output = std::io::stdout().lock();
        match name {
            "help" => writeln!(output, "{HELP}")?,
            "stats" => self.tally.print(&mut output, self.engine)?,
            "reset" => {
                self.conversation.reset();
                self.tally = Tally::default();
            }
            other => {
                let message = format!("/{other} is no command; /help lists them");
                return Err(CliError::Usage(message));
            }
        }
        Ok(())
    }

    /// One message and its answer. The conversation stays as it was if there is none.
    fn turn(&mut self, text: String) -> Result<(), CliError> {
        let prompt = self.conversation.prompt(self.tokenizer, &text)?;
        let read = match prompt.lasting() {
            Some(lasting) => {
                let request = self.request(lasting, prompt.state()).max_new_tokens(0);
                Some(self.ask(request, |handle| Ok(handle.wait()))?)
            }
            None => None,
        };
        if let Some(read) = read
            .as_ref()
            .filter(|r| r.reason == FinishReason::Cancelled)
        {
            return self.tally.add_cancelled(read, self.engine);
        }
        let lasting = read.as_ref().and_then(|read| read.kept.clone());
        // Without room for a second state the first one goes on.
        let state = match &lasting {
            Some(kept) => kept.fork().ok().or(lasting.clone()),
            None => prompt.state(),
        };
        let request = self.request(prompt.ids(), state);
        let mut answer = self.ask(request, print_stream)?;
        writeln!(std::io::stdout().lock())?;
        if let Some(read) = read {
            answer.usage.reused_tokens = read.usage.reused_tokens;
            answer.usage.reuse = read.usage.reuse;
            answer.stats.prefill_seconds += read.stats.prefill_seconds;
        }
        self.tally.add(&answer, self.engine)?;
        self.conversation.add(prompt, text, answer.into(), lasting);
        Ok(())
    }

    fn request(&self, ids: &[u32], state: Option<Kept>) -> Request {
        Request::from_ids(ids)
            .sampling(self.params.clone())
            .max_new_tokens(self.max_new_tokens)
            .keep_state(true)
            .continue_from(state)
    }

    /// Runs a request that Ctrl-C ends.
    fn ask(
        &self,
        request: Request,
        wait: impl FnOnce(RequestHandle) -> Result<Result<Completion, GenerateError>, CliError>,
    ) -> Result<Completion, CliError> {
        let index = self.conversation.turns();
        let handle = self.engine.submit(request);
        let handle = handle.map_err(|source| CliError::Prompt { index, source })?;
        self.interrupts.answering(handle.canceller());
        let ended = wait(handle);
        self.interrupts.answered();
        ended?.map_err(|source| CliError::Generate { index, source })
    }
}
