! Tierflow from Fortran: the functions of tierflow.h by their own names, and arrays of every kind and rank as regions.
!
! Those of tierflow.h that are not here are declared in the same way.
module tierflow
  use, intrinsic :: iso_c_binding
  implicit none
  public

  enum, bind(c)
    enumerator :: TF_OK = 0, TF_ARGUMENT = 1, TF_UNKNOWN = 2, TF_NO_ROOM = 3, TF_TIMED_OUT = 4, TF_STALLED = 5
    enumerator :: TF_DAMAGED = 6, TF_STORAGE = 7, TF_DEVICE = 8, TF_GROUP = 9, TF_CLOSED = 10, TF_INTERNAL = 11
  end enum

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
    ! With the ranks of an MPI communicator, such as MPI_COMM_WORLD.
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
    integer(c_int) function tf_forget_hints(engine) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine
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
    integer(c_int) function tf_latest_before(engine, before, version) bind(c, name='tf_latest')
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: engine, before
      integer(c_int64_t), intent(out) :: version
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

  ! What the last call of this thread that failed says.
  function tf_error_message() result(message)
    character(len=:), allocatable :: message
    interface
      type(c_ptr) function message_c() bind(c, name='tf_error_message')
        import :: c_ptr
      end function
      integer(c_size_t) function length_c(text) bind(c, name='strlen')
        import :: c_ptr, c_size_t
        type(c_ptr), value :: text
      end function
    end interface
    type(c_ptr) :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: at
    text = message_c()
    call c_f_pointer(text, letters, [length_c(text)])
    allocate (character(len=size(letters)) :: message)
    do at = 1, size(letters)
      message(at:at) = letters(at)
    end do
  end function

end module tierflow
