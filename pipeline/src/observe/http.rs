//! A small HTTP server for one page of text.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use tracing::debug;

use crate::error::JobError;

/// Path of the page.
pub const PATH: &str = "/metrics";
/// What the page is, by Prometheus's definition of its text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Longest head of a request.
const MOST_BYTES: usize = 8 << 10;
/// Longest that one client may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most clients at a time. Others are told so at once.
const CLIENTS: usize = 64;
/// How often a waiting server looks whether it shall stop.
const PAUSE: Duration = Duration::from_millis(20);

/// Serves a page until it is dropped. Clients have a thread each, so that one that says nothing is in nobody's way; nor does
/// the end wait for it.
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves what `page` makes at every request, at [`PATH`].
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn start(listener: TcpListener, page: impl Fn() -> String + Send + Sync + 'static) -> Result<Self, JobError> {
        Self::start_with(listener, PATIENCE, page)
    }

    fn start_with(
        listener: TcpListener,
        patience: Duration,
        page: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Self, JobError> {
        let failed = |e| JobError::io("cannot serve metrics", e);
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let page: Arc<Page> = Arc::new(page);
        let clients = Arc::new(AtomicUsize::new(0));
        let serve = move || {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((client, _)) => begin(client, patience, &page, &clients),
                    Err(_) => sleep(PAUSE),
                }
            }
        };
        let thread = Builder::new().name("metrics".into()).spawn(serve).map_err(failed)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes what is served.
type Page = dyn Fn() -> String + Send + Sync;

/// What becomes of a client is its own matter.
fn begin(mut client: TcpStream, patience: Duration, page: &Arc<Page>, clients: &Arc<AtomicUsize>) {
    let page = Arc::clone(page);
    if clients.load(Ordering::Relaxed) >= CLIENTS {
        // A few bytes, which fit the empty buffer of a new connection.
        let _ = client.set_nonblocking(true).and_then(|()| client.write_all(&with_head("503 Service Unavailable", "")));
        return;
    }
    clients.fetch_add(1, Ordering::Relaxed);
    let place = Place(Arc::clone(clients));
    let serve = move || {
        let _place = place;
        let _ = answer(client, patience, &*page).inspect_err(|error| debug!(%error, "a client left"));
    };
    // Where there is no thread for it the client is sent away.
    let _ = Builder::new().name("metrics-client".into()).spawn(serve);
}

/// A client's, among all of them.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(mut client: TcpStream, patience: Duration, page: &Page) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_write_timeout(Some(patience))?;
    let until = Instant::now() + patience;
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    while !is_complete(&head) && head.len() < MOST_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut part)? {
            0 => break,
            n => head.extend_from_slice(&part[..n]),
        }
    }
    client.write_all(&response(&head, page))?;
    client.shutdown(Shutdown::Write)
}

fn is_complete(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n")
}

/// The whole answer to a request.
fn response(head: &[u8], page: &Page) -> Vec<u8> {
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let hint = || format!("the metrics of this job are at {PATH}\n");
    let (status, body) = match words.as_slice() {
        [_, _, version] if version.starts_with(b"HTTP/") && !version.starts_with(b"HTTP/1.") => {
            ("505 HTTP Version Not Supported", hint())
        }
        _ if !is_complete(head) && head.len() >= MOST_BYTES => ("431 Request Header Fields Too Large", hint()),
        [b"GET" | b"HEAD", target, version] if is_complete(head) && version.starts_with(b"HTTP/") => {
            match path_of(target) {
                path if path == PATH.as_bytes() => ("200 OK", page()),
                b"/" => ("200 OK", hint()),
                _ => ("404 Not Found", hint()),
            }
        }
        [_, _, version] if version.starts_with(b"HTTP/") => ("405 Method Not Allowed", hint()),
        _ => ("400 Bad Request", hint()),
    };
    let mut answer = with_head(status, &body);
    if words.first() == Some(&b"HEAD".as_slice()) {
        answer.truncate(answer.len() - body.len());
    }
    answer
}

fn with_head(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {TEXT}\r\nContent-Length: {length}\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// What is asked for, without a query, and without the host that proxies put in front.
fn path_of(target: &[u8]) -> &[u8] {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let Some(rest) = path.strip_prefix(b"http://") else { return path };
    rest.iter().position(|byte| *byte == b'/').map_or(b"/", |slash| &rest[slash..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A server whose clients nobody's load sends away.
    fn started() -> Server {
        Server::start_with(TcpListener::bind("127.0.0.1:0").unwrap(), Duration::from_secs(600), page).unwrap()
    }

    fn page() -> String {
        "x 1\n".into()
    }

    fn text(request: &str) -> String {
        String::from_utf8(response(request.as_bytes(), &page)).unwrap()
    }

    #[test]
    fn requests_are_answered() {
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(MOST_BYTES));
        for (request, status, body) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK", "x 1\n"),
            ("GET /metrics?a=b HTTP/1.0\r\n\r\n", "200 OK", "x 1\n"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK", ""),
            ("GET / HTTP/1.1\r\n\r\n", "200 OK", "the metrics of this job are at /metrics\n"),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", "404 Not Found", "the metrics of this job are at /metrics\n"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed", "the metrics of this job are at /metrics\n"),
            ("GET /metrics\r\n\r\n", "400 Bad Request", "the metrics of this job are at /metrics\n"),
            ("GET /metrics HTTP/1.1\nHost: x\n\n", "200 OK", "x 1\n"),
            ("GET http://host:1/metrics HTTP/1.1\r\n\r\n", "200 OK", "x 1\n"),
            ("GET http://host HTTP/1.1\r\n\r\n", "200 OK", "the metrics of this job are at /metrics\n"),
            ("PRI * HTTP/2.0\r\n\r\n", "505 HTTP Version Not Supported", "the metrics of this job are at /metrics\n"),
            (&long, "431 Request Header Fields Too Large", "the metrics of this job are at /metrics\n"),
            ("", "400 Bad Request", "the metrics of this job are at /metrics\n"),
        ] {
            let answer = text(request);
            let (head, found) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {head}");
            assert_eq!(found, body, "{request}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer(head in prop::collection::vec(any::<u8>(), 0..200), request in "(GET|HEAD|[A-Z]*) [ -~]*") {
            for head in [head, request.into_bytes()] {
                prop_assert!(response(&head, &page).starts_with(b"HTTP/1.1 "));
            }
        }
    }

    #[test]
    fn clients_that_say_nothing_are_in_nobodys_way() {
        let server = started();
        let address = server.address();
        let silent: Vec<_> = (0..CLIENTS - 2).map(|_| TcpStream::connect(address).unwrap()).collect();
        // It may still be counted when the next one comes.
        drop(TcpStream::connect(address).unwrap());
        let mut client = TcpStream::connect(address).unwrap();
        for part in ["GET /met", "rics HTTP/1.1\r\n", "\r\n"] {
            client.write_all(part.as_bytes()).unwrap();
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\nx 1\n"), "{answer}");
        drop(server);
        // Nobody has waited for those who say nothing.
        for mut client in silent {
            client.set_nonblocking(true).unwrap();
            assert!(client.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
        }
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn too_many_clients_are_told_so() {
        let server = started();
        let silent: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        let mut client = TcpStream::connect(server.address()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        drop((server, silent));
    }
}
