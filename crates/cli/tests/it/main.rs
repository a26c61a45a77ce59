//! The command line from outside, and the rewriting of commands as tables.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up its case fails")]

mod arguments;
mod backup;
mod backup_auto;
mod backup_boot;
mod backup_boot_damage;
mod backup_boot_ends;
mod backup_configuration;
mod backup_cuts;
mod backup_durable;
mod backup_expire;
mod backup_formats;
mod backup_parallel;
mod backup_permissions;
mod backup_refusals;
mod backup_restore;
mod backup_resume;
mod backup_sealed;
mod backup_settings;
mod backup_spaces;
mod backup_stores;
mod backup_takeovers;
mod backup_ways;
mod cfs;
mod cfs_check_server;
mod cfs_kills;
mod cfs_refusals;
mod cfs_trees;
mod config;
mod decode;
mod observe;
mod rewrite;
mod run;
mod service;
mod world;
