#!/bin/sh
# compile.sh NAME LIBRARY-FOLDER OUTPUT: compiles a door in C, to run from the folder that has libtierflow.so.
set -eu
here=$(dirname "$0")
exec cc -std=gnu99 -O1 -g -Wall -Wextra -Werror -I "$here/../../../crates/capi/include" -o "$3" "$here/$1.c" \
    -L "$2" -ltierflow -Wl,-rpath,'$ORIGIN'
