//! `pawl generate`.

use crate::error::CliError;
use crate::grammar::{GrammarArgs, held_to};
use crate::load::LoadArgs;
use crate::numbers::{number, whole};
use crate::output::Target;
use crate::prompts::PromptArgs;
use crate::trace::Recorder;
use genai_config_schema::counted;
use pawl::{
    Completion, DraftPolicy, EffectiveSpeculation, Engine, EngineOptions, Request, RequestHandle,
    SamplingParams, Speculation, SpeculationStats,
};
use serde_json::json;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The model folder, as build-model writes it.
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    #[command(flatten)]
    prompts: PromptArgs,
    /// Puts each text into the model's chat template, as the user's message.
    #[arg(long)]
    chat: bool,
    /// Most tokens to generate per prompt.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 128,
        value_parser = whole::<u64>(1),
        allow_negative_numbers = true
    )]
    max_new_tokens: u64,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Stops before this text. May be given several times.
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Goes on after end tokens.
    #[arg(long)]
    ignore_eos: bool,
    #[command(flatten)]
    grammar: GrammarArgs,
    #[command(flatten)]
    speculation: SpeculationArgs,
    #[command(flatten)]
    load: LoadArgs,
    /// Prints one JSON object per prompt.
    #[arg(long)]
    json: bool,
    /// Writes what each step drafted, kept and took to a JSON file, for `pawl trace`.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Greedy unless one of these is given; the others then come from the model's `search` section.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling (greedy unless one of these is given)")]
pub(crate) struct SamplingArgs {
    /// Divides the logits; 0 is greedy.
    #[arg(long, value_name = "T", value_parser = number, allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Keeps the K most probable tokens; 0 keeps all.
    #[arg(long, value_name = "K", value_parser = whole::<u32>(0), allow_negative_numbers = true)]
    top_k: Option<u32>,
    /// Keeps the most probable tokens up to this total probability.
    #[arg(long, value_name = "P", value_parser = number, allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Keeps tokens at least this times as probable as the most probable one.
    #[arg(long, value_name = "P", value_parser = number, allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Makes sampling repeatable.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0), allow_negative_numbers = true)]
    seed: Option<u64>,
}

impl SamplingArgs {
    /// The parameters, for a model with these defaults.
    pub(crate) fn params(&self, defaults: &SamplingParams) -> SamplingParams {
        let Self {
            temperature,
            top_k,
            top_p,
            min_p,
            seed,
        } = *self;
        let filters = top_k.is_some() || top_p.is_some() || min_p.is_some();
        if temperature.is_none() && !filters && seed.is_none() {
            return SamplingParams::greedy();
        }
        let mut params = defaults.clone();
        if let Some(temperature) = temperature {
            params = params.temperature(temperature);
            params.do_sample = None;
        } else if params.is_greedy() {
            params = SamplingParams::sampled(1.0);
        }
        params.top_k = top_k.unwrap_or(params.top_k);
        params.top_p = top_p.unwrap_or(params.top_p);
        params.min_p = min_p.unwrap_or(params.min_p);
        params.seed = seed;
        params
    }
}

/// How drafts are made. They change the speed, never the text.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct SpeculationArgs {
    /// Where drafts come from: off, ngram, mtp, tree or auto. By default `PAWL_SPECULATION`, else the model's head where it
    /// has one, else ngram.
    #[arg(long, value_name = "MODE")]
    speculation: Option<Speculation>,
    /// Drafts per step and prompt, from 1 to what the model captures. By default as many as that, as far as they pay; 3
    /// where the policy is fixed.
    #[arg(long, value_name = "K", value_parser = whole::<usize>(0), allow_negative_numbers = true)]
    max_drafts: Option<usize>,
    /// Drafts of one tree, from 1 to 16, with `--speculation tree` and `auto`; 8 by default.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(0), allow_negative_numbers = true)]
    tree_nodes: Option<usize>,
    /// How many drafts a step carries: `adaptive`, as many as pay by what steps have cost and drafts have brought so far, or
    /// `fixed`, always as many as allowed. By default `PAWL_DRAFT_POLICY`, else adaptive.
    #[arg(long, value_name = "POLICY")]
    draft_policy: Option<DraftPolicy>,
}

impl SpeculationArgs {
    /// The engine that drafts so. What no model could do is refused before one is loaded.
    pub(crate) fn options(&self) -> Result<EngineOptions, CliError> {
        let mut options = EngineOptions::default();
        if let Some(mode) = self.speculation {
            options = options.speculation(mode);
        }
        if let Some(drafts) = self.max_drafts {
            options = options.max_drafts(drafts);
        }
        if let Some(nodes) = self.tree_nodes {
            options = options.tree_nodes(nodes);
        }
        if let Some(cache) = dirs::cache_dir() {
            options = options.cost_folder_or(cache.join("pawl"));
        }
        if let Some(policy) = self.draft_policy {
            options = options.draft_policy(policy);
        }
        options.check()?;
        Ok(options)
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let mut requests = args.prompts.requests(&args.model, args.chat)?;
    if let Some(grammar) = args.grammar.read()? {
        requests = held_to(requests, &grammar);
    }
    // Known now, not after an hour.
    let trace = args.trace.as_deref().map(Target::new).transpose()?;
    if let Some(trace) = &trace {
        trace.outside_model(&args.model)?;
        trace.none_of(args.prompts.files(), "prompt")?;
        trace.none_of(args.grammar.file(), "grammar")?;
    }
    let mut options = args.speculation.options()?;
    let model = args.load.load(&args.model)?;
    let plan = model.memory_plan().to_string();
    let recorder = Recorder::default();
    if trace.is_some() {
        options = recorder.watch(options);
    }
    // Whoever gives prompts by the thousand has them all queue.
    let queue = options.max_unfinished.max(requests.len());
    let engine = Engine::new(model, &options.max_unfinished(queue))?;
    for warning in engine.warnings() {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    let generated = args.generate(requests, &engine, &plan);
    // What was done until something failed is worth a look.
    let written = trace.map_or(Ok(()), |trace| recorder.write(&trace, &args.model, &engine));
    if let (Err(_), Err(error)) = (&generated, &written) {
        let _ = writeln!(std::io::stderr(), "warning: {error}");
    }
    generated.and(written)
}

impl Args {
    fn generate(
        &self,
        requests: Vec<Request>,
        engine: &Engine,
        plan: &str,
    ) -> Result<(), CliError> {
        let params = self.sampling.params(engine.default_sampling());
        let mut handles = Vec::with_capacity(requests.len());
        for (index, request) in requests.into_iter().enumerate() {
            let handle = engine.submit(self.complete(request, &params));
            handles.push(handle.map_err(|source| CliError::Prompt { index, source })?);
        }
        if !self.json {
            let _ = write!(std::io::stderr(), "{plan}\n\n");
        }
        let several = handles.len() > 1;
        for (index, handle) in handles.into_iter().enumerate() {
            let failed = |source| CliError::Generate { index, source };
            if self.json {
                let completion = handle.wait().map_err(failed)?;
                print_json(&completion, params.is_greedy(), engine)?;
                continue;
            }
            if several {
                writeln!(std::io::stdout().lock(), "--- prompt {index}")?;
            }
            print_summary(
                &print_stream(handle)?.map_err(failed)?,
                engine.speculation(),
            )?;
        }
        if several && !self.json {
            let total = describe(engine.speculation(), &engine.speculation_stats());
            writeln!(
                std::io::stdout().lock(),
                "\n[all prompts: speculation {total}]"
            )?;
        }
        Ok(())
    }

    fn complete(&self, request: Request, params: &SamplingParams) -> Request {
        let request = request
            .sampling(params.clone())
            .max_new_tokens(self.max_new_tokens);
        let request = request.ignore_eos(self.ignore_eos);
        self.stop
            .iter()
            .fold(request, |request, stop| request.stop(stop))
    }
}

/// Prints a single prompt's text as it comes; without a reader it is not generated to its end.
pub(crate) fn print_stream(
    handle: RequestHandle,
) -> Result<Result<Completion, pawl::GenerateError>, CliError> {
    let mut output = std::io::stdout().lock();
    let mut broken = None;
    let completion = handle.wait_while(|text| {
        let written = output.write_all(text.as_bytes());
        match written.and_then(|()| output.flush()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                broken.get_or_insert(error);
                ControlFlow::Break(())
            }
        }
    });
    match broken {
        Some(error) => Err(error.into()),
        None => Ok(completion),
    }
}

/// Ids where there is no text, then the statistics.
fn print_summary(
    completion: &Completion,
    speculation: &EffectiveSpeculation,
) -> Result<(), CliError> {
    let mut output = std::io::stdout().lock();
    if completion.text.is_empty() {
        write!(output, "{:?}", completion.tokens)?;
    }
    let stats = &completion.stats;
    writeln!(
        output,
        "\n[{} prompt + {}, {}; prefill {:.3} s, decode {:.3} s, \
         {:.1} tokens/s, {:.2} tokens per step; speculation {}]",
        completion.usage.prompt_tokens,
        counted(completion.usage.generated_tokens, "generated token"),
        completion.reason,
        stats.prefill_seconds,
        stats.decode_seconds,
        stats.decode_tokens_per_second,
        stats.tokens_per_step,
        describe(speculation, &stats.speculation),
    )?;
    Ok(())
}

/// The effective mode, how well its drafts did, how they were made last, and what was given up.
pub(crate) fn describe(speculation: &EffectiveSpeculation, stats: &SpeculationStats) -> String {
    let mut told = speculation.to_string();
    if stats.rounds > 0 {
        told += &drafted(stats);
    }
    if stats.forbidden > 0 {
        told += &format!("; {} drafts forbidden by the grammar", stats.forbidden);
    }
    if let Some(policy) = &stats.policy {
        let source = policy.source.map_or("no drafts".to_owned(), |source| {
            format!("{} of {source}", counted(policy.drafts, "draft"))
        });
        told += &format!("; last {source} ({})", policy.why);
    }
    for fallback in &stats.fallbacks {
        told += &format!("; given up: {}", fallback.reason);
    }
    told
}

fn drafted(stats: &SpeculationStats) -> String {
    let (accepted, evaluated) = (stats.accepted, stats.evaluated);
    let positions = stats.by_position.iter();
    let positions: Vec<_> = positions
        .map(|(seen, kept)| format!("{kept}/{seen}"))
        .collect();
    format!(
        ": {}, {} proposed, {accepted} of {} accepted (by position {})",
        counted(stats.rounds, "round"),
        counted(stats.proposed, "draft"),
        counted(evaluated, "compared draft"),
        positions.join(" ")
    )
}

/// Counts of drafts as JSON.
fn counts(stats: &SpeculationStats) -> serde_json::Value {
    let positions = stats.by_position.iter();
    let by_position: Vec<_> = positions
        .map(|(evaluated, accepted)| json!({"evaluated": evaluated, "accepted": accepted}))
        .collect();
    let by_source = stats.by_source.iter().map(|of| {
        let source = of.source.to_string();
        json!({
            "source": source,
            "rounds": of.rounds,
            "proposed": of.proposed,
            "evaluated": of.evaluated,
            "accepted": of.accepted,
        })
    });
    let fallbacks = stats.fallbacks.iter();
    let fallbacks = fallbacks.map(|f| json!({"reason": f.reason, "count": f.count}));
    let policy = stats.policy.as_ref().map(|now| {
        let source = now.source.map(|source| source.to_string());
        json!({"source": source, "drafts": now.drafts, "width": now.width, "why": now.why})
    });
    json!({
        "rounds": stats.rounds,
        "plain_steps": stats.plain_steps,
        "proposed": stats.proposed,
        "evaluated": stats.evaluated,
        "accepted": stats.accepted,
        "forbidden": stats.forbidden,
        "by_position": by_position,
        "by_accepted": stats.by_accepted,
        "by_source": by_source.collect::<Vec<_>>(),
        "corrections": stats.corrections,
        "bonus": stats.bonus,
        "branched": stats.branched,
        "branch_wins": stats.branch_wins,
        "target_passes": stats.target_passes,
        "draft_passes": stats.draft_passes,
        "run_seconds": stats.run_time.as_secs_f64(),
        "draft_seconds": stats.draft_time.as_secs_f64(),
        "commit_seconds": stats.commit_time.as_secs_f64(),
        "held_bytes": stats.held_bytes,
        "fallbacks": fallbacks.collect::<Vec<_>>(),
        "policy": policy,
    })
}

/// One prompt as an object; its `total` counts the drafts of all prompts until now, so the last one has all. What is greedy
/// has no seed.
fn print_json(completion: &Completion, greedy: bool, engine: &Engine) -> Result<(), CliError> {
    let stats = &completion.stats;
    let effective = engine.speculation();
    let mut speculation = json!({
        "mode": effective.mode.to_string(),
        "policy": effective.policy.to_string(),
        "max_drafts": effective.max_drafts,
        "width": effective.width,
        "tree_nodes": effective.tree_nodes,
        "reason": effective.reason,
    });
    if let (Some(all), serde_json::Value::Object(counts)) =
        (speculation.as_object_mut(), counts(&stats.speculation))
    {
        all.extend(counts);
        all.insert(
            "total".to_owned(),
            self::counts(&engine.speculation_stats()),
        );
    }
    let object = json!({
        "tokens": completion.tokens,
        "text": completion.text,
        "finish_reason": completion.reason.as_str(),
        "stop": completion.stop,
        "prompt_tokens": completion.usage.prompt_tokens,
        "seed": (!greedy).then_some(completion.seed),
        "stats": {
            "steps": stats.steps,
            "tokens_per_step": stats.tokens_per_step,
            "prefill_seconds": stats.prefill_seconds,
            "decode_seconds": stats.decode_seconds,
            "decode_tokens_per_second": stats.decode_tokens_per_second,
            "speculation": speculation,
        },
    });
    writeln!(std::io::stdout().lock(), "{object}")?;
    Ok(())
}
