//! Where the daemon listens, and what it needs for that.

use super::*;

/// Shows X7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_this_machine_needs_tokens() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        for config in ["", "[auth]\nlocal_payloads = true\n"] {
            let config = format!("[server]\nbind = \"{address}\"\n{config}{QUIET}");
            let said = Daemon::bound_by(&config).refused().await;
            assert!(
                said.contains("no tokens are configured"),
                "{address}: {said}"
            );
        }
        let said = Daemon::new(QUIET).bind(address).refused().await;
        assert!(
            said.contains("no tokens are configured"),
            "{address}: {said}"
        );
    }
    for address in ["127.0.0.1:0", "127.0.0.2:0"] {
        Daemon::new(QUIET).bind(address).start().await;
    }
    let daemon = Daemon::new(&format!("{QUIET}{TOKENS}"))
        .bind("0.0.0.0:0")
        .start()
        .await;
    assert!(
        daemon.stdout().contains("http://0.0.0.0:"),
        "{}",
        daemon.stdout()
    );
}
