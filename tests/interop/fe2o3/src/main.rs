//! `interop SCENARIO HOST PORT PREFIX`: runs one scenario against a running suite. Exit status 0 if it held.

mod direct;
mod peer;
mod stored;

use std::process::exit;
use std::time::Duration;

use peer::Peer;

const LIMIT: Duration = Duration::from_secs(240);

async fn run(scenario: &str, peer: &Peer) {
    match scenario {
        "queue" => stored::queue(peer).await,
        "outcomes" => stored::outcomes(peer).await,
        "topic" => stored::topic(peer).await,
        "presettled" => stored::presettled(peer).await,
        "large" => stored::large(peer).await,
        "ttl" => stored::ttl(peer).await,
        "types-send" => stored::types_send(peer).await,
        "types-receive" => stored::types_receive(peer).await,
        "anycast" => direct::anycast(peer).await,
        "multicast" => direct::multicast(peer).await,
        "request" => direct::request(peer).await,
        "unknown" => direct::unknown(peer).await,
        _ => {
            eprintln!("there is no scenario {scenario}");
            exit(2);
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, scenario, host, port, prefix] = arguments.as_slice() else {
        eprintln!("usage: interop SCENARIO HOST PORT PREFIX");
        exit(2);
    };
    let peer = Peer {
        url: format!("amqp://{host}:{port}"),
        prefix: prefix.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        tokio::time::timeout(LIMIT, run(scenario, &peer))
            .await
            .expect("the end of the scenario");
    });
}
