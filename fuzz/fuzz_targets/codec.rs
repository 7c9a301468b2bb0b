//! Decodes containers of codecs and frames: sound ones with some bytes overwritten, with a right or a wrong checksum, and any bytes. Also
//! encodes any input, which must be the same after decoding.
#![no_main]

#[path = "../../crates/codec/tests/common/nvcomp.rs"]
mod nvcomp;
#[path = "../../crates/codec/tests/common/seal.rs"]
mod seal;

/// The tests' file `nvcomp.rs` imports the checksum from this module.
mod common {
    pub(crate) use crate::seal::seal;
}

use std::sync::LazyLock;

use common::seal;
use libfuzzer_sys::fuzz_target;
use tierflow_codec::{
    Bound, Bounded, Codec, Element, Frame, Header, Method, NvcompCodec, Planes, Predictor, Result,
    decode, decode_to_vec,
};

/// The most bytes of a decoded input. A short container may stand for a long input of zeros, which is no finding.
const MOST_BYTES: u64 = 1 << 22;

/// Changes of a sound container: the offset, and the byte that is written there.
type Edits = Vec<(u16, u16)>;

fn methods(element: Element) -> Vec<Method> {
    let mut methods = vec![
        Method::from(Planes::new()),
        Planes::with(Predictor::Previous).into(),
    ];
    if matches!(element, Element::F32 | Element::F64) {
        for bound in [Bound::Absolute(1e-3), Bound::Relative(1e-2)] {
            methods.push(Bounded::new(bound).expect("a sound bound").into());
        }
    }
    methods
}

/// Containers with blocks of every kind, by every codec.
static CONTAINERS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mixed: Vec<u8> = (0..40_000_u32)
        .map(|n| match n / 10_000 {
            0 => 0,
            1 => (n.wrapping_mul(2_654_435_761) >> 27) as u8,
            2 => (f64::from(n / 4) / 50.0).sin().to_bits().to_be_bytes()[n as usize % 4],
            _ => (n.wrapping_mul(2_654_435_761) >> 11) as u8,
        })
        .collect();
    let all = Element::ALL.into_iter().flat_map(|element| {
        let encode = |method: Method| method.encode_to_vec(&mixed, element);
        methods(element).into_iter().map(encode).collect::<Vec<_>>()
    });
    let mut all: Vec<_> = all
        .map(|container| container.expect("a sound input"))
        .collect();
    // An input that is longer than a block of 64 KiB, and cannot be compressed.
    let long = [mixed.as_slice(), &mixed[30_000..], &mixed].concat();
    for codec in NvcompCodec::ALL {
        all.push(nvcomp::container(codec, Element::I32, &long));
    }
    let framed = all
        .iter()
        .map(|container| frame(&mixed[..192], mixed.len(), container));
    all.extend(framed.collect::<Vec<_>>());
    all
});

fn frame(plain: &[u8], rest: usize, containers: &[u8]) -> Vec<u8> {
    [Frame::start(plain, rest as u64).as_slice(), containers].concat()
}

fn file(frame: &[u8]) -> Result<Vec<u8>> {
    let file = Frame::parse(frame)?.to_vec(MOST_BYTES)?;
    assert!(file.starts_with(Frame::parse(frame)?.plain()));
    Ok(file)
}

fuzz_target!(|input: (u8, Edits, bool, bool, Vec<u8>)| {
    let (which, edits, seals, whole, bytes) = input;
    if whole {
        comes_back(
            Element::ALL[usize::from(which) % Element::ALL.len()],
            &bytes,
        );
        return;
    }
    let mut container = CONTAINERS[usize::from(which) % CONTAINERS.len()].clone();
    for (at, value) in edits {
        // Nearly all changes hit sizes: in the header, the table and the first block's header.
        let most = if at & 0x8000 == 0 {
            512
        } else {
            container.len()
        };
        let at = usize::from(at & 0x7FFF) % most.min(container.len() - 1);
        container[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    if seals {
        seal(&mut container);
    }
    let _ = decode_to_vec(&container, MOST_BYTES);
    let _ = decode_to_vec(&bytes, MOST_BYTES);
    let _ = (file(&container), file(&bytes));
});

fn comes_back(element: Element, input: &[u8]) {
    for method in methods(element) {
        let container = method.encode_to_vec(input, element).expect("a sound input");
        let header = Header::parse(&container).expect("a container of ours");
        let mut output = vec![0; input.len()];
        decode(&container, &mut output).expect("a container of ours");
        if !input.is_empty() {
            let framed = frame(b"plain", input.len(), &container);
            let back = file(&framed).expect("a frame of ours");
            assert_eq!(back[5..], output);
        }
        if header.bound == 0.0 {
            assert_eq!(output, input);
        } else if element == Element::F32 {
            for (a, b) in input.chunks_exact(4).zip(output.chunks_exact(4)) {
                let value = |bytes: &[u8]| {
                    f64::from(f32::from_le_bytes(bytes.try_into().expect("four bytes")))
                };
                assert!(a == b || (value(a) - value(b)).abs() <= header.bound);
            }
        }
    }
}
