//! The simplex method on a dense tableau, for programmes of a dozen unknowns whose origin is feasible.

const NEAR_ZERO: f64 = 1e-10;

/// Returns the `x >= 0` that meets all constraints and has the largest `gain · x`. The last row is `gain`. Each other row is a
/// constraint `factors · x <= limit`: the factors, then the limit, which is at least 0. Bland's rule prevents cycles.
pub(crate) fn maximise(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    let gain = rows.len() - 1;
    let limit = rows[gain].len() - 1;
    // The slack of each row is an unknown, too.
    let mut basis: Vec<usize> = (limit + 1..=limit + gain).collect();
    for (index, row) in rows.iter_mut().enumerate() {
        row.resize(limit + 1 + gain, 0.0);
        if let Some(&left) = basis.get(index) {
            row[left] = 1.0;
        }
    }
    // Bland's rule ends by itself; the limit is for rounding.
    for _ in 0..1000 {
        let is_gain = |&column: &usize| column != limit && rows[gain][column] > NEAR_ZERO;
        let Some(enters) = (0..=limit + gain).find(is_gain) else {
            break;
        };
        let ratio = |row: usize| rows[row][limit] / rows[row][enters];
        let limiting = (0..gain).filter(|&row| rows[row][enters] > NEAR_ZERO);
        let Some(leaves) = limiting.min_by(|&a, &b| {
            let ratios = ratio(a).total_cmp(&ratio(b));
            ratios.then(basis[a].cmp(&basis[b]))
        }) else {
            break;
        };
        let pivot = rows[leaves][enters];
        let line: Vec<f64> = rows[leaves].iter().map(|value| value / pivot).collect();
        for row in &mut rows {
            let factor = row[enters];
            if factor != 0.0 {
                row.iter_mut()
                    .zip(&line)
                    .for_each(|(value, other)| *value -= factor * other);
            }
        }
        (rows[leaves], basis[leaves]) = (line, enters);
    }
    let mut found = vec![0.0; limit];
    for (row, &column) in rows.iter().zip(&basis) {
        if column < limit {
            found[column] = row[limit].max(0.0);
        }
    }
    found
}
