! A heat equation in Fortran that is checkpointed by VELOC's client API.
!
!   mpiexec -n 4 heat_f heat.cfg STEPS EVERY
program heat
  use mpi
  use veloc
  use, intrinsic :: iso_fortran_env, only: int64, real64, output_unit
  implicit none

  integer, parameter :: ROWS = 256, COLUMNS = 64
  ! A strip of columns with one column of each neighbour, now and one step before.
  real(real64), allocatable, target :: field(:, :), before(:, :)
  integer, target :: step
  integer :: rank, ranks, left, right, steps, every, newest, err
  character(len=256) :: argument

  call MPI_Init(err)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, err)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, err)
  left = merge(rank - 1, MPI_PROC_NULL, rank > 0)
  right = merge(rank + 1, MPI_PROC_NULL, rank < ranks - 1)
  call get_command_argument(2, argument)
  read (argument, *) steps
  call get_command_argument(3, argument)
  read (argument, *) every
  call get_command_argument(1, argument)
  call VELOC_Init(MPI_COMM_WORLD, argument, err)
  call must(err, 'VELOC_Init')

  allocate (field(ROWS, 0:COLUMNS + 1), before(ROWS, 0:COLUMNS + 1))
  field = 0
  if (rank == 0) field(:, 0) = 100
  step = 0
  call VELOC_Mem_protect(0, step, err)
  call must(err, 'VELOC_Mem_protect')
  call VELOC_Mem_protect(1, field, err)
  call must(err, 'VELOC_Mem_protect')

  call VELOC_Restart_test('heat', 0, newest)
  if (newest >= 0) then
    call VELOC_Restart('heat', newest, err)
    call must(err, 'VELOC_Restart')
  end if
  if (rank == 0) then
    print '("from ", i0)', step
    flush (output_unit)
  end if
  do while (step < steps)
    call exchange()
    before = field
    field(2:ROWS - 1, 1:COLUMNS) = 0.25_real64 * (before(1:ROWS - 2, 1:COLUMNS) + before(3:ROWS, 1:COLUMNS) &
                                                  + before(2:ROWS - 1, 0:COLUMNS - 1) + before(2:ROWS - 1, 2:COLUMNS + 1))
    step = step + 1
    if (mod(step, every) == 0) then
      call VELOC_Checkpoint('heat', step, err)
      call must(err, 'VELOC_Checkpoint')
    end if
  end do
  call result()
  call VELOC_Finalize(1, err)
  call must(err, 'VELOC_Finalize')
  call MPI_Finalize(err)

contains

  subroutine exchange()
    call MPI_Sendrecv(field(:, 1), ROWS, MPI_REAL8, left, 1, field(:, COLUMNS + 1), ROWS, MPI_REAL8, right, 1, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, err)
    call MPI_Sendrecv(field(:, COLUMNS), ROWS, MPI_REAL8, right, 2, field(:, 0), ROWS, MPI_REAL8, left, 2, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, err)
  end subroutine

  ! Prints a checksum of the bits of all strips.
  subroutine result()
    integer(int64) :: sum, all
    integer :: row, column
    sum = rank + 1
    do column = 1, COLUMNS
      do row = 1, ROWS
        sum = ieor(ishftc(sum, 7), transfer(field(row, column), sum))
      end do
    end do
    call MPI_Reduce(sum, all, 1, MPI_INTEGER8, MPI_BXOR, 0, MPI_COMM_WORLD, err)
    if (rank == 0) print '("result ", z16.16)', all
  end subroutine

  subroutine must(code, what)
    integer, intent(in) :: code
    character(len=*), intent(in) :: what
    integer :: ignored
    if (code == VELOC_SCES) return
    print '(a, " failed")', what
    call MPI_Abort(MPI_COMM_WORLD, 2, ignored)
  end subroutine

end program
