//! Figures as people read them.

/// Returns `value` with three digits and the prefix that fits `unit`: `12.5 GB/s`, `1.20 ms`, `128 MiB`.
pub fn human(value: f64, unit: &str) -> String {
    match unit {
        "ns" => scaled(value, 1000.0, &["ns", "µs", "ms", "s"]),
        "bytes" => scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]),
        "bytes/s" => scaled(value, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]),
        "s" => human(value * 1e9, "ns"),
        "1" => digits(value),
        "1/s" => format!("{} /s", digits(value)),
        _ => format!("{} {unit}", digits(value)),
    }
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    // Rounded to three digits, 999.6 is the next unit's 1.00.
    while value.abs() >= step - 0.5
        && let Some(next) = units.next()
    {
        value /= step;
        unit = next;
    }
    format!("{} {unit}", digits(value))
}

/// Returns `value` with three digits, or more if its whole part has more.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e7).contains(&size) {
        return format!("{value:.2e}");
    }
    let places = match size {
        _ if value.fract() == 0.0 => 0,
        100.0.. => 0,
        10.0.. => 1,
        // A value that rounds to one has the digits of one.
        0.9995.. => 2,
        0.1.. => 3,
        0.01.. => 4,
        _ => 5,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn units_get_their_prefix() {
        for (value, unit, text) in [
            (12.5e9, "bytes/s", "12.5 GB/s"),
            (1_200_000.0, "ns", "1.20 ms"),
            (0.37, "ns", "0.370 ns"),
            (999.9, "ns", "1.00 µs"),
            (0.00123, "1", "0.00123"),
            ((128 << 20) as f64, "bytes", "128 MiB"),
            (1536.0, "bytes", "1.50 KiB"),
            (0.0, "ns", "0 ns"),
            (1.05, "1", "1.05"),
            (300.0, "checkpoints", "300 checkpoints"),
            (1e-9, "1", "1.00e-9"),
            (0.0125, "s", "12.5 ms"),
            (51_700.4, "1/s", "51700 /s"),
        ] {
            assert_eq!(human(value, unit), text);
        }
    }
}
