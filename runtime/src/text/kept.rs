//! Values that a template makes stay small and flat.
//!
//! The template engine counts instructions, bytes and items, but not how deep or how large a value is when it is walked:
//! `{% set x = [x, x] %}` forty times is a value of 2^40 parts in a few hundred bytes, and a namespace can hold itself.
//! Printing, comparing or hashing such a value never ends, or ends the process by its stack. So every instruction that
//! makes a value is followed by one that walks it once, within bounds: nothing larger is ever bound to a name, printed or
//! compared. The walk itself costs fuel.

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};

use crate::limits::{TEMPLATE_DEPTH, TEMPLATE_OUTPUT, TEMPLATE_VALUES};

/// Filter that lets a value pass if it is small.
const KEPT: &str = "pawl_kept";
/// The same for what is put into a namespace, which may not hold a namespace: it could come to hold itself.
const HELD: &str = "pawl_held";
/// Asks for a filter by its name each time.
const UNCACHED: u8 = u8::MAX;
/// Values that are walked for one unit of fuel.
const VALUES_PER_FUEL: usize = 8;

/// Adds the filters that [`bounded`] uses.
pub(super) fn add_filters(environment: &mut Environment<'_>) {
    environment.add_filter(KEPT, |state: &State<'_, '_>, value: Value| {
        kept(state, value, true)
    });
    environment.add_filter(HELD, |state: &State<'_, '_>, value: Value| {
        kept(state, value, false)
    });
}

/// The same program, with a check after each instruction that makes a value.
pub(super) fn bounded<'s>(program: &Instructions<'s>) -> Instructions<'s> {
    let all: Vec<&Instruction<'s>> = (0..).map_while(|at| program.get(at)).collect();
    let mut places = Vec::with_capacity(all.len() + 1);
    let mut next = 0;
    for instruction in &all {
        places.push(next);
        next += 1 + added(instruction);
    }
    places.push(next);
    let place = |target: u32| {
        let place = usize::try_from(target).ok().and_then(|at| places.get(at));
        place.copied().unwrap_or(next)
    };
    let mut checked = Instructions::new(program.name(), program.source());
    for (at, instruction) in (0..).zip(all) {
        let line = program
            .get_line(at)
            .and_then(|line| u16::try_from(line).ok());
        let mut add = |instruction| match line {
            Some(line) => checked.add_with_line(instruction, line),
            None => checked.add(instruction),
        };
        let check = |filter| Instruction::ApplyFilter(filter, Some(1), UNCACHED);
        if matches!(instruction, Instruction::SetAttr(_)) {
            // The namespace lies above the value.
            add(Instruction::Swap);
            add(check(HELD));
            add(Instruction::Swap);
        }
        add(moved(instruction, place));
        if makes_value(instruction) {
            add(check(KEPT));
        }
    }
    checked
}

/// Instructions that are added to this one.
fn added(instruction: &Instruction<'_>) -> u32 {
    if matches!(instruction, Instruction::SetAttr(_)) {
        return 3;
    }
    u32::from(makes_value(instruction))
}

/// All others leave values as they are, or make texts and numbers.
fn makes_value(instruction: &Instruction<'_>) -> bool {
    matches!(
        instruction,
        Instruction::BuildList(_)
            | Instruction::BuildTuple(_)
            | Instruction::BuildMap(_)
            | Instruction::Add
            | Instruction::Mul
            | Instruction::Slice
            | Instruction::ApplyFilter(..)
            | Instruction::CallFunction(..)
            | Instruction::CallMethod(..)
            | Instruction::CallObject(_)
    )
}

/// The instruction with its target where that has moved to.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others have no target")]
fn moved<'s>(instruction: &Instruction<'s>, place: impl Fn(u32) -> u32) -> Instruction<'s> {
    match instruction {
        Instruction::Iterate(to) => Instruction::Iterate(place(*to)),
        Instruction::Jump(to) => Instruction::Jump(place(*to)),
        Instruction::JumpIfFalse(to) => Instruction::JumpIfFalse(place(*to)),
        Instruction::JumpIfFalseOrPop(to) => Instruction::JumpIfFalseOrPop(place(*to)),
        Instruction::JumpIfTrueOrPop(to) => Instruction::JumpIfTrueOrPop(place(*to)),
        Instruction::BuildMacro(name, body, flags) => {
            Instruction::BuildMacro(name, place(*body), *flags)
        }
        other => other.clone(),
    }
}

/// The value, if it is small. What is computed anew each time it is walked becomes a list.
fn kept(state: &State<'_, '_>, value: Value, namespaces: bool) -> Result<Value, Error> {
    if !is_container(&value) {
        return Ok(value);
    }
    let value = if value.kind() == ValueKind::Iterable {
        let items: Vec<Value> = value.try_iter()?.take(TEMPLATE_VALUES + 1).collect();
        Value::from(items)
    } else {
        value
    };
    let mut walk = Walk {
        values: 0,
        bytes: 0,
        namespaces,
    };
    let walked = walk.value(&value, 0);
    state.consume_fuel(u64::try_from(walk.values / VALUES_PER_FUEL).unwrap_or(u64::MAX))?;
    walked.map(|()| value)
}

fn is_container(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable
    )
}

/// What has been seen of a value.
struct Walk {
    values: usize,
    bytes: usize,
    namespaces: bool,
}

impl Walk {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.values += 1;
        self.bytes = self
            .bytes
            .saturating_add(value.as_str().map_or(0, str::len));
        if self.values > TEMPLATE_VALUES || self.bytes > TEMPLATE_OUTPUT {
            return Err(refused(format!(
                "a value with more than {TEMPLATE_VALUES} parts or {TEMPLATE_OUTPUT} bytes"
            )));
        }
        if !is_container(value) {
            return Ok(());
        }
        if depth >= TEMPLATE_DEPTH {
            return Err(refused(format!(
                "lists and mappings nested deeper than {TEMPLATE_DEPTH}"
            )));
        }
        if !self.namespaces && is_namespace(value) {
            return Err(refused("a namespace inside of a namespace".to_owned()));
        }
        let maps = value.kind() == ValueKind::Map;
        for item in value.try_iter()? {
            if maps && let Ok(entry) = value.get_item(&item) {
                self.value(&entry, depth + 1)?;
            }
            self.value(&item, depth + 1)?;
        }
        Ok(())
    }
}

/// Namespaces are the only values that a template can change.
fn is_namespace(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

fn refused(what: String) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("the template makes {what}"),
    )
}
