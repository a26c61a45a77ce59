//! Codecs on samples, beside what the engines make of the whole.

mod budgets;
mod engine;
mod hostile;
mod pages;
mod rebuilt;
mod rules;
mod taken;
mod text;
mod zson;
