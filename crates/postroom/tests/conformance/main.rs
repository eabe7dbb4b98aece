//! The specification as tests: one suite of modules, mounted once per database. A test's doc comment
//! names the requirements that it shows; `cargo xtask spec` collects them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod dispatch_handlers;
mod dispatch_joins;
mod dispatch_lease;
mod dispatch_logs;
mod dispatch_loop;
mod dispatch_retry;
mod dispatch_scene;
mod dispatch_stop;
mod dispatch_trace;
mod dispatch_transaction;
mod dispatch_wake;
mod events;
mod fleet;
mod fleet_connections;
mod fleet_discovery;
mod fleet_outage;
mod fleet_strategy;
mod inbox_admin;
mod inbox_claim;
mod inbox_dedup;
mod inbox_enqueue;
mod inbox_observability;
mod inbox_schema;
mod inbox_settle;
mod jobs;
mod jobs_schedule;
mod join_admin;
mod join_counting;
mod join_members;
mod join_observability;
mod join_start;
mod join_wait;
mod join_wait_handler;
mod limits;
mod logs;
mod observability;
mod observe;
mod outbox_admin;
mod outbox_claim;
mod outbox_consistency;
mod outbox_enqueue;
mod outbox_reap;
mod outbox_settle;
mod races;
mod schema;
mod schema_upgrade;
mod testing;
mod transport;
mod transport_dispatch;
mod work;
