! A job is preempted: its state is named arrays, a notice announces the end, and the promised version is durable.
!
!   suspend DIRECTORY
program suspend
  use mpi
  use tierflow
  use, intrinsic :: iso_fortran_env, only: int64, real32, real64
  implicit none

  real(real64), allocatable, target :: pressure(:, :, :)
  real(real32), target :: wide(4, 4)
  integer, target :: step
  type(tf_named) :: state(2), others(1), gaps
  type(tf_suspension) :: suspension
  integer(c_int64_t) :: options, engine, notice, bytes
  integer(c_int) :: durable
  real(c_double) :: left
  character(len=512) :: directory
  integer :: err, rank, ranks

  call MPI_Init(err)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, err)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, err)
  call get_command_argument(1, directory)
  allocate (pressure(8, 4, 16))
  call must(tf_options_new(options), TF_OK)
  call must(tf_options_set(options, 'device', 'host'), TF_OK)
  call must(tf_options_set(options, 'host_cache', '1MiB'), TF_OK)
  call must(tf_options_set(options, 'external', directory), TF_OK)
  call must(tf_open_comm(options, MPI_COMM_WORLD, engine), TF_OK)
  call must(tf_options_free(options), TF_OK)

  ! Empty names and arrays with gaps are refused.
  call must(tf_name(gaps, '', step), TF_ARGUMENT)
  call must(tf_name(gaps, repeat('n', 1025), step), TF_ARGUMENT)
  call must(tf_name(gaps, 'wide', wide(1:3:2, :)), TF_ARGUMENT)
  call must(tf_name(gaps, repeat('n', 1024), step), TF_OK)
  call must(tf_name(state(1), 'pressure', pressure), TF_OK)
  call must(tf_name(state(2), 'step', step), TF_OK)

  call must(tf_notice_open([integer(c_int) ::], 0.0_c_double, notice), TF_OK)
  call must(tf_suspend(engine, 60.0_c_double, suspension), TF_OK)
  if (suspension%version /= -1 .or. suspension%newest /= -1) stop 3
  do step = 1, 4
    pressure = 100 * rank + step
    call must(tf_checkpoint_named(engine, int(step, int64), state), TF_OK)
    if (step == 3) call must(tf_notice_give(notice, 60.0_c_double), TF_OK)
    call must(tf_notice_left(notice, left), TF_OK)
    if (left < 3600) exit
  end do
  if (step /= 3 .or. left <= 0) stop 4
  call must(tf_notice_close(notice), TF_OK)
  call must(tf_wait_version(engine, 1_int64, 60.0_c_double), TF_OK)
  call must(tf_suspend(engine, left, suspension), TF_OK)
  if (suspension%version /= 3 .or. suspension%newest /= 3 .or. suspension%seconds < 0) stop 5
  call must(tf_suspend_wait(engine, suspension%version, left), TF_OK)
  call must(tf_is_durable(engine, 3_int64, durable), TF_OK)
  call must(tf_time_to_durable(engine, 3_int64, left), TF_OK)
  if (durable /= 1 .or. left > 0) stop 6
  call must(tf_suspend_to(engine, 9_int64, 1.0_c_double, suspension), TF_UNKNOWN)

  ! Single arrays are restored in any order, also those of other ranks.
  call must(tf_wait(engine, 60.0_c_double), TF_OK)
  call must(tf_region_size(engine, 2_int64, 'pressure', bytes), TF_OK)
  if (bytes /= 8 * size(pressure)) stop 7
  pressure = 0
  call must(tf_restore_named(engine, 2_int64, state(2:1:-1)), TF_OK)
  if (step /= 2 .or. any(pressure /= 100 * rank + 2)) stop 8
  step = 0
  others = state(1:1)
  call MPI_Barrier(MPI_COMM_WORLD, err)
  call must(tf_restore_rank(engine, 3_int64, mod(rank + 1, ranks), others), TF_OK)
  if (step /= 0 .or. any(pressure /= 100 * mod(rank + 1, ranks) + 3)) stop 9
  call must(tf_name(others(1), 'density', pressure), TF_OK)
  call must(tf_restore_named(engine, 2_int64, others), TF_ARGUMENT)
  call must(tf_close(engine), TF_OK)
  call MPI_Finalize(err)
  print '("passed")'

contains

  subroutine must(code, expected)
    integer, intent(in) :: code, expected
    if (code == expected) return
    print '("code ", i0, " instead of ", i0, ": ", a)', code, expected, tf_error_message()
    stop 2
  end subroutine

end program
