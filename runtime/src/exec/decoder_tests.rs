//! In-place state, captures and refusals, on a toy model.

use super::*;
use crate::device::{Buffer, ElementType};
use crate::exec::{SessionSettings, Wanted, load};
use crate::model::Provider;
use crate::model::test_toy::{ROW, WINDOW, folder, signature, state};
use std::sync::{Arc, Mutex};

/// Inputs and outputs of every run.
type Bindings = Arc<Mutex<Vec<(usize, usize)>>>;

struct Toy {
    decoder: Decoder,
    paged: Vec<PagedBuffers>,
    fixed: Vec<FixedBuffers>,
    outputs: StepOutputs,
}

impl Toy {
    fn new() -> Self {
        Self::keeping(state()).0
    }

    /// With what it is to keep, and how many inputs and outputs each of its runs will have.
    fn keeping(state: StateSpec) -> (Self, Bindings) {
        let folder = folder();
        let file = folder.path().join("toy.onnx");
        let settings = SessionSettings {
            provider: Provider::Cpu,
            threads: None,
            operators: None,
            optimize: genai_config_schema::GraphOptimizationLevel::All,
            arena: true,
            entries: Vec::new(),
        };
        let session =
            Session::open(load(Wanted::default()).unwrap(), &file, settings, None).unwrap();
        let buffer = |shape: &[usize]| Buffer::host(ElementType::F32, shape).unwrap();
        let mut bank = buffer(&[5, ROW, 1]);
        for row in 0..5u8 {
            bank.write_row_f32(row.into(), &[f32::from(row); ROW])
                .unwrap();
        }
        let bound = Bound::new(session, &signature(), &state).unwrap();
        let counts = Arc::clone(&bound.run.bound);
        let mut decoder = Decoder::with(Box::new(bound), signature(), state);
        decoder.graph = "toy.onnx".to_owned();
        let toy = Self {
            decoder,
            paged: vec![PagedBuffers {
                key: buffer(&[4, 2, 1, 1]),
                value: buffer(&[4, 2, 1, 1]),
            }],
            fixed: vec![FixedBuffers::new(bank, Some(buffer(&[WINDOW * 4 * ROW])))],
            outputs: StepOutputs::default(),
        };
        (toy, counts)
    }

    fn step(
        &mut self,
        inputs: &StepInputs,
        capture: Capture,
        want_hidden: bool,
    ) -> Result<(), RunError> {
        self.decoder.run(
            inputs,
            &mut self.paged,
            &mut self.fixed,
            capture,
            &mut self.outputs,
            want_hidden,
        )
    }

    fn bank(&self) -> Vec<f32> {
        self.fixed[0]
            .bank
            .as_f32()
            .unwrap()
            .chunks(ROW)
            .map(|row| row[0])
            .collect()
    }

    fn staging(&self) -> &[f32] {
        self.fixed[0]
            .checkpoints
            .as_ref()
            .unwrap()
            .as_f32()
            .unwrap()
    }
}

/// Two rows: tokens 7 8 | 9, reading bank rows 0 and 1, writing 2 and 3.
fn inputs() -> StepInputs {
    StepInputs {
        input_ids: vec![7, 8, 9],
        position_ids: vec![0, 1, 0],
        cumulative: vec![0, 2, 3],
        past: vec![0, 0],
        block_table: vec![2, 3],
        max_blocks: 1,
        logits_indices: vec![1, 2],
        read_rows: vec![0, 1],
        write_rows: vec![2, 3],
        capture_counts: vec![0, 0],
        hidden_states: Vec::new(),
    }
}

#[test]
fn state_is_written_in_place_and_neighbours_are_untouched() {
    let mut toy = Toy::new();
    toy.step(&inputs(), Capture::Off, true).unwrap();
    assert_eq!(toy.bank(), [0.0, 1.0, 1.0, 2.0, 4.0]);
    assert_eq!(
        toy.paged[0].key.as_f32().unwrap(),
        [0.0, 0.0, 0.0, 0.0, 7.0, 7.0, 0.0, 0.0]
    );
    assert_eq!(
        toy.paged[0].value.as_f32().unwrap(),
        [0.0, 0.0, 0.0, 0.0, -7.0, -7.0, 0.0, 0.0]
    );
    assert_eq!(toy.outputs.logits, [8.0, 16.0, 24.0, 9.0, 18.0, 27.0]);
    assert_eq!(toy.outputs.hidden, [7.0, 7.0, 8.0, 8.0, 9.0, 9.0]);

    // A smaller step reuses the vectors and reads what the first one wrote.
    let mut second = StepInputs {
        input_ids: vec![5],
        cumulative: vec![0, 1],
        past: vec![2],
        block_table: vec![0],
        logits_indices: vec![],
        read_rows: vec![3],
        write_rows: vec![1],
        capture_counts: vec![0],
        ..inputs()
    };
    toy.step(&second, Capture::Off, false).unwrap();
    assert_eq!(toy.bank(), [0.0, 3.0, 1.0, 2.0, 4.0]);
    assert!(toy.outputs.logits.is_empty() && toy.outputs.hidden.is_empty());

    // Another buffer of the same shape is noticed, and one of another shape.
    for rows in [5, 7] {
        let other = Buffer::host(ElementType::F32, &[rows, ROW, 1]).unwrap();
        let before = std::mem::replace(&mut toy.fixed[0].bank, other);
        second.read_rows = vec![4];
        toy.step(&second, Capture::Off, false).unwrap();
        let mut expected = vec![0.0; rows];
        expected[1] = 1.0;
        assert_eq!(toy.bank(), expected);
        drop(before);
    }
}

/// A step that captures nothing binds what it binds in a model that has no checkpoints.
#[test]
fn checkpoints_are_counted_only_where_they_are_captured() {
    let mut none = state();
    none.fixed[0].checkpoints = None;
    let (mut with, counts) = Toy::keeping(state());
    let (mut without, bare) = Toy::keeping(none);
    let mut capturing = inputs();
    capturing.capture_counts = vec![0, 1];
    for hidden in [false, true] {
        with.step(&inputs(), Capture::Off, hidden).unwrap();
        without.step(&inputs(), Capture::Off, hidden).unwrap();
        assert_eq!(*counts.lock().unwrap(), *bare.lock().unwrap());
        with.step(&capturing, Capture::On, hidden).unwrap();
        let (inputs, outputs) = bare.lock().unwrap()[0];
        let captured = (inputs, outputs + 1);
        assert_eq!(counts.lock().unwrap().pop(), Some(captured));
        counts.lock().unwrap().clear();
        bare.lock().unwrap().clear();
    }
}

#[test]
fn checkpoints_are_bound_only_on_a_step_that_captures() {
    let mut toy = Toy::new();
    toy.step(&inputs(), Capture::Off, false).unwrap();
    assert!(toy.staging().iter().all(|value| *value == 0.0));

    let mut capturing = inputs();
    capturing.capture_counts = vec![0, 1];
    toy.step(&capturing, Capture::On, false).unwrap();
    let expected: Vec<f32> = [0.0, 1.0, 1.0, 2.0]
        .iter()
        .flat_map(|state| [*state; ROW])
        .collect();
    assert_eq!(toy.staging()[..12], expected);
    assert!(toy.staging()[12..].iter().all(|value| *value == 0.0));
}

#[test]
fn inputs_that_do_not_belong_together_are_refused_before_anything_runs() {
    type Change = fn(&mut StepInputs);
    let changes: [(Change, Capture, &str); 12] = [
        (|i| i.position_ids.push(0), Capture::Off, ""),
        (|i| i.input_ids.clear(), Capture::Off, "0 tokens"),
        (|i| i.past.push(0), Capture::Off, "`cumulative`"),
        (|i| i.cumulative[1] = 0, Capture::Off, "cumulative lengths"),
        (|i| i.cumulative[2] = 4, Capture::Off, "cumulative lengths"),
        (|i| i.block_table.push(0), Capture::Off, "`block_table`"),
        (|i| i.logits_indices[0] = 3, Capture::Off, "logits index 3"),
        (
            |i| i.logits_indices[0] = -1,
            Capture::Off,
            "logits index -1",
        ),
        (|i| i.read_rows.clear(), Capture::Off, "`read_rows`"),
        (
            |i| i.capture_counts[0] = 1,
            Capture::Off,
            "does not capture",
        ),
        (|_| (), Capture::On, "no row captures"),
        (
            |i| i.capture_counts[0] = -1,
            Capture::On,
            "negative capture count",
        ),
    ];
    let mut toy = Toy::new();
    for (change, capture, part) in changes {
        let mut inputs = inputs();
        change(&mut inputs);
        match toy.step(&inputs, capture, false) {
            // The toy has no positions, so it does not care about them.
            Ok(()) => assert_eq!(part, ""),
            Err(RunError::Step { graph, reason }) => {
                assert_eq!(graph, "toy.onnx");
                assert!(!part.is_empty() && reason.contains(part), "{reason}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(toy.paged[0].key.as_f32().unwrap()[4], 7.0);

    let error = toy.decoder.run(
        &inputs(),
        &mut [],
        &mut toy.fixed,
        Capture::Off,
        &mut toy.outputs,
        false,
    );
    assert!(error.unwrap_err().to_string().contains("0 paged layers"));
}

#[test]
fn a_failure_inside_the_graph_names_the_graph_and_the_reason() {
    let mut toy = Toy::new();
    let mut inputs = inputs();
    inputs.read_rows = vec![0, 99];
    let error = toy.step(&inputs, Capture::Off, false).unwrap_err();
    assert!(matches!(error, RunError::Failed { .. }));
    assert!(
        error.to_string().contains("toy.onnx") && error.to_string().contains("99"),
        "{error}"
    );
    toy.step(&self::inputs(), Capture::Off, false).unwrap();
}
