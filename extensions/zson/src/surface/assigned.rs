//! `UPDATE ... SET doc = doc || patch`: the document is changed as it is stored, where that is possible.
//!
//! `||` gives a jsonb, which the assignment then encodes. Where the planner meets the one inside the other, it is given a
//! function that does both, and needs the document itself only if the stored one cannot be patched.
// The planner's nodes and the server's call convention are pointers.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::ptr;

use pgrx::pg_sys::{
    self, CmdType, CoercionForm, Const, Datum, FuncExpr, FunctionCallInfo, List, Node, NodeTag, Oid, OpExpr,
    PlannerInfo, RangeTblEntry, SupportRequestSimplify,
};

use super::call::{Call, document};
use crate::sys::{self, pg_function, raw};
use crate::value;

unsafe extern "C-unwind" {
    fn jsonb_concat(fcinfo: FunctionCallInfo) -> Datum;
}

pg_function! {
    /// `zson_concat_assigned(zson, jsonb, int4 typmod)`: `doc || patch` as a column of the typmod is assigned it.
    fn zson_concat_assigned(fcinfo) {
        let typmod = sys::int4_arg(fcinfo, 2, -1);
        // It is fetched once, whatever becomes of it.
        let doc = Datum::from(raw::pg_detoast_datum_packed(sys::arg(fcinfo, 0).cast_mut_ptr()));
        match value::patched(doc, sys::arg(fcinfo, 1), typmod) {
            Some(patched) => patched,
            None => {
                // The caller keeps its record, and what is in it.
                let mut call = Call::like(fcinfo);
                call.set_arg(0, doc);
                value::pack(document((&raw mut call).cast(), [0], jsonb_concat), typmod)
            }
        }
    }
    /// `zson_assign_support(internal)`: plans what is assigned to a zson.
    fn zson_assign_support(fcinfo) {
        let request = sys::arg(fcinfo, 0).cast_mut_ptr::<Node>();
        if (*request).type_ != NodeTag::T_SupportRequestSimplify {
            return Datum::null();
        }
        let request = request.cast::<SupportRequestSimplify>();
        Datum::from(simplified((*request).root, (*request).fcall))
    }
}

/// The call that is to be planned instead of a cast to zson; null for most.
///
/// # Safety
/// Called by the planner, for a call of `jsonb_to_zson(jsonb, int4, bool)`.
unsafe fn simplified(root: *mut PlannerInfo, cast: *mut FuncExpr) -> *mut Node {
    // SAFETY: by the caller; nodes are of the types that their tags say.
    unsafe {
        let [given, typmod, is_explicit] = nodes((*cast).args) else { return ptr::null_mut() };
        if !assigns(root) || !is_constant(*typmod) || !is_constant(*is_explicit) {
            return ptr::null_mut();
        }
        let (function, operands) = match (**given).type_ {
            NodeTag::T_OpExpr => {
                let operator = given.cast::<OpExpr>();
                ((*operator).opfuncid, (*operator).args)
            }
            NodeTag::T_FuncExpr => {
                let call = given.cast::<FuncExpr>();
                ((*call).funcid, (*call).args)
            }
            _ => return ptr::null_mut(),
        };
        let [doc, patch] = nodes(operands) else { return ptr::null_mut() };
        let (zson, jsonb) = ((*cast).funcresulttype, pg_sys::JSONBOID);
        let ours = |name: &CStr, types: &[Oid]| of_schema_of((*cast).funcid, name, types);
        let is_known = |known: Oid| known != Oid::INVALID && known == function;
        let assigned = ours(c"zson_concat_assigned", &[zson, jsonb, pg_sys::INT4OID]);
        if ![(*cast).funcid, function, assigned].into_iter().all(may_execute) {
            return ptr::null_mut();
        }
        let patch = if is_known(ours(c"zson_concat_jsonb", &[zson, jsonb])) {
            *patch
        } else if is_known(ours(c"zson_concat", &[zson, zson])) {
            let to_jsonb = ours(c"zson_to_jsonb", &[zson]);
            if !may_execute(to_jsonb) {
                return ptr::null_mut();
            }
            let decoded = call(to_jsonb, jsonb, pg_sys::lappend(ptr::null_mut(), patch.cast()));
            // A constant is decoded once. Anything else was simplified before, and must not be again: that would forget which
            // functions are being inlined.
            if is_constant(*patch) { pg_sys::eval_const_expressions(root, decoded) } else { decoded }
        } else {
            return ptr::null_mut();
        };
        let arguments = [*doc, patch, *typmod].into_iter();
        call(assigned, zson, arguments.fold(ptr::null_mut(), |list, node| pg_sys::lappend(list, node.cast())))
    }
}

/// Whether a statement writes rows of its own server, and has no expressions that are looked for elsewhere in its plan, as those of
/// GROUP BY are.
///
/// # Safety
/// What the planner is given, or null.
unsafe fn assigns(root: *const PlannerInfo) -> bool {
    // SAFETY: by the caller.
    unsafe {
        let Some(query) = root.as_ref().and_then(|root| root.parse.as_ref()) else { return false };
        let writes =
            matches!(query.commandType, CmdType::CMD_UPDATE | CmdType::CMD_INSERT | CmdType::CMD_MERGE);
        let has_groups = query.hasAggs || !query.groupClause.is_null() || !query.groupingSets.is_null();
        let is_foreign = |table: &*mut Node| {
            (*table.cast::<RangeTblEntry>()).relkind as u8 == pg_sys::RELKIND_FOREIGN_TABLE
        };
        writes && !has_groups && !nodes(query.rtable).iter().any(is_foreign)
    }
}

/// Whether a node is a constant that is not null.
///
/// # Safety
/// `node` is one.
unsafe fn is_constant(node: *const Node) -> bool {
    // SAFETY: by the caller; a node is of the type that its tag says.
    unsafe { (*node).type_ == NodeTag::T_Const && !(*node.cast::<Const>()).constisnull }
}

/// Whether the current user may call a function, as the server asks before it inlines one.
fn may_execute(function: Oid) -> bool {
    if function == Oid::INVALID {
        return false;
    }
    // SAFETY: catalog lookups.
    let result = unsafe {
        let (user, mode) = (pg_sys::GetUserId(), pg_sys::ACL_EXECUTE as pg_sys::AclMode);
        #[cfg(feature = "pg15")]
        let result = pg_sys::pg_proc_aclcheck(function, user, mode);
        #[cfg(not(feature = "pg15"))]
        let result = pg_sys::object_aclcheck(pg_sys::ProcedureRelationId, function, user, mode);
        result
    };
    result == pg_sys::AclResult::ACLCHECK_OK
}

/// A list's nodes.
///
/// # Safety
/// A list of nodes, or null, that outlives `'a`.
unsafe fn nodes<'a>(list: *mut List) -> &'a [*mut Node] {
    // SAFETY: by the caller; a cell is a pointer.
    unsafe {
        let Some(list) = list.as_ref() else { return &[] };
        std::slice::from_raw_parts(list.elements.cast(), usize::try_from(list.length).unwrap_or(0))
    }
}

unsafe fn call(function: Oid, result: Oid, arguments: *mut List) -> *mut Node {
    // SAFETY: the server makes a node.
    unsafe {
        let form = CoercionForm::COERCE_EXPLICIT_CALL;
        pg_sys::makeFuncExpr(function, result, arguments, Oid::INVALID, Oid::INVALID, form).cast()
    }
}

/// The function of this name and of these types in the schema of another one; invalid if there is none.
fn of_schema_of(other: Oid, name: &CStr, types: &[Oid]) -> Oid {
    // SAFETY: catalog lookups with the keys of the cache.
    unsafe {
        pg_sys::GetSysCacheOid(
            pg_sys::SysCacheIdentifier::PROCNAMEARGSNSP as c_int,
            1,
            Datum::from(name.as_ptr()),
            Datum::from(pg_sys::buildoidvector(types.as_ptr(), types.len() as c_int)),
            Datum::from(pg_sys::get_func_namespace(other)),
            Datum::null(),
        )
    }
}
