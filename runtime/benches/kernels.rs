//! Pawl's CPU operators beside ONNX Runtime's own, in one process and in turn: what matters is the
//! ratio. `cargo bench -p pawl --bench kernels [-- NAME]` prints the least time of many runs on one
//! thread, in microseconds.

#![allow(
    clippy::cast_possible_truncation,
    clippy::duplicate_mod,
    reason = "the kernels and the tests' one-node graphs are compiled into this target as they are"
)]

// The kernels are private to the library; this target compiles them itself.
#[path = "../src/kernels/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "a part of the library's module is used"
)]
mod kernels;
#[path = "../src/kernels/testing/one_node/mod.rs"]
#[allow(dead_code, reason = "a part of the tests' module is used")]
mod one_node;

use std::time::{Duration, Instant};

use one_node::{Attr, Bound, Feed, OneNode, absent, floats, ints};

/// Stands in for the library's module of this name.
mod exec {
    use std::sync::OnceLock;

    use ort::environment::Environment;

    static ENVIRONMENT: OnceLock<Result<Environment, String>> = OnceLock::new();

    /// ONNX Runtime from `.ort/1.32.0` in a folder above the executable.
    pub(crate) fn environment() -> Result<&'static Environment, String> {
        ENVIRONMENT.get_or_init(load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Environment, String> {
        let executable = std::env::current_exe().map_err(|error| error.to_string())?;
        let file = format!(
            "{}onnxruntime{}",
            std::env::consts::DLL_PREFIX,
            std::env::consts::DLL_SUFFIX
        );
        let library = executable
            .ancestors()
            .map(|folder| folder.join(".ort").join("1.32.0").join(&file))
            .find(|library| library.is_file())
            .ok_or("no ONNX Runtime: run `cargo xtask setup`")?;
        let builder = ort::init_from(library).map_err(|error| error.to_string())?;
        builder
            .with_telemetry(false)
            .build()
            .map_err(|error| error.to_string())
    }
}

type Outputs = Vec<(&'static str, Vec<usize>, Vec<f32>)>;

/// One of the things compared.
struct Contender {
    name: &'static str,
    node: OneNode,
    feeds: Vec<Feed>,
    in_place: Vec<(&'static str, &'static str)>,
    outputs: Outputs,
}

/// Numbers in -1..1 that do not repeat soon.
fn numbers(len: usize) -> Vec<f32> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).unwrap_or(0)) / 32_768.0 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn random(name: &'static str, shape: &[usize]) -> Feed {
    floats(name, shape, &numbers(shape.iter().product()))
}

fn output(name: &'static str, shape: &[usize]) -> (&'static str, Vec<usize>, Vec<f32>) {
    (name, shape.to_vec(), vec![0.0; shape.iter().product()])
}

fn int(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn count(value: usize) -> Attr {
    Attr::Int(i64::from(int(value)))
}

/// Least time of one run, of as many as fit into `budget` per contender, in turn, and at least one.
fn least(contenders: &mut [Contender], budget: Duration) -> ort::Result<Vec<Duration>> {
    let mut sessions = Vec::new();
    for contender in &*contenders {
        sessions.push(contender.node.open(&contender.feeds)?);
    }
    let mut bound = Vec::new();
    for (contender, session) in contenders.iter_mut().zip(&mut sessions) {
        let Contender {
            feeds,
            in_place,
            outputs,
            ..
        } = contender;
        bound.push(Bound::new(session, feeds, in_place, outputs)?);
    }
    let mut least = vec![Duration::MAX; bound.len()];
    let start = Instant::now();
    while least.contains(&Duration::MAX) || start.elapsed() < 2 * budget {
        for (bound, least) in bound.iter_mut().zip(&mut least) {
            let start = Instant::now();
            bound.run()?;
            *least = start.elapsed().min(*least);
        }
    }
    Ok(least)
}

/// Rows of `tokens` tokens each, over a bank of states.
fn delta(rows: usize, tokens: usize) -> Vec<Contender> {
    const HEADS: usize = 16;
    const DIM: usize = 128;
    let packed = rows * tokens;
    let starts: Vec<i32> = (0..=rows).map(|row| int(row * tokens)).collect();
    let even: Vec<i32> = (0..rows).map(int).collect();
    let odd: Vec<i32> = (0..rows).map(|row| int(rows + row)).collect();
    let ours = Contender {
        name: "pawl::GatedDeltaNet",
        node: OneNode::new("pawl", "GatedDeltaNet")
            .with("key_heads", count(HEADS))
            .giving(&["output", "state_out"]),
        feeds: vec![
            random("qkv", &[packed, 3 * HEADS * DIM]),
            random("decay", &[packed, HEADS]),
            random("beta", &[packed, HEADS]),
            random("a_log", &[HEADS]),
            random("dt_bias", &[HEADS]),
            random("state", &[2 * rows + 1, HEADS, DIM, DIM]),
            ints("cumulative", &[rows + 1], &starts),
            ints("read", &[rows], &even),
            ints("write", &[rows], &odd),
        ],
        in_place: vec![("state", "state_out")],
        outputs: vec![output("output", &[packed, HEADS * DIM])],
    };
    let dense = Contender {
        name: "LinearAttention",
        node: OneNode::new("com.microsoft", "LinearAttention")
            .with("q_num_heads", count(HEADS))
            .with("kv_num_heads", count(HEADS))
            .giving(&["output", "state_out"]),
        feeds: vec![
            random("q", &[rows, tokens, HEADS * DIM]),
            random("k", &[rows, tokens, HEADS * DIM]),
            random("v", &[rows, tokens, HEADS * DIM]),
            random("state", &[rows, HEADS, DIM, DIM]),
            random("decay", &[rows, tokens, HEADS]),
            random("beta", &[rows, tokens, HEADS]),
        ],
        in_place: vec![],
        outputs: vec![
            output("output", &[rows, tokens, HEADS * DIM]),
            output("state_out", &[rows, HEADS, DIM, DIM]),
        ],
    };
    vec![ours, dense]
}

fn convolution(rows: usize, tokens: usize) -> Vec<Contender> {
    convolution_of::<6144>(rows, tokens)
}

/// So little arithmetic that what is left is the price of a node.
fn small_convolution(rows: usize, tokens: usize) -> Vec<Contender> {
    convolution_of::<32>(rows, tokens)
}

fn convolution_of<const CHANNELS: usize>(rows: usize, tokens: usize) -> Vec<Contender> {
    const WIDTH: usize = 4;
    let packed = rows * tokens;
    let starts: Vec<i32> = (0..=rows).map(|row| int(row * tokens)).collect();
    let even: Vec<i32> = (0..rows).map(int).collect();
    let odd: Vec<i32> = (0..rows).map(|row| int(rows + row)).collect();
    let ours = Contender {
        name: "pawl::CausalConv",
        node: OneNode::new("pawl", "CausalConv")
            .with("activation", Attr::Text("silu"))
            .giving(&["y", "state_out"]),
        feeds: vec![
            random("x", &[packed, CHANNELS]),
            random("weight", &[CHANNELS, WIDTH]).constant(),
            absent(),
            random("state", &[2 * rows + 1, CHANNELS, WIDTH - 1]),
            ints("cumulative", &[rows + 1], &starts),
            ints("read", &[rows], &even),
            ints("write", &[rows], &odd),
        ],
        in_place: vec![("state", "state_out")],
        outputs: vec![output("y", &[packed, CHANNELS])],
    };
    let theirs = Contender {
        name: "VarlenCausalConvWithState",
        node: OneNode::new("com.microsoft", "VarlenCausalConvWithState")
            .with("activation", Attr::Text("silu"))
            .giving(&["y", "state_out"]),
        feeds: vec![
            random("x", &[packed, CHANNELS]),
            random("weight", &[CHANNELS, 1, WIDTH]).constant(),
            ints("cumulative", &[rows + 1], &starts),
            absent(),
            random("state", &[rows, CHANNELS, WIDTH - 1]),
        ],
        in_place: vec![],
        outputs: vec![
            output("y", &[packed, CHANNELS]),
            output("state_out", &[rows, CHANNELS, WIDTH - 1]),
        ],
    };
    vec![ours, theirs]
}

fn attention(past: usize, tokens: usize) -> Vec<Contender> {
    const HEADS: usize = 16;
    const KV: usize = 4;
    const DIM: usize = 128;
    const BLOCK: usize = 32;
    let total = past + tokens;
    let blocks = total.div_ceil(BLOCK);
    let table: Vec<i32> = (0..blocks).map(int).collect();
    let qkv = (HEADS + 2 * KV) * DIM;
    let ours = Contender {
        name: "pawl::PagedAttention",
        node: OneNode::new("pawl", "PagedAttention")
            .with("num_heads", count(HEADS))
            .with("kv_num_heads", count(KV))
            .giving(&["output", "keys_out", "values_out"]),
        feeds: vec![
            random("qkv", &[tokens, qkv]),
            random("keys", &[blocks, BLOCK, KV, DIM]),
            random("values", &[blocks, BLOCK, KV, DIM]),
            ints("cumulative", &[2], &[0, int(tokens)]),
            ints("past", &[1], &[int(past)]),
            ints("table", &[1, blocks], &table),
            random("cos", &[tokens, DIM / 2]),
            random("sin", &[tokens, DIM / 2]),
        ],
        in_place: vec![("keys", "keys_out"), ("values", "values_out")],
        outputs: vec![output("output", &[tokens, HEADS * DIM])],
    };
    // The cache is longer than the past and bound in and out, so that nothing is copied.
    let theirs = Contender {
        name: "GroupQueryAttention",
        node: OneNode::new("com.microsoft", "GroupQueryAttention")
            .with("num_heads", count(HEADS))
            .with("kv_num_heads", count(KV))
            .with("do_rotary", Attr::Int(1))
            .giving(&["output", "keys_out", "values_out"]),
        feeds: vec![
            random("qkv", &[1, tokens, qkv]),
            absent(),
            absent(),
            random("keys", &[1, KV, total, DIM]),
            random("values", &[1, KV, total, DIM]),
            ints("seqlens", &[1], &[int(total - 1)]),
            ints("total", &[1], &[int(total)]),
            random("cos", &[total, DIM / 2]),
            random("sin", &[total, DIM / 2]),
        ],
        in_place: vec![("keys", "keys_out"), ("values", "values_out")],
        outputs: vec![output("output", &[1, tokens, HEADS * DIM])],
    };
    vec![ours, theirs]
}

fn report(case: &str, mut contenders: Vec<Contender>, budget: Duration) -> ort::Result<String> {
    let least = least(&mut contenders, budget)?;
    let micros: Vec<f64> = least
        .iter()
        .map(|least| least.as_secs_f64() * 1e6)
        .collect();
    let columns = contenders.iter().zip(&micros);
    let line: String = columns
        .map(|(c, micros)| format!("  {} {micros:.1}", c.name))
        .collect();
    let ratio = micros
        .first()
        .zip(micros.get(1))
        .map_or(0.0, |(ours, theirs)| ours / theirs);
    Ok(format!("{case:<28}{line}  ratio {ratio:.2}\n"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Without `--bench`, which `cargo bench` passes, this is a test: every case runs once.
    let measure = std::env::args().any(|argument| argument == "--bench");
    let budget = Duration::from_millis(if measure { 500 } else { 0 });
    let filter = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    type Case = (
        &'static str,
        fn(usize, usize) -> Vec<Contender>,
        usize,
        usize,
    );
    let cases: [Case; 15] = [
        ("node, 1 token", small_convolution, 1, 1),
        ("delta, 1 token", delta, 1, 1),
        ("delta, 4 rows of 1 token", delta, 4, 1),
        ("delta, 8 tokens", delta, 1, 8),
        ("delta, 16 tokens", delta, 1, 16),
        ("delta, 64 tokens", delta, 1, 64),
        ("delta, 512 tokens", delta, 1, 512),
        ("convolution, 1 token", convolution, 1, 1),
        ("convolution, 8 tokens", convolution, 1, 8),
        ("convolution, 256 tokens", convolution, 1, 256),
        ("attention, 1 after 1023", attention, 1023, 1),
        ("attention, 8 after 1016", attention, 1016, 8),
        ("attention, 64 after 960", attention, 960, 64),
        ("attention, 512 after 512", attention, 512, 512),
        ("attention, 1 after 8191", attention, 8191, 1),
    ];
    let wanted = |name: &str| filter.as_deref().is_none_or(|filter| name.contains(filter));
    let mut out = std::io::stdout();
    for (name, case, first, second) in cases.into_iter().filter(|case| wanted(case.0)) {
        let line = report(name, case(first, second), budget)?;
        std::io::Write::write_all(&mut out, line.as_bytes())?;
    }
    Ok(())
}
