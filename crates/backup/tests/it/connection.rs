//! A client that is just enough for a trusted connection over a Unix socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use pgshrink_testkit::Cluster;

/// A session of user `postgres`.
pub struct Connection(UnixStream);

impl Connection {
    /// `more` parameters of the startup packet, each of them and its value ended by a NUL.
    pub fn open(cluster: &Cluster, more: &str) -> Connection {
        let mut connection = Connection(UnixStream::connect(cluster.socket_path()).unwrap());
        let parameters = format!("user\0postgres\0{more}\0");
        let mut packet = (parameters.len() as u32 + 8).to_be_bytes().to_vec();
        packet.extend_from_slice(&196_608_u32.to_be_bytes());
        packet.extend_from_slice(parameters.as_bytes());
        connection.0.write_all(&packet).unwrap();
        while connection.message().0 != b'Z' {}
        connection
    }

    /// Sends a query and waits for nothing.
    pub fn query(&mut self, text: &str) {
        let mut packet = vec![b'Q'];
        packet.extend_from_slice(&(text.len() as u32 + 5).to_be_bytes());
        packet.extend_from_slice(text.as_bytes());
        packet.push(0);
        self.0.write_all(&packet).unwrap();
    }

    /// Type and content of the next message that is no notice.
    pub fn message(&mut self) -> (u8, Vec<u8>) {
        loop {
            let mut header = [0; 5];
            self.0.read_exact(&mut header).unwrap();
            let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize - 4;
            let mut content = vec![0; length];
            self.0.read_exact(&mut content).unwrap();
            if !matches!(header[0], b'N' | b'S') {
                return (header[0], content);
            }
        }
    }

    /// Runs a query to its end.
    pub fn run(&mut self, text: &str) {
        self.query(text);
        loop {
            match self.message() {
                (b'E', error) => panic!("{text}: {}", String::from_utf8_lossy(&error)),
                (b'Z', _) => return,
                _ => {}
            }
        }
    }
}
