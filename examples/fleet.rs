//! A database per tenant, worked by one dispatcher. Tenants come and go while it runs, and one whose
//! database is down holds up nobody.
//!
//! ```sh
//! cargo run -p postroom --example fleet
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use postroom::fleet::{Discovery, DiscoveryError, StoreKey};
use postroom::{Delivery, ErrorKind, Fleet, Message, Options, Running};

/// Every folder is a tenant. A real one would look into a table.
struct Tenants(PathBuf);

impl Discovery for Tenants {
    async fn discover(&self) -> Result<Vec<(StoreKey, Options)>, DiscoveryError> {
        let mut tenants: Vec<(StoreKey, Options)> = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let options = Options::new(format!(
                "sqlite:{}",
                entry.path().join("tenant.db").display()
            ));
            tenants.push((name.into(), options.deploy(true)));
        }
        tenants.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(tenants)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let root = tempfile::tempdir()?;
    let folder = |tenant: &str| root.path().join(tenant);

    println!("1. A fleet may start with no store at all");
    let fleet = Fleet::builder()
        .discover(Tenants(root.path().to_owned()))
        .open()
        .await?;
    assert!(fleet.keys().is_empty());
    let running = fleet
        .dispatcher()
        .error_delay(Duration::from_millis(200))
        .on("order.created", |delivery: Delivery| async move {
            let tenant = delivery.room().key().unwrap_or_default();
            println!("   {tenant}: order {}", delivery.payload());
        })
        .start()?;

    println!("2. Two tenants are found, and their messages handled, each from its own database");
    std::fs::create_dir(folder("acme"))?;
    std::fs::create_dir(folder("globex"))?;
    let changes = fleet.refresh().await?;
    println!("   added: {}, {}", changes.added[0], changes.added[1]);
    enqueue(&fleet, "acme", &["1", "2"]).await?;
    enqueue(&fleet, "globex", &["3"]).await?;
    handled(&running, 3).await;

    println!("3. A third tenant's database cannot be opened: the others do not notice");
    std::fs::create_dir(folder("initech"))?;
    let blocked = folder("initech").join("tenant.db");
    std::fs::create_dir(&blocked)?;
    fleet.refresh().await?;
    assert!(fleet.room("initech").is_err());
    enqueue(&fleet, "acme", &["4"]).await?;
    handled(&running, 4).await;

    println!("4. It is repaired, and taken up without a restart");
    std::fs::remove_dir(blocked)?;
    deployed(&fleet, "initech").await?;
    enqueue(&fleet, "initech", &["5"]).await?;
    handled(&running, 5).await;

    println!("5. A tenant leaves");
    let moved = moved_out(root.path(), "globex")?;
    let changes = fleet.refresh().await?;
    println!("   removed: {}; kept: {}", changes.removed[0], changes.kept);
    let error = fleet.outbox("globex").err().map(|error| error.kind());
    assert_eq!(error, Some(ErrorKind::NotFound { what: "store" }));

    let report = running.stop().await;
    println!(
        "\n{} orders handled, every number as it should be.",
        report.done
    );
    assert_eq!((report.done, report.retried, report.dead), (5, 0, 0));
    drop(moved);
    Ok(())
}

async fn enqueue(fleet: &Fleet, tenant: &str, orders: &[&str]) -> Result<(), postroom::Error> {
    let outbox = fleet.outbox(tenant)?;
    for order in orders {
        outbox
            .enqueue(&Message::new("order.created", *order))
            .await?;
    }
    Ok(())
}

async fn handled(running: &Running, orders: u64) {
    while running.report().done < orders {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The dispatcher opens and deploys a store as soon as that can be done.
async fn deployed(fleet: &Fleet, tenant: &str) -> Result<(), postroom::Error> {
    let room = fleet.room(tenant)?;
    while room.verify().await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// The tenant's folder, in a place where nobody looks for tenants.
fn moved_out(root: &Path, tenant: &str) -> std::io::Result<tempfile::TempDir> {
    let elsewhere = tempfile::tempdir()?;
    std::fs::rename(root.join(tenant), elsewhere.path().join(tenant))?;
    Ok(elsewhere)
}
