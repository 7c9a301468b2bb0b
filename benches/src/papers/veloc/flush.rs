//! Flush threads (IPDPS'19, Algorithm 3): as many as there is work for, gone when they are idle.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::Buffer;
use super::backend::BackendShared;
use super::state::Chunk;

pub(crate) fn spawn(shared: &Arc<BackendShared>) -> std::io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let name = "tierflow-flush".to_owned();
    std::thread::Builder::new()
        .name(name)
        .spawn(move || run(&shared))
}

fn run(shared: &Arc<BackendShared>) {
    let mut buffer = Buffer::new(shared.options.chunk_size, shared.alignment);
    let mut state = shared.lock();
    state.coming -= 1;
    loop {
        if state.stopping {
            break;
        }
        if let Some(id) = state.to_flush.pop_front() {
            let Some(chunk) = state.chunk(id) else {
                continue;
            };
            drop(state);
            let flushed = flush(shared, chunk, &mut buffer);
            if let Err(error) = flushed {
                shared.fail(error);
                state = shared.lock();
                break;
            }
            state = shared.lock();
            let told = state.flushed(id);
            debug_assert!(told.is_ok(), "{told:?}");
            // Without another thread, this one goes on.
            let _ = shared.notify(&mut state);
            continue;
        }
        state.idle += 1;
        let late = shared.to_flush.wait_for(&mut state, shared.options.idle);
        state.idle -= 1;
        if late.timed_out() && state.to_flush.is_empty() {
            break;
        }
    }
    state.flushers -= 1;
}

fn flush(shared: &BackendShared, chunk: Chunk, buffer: &mut Buffer) -> tierflow_store::Result<()> {
    let len = (chunk.bytes as usize).next_multiple_of(shared.alignment);
    let bytes = &mut buffer.bytes_mut()[..len];
    let offset = chunk.slot as u64 * shared.options.chunk_size as u64;
    shared.stores[chunk.store.0].read_at(offset, bytes)?;
    shared.external.write_at(chunk.target, bytes)
}
