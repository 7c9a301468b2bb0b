//! A prefix code of classes: a Huffman code of at most [`LONGEST_CODE`] bits. kernels/codec_polynomial.cuh does the same.

/// Bits of the longest code.
pub(super) const LONGEST_CODE: u32 = 8;
/// Largest number of classes: one for each number of bits of a value, from 0 to 64.
pub(super) const CLASSES: usize = 65;

/// The length of the code of each class, in bits; 0 for classes that do not occur.
pub(super) type Lengths = [u8; CLASSES];

/// Returns the lengths of a Huffman code. Of equally frequent nodes, a class comes before a joint node, and a lower class
/// before a higher one. While a code is too long, all counts are halved and rounded up, and the code is made again.
pub(super) fn lengths(counts: &[u32; CLASSES]) -> Lengths {
    let mut lengths = [0; CLASSES];
    let mut leaves: Vec<(u32, usize)> = counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(class, count)| (*count, class))
        .collect();
    if let [(_, class)] = leaves[..] {
        lengths[class] = 1;
        return lengths;
    }
    loop {
        leaves.sort_unstable();
        let depths = depths(&leaves);
        if depths.iter().all(|depth| *depth <= LONGEST_CODE) {
            for ((_, class), depth) in leaves.iter().zip(depths) {
                lengths[*class] = depth as u8;
            }
            return lengths;
        }
        for (count, _) in &mut leaves {
            *count = count.div_ceil(2);
        }
    }
}

/// Returns the depth of each leaf, in the order of the leaves, which are sorted.
fn depths(leaves: &[(u32, usize)]) -> Vec<u32> {
    // Joint nodes are made in the order of their counts, so two queues have all nodes in order.
    let count = leaves.len();
    let mut joint: Vec<u32> = Vec::with_capacity(count);
    let mut parents = vec![0; 2 * count];
    let (mut leaf, mut node) = (0, 0);
    while joint.len() + 1 < count {
        let mut sum = 0;
        for _ in 0..2 {
            let takes_leaf = match (leaves.get(leaf), joint.get(node)) {
                (Some((leaf, _)), Some(node)) => leaf <= node,
                (leaf, _) => leaf.is_some(),
            };
            let child = if takes_leaf {
                sum += leaves[leaf].0;
                leaf += 1;
                leaf - 1
            } else {
                sum += joint[node];
                node += 1;
                count + node - 1
            };
            parents[child] = count + joint.len();
        }
        joint.push(sum);
    }
    let mut depths = vec![0; 2 * count];
    for node in (0..(2 * count).saturating_sub(2)).rev() {
        depths[node] = depths[parents[node]] + 1;
    }
    depths.truncate(count);
    depths
}

/// Calls `each` for all classes in the order of their codes: by length, then by class. Passes the class, the length of its
/// code, and the code as the top bits of a number of [`LONGEST_CODE`] bits. Returns an error if there are too many codes.
fn in_order(lengths: &Lengths, mut each: impl FnMut(usize, u32, u32)) -> Result<(), &'static str> {
    let mut next = 0;
    for length in 1..=LONGEST_CODE {
        for (class, of_class) in lengths.iter().enumerate() {
            if u32::from(*of_class) == length {
                if next >= 1 << LONGEST_CODE {
                    return Err("a block has more codes than there can be");
                }
                each(class, length, next);
                next += 1 << (LONGEST_CODE - length);
            }
        }
    }
    if next <= 1 << LONGEST_CODE {
        Ok(())
    } else {
        Err("a block has more codes than there can be")
    }
}

/// Returns the code of each class. The first bit of a code is the lowest.
pub(super) fn codes(lengths: &Lengths) -> [u8; CLASSES] {
    let mut codes = [0; CLASSES];
    // No error is possible, as the lengths are those of a code.
    let _ = in_order(lengths, |class, _, code| {
        codes[class] = (code as u8).reverse_bits()
    });
    codes
}

/// The class and the length of its code, for each value of the next [`LONGEST_CODE`] bits.
pub(super) type Table = [(u8, u8); 1 << LONGEST_CODE];

/// Returns the table that finds codes. Entries of bits with which no code starts have length 0.
///
/// # Errors
///
/// The defect if no code has these lengths.
pub(super) fn table(lengths: &Lengths) -> Result<Table, &'static str> {
    let mut table = [(0, 0); 1 << LONGEST_CODE];
    in_order(lengths, |class, length, code| {
        for bits in code..code + (1 << (LONGEST_CODE - length)) {
            if let Some(entry) = table.get_mut(usize::from((bits as u8).reverse_bits())) {
                *entry = (class as u8, length as u8);
            }
        }
    })?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(usize, u32)]) -> [u32; CLASSES] {
        let mut counts = [0; CLASSES];
        for (class, count) in pairs {
            counts[*class] = *count;
        }
        counts
    }

    #[test]
    fn frequent_classes_have_short_codes() {
        let made = lengths(&of(&[(3, 8), (4, 4), (5, 2), (6, 1), (7, 1)]));
        assert_eq!(made[3..8], [1, 2, 3, 4, 4]);
        assert_eq!(lengths(&of(&[(9, 5)]))[9], 1);
        assert_eq!(lengths(&of(&[])), [0; CLASSES]);
        assert_eq!(lengths(&of(&[(1, 1), (2, 1)]))[..3], [0, 1, 1]);
    }

    #[test]
    fn no_code_is_too_long_and_every_code_is_found() {
        for base in [1.0_f64, 1.3, 1.7, 2.0, 3.0] {
            for classes in [2, 5, 33, 65] {
                let counts = std::array::from_fn(|class| match class < classes {
                    true => base.powi(class as i32).min(4096.0) as u32,
                    false => 0,
                });
                let made = lengths(&counts);
                let full: u32 = made.iter().filter(|l| **l > 0).map(|l| 256 >> *l).sum();
                assert_eq!(full, 256, "{base} {classes}");
                let (codes, table) = (codes(&made), table(&made).unwrap());
                for class in 0..classes {
                    let length = made[class];
                    for behind in 0..1_u32 << (8 - length) {
                        let bits = u32::from(codes[class]) | behind << length;
                        assert_eq!(table[bits as usize], (class as u8, length));
                    }
                }
            }
        }
    }

    #[test]
    fn lengths_of_no_code_are_told() {
        let mut wrong = [0; CLASSES];
        wrong[..3].copy_from_slice(&[1, 1, 1]);
        assert!(table(&wrong).is_err());
        wrong[..3].copy_from_slice(&[1, 8, 1]);
        assert!(table(&wrong).is_err());
        wrong[..3].copy_from_slice(&[1, 8, 2]);
        assert!(table(&wrong).is_ok());
        assert!(table(&[1; CLASSES]).is_err());
    }
}
