//! The dashboard in a real browser: every page, every form, and what must not work.

#[path = "../browser/mod.rs"]
mod browser;
#[path = "../daemon/mod.rs"]
mod daemon;

mod dead;
mod hostile;
mod looks;
mod people;
mod showing;
mod stocked;

use std::time::{Duration, SystemTime};

use browser::{Browser, corpus};
use daemon::Daemon;
use postroom::{
    Abandon, Inbound, InboxMessageId, InboxState, JoinId, JoinWait, List, Message, NewJoin,
    OwnerToken, Postroom, State, WorkItemId,
};
use serde_json::json;
use stocked::{die, pages, shop};
use testkit::{Backend, Fixture, LEASE};

/// Nothing is dispatched: messages stay as the test has put them.
const STILL: &str = "[dispatch]\nenabled = false\n";

/// A daemon on a fresh store, and a browser at it.
struct Scene {
    browser: Browser,
    daemon: Daemon,
    fixture: Fixture,
}

impl Scene {
    /// Payloads may be seen.
    async fn new() -> Option<Self> {
        Self::with(&format!("{STILL}[auth]\nlocal_payloads = true\n")).await
    }

    async fn with(config: &str) -> Option<Self> {
        let fixture = Fixture::new(Backend::Sqlite).await;
        let daemon = Daemon::on(&fixture, config).start().await;
        let browser = Browser::open(format!("http://{}", daemon.address())).await?;
        Some(Self {
            browser,
            daemon,
            fixture,
        })
    }

    fn room(&self) -> &Postroom {
        &self.fixture.room
    }

    async fn dead(&self) -> usize {
        let list = List::new(State::Dead);
        self.room()
            .outbox()
            .list(&list)
            .await
            .expect("a list")
            .len()
    }
}
