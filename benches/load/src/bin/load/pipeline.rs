//! Many connections on one thread: with a thread for each, the scheduler would be measured.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

/// Produces a connection's requests one after the other, `None` at the end, and processes the responses.
pub trait Exchange {
    fn next_frame(&mut self) -> Option<&[u8]>;
    fn on_answer(&mut self, body: &[u8]) -> io::Result<()>;
}

/// Runs every exchange on its own connection, to the address of its number, with `inflight` requests in flight; ends when
/// all have ended.
pub fn run<'a, E: Exchange + 'static>(
    address: impl Fn(usize) -> &'a str,
    inflight: usize,
    exchanges: Vec<E>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let mut tasks = Vec::new();
        for (at, exchange) in exchanges.into_iter().enumerate() {
            tasks.push(tokio::task::spawn_local(talk(address(at).into(), inflight, exchange)));
        }
        for task in tasks {
            task.await.map_err(io::Error::other)??;
        }
        Ok(())
    })
}

async fn talk<E: Exchange>(address: String, inflight: usize, mut exchange: E) -> io::Result<()> {
    let stream = klamm_load::connect(&address)?;
    stream.set_nonblocking(true)?;
    let stream = TcpStream::from_std(stream)?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let (mut body, mut in_the_air) = (Vec::new(), 0);
    loop {
        while in_the_air < inflight {
            let Some(frame) = exchange.next_frame() else { break };
            writer.write_all(frame).await?;
            in_the_air += 1;
        }
        if in_the_air == 0 {
            return Ok(());
        }
        let length = reader.read_u32().await? as usize;
        body.resize(length, 0);
        reader.read_exact(&mut body).await?;
        exchange.on_answer(&body)?;
        in_the_air -= 1;
    }
}
