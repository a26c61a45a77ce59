//! A server that speaks just enough to keep thousands of sessions open, which real backends would make a test of this
//! machine's memory.
//!
//! It trusts everybody and knows three queries: `small` (one row), `out` (a COPY of its text) and `in` (a COPY that it
//! throws away).

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pgshrink_bench_report::Result;
use pgshrink_testkit::Port;
use pgshrink_wire::message::{self, HEADER_SIZE, tag};

use crate::session::{COPY_DONE, COPY_IN_RESPONSE, COPY_OUT_RESPONSE};

/// Enough for one session's calls.
const STACK_SIZE: usize = 128 << 10;
/// Text format, one column of text format.
const COPY_FORMAT: [u8; 5] = [0, 0, 1, 0, 0];

/// A running stand-in; its sessions end with their clients.
#[derive(Debug)]
pub struct StandIn {
    port: Port,
    stopping: Arc<AtomicBool>,
}

impl StandIn {
    /// Starts one that copies out `text`.
    pub fn start(text: &[u8]) -> Result<StandIn> {
        let port = Port::reserve()?;
        let listener = TcpListener::bind(("127.0.0.1", port.number()))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let answer: Arc<[u8]> = copy_out(text).into();
        let stop = stopping.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), answer) = (stream, answer.clone()) else { continue };
                // An error ends this session, as a server's would.
                let _ = thread::Builder::new().stack_size(STACK_SIZE).spawn(move || serve(stream, &answer));
            }
        });
        Ok(StandIn { port, stopping })
    }

    /// Where it listens on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port()));
    }
}

fn copy_out(text: &[u8]) -> Vec<u8> {
    let mut answer = message::message(COPY_OUT_RESPONSE, &COPY_FORMAT);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        answer.extend(message::message(tag::COPY_DATA, line));
    }
    answer.extend(message::message(COPY_DONE, b""));
    answer.extend(message::command_complete("COPY 1"));
    answer.extend(message::ready_for_query(b'I'));
    answer
}

fn serve(mut stream: TcpStream, copy_out: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    skip(&mut stream, u32::from_be_bytes(length).saturating_sub(4))?;
    let mut hello = message::message(tag::AUTHENTICATION, &[0; 4]);
    for (name, value) in [("server_version", "15.0"), ("client_encoding", "UTF8"), ("DateStyle", "ISO, MDY")]
    {
        hello.extend(message::parameter_status(name, value));
    }
    hello.extend(message::message(tag::BACKEND_KEY_DATA, &[0; 8]));
    hello.extend(message::ready_for_query(b'I'));
    stream.write_all(&hello)?;
    loop {
        let mut header = [0; HEADER_SIZE];
        stream.read_exact(&mut header)?;
        let body = u32::from_be_bytes([header[1], header[2], header[3], header[4]]).saturating_sub(4);
        match header[0] {
            tag::QUERY => {
                let mut sql = vec![0; body as usize];
                stream.read_exact(&mut sql)?;
                answer(&mut stream, &sql, copy_out)?;
            }
            COPY_DONE => {
                let mut done = message::command_complete("COPY 1");
                done.extend(message::ready_for_query(b'I'));
                stream.write_all(&done)?;
            }
            tag::TERMINATE => return Ok(()),
            _ => skip(&mut stream, body)?,
        }
    }
}

fn answer(stream: &mut TcpStream, sql: &[u8], copy_out: &[u8]) -> io::Result<()> {
    match sql {
        b"out\0" => stream.write_all(copy_out),
        b"in\0" => stream.write_all(&message::message(COPY_IN_RESPONSE, &COPY_FORMAT)),
        _ => {
            let mut small = message::row_description(&["value"]);
            small.extend(message::data_row(&[Some("1")]));
            small.extend(message::command_complete("SELECT 1"));
            small.extend(message::ready_for_query(b'I'));
            stream.write_all(&small)
        }
    }
}

fn skip(stream: &mut TcpStream, size: u32) -> io::Result<()> {
    let mut left = size as usize;
    let mut buffer = [0; 8192];
    while left > 0 {
        let part = left.min(buffer.len());
        stream.read_exact(&mut buffer[..part])?;
        left -= part;
    }
    Ok(())
}
