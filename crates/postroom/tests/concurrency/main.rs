//! Many tasks in many real processes on one database: nothing is claimed twice at once, nothing is lost,
//! nobody settles what it does not hold.

#![allow(clippy::unwrap_used, reason = "tests")]

mod deploy;
mod dispatchers;
mod expired;
mod history;
mod inbox;
mod joins;
mod process;
mod workers;
mod writers;

use process::Place;

/// What a child process runs. Without an order from a parent it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Some(place) = Place::given() else { return };
    match place.role.as_str() {
        "work" => workers::work(place).await,
        "receive" => inbox::receive(place).await,
        "deploy" => deploy::deploy(place).await,
        "write" => writers::write(place).await,
        role => panic!("unknown role {role}"),
    }
}
