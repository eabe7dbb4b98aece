//! When a process is asked to stop.

/// Comes back when the process is asked to stop: SIGTERM, as a supervisor sends it, or Ctrl-C. For
/// [`Dispatcher::run_until`](crate::Dispatcher::run_until).
///
/// ```no_run
/// # async fn example(room: postroom::Postroom) -> Result<(), postroom::Error> {
/// let dispatcher = room.dispatcher().on("order.created", |_: postroom::Delivery| async {});
/// let report = dispatcher.run_until(postroom::stop_signal()).await?;
/// println!("handled {} messages", report.handled());
/// # Ok(())
/// # }
/// ```
pub async fn stop_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (Ok(mut terminated), Ok(mut interrupted)) = (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
        ) else {
            tracing::error!("signals cannot be received; the process has to be stopped otherwise");
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    }
    #[cfg(not(unix))]
    if tokio::signal::ctrl_c().await.is_err() {
        tracing::error!("signals cannot be received; the process has to be stopped otherwise");
        std::future::pending::<()>().await;
    }
}
