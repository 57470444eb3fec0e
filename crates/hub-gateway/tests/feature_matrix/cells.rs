//! Cells of the matrix: each combination of a client, an upstream server and a feature.

use std::time::Duration;

use tokio::time::timeout;

use crate::client::{ConnectedClient, Front};
use crate::features::{Feature, Pair};
use crate::site::{Site, Upstream};

/// Time limit of one cell. Only a failing cell reaches it.
const CELL_TIMEOUT: Duration = Duration::from_secs(10);

/// Outcome of one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CellOutcome {
    Passed,
    /// The feature cannot work between the two revisions, for this reason, and ends in a clear error.
    Impossible(&'static str),
    Failed(String),
}

/// Cell of the matrix with its outcome.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) front: Front,
    pub(crate) upstream: Upstream,
    pub(crate) feature: Feature,
    pub(crate) outcome: CellOutcome,
}

/// Runs all cells. Failures of a whole conversation are failures of the feature `call`.
pub(crate) async fn run_all(site: &Site) -> Vec<Cell> {
    let mut cells = Vec::new();
    for front in Front::all() {
        let client = ConnectedClient::connect(site, front).await;
        for upstream in Upstream::all() {
            let pair = Pair { front: &client, upstream, client_revision: front.revision };
            for feature in Feature::ALL {
                let outcome = run(&pair, front, feature).await;
                cells.push(Cell { front, upstream, feature, outcome });
            }
        }
        if let Err(error) = client.close().await {
            let (upstream, feature) = (Upstream::all()[0], Feature::Call);
            cells.push(Cell { front, upstream, feature, outcome: CellOutcome::Failed(error) });
        }
    }
    cells
}

async fn run(pair: &Pair<'_>, front: Front, feature: Feature) -> CellOutcome {
    let impossible = feature.impossible(front.revision, pair.upstream.revision);
    let checked = timeout(CELL_TIMEOUT, async {
        match impossible {
            Some(_) => pair.check_impossible(feature).await,
            None => pair.check(feature).await,
        }
    });
    match (checked.await, impossible) {
        (Ok(Ok(())), None) => CellOutcome::Passed,
        (Ok(Ok(())), Some(reason)) => CellOutcome::Impossible(reason),
        (Ok(Err(error)), _) => CellOutcome::Failed(error),
        (Err(_), _) => CellOutcome::Failed(format!("no result within {CELL_TIMEOUT:?}")),
    }
}
