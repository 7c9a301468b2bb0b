//! NUMA nodes: the one next to a PCI device, the preferred one of a mapping, and the one of a page.

use crate::error::{Error, Result};
use crate::pages::pointer;

/// Number of nodes that a mask has bits for.
const MOST_NODES: u32 = 1024;

/// The policy "these nodes while they have pages, then others".
const MPOL_PREFERRED: libc::c_int = 1;
/// The flags that ask for the node of the page at an address.
const MPOL_F_NODE_OF_ADDRESS: libc::c_ulong = 1 | 2;

const WORD_BITS: u32 = libc::c_ulong::BITS;
const WORDS: usize = (MOST_NODES / WORD_BITS) as usize;

/// Returns the node next to the PCI device of this bus id (`0000:0f:00.0`). `None` if the machine has one node, or does
/// not say.
pub(crate) fn node_of_pci(bus_id: &str) -> Option<u32> {
    let online = std::fs::read_to_string("/sys/devices/system/node/online").ok()?;
    if online.trim() == "0" {
        return None;
    }
    let path = format!("/sys/bus/pci/devices/{}/numa_node", bus_id.to_lowercase());
    // The file holds -1 where the firmware does not say.
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// # Safety
/// The range is of a live mapping, aligned to pages.
pub(crate) unsafe fn prefer_node(base: u64, len: usize, node: u32) -> Result<()> {
    const TRIED: &str = "asking for memory of a NUMA node (mbind)";
    if node >= MOST_NODES {
        return Err(Error::system(TRIED, rustix::io::Errno::INVAL));
    }
    let mut mask: [libc::c_ulong; WORDS] = [0; WORDS];
    mask[(node / WORD_BITS) as usize] |= 1 << (node % WORD_BITS);
    // SAFETY: the range is a live mapping by the caller's promise, and the policy changes no content; the mask is a live
    // array of the bits that the kernel reads.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            pointer(base),
            len,
            MPOL_PREFERRED,
            mask.as_ptr(),
            // The kernel subtracts one before it counts bits.
            libc::c_ulong::from(MOST_NODES) + 1,
            0,
        )
    };
    answered(TRIED, answer)
}

/// Returns the node of the page at `address`, which belongs to this process.
pub(crate) fn node_of(address: u64) -> Result<u32> {
    let mut node: libc::c_int = 0;
    // SAFETY: `node` is a valid place for the answer, no mask is asked for, and the kernel checks
    // the address, which it only looks up.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut node,
            std::ptr::null_mut::<libc::c_ulong>(),
            0,
            pointer(address),
            MPOL_F_NODE_OF_ADDRESS,
        )
    };
    answered("asking for the NUMA node of a page (get_mempolicy)", answer)?;
    u32::try_from(node).map_err(|_| Error::System {
        tried: "asking for the NUMA node of a page (get_mempolicy)",
        errno: 0,
    })
}

fn answered(tried: &'static str, answer: libc::c_long) -> Result<()> {
    if answer == 0 {
        return Ok(());
    }
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Err(Error::System { tried, errno })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_has_no_node() {
        assert_eq!(node_of_pci("ffff:ff:1f.7"), None);
    }

    #[test]
    fn a_node_beyond_the_mask_is_refused() {
        let base = crate::pages::reserve_usable(1 << 21, crate::pages::AtFork::Copied).unwrap();
        // SAFETY: the mapping made above.
        let refused = unsafe { prefer_node(base, 1 << 21, MOST_NODES) };
        assert!(matches!(refused, Err(Error::System { .. })), "{refused:?}");
        // SAFETY: the mapping made above, which is not used.
        unsafe { crate::pages::release(base, 1 << 21) };
    }
}
