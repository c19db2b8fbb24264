//! The server: a few connections at a time, each for a limited time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;
use tokio::task::{self, JoinHandle};

use super::Shown;
use super::pictures::Pictures;

/// A server in a thread.
pub(super) struct Server {
    stop: oneshot::Sender<Duration>,
    thread: thread::JoinHandle<()>,
}

/// What answers are made of.
struct Source {
    shown: Arc<Mutex<Shown>>,
    pictures: Option<Pictures>,
}

/// Serves in a thread of its own.
pub(super) fn start(
    listener: TcpListener,
    shown: Arc<Mutex<Shown>>,
    pictures: Option<Pictures>,
) -> io::Result<Server> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let source = Arc::new(Source { shown, pictures });
    let (stop, stopped) = oneshot::channel();
    let serve = move || serve(runtime, listener, &source, stopped);
    let thread = thread::Builder::new().name("cuframes-http".into()).spawn(serve)?;
    Ok(Server { stop, thread })
}

impl Server {
    /// Lets those who are being answered have so much more time.
    pub(super) fn stop(self, grace: Duration) {
        let _ = self.stop.send(grace);
        let _ = self.thread.join();
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it ends here, with all that it runs")]
fn serve(
    runtime: Runtime,
    listener: tokio::net::TcpListener,
    source: &Arc<Source>,
    stopped: oneshot::Receiver<Duration>,
) {
    let accept = async {
        // The oldest first.
        let mut connections = VecDeque::<JoinHandle<()>>::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // No descriptors are left: those of the oldest will be, or of somebody else.
                close_oldest(&mut connections);
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            connections.retain(|connection| !connection.is_finished());
            // Whoever asks has been answered long ago, if 64 have come since: what is in the way says nothing.
            while connections.len() >= MOST_CONNECTIONS {
                close_oldest(&mut connections);
            }
            connections.push_back(tokio::spawn(serve_one(stream, Arc::clone(source))));
            // It gets a turn before the next one comes, however many are waiting.
            task::yield_now().await;
        }
    };
    let grace = runtime.block_on(async {
        tokio::select! {
            () = accept => Duration::ZERO,
            grace = stopped => grace.unwrap_or_default(),
        }
    });
    runtime.shutdown_timeout(grace);
}

async fn serve_one(stream: TcpStream, source: Arc<Source>) {
    let answer = service_fn(|request| answer(request, &source));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(MOST_HEADERS);
    let connection = builder.serve_connection(TokioIo::new(stream), answer);
    // Whatever became of it: the other side knows.
    let _ = tokio::time::timeout(LONGEST, connection).await;
}

fn close_oldest(connections: &mut VecDeque<JoinHandle<()>>) {
    if let Some(oldest) = connections.pop_front() {
        oldest.abort();
    }
}

async fn answer(request: Request<Incoming>, source: &Source) -> Result<Response<Full<Bytes>>, Infallible> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let shown = || source.shown.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(match request.uri().path() {
        "/" => page(),
        "/metrics" => ok("text/plain; version=0.0.4; charset=utf-8", shown().metrics.clone()),
        "/streams.json" => ok("application/json", shown().streams.clone()),
        path => match picture(path, source).await {
            Some(png) => ok("image/png", png),
            None => text(StatusCode::NOT_FOUND, "there is / and /metrics and /streams.json\n"),
        },
    })
}

/// The picture that `/frame/KEY.png` means.
async fn picture(path: &str, source: &Source) -> Option<Bytes> {
    let key = path.strip_prefix("/frame/")?.strip_suffix(".png")?.parse().ok()?;
    source.pictures.as_ref()?.of(key).await
}

fn page() -> Response<Full<Bytes>> {
    let mut response = ok("text/html; charset=utf-8", PAGE);
    // Nothing from elsewhere, whatever names processes give themselves.
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

fn ok(kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = ok("text/plain; charset=utf-8", body);
    *response.status_mut() = status;
    response
}

const PAGE: &str = include_str!("page.html");
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src 'self'";
const MOST_CONNECTIONS: usize = 64;
const MOST_HEADERS: usize = 16 << 10;
/// How long a request may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may last.
const LONGEST: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(100);
