//! The report in its forms.

pub mod example;
mod text;
