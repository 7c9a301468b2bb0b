//! Compresses differences before they go down, as frames. A frame starts with the difference's header as it is, so that readers
//! need not decode the frame for the header's fields. The rest of the difference is one run: compressed by itself, the metadata
//! would hardly be smaller.

pub(super) use super::super::coder::EncodedInput;

use super::super::StageInput;
use super::super::coder::{Coder, Input, Run};
use super::super::stored::Bytes;
use super::{EncodedBytes, Outcome, TierContext};
use crate::run::context::TransferError;
use crate::run::encode::to_usize;
use crate::run::medium::TierState;
use crate::{Compression, CompressionMetrics, Result};
use tierflow_codec::{Element as Value, Frame};
use tierflow_dedup::{HEADER_BYTES, most_stored_bytes};
use tierflow_device::Device;
use tierflow_device::{Error as DeviceError, ReadLoan};
use tierflow_store::container::RegionInfo;
use tierflow_transfer::MemoryBytes;

/// The coder of differences.
#[derive(Debug)]
pub(super) struct DifferenceCoder(Coder);

impl DifferenceCoder {
    /// # Errors
    /// As for [`Coder::new`].
    pub(super) fn new(how: Compression, device: &Device, tiers: &[TierState]) -> Result<Self> {
        Ok(Self(Coder::new(how, device, tiers)?))
    }

    /// Returns the frame of a difference, or `None` if the frame would not be smaller.
    pub(super) fn encode(
        &self,
        context: &mut TierContext,
        stage_input: &StageInput<'_>,
        outcome: &Outcome<'_>,
    ) -> Option<EncodedInput<'_>> {
        let bytes = outcome.summary.stored_bytes;
        if !self.0.is_worth_it(bytes) {
            return None;
        }
        let value = prevailing(self.0.how(), (stage_input.layout)().as_deref());
        // Differences without a base resemble each other, and so do those with a base.
        let kind = usize::from(outcome.is_alone);
        let runs = [Run::lossless(HEADER_BYTES as u64..bytes, value, kind)];
        let encode = |context: &mut TierContext, input: &Input<'_>, header: &[u8]| {
            let front = Frame::start(header, bytes - header.len() as u64);
            self.0
                .encode(context, stage_input.version, bytes, input, &front, &runs)
        };
        match &outcome.made {
            EncodedBytes::OnHost(difference) => {
                let header = difference.get(..HEADER_BYTES)?;
                encode(context, &Input::Bytes(difference), header)
            }
            EncodedBytes::OnDevice(output) => {
                let held = MemoryBytes {
                    start: 0,
                    memory: output.memory(),
                };
                let mut header = [0; HEADER_BYTES];
                context.fill(&held, 0, &mut header, None).ok()?;
                let input = Input::From {
                    origin: &held,
                    on_device: true,
                };
                encode(context, &input, &header)
            }
            EncodedBytes::Compressed(_) => None,
        }
    }

    /// Sends `bytes` bytes, the compressed or plain form of a difference of `raw` bytes, by calling `put`. Measures the time for
    /// the governor.
    pub(super) fn send(
        &self,
        raw: u64,
        bytes: u64,
        stage_input: &StageInput<'_>,
        put: impl FnOnce() -> std::result::Result<(), TransferError>,
    ) -> std::result::Result<(), TransferError> {
        self.0.send(raw, bytes, (stage_input.below)(), put)
    }

    pub(super) fn metrics(&self) -> CompressionMetrics {
        self.0.metrics()
    }

    /// Makes the device decode the frames among `stored`, the differences of checkpoints of `size` bytes. Returns a loan of each
    /// decoded difference. Replaces each frame in `stored` by the difference's header and metadata, which the host reads, with
    /// zeros for the payload. Returns no loans, and changes nothing, if the host has to decode, such as when device memory is
    /// short.
    pub(super) fn decode(
        &self,
        context: &mut TierContext,
        device: &Device,
        stored: &mut [Bytes],
        size: u64,
    ) -> Result<Vec<Option<ReadLoan>>> {
        let parse = |stored: &Bytes| match Frame::is_one(stored.as_ref()) {
            true => Frame::parse(stored.as_ref()).map(|frame| frame.raw_bytes()),
            false => Ok(0),
        };
        let lengths = stored.iter().map(parse);
        let lengths = lengths.collect::<tierflow_codec::Result<Vec<u64>>>()?;
        let longest = lengths.iter().max().copied().unwrap_or_default();
        let all: u64 = lengths.iter().map(|bytes| bytes.next_multiple_of(64)).sum();
        if longest == 0 || longest > most_stored_bytes(size) {
            return Ok(Vec::new());
        }
        let memory = match device.alloc(to_usize(0..all).end) {
            Ok(memory) => memory,
            Err(error @ DeviceError::OutOfMemory { .. }) => {
                tracing::warn!(%error, "differences are decompressed by the host");
                return Ok(Vec::new());
            }
            Err(error) => return Err(error.into()),
        };
        let mut held = MemoryBytes {
            start: 0,
            memory: &memory,
        };
        let (mut on_host, mut on_device, mut start) = (Vec::new(), Vec::new(), 0);
        for (stored, length) in stored.iter().zip(lengths) {
            if length == 0 {
                on_host.push(None);
                on_device.push(None);
                continue;
            }
            let frame = Frame::parse(stored.as_ref())?;
            let head = frame.plain();
            let (end, behind) = (start + length, start + head.len() as u64);
            let containers = frame.containers();
            let decoded = self
                .0
                .decode_from_host(context, containers, &mut held, behind..end);
            if !decoded.map_err(TransferError::of_call)? {
                return Ok(Vec::new());
            }
            let mut difference = vec![0; to_usize(0..length).end];
            difference[..head.len()].copy_from_slice(head);
            let read = head.len()..to_usize(0..tierflow_dedup::payload_start(head)?).end;
            let what = "its frame is shorter than it";
            let read = difference.get_mut(read);
            let read = read.ok_or(tierflow_codec::Error::Corrupt { what })?;
            context.fill(&held, behind, read, None)?;
            on_host.push(Some(Bytes::Owned(difference)));
            on_device.push(Some(memory.lend(to_usize(start..end))?));
            start = end.next_multiple_of(64);
        }
        for (stored, decoded) in stored.iter_mut().zip(on_host) {
            if let Some(decoded) = decoded {
                *stored = decoded;
            }
        }
        Ok(on_device)
    }
}

/// Returns the element type of most bytes of a checkpoint.
fn prevailing(how: &Compression, layout: Option<&[RegionInfo]>) -> Value {
    let mut all = Value::ALL.map(|value| (value, 0));
    for region in layout.unwrap_or_default() {
        let (value, _) = how.of(region);
        let of_it = all.iter_mut().filter(|(one, _)| *one == value);
        of_it.for_each(|(_, bytes)| *bytes += region.length);
    }
    match all.into_iter().max_by_key(|(_, bytes)| *bytes) {
        Some((value, 1..)) => value,
        _ => how.value(),
    }
}

/// Returns the difference of a checkpoint of `size` bytes, decoded if `stored` is a frame.
///
/// # Errors
/// [`Error::Damaged`](crate::Error::Damaged) if a frame is damaged, or names a length that no difference of such a checkpoint has.
pub(super) fn decoded(stored: Bytes, size: u64) -> Result<Bytes> {
    if !Frame::is_one(stored.as_ref()) {
        return Ok(stored);
    }
    let frame = Frame::parse(stored.as_ref())?;
    Ok(Bytes::Owned(frame.to_vec(most_stored_bytes(size))?))
}

/// Returns the first bytes of a difference, its header included, from a frame or from the difference itself.
pub(super) fn plain(stored: &[u8]) -> &[u8] {
    match Frame::parse(stored) {
        Ok(frame) => frame.plain(),
        Err(_) => stored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use tierflow_codec::{Codec, Planes};
    use tierflow_store::container::Element;

    fn frame(of: u64) -> Vec<u8> {
        let zeros = vec![0; of as usize];
        let mut frame = Frame::start(&[1; HEADER_BYTES], of);
        frame.extend(Planes::new().encode_to_vec(&zeros, Value::I8).unwrap());
        frame
    }

    fn length(stored: Vec<u8>, size: u64) -> Result<usize> {
        decoded(Bytes::Owned(stored), size).map(|bytes| bytes.as_ref().len())
    }

    #[test]
    fn no_frame_takes_more_memory_than_a_difference_can() {
        let size = 1 << 20;
        let most = most_stored_bytes(size);
        assert_eq!(length(frame(size), size).unwrap() as u64, most);
        let refused = length(frame(size + 1), size);
        assert!(matches!(refused, Err(Error::Damaged(_))));
        for cut in [0, 8, 64, 100, 300] {
            let cut = frame(size)[..cut].to_vec();
            // A frame without its magic is taken for a difference. Parsing it as a difference fails later.
            let is_frame = Frame::is_one(&cut);
            assert_eq!(length(cut, size).is_err(), is_frame);
        }
    }

    #[test]
    fn the_type_is_that_of_most_bytes() {
        let how = Compression::lossless(Value::F64);
        let layout = |lengths: &[(Element, u64)]| -> Vec<RegionInfo> {
            let region = |&(element, length): &(Element, u64)| RegionInfo {
                name: String::new(),
                offset: 0,
                length,
                element,
                shape: Vec::new(),
            };
            lengths.iter().map(region).collect()
        };
        let regions = layout(&[
            (Element::F32, 60),
            (Element::U32, 50),
            (Element::I32, 50),
            (Element::Bytes, 70),
        ]);
        assert_eq!(prevailing(&how, Some(&regions)), Value::I32);
        assert_eq!(prevailing(&how, Some(&regions[3..])), Value::F64);
        for none in [None, Some([].as_slice())] {
            assert_eq!(prevailing(&how, none), Value::F64);
        }
    }
}
