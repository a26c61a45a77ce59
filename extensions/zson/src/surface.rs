//! What jsonb can do, on zson: operators, casts to scalars, operator classes, subscripting.
//!
//! Nothing of jsonb's meaning is written down here, but for [`part`]s of documents that are stored by their shapes. Each function replaces its zson arguments by the jsonb they stand
//! for and calls the server's function of jsonb, so results, errors and NULLs are the server's, whatever its version.
//! What is not here works through the implicit cast from zson to jsonb.
//!
//! 1. What an operator is given is never changed: the server's function gets a [`call`] of its own. Callers keep call
//!    records, with constant arguments filled in once, and an ERROR may leave at any time.
//! 2. A view is borrowed. Where the server's function may hand back its argument, the result is copied.
//! 3. Equality, order and hash are jsonb's, never those of the stored bytes: the same document is stored in many ways.
//!
//! | file | owns |
//! |---|---|
//! | `call` | calling a jsonb function with views in place of zson |
//! | `operators` | operators and casts, as tables |
//! | `contains` | whether documents that are stored by their shapes hold others |
//! | `part` | parts of documents that are stored by their shapes |
//! | `order` | what btree and hash operator classes are made of |
//! | `abbreviate` | keys for sorting that save decoding |
//! | `decoded` | what a sort has decoded |
//! | `document` | reading a jsonb's outermost level |
//! | `assigned` | `doc = doc || patch` without decoding the document |
//! | `gin` | what GIN operator classes are made of |
//! | `subscript` | `doc['a']['b']`, read and assigned |

mod abbreviate;
mod assigned;
mod call;
mod contains;
mod decoded;
mod document;
mod gin;
mod operators;
mod order;
mod part;
mod subscript;
