//! x
use super::Picture;
use crate::finding::Report;
/// x
pub fn html(_: &Report) -> String {
    String::new()
}
/// x
pub fn html_with_picture(_: &Report, _: &Picture) -> String {
    String::new()
}
