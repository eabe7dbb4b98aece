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

use super::patience::Patient;
use super::{App, Problem, origin, routes};

/// hyper wants no smaller buffer for headers.
const SMALLEST_BUFFER: usize = 8_192;

/// Bytes of bodies that may be in memory at once: of callers who are known, and again of strangers, who
/// cannot take that from them. Beyond it senders are told to come again.
const BODIES: usize = 32 << 20;

/// How long open connections have to end after the daemon was told to stop.
const GOODBYE: Duration = Duration::from_secs(5);

/// Serves until it is told to stop, then lets requests that have begun end.
pub(crate) async fn serve(listener: TcpListener, app: App, stop: CancellationToken) {
    let limits = &app.config.server;
    let places = Arc::new(Semaphore::new(limits.connections));
    let host = Host {
        routes: routes(Arc::clone(&app)),
        known: Arc::new(Semaphore::new(BODIES)),
        strangers: Arc::new(Semaphore::new(BODIES)),
        app: Arc::clone(&app),
    };
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
        let (host, stop) = (host.clone(), stop.clone());
        connections.spawn(async move {
            host.serve(stream, stop).await;
            drop(place);
        });
    }
    connections.close();
    let _ = tokio::time::timeout(GOODBYE, connections.wait()).await;
}

/// Who answers the requests of every connection.
#[derive(Clone)]
struct Host {
    app: App,
    routes: Router,
    /// What is left of [`BODIES`] for callers who are known.
    known: Arc<Semaphore>,
    /// And for those who are not.
    strangers: Arc<Semaphore>,
}

impl Host {
    async fn serve(self, stream: TcpStream, stop: CancellationToken) {
        let _ = stream.set_nodelay(true);
        let limits = &self.app.config.server;
        let stream = Patient::new(stream, limits.read_timeout);
        let mut server = http1::Builder::new();
        server
            .timer(TokioTimer::new())
            .header_read_timeout(limits.read_timeout)
            .max_buf_size(limits.header_limit.max(SMALLEST_BUFFER));
        let service = service_fn(move |request: Request<Incoming>| {
            let host = self.clone();
            async move { Ok::<_, Infallible>(host.answer(request).await) }
        });
        let serving = server.serve_connection(TokioIo::new(stream), service);
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            biased;
            _ = serving.as_mut() => return,
            () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
        }
        let _ = serving.await;
    }

    async fn answer(self, request: Request<Incoming>) -> Response {
        let mut held = None;
        let mut response = match self.admit(request, &mut held).await {
            Ok(request) => self.route(request).await,
            Err(problem) => problem.into_response(),
        };
        origin::secure(response.headers_mut());
        response
    }

    /// Finds out who sends a request and from where, and reads its whole body within its limits, before
    /// anybody looks at it.
    async fn admit(
        &self,
        request: Request<Incoming>,
        held: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Request<Body>, Problem> {
        let (mut parts, body) = request.into_parts();
        let is_webhook = parts.uri.path().starts_with("/hooks/");
        if !is_webhook {
            origin::check(&self.app.auth, &parts)?;
        }
        let share = match self.app.auth.caller(&parts.headers) {
            Some(caller) => {
                parts.extensions.insert(caller);
                &self.known
            }
            None if is_webhook || parts.uri.path() == "/login" => &self.strangers,
            // Nobody will look at the body of somebody who may do nothing.
            None => return Ok(Request::from_parts(parts, Body::empty())),
        };
        let patience = self.app.config.server.read_timeout;
        let body = tokio::time::timeout(patience, self.read(body, share, held))
            .await
            .map_err(|_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body took too long"))??;
        Ok(Request::from_parts(parts, Body::from(body)))
    }

    async fn route(self, request: Request<Body>) -> Response {
        match self.routes.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    async fn read(
        &self,
        mut body: Incoming,
        share: &Arc<Semaphore>,
        held: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Vec<u8>, Problem> {
        let mut read = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body broke off"))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let limit = self.app.config.server.body_limit;
            if read.len() + data.len() > limit {
                return Err(Problem::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!("a body may have {limit} bytes at most"),
                ));
            }
            let more = u32::try_from(data.len())
                .ok()
                .and_then(|bytes| Arc::clone(share).try_acquire_many_owned(bytes).ok())
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
