//! The simplex method on a dense tableau, for programmes of a dozen unknowns whose origin is feasible.

const NEAR_ZERO: f64 = 1e-10;

/// Returns the `x >= 0` that meets all rows and has the largest `gain · x`. A row has the factors of `factors · x <= limit`, and the
/// limit, which is at least 0. Bland's rule keeps it from running in circles.
pub(crate) fn maximise(rows: &[Vec<f64>], gain: &[f64]) -> Vec<f64> {
    let unknowns = gain.len();
    let width = unknowns + rows.len() + 1;
    let mut basis: Vec<usize> = (unknowns..unknowns + rows.len()).collect();
    let tableau = rows.iter().enumerate().map(|(index, row)| {
        let mut line = vec![0.0; width];
        line[..unknowns].copy_from_slice(&row[..unknowns]);
        (line[unknowns + index], line[width - 1]) = (1.0, row[unknowns]);
        line
    });
    let mut tableau: Vec<Vec<f64>> = tableau.collect();
    let mut costs = vec![0.0; width];
    costs[..unknowns].copy_from_slice(gain);
    // Bland's rule ends by itself; the limit is for rounding.
    for _ in 0..1000 {
        let Some(enters) = (0..width - 1).find(|&column| costs[column] > NEAR_ZERO) else {
            break;
        };
        let ratio = |line: &[f64]| line[width - 1] / line[enters];
        let rows = (0..tableau.len()).filter(|&row| tableau[row][enters] > NEAR_ZERO);
        let Some(leaves) = rows.min_by(|&a, &b| {
            let ratios = ratio(&tableau[a]).total_cmp(&ratio(&tableau[b]));
            ratios.then(basis[a].cmp(&basis[b]))
        }) else {
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
