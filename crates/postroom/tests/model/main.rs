//! Random sequences of every operation, by several owners with fresh and stale tokens, on a real
//! database and on a small model of what the requirements say. After every step the whole observable
//! state must be the same. Time is logical: leases last for hours, and the steps [`op::Op::Expire`],
//! [`op::Op::Pass`] and [`op::Op::Age`] move it by SQL.
//!
//! `POSTROOM_MODEL_CASES` sets how many sequences are tried.

#![allow(clippy::unwrap_used, reason = "tests")]

mod drive;
mod model;
mod op;

use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use testkit::{Backend, Fixture};

/// Shows OBX-030, OBX-031, OBX-045, OBX-048, IBX-046, IBX-064, JOIN-023, C-18, C-21, C-31.
#[test]
fn sqlite_agrees_with_the_model() {
    agree(Backend::Sqlite, 96);
}

/// Shows OBX-030, OBX-031, OBX-045, OBX-048, IBX-046, IBX-064, JOIN-023, C-18, C-21, C-31.
#[test]
fn postgres_agrees_with_the_model() {
    agree(Backend::Postgres, 24);
}

/// Shows OBX-030, OBX-031, OBX-045, OBX-048, IBX-046, IBX-064, JOIN-023, C-18, C-21, C-31.
#[test]
fn mysql_agrees_with_the_model() {
    agree(Backend::MySql, 24);
}

/// Every sequence starts from nothing; that is faster than a store of its own for each.
const EMPTY: &str = "
    DELETE FROM {outbox}; DELETE FROM {outbox_done}; DELETE FROM {outbox_dead};
    DELETE FROM {inbox}; DELETE FROM {inbox_done}; DELETE FROM {inbox_dead}; DELETE FROM {inbox_seen};
    DELETE FROM {outbox_join_wait}; DELETE FROM {outbox_join_member}; DELETE FROM {outbox_join};";

fn agree(backend: Backend, cases: u32) {
    let cases = std::env::var("POSTROOM_MODEL_CASES").map_or(cases, |text| text.parse().unwrap());
    let config = Config {
        cases,
        max_shrink_iters: 2_000,
        max_shrink_time: 120_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/model/regressions.txt"
        )))),
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let fixture = runtime.block_on(Fixture::new(backend));
    let outcome = TestRunner::new(config).run(&op::sequences(), |ops| {
        runtime.block_on(async {
            fixture.sql(EMPTY).await;
            run(&fixture, ops).await
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

async fn run(fixture: &Fixture, ops: Vec<op::Op>) -> Result<(), TestCaseError> {
    let mut driver = drive::Driver::new(fixture).await;
    for op in ops {
        driver.step(&op).await?;
        driver.compare().await.map_err(|error| match error {
            TestCaseError::Fail(reason) => TestCaseError::fail(format!("after {op:?}: {reason}")),
            reject => reject,
        })?;
    }
    Ok(())
}
