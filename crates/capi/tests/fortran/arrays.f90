! Arrays of every rank and several kinds, by both modules: each is changed after its checkpoint, and restored.
!
!   arrays DIRECTORY CONFIGURATION
program arrays
  use mpi
  use tierflow
  use veloc
  use, intrinsic :: iso_fortran_env, only: int8, int64, real32, real64
  implicit none

  integer, target :: zero
  integer(int8), allocatable, target :: one(:)
  real(real32), allocatable, target :: two(:, :)
  real(real64), allocatable, target :: three(:, :, :)
  complex(real64), allocatable, target :: four(:, :, :, :)
  logical, allocatable, target :: five(:, :, :, :, :)
  character(len=3), allocatable, target :: six(:, :, :, :, :, :)
  integer(int64), pointer :: seven(:, :, :, :, :, :, :)
  real(real64), target :: wide(4, 4)
  type(tf_named) :: named(2)
  integer(c_int64_t) :: options, engine, version
  character(len=512) :: directory, configuration
  integer :: err, bytes
  type(tf_region) :: regions(1)
  type(tf_call) :: call
  type(tf_metrics) :: metrics
  type(c_ptr) :: address
  integer(c_int64_t) :: slot, versions(4), length
  integer(c_size_t) :: count
  integer(c_int8_t), pointer :: letters(:)

  call MPI_Init(err)
  call get_command_argument(1, directory)
  call get_command_argument(2, configuration)
  allocate (one(3), two(2, 3), three(2, 3, 2), four(2, 1, 2, 3), five(1, 2, 1, 2, 2), six(1, 2, 1, 2, 1, 2))
  allocate (seven(2, 1, 2, 1, 2, 1, 2))

  call must(tf_options_new(options), TF_OK)
  call must(tf_options_set(options, 'device', 'host'), TF_OK)
  call must(tf_options_set(options, 'host_cache', '1MiB'), TF_OK)
  call must(tf_options_set(options, 'external', directory), TF_OK)
  call must(tf_options_set(options, 'extern', directory), TF_ARGUMENT)
  if (index(tf_error_message(), '"extern"') == 0) stop 3
  call must(tf_open_comm(options, MPI_COMM_WORLD, engine), TF_OK)
  call must(tf_options_free(options), TF_OK)
  call fill(5)
  call must(tf_checkpoint(engine, 1_int64, zero), TF_OK)
  call must(tf_checkpoint(engine, 2_int64, three), TF_OK)
  call must(tf_checkpoint(engine, 3_int64, six), TF_OK)
  call must(tf_checkpoint(engine, 4_int64, seven), TF_OK)
  ! An array with gaps is refused.
  call must(tf_checkpoint(engine, 5_int64, wide(1:3:2, :)), TF_ARGUMENT)
  call must(tf_hint(engine, [3_int64], 1_c_size_t), TF_OK)
  call must(tf_hint_next(engine, [4_int64], 1_c_size_t), TF_OK)
  call fill(6)
  call must(tf_restore(engine, 1_int64, zero), TF_OK)
  call must(tf_restore(engine, 2_int64, three), TF_OK)
  call must(tf_restore(engine, 3_int64, six), TF_OK)
  call must(tf_restore(engine, 4_int64, seven), TF_OK)
  call must(tf_restore(engine, 4_int64, one), TF_ARGUMENT)
  if (zero /= 5 .or. any(three /= 5) .or. any(six /= '5..') .or. any(seven /= 5)) stop 4
  ! Names have up to 1024 bytes.
  call must(tf_name(named(1), repeat('n', 1025), two), TF_ARGUMENT)
  call must(tf_name(named(1), repeat('n', 1024), two), TF_OK)
  call must(tf_name(named(2), 'model.encoder.layers.11.self_attention.output.dense.weight', three), TF_OK)
  call must(tf_checkpoint_named(engine, 5_int64, named), TF_OK)
  call fill(7)
  call must(tf_restore_named(engine, 5_int64, named), TF_OK)
  if (any(two /= 6) .or. any(three /= 5)) stop 12
  call must(tf_discard(engine, 5_int64), TF_OK)
  call must(tf_latest(engine, version), TF_OK)
  if (version /= 4) stop 5
  if (len(tf_version()) == 0) stop 11
  call must(tf_region_of(two, regions(1)), TF_OK)
  two = 3
  call must(tf_checkpoint_regions(engine, 6_int64, regions, 1_c_size_t, call), TF_OK)
  two = 0
  call must(tf_restore_regions(engine, 6_int64, regions, 1_c_size_t, call), TF_OK)
  if (any(two /= 3)) stop 12
  call must(tf_produce_within(engine, 7_int64, 5_c_size_t, 20.0_c_double, slot, address), TF_OK)
  call c_f_pointer(address, letters, [5])
  letters = 9_c_int8_t
  call must(tf_slot_end(slot, TF_FINISH, c_null_ptr), TF_OK)
  call must(tf_consume(engine, 7_int64, slot, address, count), TF_OK)
  call c_f_pointer(address, letters, [count])
  if (count /= 5 .or. any(letters /= 9)) stop 13
  call must(tf_slot_end(slot, TF_GIVE_UP, c_null_ptr), TF_OK)
  call must(tf_versions(engine, versions, 4_c_size_t, count), TF_OK)
  if (count /= 6 .or. versions(4) /= 4) stop 14
  call must(tf_metrics_read(engine, metrics), TF_OK)
  if (metrics%checkpoint%count /= 6) stop 15
  call must(tf_wait(engine, 60.0_c_double), TF_OK)
  call must(tf_close(engine), TF_OK)
  call must(tf_wait(engine, 60.0_c_double), TF_CLOSED)

  call VELOC_Init(MPI_COMM_WORLD, configuration, err)
  call must(err, VELOC_SCES)
  call protect()
  call fill(7)
  call VELOC_Checkpoint('arrays', 1, err)
  call must(err, VELOC_SCES)
  call fill(8)
  call VELOC_Restart_begin('arrays', 1, err)
  call must(err, VELOC_SCES)
  call VELOC_Recover_size(4, bytes)
  if (bytes /= 2 * 2 * 3 * 16) stop 6
  call VELOC_Recover_selective(VELOC_RECOVER_SOME, [0, 1], err)
  call must(err, VELOC_SCES)
  if (zero /= 7 .or. any(one /= 7) .or. any(two /= 8)) stop 7
  call VELOC_Recover_mem(err)
  call must(err, VELOC_SCES)
  call VELOC_Restart_end(1, err)
  call must(err, VELOC_SCES)
  if (any(two /= 7) .or. any(three /= 7) .or. any(four /= (7, 1))) stop 8
  call VELOC_Prefetch_enqueue(1, err)
  call must(err, VELOC_SCES)
  call VELOC_Prefetch_start(err)
  call must(err, VELOC_SCES)
  call VELOC_Recover_size_of(1, 4, length)
  if (length /= 2 * 2 * 3 * 16 .or. VELOC_Engine() == 0) stop 16
  call VELOC_Region_protect(20, wide, 'others', err)
  call must(err, VELOC_SCES)
  call VELOC_Region_clear('others', err)
  call must(err, VELOC_SCES)
  if (any(five .neqv. .true.) .or. any(six /= '7..') .or. any(seven /= 7)) stop 9
  call VELOC_Finalize(1, err)
  call must(err, VELOC_SCES)
  call MPI_Finalize(err)
  print '("passed")'

contains

  subroutine fill(number)
    integer, intent(in) :: number
    zero = number
    one = int(number, int8)
    two = number
    three = number
    four = cmplx(number, 1, real64)
    five = mod(number, 2) == 1
    write (six(1, 1, 1, 1, 1, 1), '(i1, "..")') number
    six = six(1, 1, 1, 1, 1, 1)
    seven = number
  end subroutine

  subroutine protect()
    integer :: code(0:7)
    call VELOC_Mem_protect(0, zero, code(0))
    call VELOC_Mem_protect(1, one, code(1))
    call VELOC_Mem_protect(2, two, code(2))
    call VELOC_Mem_protect(3, three, code(3))
    call VELOC_Mem_protect(4, four, code(4))
    call VELOC_Mem_protect(5, five, code(5))
    call VELOC_Mem_protect(6, six, code(6))
    call VELOC_Mem_protect(7, seven, code(7))
    if (any(code /= VELOC_SCES)) stop 10
  end subroutine

  subroutine must(code, expected)
    integer, intent(in) :: code, expected
    if (code == expected) return
    print '("code ", i0, " instead of ", i0, ": ", a)', code, expected, tf_error_message()
    stop 2
  end subroutine

end program
