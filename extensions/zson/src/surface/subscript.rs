//! Subscripting: `doc['a']['b']` is a jsonb, and `UPDATE ... SET doc['a']['b'] = '1'` changes a zson.
//!
//! The server's jsonb does the work. It is called with copies of the step and of its state, in which the container is
//! jsonb and the workspace jsonb's own: those of the expression never hold anything but ours, even after an ERROR.
// The server's executor is pointers and callbacks.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pgrx::pg_sys::{
    self, Datum, ExecEvalSubroutine, ExprContext, ExprEvalStep, ExprState, FunctionCallInfo, List, Oid,
    ParseState, SubscriptExecSteps, SubscriptRoutines, SubscriptingRef, SubscriptingRefState,
};
use pgshrink_zson::Error;
use pgshrink_zson::shapes::Value;

use super::part::{Elsewhere, Path, Wanted, part_of};
use crate::sys::{guarded, pg_function, raw, with_bytes};
use crate::value;

unsafe extern "C-unwind" {
    fn jsonb_subscript_handler(fcinfo: FunctionCallInfo) -> Datum;
}

/// jsonb's routines, constant in the server.
static JSONB: AtomicPtr<SubscriptRoutines> = AtomicPtr::new(ptr::null_mut());

/// Ours. Reading a part of a document gives NULL where there is none, as jsonb's does.
static ZSON: SubscriptRoutines = SubscriptRoutines {
    transform: Some(transform),
    exec_setup: Some(exec_setup),
    fetch_strict: true,
    fetch_leakproof: true,
    store_leakproof: false,
};

pg_function! {
    /// `zson_subscript_handler(internal)`.
    fn zson_subscript_handler(fcinfo) {
        JSONB.store(jsonb_subscript_handler(fcinfo).cast_mut_ptr(), Ordering::Relaxed);
        Datum::from(&raw const ZSON)
    }
}

/// What our steps remember between calls, in memory of the expression.
struct Workspace {
    jsonb: *mut c_void,
    steps: SubscriptExecSteps,
    /// Of the column assigned to; the server coerces the result no further.
    typmod: i32,
    /// The types of the subscripts: `int4`, or else `text`.
    types: *const Oid,
}

/// jsonb's routines.
///
/// # Safety
/// The handler was called, by which the server gets at what calls this.
unsafe fn jsonb_routines() -> &'static SubscriptRoutines {
    // SAFETY: by the caller; the server's constant.
    unsafe { &*JSONB.load(Ordering::Relaxed) }
}

unsafe extern "C-unwind" fn transform(
    subscripting: *mut SubscriptingRef,
    indirection: *mut List,
    state: *mut ParseState,
    is_slice: bool,
    is_assignment: bool,
) {
    // SAFETY: the server's arguments, handed on. What is read, and what is assigned, is of jsonb's type.
    unsafe {
        if let Some(transform) = jsonb_routines().transform {
            transform(subscripting, indirection, state, is_slice, is_assignment);
        }
    }
}

unsafe extern "C-unwind" fn exec_setup(
    subscripting: *const SubscriptingRef,
    state: *mut SubscriptingRefState,
    methods: *mut SubscriptExecSteps,
) {
    // SAFETY: the server's arguments; jsonb fills in its workspace and its steps, which ours then stand before.
    unsafe {
        if let Some(exec_setup) = jsonb_routines().exec_setup {
            exec_setup(subscripting, state, methods);
        }
        let workspace = raw::palloc(size_of::<Workspace>()).cast::<Workspace>();
        workspace.write(Workspace {
            jsonb: (*state).workspace,
            steps: *methods,
            typmod: (*subscripting).reftypmod,
            types: types_of((*subscripting).refupperindexpr),
        });
        (*state).workspace = workspace.cast();
        *methods = SubscriptExecSteps {
            sbs_check_subscripts: Some(check_subscripts),
            sbs_fetch: Some(fetch),
            sbs_assign: Some(assign),
            sbs_fetch_old: Some(fetch_old),
        };
    }
}

/// The types of expressions, in memory of the expression they are part of.
///
/// # Safety
/// `expressions` is a list of expressions, or null.
unsafe fn types_of(expressions: *mut List) -> *const Oid {
    // SAFETY: by the caller; the array has as many places as the list.
    unsafe {
        let Some(list) = expressions.as_ref() else { return ptr::null() };
        let count = usize::try_from(list.length).unwrap_or(0);
        let types = raw::palloc(count * size_of::<Oid>()).cast::<Oid>();
        for at in 0..count {
            types.add(at).write(raw::exprType((*list.elements.add(at)).ptr_value));
        }
        types
    }
}

/// Where the subscripts of a step lead in a document that is stored by its shape.
///
/// # Safety
/// `state` went through [`exec_setup`], and its subscripts were evaluated; none of them is null.
unsafe fn follow<'a>(state: *mut SubscriptingRefState, path: &Path<'a>) -> Result<Option<Value<'a>>, Error> {
    // SAFETY: by the caller; there are as many types as subscripts.
    unsafe {
        let workspace = &*(*state).workspace.cast::<Workspace>();
        let mut value = None;
        for at in 0..usize::try_from((*state).numupper).unwrap_or(0) {
            let index = *(*state).upperindex.add(at);
            let found = if *workspace.types.add(at) == pg_sys::INT4OID {
                path.index_step(value, index.value() as i32)?
            } else {
                with_bytes(index, |text| path.text_step(value, text))?
            };
            match found {
                None => return Ok(None),
                found => value = found,
            }
        }
        value.map_or_else(|| path.root(), Ok).map(Some)
    }
}

/// The state as jsonb's steps expect it, and our workspace.
///
/// # Safety
/// `state` went through [`exec_setup`].
unsafe fn jsonb_state(state: *mut SubscriptingRefState) -> (SubscriptingRefState, &'static Workspace) {
    // SAFETY: by the caller; the workspace lives as long as the expression.
    unsafe {
        let workspace = &*(*state).workspace.cast::<Workspace>();
        (SubscriptingRefState { workspace: workspace.jsonb, ..*state }, workspace)
    }
}

unsafe extern "C-unwind" fn check_subscripts(
    expression: *mut ExprState,
    step: *mut ExprEvalStep,
    context: *mut ExprContext,
) -> bool {
    // SAFETY: a step of this kind whose state went through exec_setup.
    unsafe {
        let (mut state, workspace) = jsonb_state((*step).d.sbsref_subscript.state);
        let mut own = *step;
        own.d.sbsref_subscript.state = &raw mut state;
        workspace.steps.sbs_check_subscripts.is_some_and(|check| check(expression, &raw mut own, context))
    }
}

/// What one of jsonb's steps left behind.
struct Done {
    container: Datum,
    state: SubscriptingRefState,
    typmod: i32,
}

/// Runs one of jsonb's steps on `container`, a jsonb, in place of what `step` is about.
///
/// # Safety
/// `step` is of the kind that `routine` runs, and its state went through [`exec_setup`].
unsafe fn as_jsonb(
    routine: impl FnOnce(&SubscriptExecSteps) -> ExecEvalSubroutine,
    expression: *mut ExprState,
    step: *mut ExprEvalStep,
    context: *mut ExprContext,
    mut container: Datum,
) -> Done {
    // SAFETY: by the caller.
    unsafe {
        let (mut state, workspace) = jsonb_state((*step).d.sbsref.state);
        let mut own = *step;
        own.resvalue = &raw mut container;
        own.d.sbsref.state = &raw mut state;
        if let Some(run) = routine(&workspace.steps) {
            run(expression, &raw mut own, context);
        }
        Done { container, state, typmod: workspace.typmod }
    }
}

/// The container of a step as jsonb; of a null one whatever is there.
///
/// # Safety
/// The step's container is a zson or null.
unsafe fn container_of(step: *mut ExprEvalStep) -> Datum {
    // SAFETY: by the caller.
    unsafe { if *(*step).resnull { *(*step).resvalue } else { value::view(*(*step).resvalue) } }
}

unsafe extern "C-unwind" fn fetch(
    expression: *mut ExprState,
    step: *mut ExprEvalStep,
    context: *mut ExprContext,
) {
    // SAFETY: a step of this kind whose state went through exec_setup; the container is not null (fetch_strict).
    unsafe {
        guarded(move || {
            let zson = *(*step).resvalue;
            let state = (*step).d.sbsref.state;
            match part_of(zson, Wanted::Jsonb, |path| follow(state, path)) {
                Ok(Some(part)) => {
                    *(*step).resvalue = part;
                    return;
                }
                Ok(None) => {
                    *(*step).resnull = true;
                    return;
                }
                Err(Elsewhere) => {}
            }
            let container = value::view(zson);
            let part = as_jsonb(|steps| steps.sbs_fetch, expression, step, context, container).container;
            *(*step).resvalue = if part == container { value::copy(zson) } else { part };
        });
    }
}

unsafe extern "C-unwind" fn assign(
    expression: *mut ExprState,
    step: *mut ExprEvalStep,
    context: *mut ExprContext,
) {
    // SAFETY: a step of this kind whose state went through exec_setup.
    unsafe {
        guarded(move || {
            let done = as_jsonb(|steps| steps.sbs_assign, expression, step, context, container_of(step));
            if !*(*step).resnull {
                *(*step).resvalue = value::pack(done.container, done.typmod);
            }
        });
    }
}

unsafe extern "C-unwind" fn fetch_old(
    expression: *mut ExprState,
    step: *mut ExprEvalStep,
    context: *mut ExprContext,
) {
    // SAFETY: a step of this kind whose state went through exec_setup. The container stays for the assignment.
    unsafe {
        guarded(move || {
            let done = as_jsonb(|steps| steps.sbs_fetch_old, expression, step, context, container_of(step));
            (*(*step).d.sbsref.state).prevvalue = done.state.prevvalue;
            (*(*step).d.sbsref.state).prevnull = done.state.prevnull;
        });
    }
}
