//! What the layout of PostgreSQL's tables wastes, from sampled rows.
//!
//! This crate refuses to know a server, a clock or a file: it gets columns and the sizes of values, and the same input gives the
//! same answer. It multiplies nothing: rows are laid out byte by byte, as the server does it, and put into pages one by one.
//!
//! ```text
//!   columns, sizes of sampled values --> layout::order --> an order of columns
//!                                   \--> layout::Shape --> bytes of each row --> layout::heap --> pages
//! ```
//!
//! So far it knows the heap: rows, alignment, NULL bitmaps, dropped columns, fillfactor, and the best order of columns.

pub mod layout;
