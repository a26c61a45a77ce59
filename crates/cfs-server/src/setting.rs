//! What a tablespace's option `compression` says.
