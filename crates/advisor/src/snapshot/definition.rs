//! What belongs to a table and must be there again after a rewrite.

use serde::{Deserialize, Serialize};

/// All that belongs to a table, as SQL that the server gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Definition {}
