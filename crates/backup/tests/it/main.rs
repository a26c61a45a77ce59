//! Tests of backups against real servers.
