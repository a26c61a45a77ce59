//! The report in its forms.

pub mod example;
mod json;
mod page;
mod sql;
mod text;
