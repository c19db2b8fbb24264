//! Primary contexts and each thread's stack of current ones.

use std::thread;

use crate::code::{Code, Result};
use crate::driver::{Call, State};

impl Call<'_> {
    /// `cuDevicePrimaryCtxRetain`. A device has one primary context in a process, whose handle stays the same.
    ///
    /// # Errors
    /// [`Code::INVALID_DEVICE`]
    pub fn primary_ctx_retain(&self, device: i32) -> Result<u64> {
        let ordinal = self.ordinal(device)?;
        if let Some(retains) = self.state().retains.get_mut(ordinal) {
            *retains += 1;
        }
        Ok(handle_of(ordinal))
    }

    /// `cuDevicePrimaryCtxRelease`. The last release destroys the context; CUDA frees what is in it, and here it is a
    /// violation to have something in it.
    ///
    /// # Errors
    /// [`Code::INVALID_CONTEXT`] if it is not retained.
    pub fn primary_ctx_release(&self, device: i32) -> Result<()> {
        let ordinal = self.ordinal(device)?;
        let mut state = self.state();
        let retains =
            state.retains.get_mut(ordinal).filter(|retains| **retains > 0).ok_or(Code::INVALID_CONTEXT)?;
        *retains -= 1;
        if *retains == 0 {
            let inside = [
                ("memory", state.memory.is_on(ordinal)),
                ("events", state.events.values().any(|event| event.device == ordinal)),
                ("streams", state.streams.are_on(ordinal)),
            ];
            let inside: Vec<_> = inside.into_iter().filter_map(|(what, is)| is.then_some(what)).collect();
            if !inside.is_empty() {
                self.violation(&format!(
                    "the context of device {device} ends with {} in it",
                    inside.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// `cuDevicePrimaryCtxGetState`: whether it is retained.
    ///
    /// # Errors
    /// [`Code::INVALID_DEVICE`]
    pub fn primary_ctx_is_active(&self, device: i32) -> Result<bool> {
        let ordinal = self.ordinal(device)?;
        Ok(self.state().retains.get(ordinal).is_some_and(|retains| *retains > 0))
    }

    /// `cuCtxPushCurrent`.
    ///
    /// # Errors
    /// [`Code::INVALID_CONTEXT`] for what is no context that is retained.
    pub fn ctx_push(&self, context: u64) -> Result<()> {
        let mut state = self.state();
        let ordinal = self.retained(&state, context)?;
        state.stacks.entry(thread::current().id()).or_default().push(ordinal);
        Ok(())
    }

    /// `cuCtxPopCurrent`.
    ///
    /// # Errors
    /// [`Code::INVALID_CONTEXT`] if the stack is empty.
    pub fn ctx_pop(&self) -> Result<u64> {
        let mut state = self.state();
        let stack = state.stacks.get_mut(&thread::current().id());
        stack.and_then(Vec::pop).map(handle_of).ok_or(Code::INVALID_CONTEXT)
    }

    /// `cuCtxSetCurrent`: replaces the top of the stack, or pops it if there is no new context.
    ///
    /// # Errors
    /// [`Code::INVALID_CONTEXT`] for what is no context that is retained.
    pub fn ctx_set(&self, context: u64) -> Result<()> {
        let mut state = self.state();
        let new = match context {
            0 => None,
            context => Some(self.retained(&state, context)?),
        };
        let stack = state.stacks.entry(thread::current().id()).or_default();
        stack.pop();
        stack.extend(new);
        Ok(())
    }

    /// `cuCtxGetCurrent`: 0 if there is none.
    #[must_use]
    pub fn ctx_get(&self) -> u64 {
        self.state().current().map_or(0, handle_of)
    }

    /// `cuCtxGetDevice`.
    ///
    /// # Errors
    /// None; it fits.
    pub fn ctx_device(&self) -> Result<i32> {
        i32::try_from(self.current).map_err(|_| Code::UNKNOWN)
    }

    fn retained(&self, state: &State, context: u64) -> Result<usize> {
        let ordinals = 0..self.driver.devices.len();
        let ordinal = ordinals.into_iter().find(|ordinal| handle_of(*ordinal) == context);
        ordinal
            .filter(|ordinal| state.retains.get(*ordinal).is_some_and(|retains| *retains > 0))
            .ok_or(Code::INVALID_CONTEXT)
    }
}

/// The `CUcontext` of a device's primary context: a number, never an address.
pub(crate) fn handle_of(ordinal: usize) -> u64 {
    u64::try_from(ordinal).map_or(0, |ordinal| CONTEXTS + ordinal)
}

const CONTEXTS: u64 = 0xC0_DE00_0000_0001;
