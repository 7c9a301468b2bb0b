//! The table of calls.

/// A call, and its names at each door, separated by spaces. A cell that begins with a dash says why the door has no such call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallInfo {
    pub(crate) does: &'static str,
    pub(crate) rust: &'static str,
    pub(crate) python: &'static str,
    pub(crate) c: &'static str,
    pub(crate) cpp: &'static str,
    pub(crate) fortran: &'static str,
    pub(crate) veloc: &'static str,
}

macro_rules! calls {
    ($($does:literal: $rust:literal, $python:literal, $c:literal, $cpp:literal, $fortran:literal, $veloc:literal;)*) => {
        /// Every call of every door, except those of Python's modules for single frameworks.
        pub(crate) const CALLS: &[CallInfo] = &[$(CallInfo {
            does: $does,
            rust: $rust,
            python: $python,
            c: $c,
            cpp: $cpp,
            fortran: $fortran,
            veloc: $veloc,
        }),*];
    };
}

// C's functions take the handle that `VELOC_Engine` returns, so VELOC's API needs no calls of its own for these.
calls! {
    "says the version of the library": "— Cargo says it", "__version__", "tf_version", "tf_version", "tf_version", "tf_version";
    "chooses where the log goes": "— the subscriber of `tracing`", "— the logger `tierflow`", "tf_log", "tf_log", "tf_log", "tf_log";
    "says what failed": "— `Error`", "— exceptions", "tf_error_message", "Error::code", "tf_error_message", "tf_error_message";
    "chooses options": "Engine::builder EngineBuilder::tier", "Engine", "tf_options_new tf_options_set tf_options_free",
        "Options::set Options::handle", "tf_options_new tf_options_set tf_options_free", "— the configuration file";
    "reads a number of bytes": "— the crate `bytesize`", "number_of_bytes", "— options take texts", "— options take texts",
        "— options take texts", "— options take texts";
    "says which versions outlive the engine": "Retention::newest", "Retention", "— options: `keep_newest`", "— options: `keep_newest`",
        "— options: `keep_newest`", "— `max_versions`";
    "says what other ranks keep": "Redundancy::over", "Redundancy", "— options: `redundancy`", "— options: `redundancy`",
        "— options: `redundancy`", "— the key `redundancy`";
    "shares host memory among engines": "HostPool::in_process HostPool::of_node", "HostPool HostPool.bytes",
        "tf_host_pool_new tf_options_set_pool tf_host_pool_free", "HostPool::handle Options::set_pool",
        "tf_host_pool_new tf_options_set_pool tf_host_pool_free", "— one client a process: the key `host_pool` shares it among processes";
    "measures the machine of a reversed computation": "Machine::measured", "Machine Machine.measured", "tf_machine_measure",
        "tf_machine_measure", "— by `iso_c_binding`", "tf_machine_measure";
    "says what no schedule beats": "Machine::bound", "Machine.bound Schedule.bound", "tf_machine_bound tf_schedule_times",
        "tf_machine_bound Schedule::bound Schedule::expected", "— by `iso_c_binding`", "tf_machine_bound";
    "chooses what is stored and what is computed again": "Schedule::new Schedule::next_action Schedule::end",
        "Schedule Schedule.end Schedule.expected Schedule.stored", "tf_schedule_new tf_schedule_next tf_schedule_free",
        "Schedule::actions run_adjoint", "— by `iso_c_binding`", "tf_schedule_new";
    "makes a group of a communicator": "Group::collective", "— the keyword `group`", "tf_mpi_group", "tf_mpi_group", "tf_open_comm",
        "VELOC_Init";
    "opens an engine": "EngineBuilder::build", "Engine", "tf_open", "— the constructor of `Engine`", "tf_open tf_open_comm",
        "VELOC_Init VELOC_Init_single VELOC_Init_group";
    "names the engine below": "— the engine itself", "— the engine itself", "— the handle itself", "Engine::handle", "— the handle itself",
        "VELOC_Engine";
    "waits, and closes the engine": "Engine::close", "Engine.close Engine.closed", "tf_close", "Engine::close", "tf_close", "VELOC_Finalize";
    "ends the engine at once": "— `drop`, or `close` with a `closing_patience` of 0", "— `with` that an exception leaves, with a `closing_patience` of 0", "tf_end",
        "Engine::end", "tf_end", "— the end of the process";
    "says where the engine is": "— the builder was told", "Engine.device Engine.group Engine.directory", "— the options were told",
        "— the options were told", "— the options were told", "— the configuration says it";
    "says what becomes of restored versions": "Engine::after_restore", "Engine.after_restore", "tf_keeps_restored",
        "Engine::keeps_restored", "— the options were told", "— the configuration says it";
    "waits less, or behind a stream": "Engine::call Call::within Call::unless Call::on", "— the keywords `timeout` and `stream`; Ctrl-C",
        "— `tf_call`; the argument `seconds`", "— `tf_call`; the argument `seconds`", "— `tf_call`; the argument `seconds`",
        "— the key `wait_patience`";
    "says how far a version's values may change": "Call::within_error", "— the keyword `within_error`", "— by `compress`", "— by `compress`", "— by `compress`", "— the key `compress`";
    "says which memory to take in": "— an argument of each call", "— an argument of each call", "— an argument of each call",
        "bytes elements", "tf_region_of",
        "VELOC_Mem_protect VELOC_Mem_unprotect VELOC_Mem_clear VELOC_Region_protect VELOC_Region_unprotect VELOC_Region_clear";
    "takes bytes in as a version": "Engine::checkpoint Call::checkpoint", "Engine.checkpoint", "tf_checkpoint", "Engine::checkpoint",
        "tf_checkpoint tf_checkpoint_regions",
        "VELOC_Checkpoint VELOC_Checkpoint_begin VELOC_Checkpoint_mem VELOC_Checkpoint_selective VELOC_Checkpoint_end";
    "the same by names": "Region::named Region::array", "Engine.checkpoint", "tf_checkpoint_named", "Engine::checkpoint_named",
        "tf_name tf_checkpoint_named", "VELOC_Checkpoint_selective";
    "takes a file in": "— files are read by the application", "— files are read by the application", "— files are read by the application",
        "— files are read by the application", "— files are read by the application", "VELOC_Route_file";
    "tells when a checkpoint was taken": "— the call returns", "— the call returns", "— the call returns", "— the call returns",
        "— the call returns", "VELOC_Observe";
    "brings a version back": "Engine::restore Call::restore", "Engine.restore", "tf_restore", "Engine::restore",
        "tf_restore tf_restore_regions",
        "VELOC_Restart VELOC_Restart_version VELOC_Restart_begin VELOC_Recover_mem VELOC_Recover_selective VELOC_Restart_end";
    "the same by names": "Call::restore_regions", "Engine.restore_regions", "tf_restore_named", "Engine::restore_named",
        "tf_restore_named", "VELOC_Recover_selective";
    "brings another rank's part back": "Engine::piece", "Engine.restore_rank", "tf_restore_rank", "Engine::restore_rank",
        "tf_restore_rank", "VELOC_Restart_begin_rank";
    "says the regions of a version": "Engine::regions", "Engine.regions Engine.layout", "tf_region_size tf_region_at",
        "Engine::region_size Engine::regions", "tf_region_size tf_region_at", "VELOC_Recover_bytes";
    "says the bytes of a version": "Engine::restore_size", "Engine.restore_size", "tf_size", "Engine::size", "tf_size",
        "VELOC_Recover_size VELOC_Recover_size_of";
    "lends room for a version": "Call::produce", "Engine.produce", "tf_produce tf_produce_within", "Engine::produce",
        "tf_produce tf_produce_within", "tf_produce";
    "writes it": "ProduceSlot::bytes_mut ProduceSlot::copy_from ProduceSlot::fill", "ProduceSlot.write", "— the address",
        "Slot::data Slot::size", "— the address", "— the address";
    "makes it the version": "ProduceSlot::commit ProduceSlot::commit_after", "ProduceSlot.commit", "tf_slot_end", "Slot::finish",
        "tf_slot_end", "tf_slot_end";
    "gives it up": "ProduceSlot::give_up_after", "ProduceSlot.give_up", "tf_slot_end", "Slot::give_up", "tf_slot_end", "tf_slot_end";
    "lends the cached copy of a version": "Call::consume", "Engine.consume", "tf_consume tf_consume_within", "Engine::consume",
        "tf_consume tf_consume_within", "tf_consume";
    "reads it": "— `Deref` of `ConsumeSlot`", "ConsumeSlot.read", "— the address", "Slot::data Slot::size", "— the address",
        "— the address";
    "counts it as consumed": "ConsumeSlot::finish_after", "ConsumeSlot.finish", "tf_slot_end", "Slot::finish", "tf_slot_end",
        "tf_slot_end";
    "leaves it unconsumed": "ConsumeSlot::give_back ConsumeSlot::give_back_after", "ConsumeSlot.give_back", "tf_slot_end",
        "Slot::give_up", "tf_slot_end", "tf_slot_end";
    "says what a slot is": "ProduceSlot::version ConsumeSlot::version ConsumeSlot::is_cached",
        "ProduceSlot.version ProduceSlot.shape ProduceSlot.dtype ProduceSlot.nbytes ConsumeSlot.version ConsumeSlot.shape ConsumeSlot.dtype \
         ConsumeSlot.nbytes ConsumeSlot.is_cached",
        "— the answers of the call", "Slot::size", "— the answers of the call", "— the answers of the call";
    "holds its engine while it is lent": "ProduceSlot::owned ConsumeSlot::owned", "— each does", "— each does", "— each does", "— each does",
        "— each does";
    "tells what will be restored": "Engine::hint", "Engine.hint", "tf_hint", "Engine::hint", "tf_hint", "VELOC_Prefetch_enqueue";
    "tells what comes before that": "Engine::hints Hints::prepend", "Engine.hint_next", "tf_hint_next", "Engine::hint_next", "tf_hint_next",
        "tf_hint_next";
    "takes that back": "Hints::forget Hints::clear", "Engine.forget_hints", "tf_forget_hints tf_forget_hints_of", "Engine::forget_hints",
        "tf_forget_hints tf_forget_hints_of", "tf_forget_hints";
    "lets prefetching begin": "Hints::prefetch_start", "Engine.prefetch_start", "tf_prefetch_start", "Engine::prefetch_start",
        "tf_prefetch_start", "VELOC_Prefetch_start";
    "draws free numbers": "Engine::reserve", "Engine.reserve", "tf_reserve", "Engine::reserve", "tf_reserve",
        "— the program numbers its versions";
    "gives a version up": "Engine::discard", "Engine.discard", "tf_discard", "Engine::discard", "tf_discard", "VELOC_Cleanup";
    "waits until all is durable": "Engine::wait Call::wait", "Engine.wait", "tf_wait", "Engine::wait", "tf_wait", "VELOC_Checkpoint_wait";
    "the same of one version": "Call::wait_version", "Engine.wait_version", "tf_wait_version", "Engine::wait_version",
        "tf_wait_version", "tf_wait_version";
    "says whether it is": "Engine::is_durable Call::is_kept", "Engine.is_durable", "tf_is_durable", "Engine::is_durable", "tf_is_durable",
        "VELOC_Checkpoint_finished";
    "lets ranks protect each other": "Engine::protect", "Engine.protect", "tf_protect", "Engine::protect", "tf_protect",
        "VELOC_Checkpoint_wait";
    "says the newest version": "Engine::latest", "Engine.latest", "tf_latest", "Engine::latest", "tf_latest tf_latest_before",
        "VELOC_Restart_test VELOC_Restart_test_rank";
    "says all versions": "Engine::versions", "Engine.versions", "tf_versions", "Engine::versions", "tf_versions", "tf_versions";
    "says what cannot be read, or is lost": "Engine::damage Engine::reports", "Engine.damage Engine.losses", "tf_report", "Engine::report",
        "tf_report", "tf_report";
    "takes memory from a cache": "Engine::resize Call::resize", "Engine.resize_device_cache Engine.resize_host_cache",
        "tf_resize_device_cache tf_resize_host_cache", "Engine::resize_device_cache Engine::resize_host_cache",
        "tf_resize_device_cache tf_resize_host_cache", "tf_resize_host_cache";
    "makes a version durable before the job goes": "Engine::suspend", "Engine.suspend", "tf_suspend tf_suspend_to",
        "Engine::suspend Engine::suspend_to", "tf_suspend tf_suspend_to", "tf_suspend";
    "waits for it": "Suspension::wait Suspension::wait_unless", "Suspension.wait", "tf_suspend_wait", "Engine::suspend_wait",
        "tf_suspend_wait", "tf_suspend_wait";
    "says which, and how long it takes": "Suspension::version Suspension::newest Suspension::expected Engine::time_to_durable",
        "Suspension.version Suspension.newest Suspension.expected Engine.time_to_durable", "tf_time_to_durable",
        "Engine::time_to_durable", "tf_time_to_durable", "tf_time_to_durable";
    "hears that the job has to go": "Notice::new Notice::on_signals Notice::give Notice::deadline", "Notice Notice.give Notice.left",
        "tf_notice_open tf_notice_give tf_notice_left tf_notice_close", "Notice::give Notice::left",
        "tf_notice_open tf_notice_give tf_notice_left tf_notice_close", "tf_notice_open";
    "says what was measured": "Engine::metrics Engine::reports Metrics::times Metrics::blocked", "Engine.metrics", "tf_metrics_read tf_report",
        "Engine::metrics Engine::report", "tf_metrics_read tf_report", "tf_metrics_read tf_report";
    "says for what calls were blocked": "Metrics::explain", "Engine.explain", "tf_report", "Engine::report", "tf_report", "tf_report";
    "is read by Prometheus": "Metrics::open_metrics Metrics::write_open_metrics", "Engine.open_metrics", "tf_open_metrics", "Engine::open_metrics", "tf_open_metrics",
        "tf_open_metrics";
    "is read by the programs of a centre": "Metrics::json", "Engine.statistics", "tf_statistics", "Engine::statistics", "tf_statistics",
        "tf_statistics";
    "writes the time line": "Engine::write_timeline", "Engine.write_timeline", "tf_write_timeline", "Engine::write_timeline",
        "tf_write_timeline", "— the key `timeline_file`";
    "reads versions without an engine": "History::open Repository::versions Repository::latest Repository::piece_of",
        "Repository Repository.versions Repository.latest Repository.ranks Repository.regions Repository.layout Repository.size Repository.read",
        "tf_find tf_part_size tf_restore_from tf_restore_named_from", "tf_find tf_part_size tf_restore_from tf_restore_named_from",
        "tf_find tf_part_size tf_restore_from tf_restore_named_from", "VELOC_Restart_test_rank VELOC_Restart_begin_rank";
    "says where two histories part": "— `Piece::compare` of the store", "Repository.differences", "tf_compare", "tf_compare", "tf_compare", "tf_compare";
    "keeps states of programs of JAX": "— there is no JAX", "Tape Tape.id Tape.clear Tape.handlers", "— there is no JAX",
        "— there is no JAX", "— there is no JAX", "— there is no JAX";
    "ends engines as a door does": "Call::settle Engine::warn_of_lost", "— `close` does", "— `tf_close` does",
        "— `close` does", "— `tf_close` does", "— `VELOC_Finalize` does";
    "makes storage fail, for tests": "Faults::during Tier::storage Tier::vault", "— tests are Rust's", "— tests are Rust's",
        "— tests are Rust's", "— tests are Rust's", "— tests are Rust's";
}
