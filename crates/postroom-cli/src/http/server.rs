//! The listener: so many connections at once, and none that is slow for ever.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::Problem;
use crate::config::Server;

/// hyper wants no smaller buffer for headers.
const SMALLEST_BUFFER: usize = 8_192;

/// Bytes of bodies that may be in memory at once, whoever sends them. Beyond that senders are told to come
/// again.
const BODIES: usize = 64 << 20;

/// How long open connections have to end after the daemon was told to stop.
const GOODBYE: Duration = Duration::from_secs(5);

/// Serves until it is told to stop, then lets requests that have begun end.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    limits: &Server,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let bodies = Arc::new(Semaphore::new(BODIES));
    let connections = TaskTracker::new();
    loop {
        // Whoever finds no place waits in the system's queue, and costs nothing.
        let place = tokio::select! {
            () = stop.cancelled() => break,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let connection = Connection {
            routes: routes.clone(),
            bodies: Arc::clone(&bodies),
            body_limit: limits.body_limit,
            header_limit: limits.header_limit,
            patience: limits.read_timeout,
        };
        let stop = stop.clone();
        connections.spawn(async move {
            connection.serve(stream, stop).await;
            drop(place);
        });
    }
    connections.close();
    let _ = tokio::time::timeout(GOODBYE, connections.wait()).await;
}

#[derive(Clone)]
struct Connection {
    routes: Router,
    /// What is left of [`BODIES`].
    bodies: Arc<Semaphore>,
    body_limit: usize,
    header_limit: usize,
    /// For the headers, and again for the body.
    patience: Duration,
}

impl Connection {
    async fn serve(self, stream: TcpStream, stop: CancellationToken) {
        let _ = stream.set_nodelay(true);
        let mut server = http1::Builder::new();
        server
            .timer(TokioTimer::new())
            .header_read_timeout(self.patience)
            .max_buf_size(self.header_limit.max(SMALLEST_BUFFER));
        let service = service_fn(move |request: Request<Incoming>| {
            let connection = self.clone();
            async move { Ok::<_, Infallible>(connection.answer(request).await) }
        });
        let serving = server.serve_connection(TokioIo::new(stream), service);
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            _ = serving.as_mut() => return,
            () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
        }
        let _ = serving.await;
    }

    /// Reads the whole body, within its limits, before anybody looks at it.
    async fn answer(self, request: Request<Incoming>) -> Response {
        let (parts, body) = request.into_parts();
        let mut held = None;
        let body = match tokio::time::timeout(self.patience, self.read(body, &mut held)).await {
            Ok(Ok(body)) => body,
            Ok(Err(problem)) => return problem.into_response(),
            Err(_) => {
                return Problem::new(StatusCode::REQUEST_TIMEOUT, "the body took too long")
                    .into_response();
            }
        };
        let request = Request::from_parts(parts, Body::from(body));
        match self.routes.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    async fn read(
        &self,
        mut body: Incoming,
        held: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Vec<u8>, Problem> {
        let mut read = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body broke off"))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if read.len() + data.len() > self.body_limit {
                return Err(Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!("a body may have {} bytes at most", self.body_limit),
                ));
            }
            let more = u32::try_from(data.len())
                .ok()
                .and_then(|bytes| Arc::clone(&self.bodies).try_acquire_many_owned(bytes).ok())
                .ok_or_else(|| {
                    Problem::new(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "too many requests are being sent at once; try again",
                    )
                    .retry_after(1)
                })?;
            match held {
                None => *held = Some(more),
                Some(held) => held.merge(more),
            }
            read.extend_from_slice(&data);
        }
        Ok(read)
    }
}
