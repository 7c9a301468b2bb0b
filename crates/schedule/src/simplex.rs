//! The simplex method on a dense tableau, for programmes of a dozen unknowns whose origin is feasible.

/// The constraint `factors · x <= limit`, with `limit >= 0`.
pub(crate) struct Row {
    pub(crate) factors: Vec<f64>,
    pub(crate) limit: f64,
}

const NEAR_ZERO: f64 = 1e-10;

/// Returns the `x >= 0` that meets all rows and has the largest `gain · x`. Bland's rule keeps it from running in circles.
pub(crate) fn maximise(rows: Vec<Row>, gain: Vec<f64>) -> Vec<f64> {
    let unknowns = gain.len();
    let width = unknowns + rows.len() + 1;
    let mut basis: Vec<usize> = (unknowns..unknowns + rows.len()).collect();
    let mut tableau: Vec<Vec<f64>> = Vec::with_capacity(rows.len() + 1);
    for (index, row) in rows.iter().enumerate() {
        let mut line = vec![0.0; width];
        line[..unknowns].copy_from_slice(&row.factors);
        line[unknowns + index] = 1.0;
        line[width - 1] = row.limit;
        tableau.push(line);
    }
    let mut costs = vec![0.0; width];
    costs[..unknowns].copy_from_slice(&gain);
    // Bland's rule ends by itself; the limit is for rounding.
    for _ in 0..1000 {
        let Some(enters) = (0..width - 1).find(|&column| costs[column] > NEAR_ZERO) else {
            break;
        };
        let ratio = |line: &[f64]| line[width - 1] / line[enters];
        let leaves = (0..tableau.len())
            .filter(|&row| tableau[row][enters] > NEAR_ZERO)
            .min_by(|&a, &b| {
                ratio(&tableau[a])
                    .total_cmp(&ratio(&tableau[b]))
                    .then(basis[a].cmp(&basis[b]))
            });
        let Some(leaves) = leaves else {
            break;
        };
        let pivot = tableau[leaves][enters];
        tableau[leaves].iter_mut().for_each(|value| *value /= pivot);
        let line = tableau[leaves].clone();
        for (row, other) in tableau.iter_mut().enumerate() {
            if row != leaves {
                subtract(other, &line, enters);
            }
        }
        subtract(&mut costs, &line, enters);
        basis[leaves] = enters;
    }
    let mut found = vec![0.0; unknowns];
    for (row, &column) in basis.iter().enumerate() {
        if column < unknowns {
            found[column] = tableau[row][width - 1].max(0.0);
        }
    }
    found
}

fn subtract(from: &mut [f64], line: &[f64], column: usize) {
    let factor = from[column];
    if factor != 0.0 {
        for (value, other) in from.iter_mut().zip(line) {
            *value -= factor * other;
        }
    }
}
