// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//! Tells which descriptors a program has open at which call.
//!
//! It owns the rules that refuse a program whose descriptors could get lost, and the answer where a
//! descriptor is open if the program stops. A descriptor has one open and at most one close, which
//! is queued behind its open. The rules make the place where a program stops tell the rest.

use crate::request::{Condition, Jump, Request, Role};

/// A call that opens, and the call that closes what it opened.
#[derive(Clone, Copy)]
struct Descriptor {
    open: usize,
    close: Option<usize>,
}

impl Descriptor {
    /// Whether a program that goes on at this call has it open, if its open succeeded.
    fn is_open_at(self, at: usize) -> bool {
        self.close
            .map_or(false, |close| self.open < at && at <= close)
    }
}

/// Returns whether a close that was made has closed the last descriptor of its open. The program
/// goes on at the call `at`.
pub(crate) fn is_closed(open: u32, close: usize, at: u32) -> bool {
    let descriptor = Descriptor {
        open: open as usize,
        close: Some(close),
    };
    !descriptor.is_open_at(at as usize)
}

fn descriptors(requests: &[Request]) -> Vec<Descriptor> {
    let mut closes = vec![None; requests.len()];
    for (slot, request) in requests.iter().enumerate() {
        if let Role::Closes(open) = request.role {
            closes[open as usize] = Some(slot);
        }
    }
    let slots = 0..requests.len();
    slots
        .filter(|slot| matches!(requests[*slot].role, Role::Opens | Role::Pipes(_)))
        .map(|open| Descriptor {
            open,
            close: closes[open],
        })
        .collect()
}

/// Which calls may be made, and in which order. The number of calls stands for the end.
struct Flow {
    jumps: Vec<Option<(Condition, usize)>>,
}

impl Flow {
    fn new(calls: usize, jumps: &[Jump]) -> Flow {
        let mut flow = Flow {
            jumps: vec![None; calls],
        };
        for jump in jumps {
            flow.jumps[jump.slot as usize] = Some((jump.condition, flow.target(jump)));
        }
        flow
    }

    fn target(&self, jump: &Jump) -> usize {
        jump.target.map_or(self.jumps.len(), |slot| slot as usize)
    }

    /// Marks what may be made after `from`; nothing behind `until` is looked at.
    fn reached(&self, from: usize, until: Option<usize>) -> Vec<bool> {
        let mut reached = vec![false; self.jumps.len() + 1];
        let mut left = vec![from];
        while let Some(slot) = left.pop() {
            let target = self.jumps[slot].map(|(_, target)| target);
            let always = matches!(self.jumps[slot], Some((Condition::Always, _)));
            let next = if always { None } else { Some(slot + 1) };
            for one in target.into_iter().chain(next) {
                let known = std::mem::replace(&mut reached[one], true);
                if !known && one < self.jumps.len() && Some(one) != until {
                    left.push(one);
                }
            }
        }
        reached
    }
}

/// Says why a program could lose a descriptor, or use one that is closed.
pub(crate) fn check(requests: &[Request], jumps: &[Jump]) -> Result<(), &'static str> {
    if jumps.is_empty() {
        return Ok(());
    }
    let flow = Flow::new(requests.len(), jumps);
    for descriptor in descriptors(requests) {
        let Descriptor { open, close } = descriptor;
        let mut around = false;
        for jump in jumps {
            let (slot, target) = (jump.slot as usize, flow.target(jump));
            // It would use the descriptor of an earlier round, which may be another file's by now.
            if descriptor.is_open_at(target) && !(open <= slot && Some(slot) < close) {
                return Err("a jump leads between an open and its close");
            }
            around |= target <= open && open <= slot;
        }
        if !around {
            continue; // it is opened once
        }
        let open_at = flow.reached(open, close);
        if open_at[open] {
            return Err("a loop opens a descriptor again before it is closed");
        }
        if close.map_or(false, |close| flow.reached(close, None)[open]) {
            let mut places = (0..open_at.len()).filter(|place| open_at[*place]);
            if !places.all(|place| descriptor.is_open_at(place)) {
                return Err("a jump leaves a loop between an open and its close");
            }
        }
    }
    Ok(())
}
