//! The listener: so many connections at once, and none that is slow for ever.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::IntoResponse;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::Problem;
use crate::config::Server;

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
        let (routes, limits, stop) = (routes.clone(), limits.clone(), stop.clone());
        connections.spawn(async move {
            connection(stream, routes, &limits, stop).await;
            drop(place);
        });
    }
    connections.close();
    let _ = tokio::time::timeout(GOODBYE, connections.wait()).await;
}

async fn connection(stream: TcpStream, routes: Router, limits: &Server, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let (limit, patience) = (limits.body_limit, limits.read_timeout);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let routes = routes.clone();
        async move { Ok::<_, Infallible>(answer(request, routes, limit, patience).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(limits.header_limit.max(8_192))
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// Reads the whole body, within its limits, before anybody looks at it.
async fn answer(
    request: Request<Incoming>,
    routes: Router,
    limit: usize,
    patience: Duration,
) -> axum::response::Response {
    let (parts, body) = request.into_parts();
    let read = tokio::time::timeout(patience, Limited::new(body, limit).collect()).await;
    let body = match read {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let text = format!("a body may have {limit} bytes at most");
            return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
        }
        Ok(Err(_)) => {
            return Problem::new(StatusCode::BAD_REQUEST, "the body broke off").into_response();
        }
        Err(_) => {
            return Problem::new(StatusCode::REQUEST_TIMEOUT, "the body took too long")
                .into_response();
        }
    };
    let request = Request::from_parts(parts, Body::from(body));
    match routes.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
