//! One 8 KB page to a payload and back, exactly.

/// Bytes of a page: PostgreSQL's `BLCKSZ`.
pub const PAGE_SIZE: usize = 8192;
