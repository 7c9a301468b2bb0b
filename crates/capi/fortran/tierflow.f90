! Tierflow from Fortran: the functions of tierflow.h under their names, and arrays of every kind and rank as regions.
!
! A tf_call gives a call a stream and a time limit.
module tierflow
  use, intrinsic :: iso_c_binding
  implicit none
  public
  private :: text_of

  enum, bind(c)
    enumerator :: TF_OK = 0, TF_ARGUMENT = 1, TF_UNKNOWN = 2, TF_NO_ROOM = 3, TF_TIMED_OUT = 4, TF_STALLED = 5
    enumerator :: TF_DAMAGED = 6, TF_STORAGE = 7, TF_DEVICE = 8, TF_GROUP = 9, TF_CLOSED = 10, TF_INTERNAL = 11
  end enum

  ! The address of a region, and the memory that it lies in: the enum tf_place of tierflow.h.
  type, bind(c) :: tf_region
    type(c_ptr) :: address = c_null_ptr
    integer(c_int64_t) :: bytes = 0
    integer(c_int32_t) :: place = 0
  end type

  ! An array and its name of up to 1024 bytes: see tf_name.
  type, bind(c) :: tf_named
    character(kind=c_char) :: name(1025) = c_null_char
    type(tf_region) :: region
  end type

  ! The version that will be durable when the job has to end: -1 stands for no version.
  type, bind(c) :: tf_suspension
    integer(c_int64_t) :: version = -1, newest = -1
    real(c_double) :: seconds = -1
  end type

  ! The order and the longest wait of a call: after the work of a CUDA stream, and `seconds` at most; 0 is without a limit.
  type, bind(c) :: tf_call
    type(c_ptr) :: stream = c_null_ptr
    real(c_double) :: seconds = 0
  end type

  ! A region whose values differ; `first` and `largest_at` are counted from 0.
  type, bind(c) :: tf_difference
    integer(c_int64_t) :: version = 0, elements = 0, differing = 0, first = 0
    real(c_double) :: largest = 0
    integer(c_int64_t) :: largest_at = 0
    integer(c_int32_t) :: rank = 0
    character(kind=c_char) :: region(1028) = c_null_char
  end type

  type, bind(c) :: tf_calls
    integer(c_int64_t) :: count = 0, bytes = 0
    real(c_double) :: blocked_seconds = 0
  end type

  ! `restores_from` counts restores and consumes by the tier that held the version, the fastest tier first.
  type, bind(c) :: tf_metrics
    type(tf_calls) :: checkpoint, restore, produce, consume
    integer(c_int64_t) :: restores_from(6) = 0
  end type

  integer(c_int), parameter :: TF_GIVE_UP = 0, TF_FINISH = 1, TF_DROP = 2

  interface
    integer(c_int) function tf_options_new(options) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), intent(out) :: options
    end function
    integer(c_int) function tf_options_set_c(options, key, text) bind(c, name='tf_options_set')
      import :: c_int, c_int64_t, c_char
      integer(c_int64_t), value :: options
      character(kind=c_char), intent(in) :: key(*), text(*)
    end function
    integer(c_int) function tf_options_free(options) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: options
    end function
    ! Opens an engine with the ranks of an MPI communicator, such as MPI_COMM_WORLD.
    integer(c_int) function tf_open_comm(options, comm, engine) bind(c, name='tf_open_f')
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: options
      integer(c_int), value :: comm
      integer(c_int64_t), intent(out) :: engine
    end function
    integer(c_int) function tf_close(engine) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine
    end function
    integer(c_int) function tf_end(engine) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine
    end function
    integer(c_int) function tf_checkpoint(engine, version, array) bind(c, name='tf_checkpoint_f')
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine, version
      type(*), dimension(..), intent(in) :: array
    end function
    integer(c_int) function tf_restore(engine, version, array) bind(c, name='tf_restore_f')
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine, version
      type(*), dimension(..) :: array
    end function
    integer(c_int) function tf_hint(engine, versions, count) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: engine
      integer(c_int64_t), intent(in) :: versions(*)
      integer(c_size_t), value :: count
    end function
    integer(c_int) function tf_hint_next(engine, versions, count) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: engine
      integer(c_int64_t), intent(in) :: versions(*)
      integer(c_size_t), value :: count
    end function
    integer(c_int) function tf_forget_hints(engine) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine
    end function
    integer(c_int) function tf_forget_hints_of(engine, versions, count) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: engine
      integer(c_int64_t), intent(in) :: versions(*)
      integer(c_size_t), value :: count
    end function
    integer(c_int) function tf_reserve(engine, count, first) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine, count
      integer(c_int64_t), intent(out) :: first
    end function
    integer(c_int) function tf_discard(engine, version) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine, version
    end function
    integer(c_int) function tf_wait(engine, seconds) bind(c)
      import :: c_int, c_int64_t, c_double
      integer(c_int64_t), value :: engine
      real(c_double), value :: seconds
    end function
    integer(c_int) function tf_region_f(array, region) bind(c)
      import :: c_int, tf_region
      type(*), dimension(..) :: array
      type(tf_region), intent(out) :: region
    end function
    integer(c_int) function tf_checkpoint_named_f(engine, version, arrays, count) bind(c)
      import :: c_int, c_int64_t, c_size_t, tf_named
      integer(c_int64_t), value :: engine, version
      type(tf_named), intent(in) :: arrays(*)
      integer(c_size_t), value :: count
    end function
    integer(c_int) function tf_restore_named_f(engine, version, arrays, count) bind(c)
      import :: c_int, c_int64_t, c_size_t, tf_named
      integer(c_int64_t), value :: engine, version
      type(tf_named), intent(in) :: arrays(*)
      integer(c_size_t), value :: count
    end function
    integer(c_int) function tf_restore_rank_f(engine, version, rank, arrays, count) bind(c)
      import :: c_int, c_int32_t, c_int64_t, c_size_t, tf_named
      integer(c_int64_t), value :: engine, version
      integer(c_int32_t), value :: rank
      type(tf_named), intent(in) :: arrays(*)
      integer(c_size_t), value :: count
    end function
    integer(c_int) function tf_region_size_c(engine, version, name, bytes) bind(c, name='tf_region_size')
      import :: c_int, c_int64_t, c_char
      integer(c_int64_t), value :: engine, version
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), intent(out) :: bytes
    end function
    integer(c_int) function tf_is_durable(engine, version, durable) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine, version
      integer(c_int), intent(out) :: durable
    end function
    integer(c_int) function tf_wait_version(engine, version, seconds) bind(c)
      import :: c_int, c_int64_t, c_double
      integer(c_int64_t), value :: engine, version
      real(c_double), value :: seconds
    end function
    ! Tells the engine that the job ends in `seconds`.
    integer(c_int) function tf_suspend(engine, seconds, suspension) bind(c)
      import :: c_int, c_int64_t, c_double, tf_suspension
      integer(c_int64_t), value :: engine
      real(c_double), value :: seconds
      type(tf_suspension), intent(out) :: suspension
    end function
    integer(c_int) function tf_suspend_to(engine, version, seconds, suspension) bind(c)
      import :: c_int, c_int64_t, c_double, tf_suspension
      integer(c_int64_t), value :: engine, version
      real(c_double), value :: seconds
      type(tf_suspension), intent(out) :: suspension
    end function
    integer(c_int) function tf_suspend_wait(engine, version, seconds) bind(c)
      import :: c_int, c_int64_t, c_double
      integer(c_int64_t), value :: engine, version
      real(c_double), value :: seconds
    end function
    integer(c_int) function tf_time_to_durable(engine, version, seconds) bind(c)
      import :: c_int, c_int64_t, c_double
      integer(c_int64_t), value :: engine, version
      real(c_double), intent(out) :: seconds
    end function
    integer(c_int) function tf_notice_open_c(signals, count, grace, notice) bind(c, name='tf_notice_open')
      import :: c_int, c_int64_t, c_double, c_size_t
      integer(c_int), intent(in) :: signals(*)
      integer(c_size_t), value :: count
      real(c_double), value :: grace
      integer(c_int64_t), intent(out) :: notice
    end function
    integer(c_int) function tf_notice_give(notice, grace) bind(c)
      import :: c_int, c_int64_t, c_double
      integer(c_int64_t), value :: notice
      real(c_double), value :: grace
    end function
    ! Sets `seconds` to the seconds that are left: infinity until the notice is given.
    integer(c_int) function tf_notice_left(notice, seconds) bind(c)
      import :: c_int, c_int64_t, c_double
      integer(c_int64_t), value :: notice
      real(c_double), intent(out) :: seconds
    end function
    integer(c_int) function tf_notice_close(notice) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: notice
    end function
    integer(c_int) function tf_latest_before(engine, before, version) bind(c, name='tf_latest')
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine, before
      integer(c_int64_t), intent(out) :: version
    end function
    integer(c_int) function tf_host_pool_new(bytes, slab, pool) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: bytes, slab
      integer(c_int64_t), intent(out) :: pool
    end function
    integer(c_int) function tf_options_set_pool(options, pool) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: options, pool
    end function
    integer(c_int) function tf_host_pool_free(pool) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: pool
    end function
    ! `line` is a procedure of C's binding, or c_null_funptr for the standard error.
    integer(c_int) function tf_log(level, line, context) bind(c)
      import :: c_funptr, c_int, c_ptr
      integer(c_int), value :: level
      type(c_funptr), value :: line
      type(c_ptr), value :: context
    end function
    ! Opens an engine: for this process alone if `group` is c_null_ptr, else with a tf_group of C.
    integer(c_int) function tf_open(options, group, engine) bind(c)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int64_t), value :: options
      type(c_ptr), value :: group
      integer(c_int64_t), intent(out) :: engine
    end function
    ! Makes a region of an array, for the functions below. The array is a target that stays where it is until they are called.
    integer(c_int) function tf_region_of(array, region) bind(c, name='tf_region_f')
      import :: c_int, tf_region
      type(*), dimension(..), target :: array
      type(tf_region), intent(out) :: region
    end function
    integer(c_int) function tf_checkpoint_regions(engine, version, regions, count, call) bind(c, name='tf_checkpoint')
      import :: c_int, c_int64_t, c_size_t, tf_call, tf_region
      integer(c_int64_t), value :: engine, version
      type(tf_region), intent(in) :: regions(*)
      integer(c_size_t), value :: count
      type(tf_call), intent(in) :: call
    end function
    integer(c_int) function tf_restore_regions(engine, version, regions, count, call) bind(c, name='tf_restore')
      import :: c_int, c_int64_t, c_size_t, tf_call, tf_region
      integer(c_int64_t), value :: engine, version
      type(tf_region), intent(in) :: regions(*)
      integer(c_size_t), value :: count
      type(tf_call), intent(in) :: call
    end function
    ! `name` has room for `room` letters, including the zero at the end.
    integer(c_int) function tf_region_at(engine, version, index, name, room, bytes) bind(c)
      import :: c_char, c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: engine, version
      integer(c_size_t), value :: index, room
      character(kind=c_char), intent(out) :: name(*)
      integer(c_int64_t), intent(out) :: bytes
    end function
    integer(c_int) function tf_prefetch_start(engine) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine
    end function
    integer(c_int) function tf_protect(engine) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine
    end function
    integer(c_int) function tf_size(engine, version, bytes) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine, version
      integer(c_int64_t), intent(out) :: bytes
    end function
    integer(c_int) function tf_versions(engine, versions, room, count) bind(c)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: engine
      integer(c_int64_t), intent(out) :: versions(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(out) :: count
    end function
    integer(c_int) function tf_resize_device_cache(engine, bytes, seconds, usable) bind(c)
      import :: c_double, c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: engine
      integer(c_size_t), value :: bytes
      real(c_double), value :: seconds
      integer(c_int64_t), intent(out) :: usable
    end function
    integer(c_int) function tf_resize_host_cache(engine, bytes, seconds, usable) bind(c)
      import :: c_double, c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: engine
      integer(c_size_t), value :: bytes
      real(c_double), value :: seconds
      integer(c_int64_t), intent(out) :: usable
    end function
    ! Lend room, or a version, at `address`: c_f_pointer makes an array of it.
    integer(c_int) function tf_produce(engine, version, bytes, slot, address) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: engine, version
      integer(c_size_t), value :: bytes
      integer(c_int64_t), intent(out) :: slot
      type(c_ptr), intent(out) :: address
    end function
    integer(c_int) function tf_produce_within(engine, version, bytes, seconds, slot, address) bind(c)
      import :: c_double, c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: engine, version
      integer(c_size_t), value :: bytes
      real(c_double), value :: seconds
      integer(c_int64_t), intent(out) :: slot
      type(c_ptr), intent(out) :: address
    end function
    integer(c_int) function tf_consume(engine, version, slot, address, bytes) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: engine, version
      integer(c_int64_t), intent(out) :: slot
      type(c_ptr), intent(out) :: address
      integer(c_size_t), intent(out) :: bytes
    end function
    integer(c_int) function tf_consume_within(engine, version, seconds, slot, address, bytes) bind(c)
      import :: c_double, c_int, c_int64_t, c_ptr, c_size_t
      integer(c_int64_t), value :: engine, version
      real(c_double), value :: seconds
      integer(c_int64_t), intent(out) :: slot
      type(c_ptr), intent(out) :: address
      integer(c_size_t), intent(out) :: bytes
    end function
    integer(c_int) function tf_slot_end(slot, how, stream) bind(c)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int64_t), value :: slot
      integer(c_int), value :: how
      type(c_ptr), value :: stream
    end function
    integer(c_int) function tf_metrics_read(engine, metrics) bind(c)
      import :: c_int, c_int64_t, tf_metrics
      integer(c_int64_t), value :: engine
      type(tf_metrics), intent(out) :: metrics
    end function
    integer(c_int) function tf_report(engine, buffer, size, length) bind(c)
      import :: c_char, c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: engine
      character(kind=c_char), intent(out) :: buffer(*)
      integer(c_size_t), value :: size
      integer(c_size_t), intent(out) :: length
    end function
    integer(c_int) function tf_open_metrics(engine, buffer, size, length) bind(c)
      import :: c_char, c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: engine
      character(kind=c_char), intent(out) :: buffer(*)
      integer(c_size_t), value :: size
      integer(c_size_t), intent(out) :: length
    end function
    integer(c_int) function tf_statistics(engine, buffer, size, length) bind(c)
      import :: c_char, c_int, c_int64_t, c_size_t
      integer(c_int64_t), value :: engine
      character(kind=c_char), intent(out) :: buffer(*)
      integer(c_size_t), value :: size
      integer(c_size_t), intent(out) :: length
    end function
    ! The texts of these four functions end with c_null_char.
    integer(c_int) function tf_write_timeline(engine, path) bind(c)
      import :: c_char, c_int, c_int64_t
      integer(c_int64_t), value :: engine
      character(kind=c_char), intent(in) :: path(*)
    end function
    integer(c_int) function tf_compare(left, right, region, within, found, room, count) bind(c)
      import :: c_char, c_double, c_int, c_size_t, tf_difference
      character(kind=c_char), intent(in) :: left(*), right(*), region(*)
      real(c_double), value :: within
      type(tf_difference), intent(inout) :: found(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(out) :: count
    end function
    integer(c_int) function tf_find(directory, before, version, ranks) bind(c)
      import :: c_char, c_int, c_int32_t, c_int64_t
      character(kind=c_char), intent(in) :: directory(*)
      integer(c_int64_t), value :: before
      integer(c_int64_t), intent(out) :: version
      integer(c_int32_t), intent(out) :: ranks
    end function
    integer(c_int) function tf_part_size(directory, version, rank, bytes) bind(c)
      import :: c_char, c_int, c_int32_t, c_int64_t
      character(kind=c_char), intent(in) :: directory(*)
      integer(c_int64_t), value :: version
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(out) :: bytes
    end function
    integer(c_int) function tf_restore_from(directory, version, rank, regions, count) bind(c)
      import :: c_char, c_int, c_int32_t, c_int64_t, c_size_t, tf_region
      character(kind=c_char), intent(in) :: directory(*)
      integer(c_int64_t), value :: version
      integer(c_int32_t), value :: rank
      type(tf_region), intent(in) :: regions(*)
      integer(c_size_t), value :: count
    end function
    integer(c_int) function tf_restore_named_from_f(directory, version, rank, arrays, count) bind(c)
      import :: c_int, c_int32_t, c_int64_t, c_size_t, c_char, tf_named
      character(kind=c_char), intent(in) :: directory(*)
      integer(c_int64_t), value :: version
      integer(c_int32_t), value :: rank
      type(tf_named), intent(in) :: arrays(*)
      integer(c_size_t), value :: count
    end function
  end interface

contains

  integer(c_int) function tf_options_set(options, key, text)
    integer(c_int64_t), intent(in) :: options
    character(len=*), intent(in) :: key, text
    tf_options_set = tf_options_set_c(options, trim(key) // c_null_char, trim(text) // c_null_char)
  end function

  integer(c_int) function tf_latest(engine, version)
    integer(c_int64_t), intent(in) :: engine
    integer(c_int64_t), intent(out) :: version
    tf_latest = tf_latest_before(engine, -1_c_int64_t, version)
  end function

  ! Gives an array a name, for the functions below. The array is a target that stays where it is until they are called.
  integer(c_int) function tf_name(named, name, array)
    type(tf_named), intent(out) :: named
    character(len=*), intent(in) :: name
    type(*), dimension(..), target :: array
    integer :: at
    tf_name = TF_ARGUMENT
    if (len_trim(name) == 0 .or. len_trim(name) >= size(named%name)) return
    do at = 1, len_trim(name)
      named%name(at) = name(at:at)
    end do
    tf_name = tf_region_f(array, named%region)
  end function

  ! Takes in arrays with their names. Files on storage have the names, too.
  integer(c_int) function tf_checkpoint_named(engine, version, arrays)
    integer(c_int64_t), intent(in) :: engine, version
    type(tf_named), intent(in) :: arrays(:)
    tf_checkpoint_named = tf_checkpoint_named_f(engine, version, arrays, size(arrays, kind=c_size_t))
  end function

  ! Brings these arrays of a version back, in any order; the version stays held.
  integer(c_int) function tf_restore_named(engine, version, arrays)
    integer(c_int64_t), intent(in) :: engine, version
    type(tf_named), intent(in) :: arrays(:)
    tf_restore_named = tf_restore_named_f(engine, version, arrays, size(arrays, kind=c_size_t))
  end function

  ! Brings arrays of any rank's part of a version back, from the directory `external` of the group.
  integer(c_int) function tf_restore_rank(engine, version, rank, arrays)
    integer(c_int64_t), intent(in) :: engine, version
    integer(c_int), intent(in) :: rank
    type(tf_named), intent(in) :: arrays(:)
    tf_restore_rank = tf_restore_rank_f(engine, version, int(rank, c_int32_t), arrays, size(arrays, kind=c_size_t))
  end function

  ! Brings arrays of any rank's part of a version back, from a directory that was `external`, or `node_local` without `external`.
  integer(c_int) function tf_restore_named_from(directory, version, rank, arrays)
    character(len=*), intent(in) :: directory
    integer(c_int64_t), intent(in) :: version
    integer(c_int), intent(in) :: rank
    type(tf_named), intent(in) :: arrays(:)
    tf_restore_named_from = tf_restore_named_from_f(trim(directory) // c_null_char, version, int(rank, c_int32_t), arrays, &
      size(arrays, kind=c_size_t))
  end function

  integer(c_int) function tf_region_size(engine, version, name, bytes)
    integer(c_int64_t), intent(in) :: engine, version
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(out) :: bytes
    tf_region_size = tf_region_size_c(engine, version, trim(name) // c_null_char, bytes)
  end function

  ! Opens a notice. When one of these signals comes, such as 15 (SIGTERM), the notice is given: the job has `grace` seconds left from then
  ! on. Without signals, only tf_notice_give gives the notice.
  integer(c_int) function tf_notice_open(signals, grace, notice)
    integer(c_int), intent(in) :: signals(:)
    real(c_double), intent(in) :: grace
    integer(c_int64_t), intent(out) :: notice
    tf_notice_open = tf_notice_open_c(signals, size(signals, kind=c_size_t), grace, notice)
  end function

  ! Returns the error of the last call of this thread that failed. Two errors are written to the standard error instead: an array with gaps
  ! or that is not allocated, and a communicator of which no group can be made.
  function tf_error_message() result(message)
    character(len=:), allocatable :: message
    interface
      type(c_ptr) function message_c() bind(c, name='tf_error_message')
        import :: c_ptr
      end function
    end interface
    message = text_of(message_c())
  end function

  function tf_version() result(version)
    character(len=:), allocatable :: version
    interface
      type(c_ptr) function version_c() bind(c, name='tf_version')
        import :: c_ptr
      end function
    end interface
    version = text_of(version_c())
  end function

  function text_of(text) result(copied)
    type(c_ptr), intent(in) :: text
    character(len=:), allocatable :: copied
    interface
      integer(c_size_t) function length_c(text) bind(c, name='strlen')
        import :: c_ptr, c_size_t
        type(c_ptr), value :: text
      end function
    end interface
    character(kind=c_char), pointer :: letters(:)
    integer :: at
    call c_f_pointer(text, letters, [length_c(text)])
    allocate (character(len=size(letters)) :: copied)
    do at = 1, size(letters)
      copied(at:at) = letters(at)
    end do
  end function

end module tierflow
