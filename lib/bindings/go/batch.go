// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT

// Package trapless makes many system calls by one crossing into the kernel, by libtrapless.
//
// A Batch queues calls in memory of Go, and one call of cgo queues all of them in the library's
// batch and flushes it. What the calls point to is pinned until then. A Walk is a tree of files.
package trapless

/*
#cgo pkg-config: trapless
#include <fcntl.h>
#include <stddef.h>
#include <trapless.h>

// Macros with arguments do not exist for cgo: a constant does.
enum { RESULT_0 = TL_RESULT(0), ENTRIES_MAX = TL_ENTRIES_MAX };

// Without its flags, a number that no call has is answered by ENOSYS before its arguments are read.
static __u32 number_of(__u32 nr)
{
	__u32 number = nr & TL_NR_MASK;

	if (nr == number || number >= TL_NR_INCREASE)
		return nr;
	return tl_call_get_class(number, NULL, NULL) >= 0 ? nr : number;
}

// Makes the calls, also where Go's own signals interrupt them, and stores the result of each.
static int make(struct tl_batch *batch, struct tl_request *calls, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		__u64 *args = calls[i].args;
		int slot = tl_batch_add(batch, number_of(calls[i].nr), args[0], args[1], args[2], args[3],
					args[4], args[5]);

		if (slot < 0)
			return slot;
	}
	int made = tl_batch_flush_all(batch);
	if (made < 0)
		return made;
	for (unsigned int i = 0; i < n; i++)
		calls[i].result = tl_batch_result(batch, i);
	return 0;
}
*/
import "C"

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// FirstIsResult, added to a call's number, says that the first argument is the slot of an earlier
// call, whose result is taken in its place:
//
//	opened := batch.Add(syscall.SYS_OPENAT, directory, name, flags, 0)
//	batch.Add(syscall.SYS_FSTAT|FirstIsResult, uint64(opened), status)
const FirstIsResult = C.RESULT_0

// AT_FDCWD is the working directory, as the first argument of openat and similar calls.
const AT_FDCWD = 1<<64 + C.AT_FDCWD

// badAddress is no memory of a process: the kernel answers EFAULT.
const badAddress = 1<<64 - 1

// Result is what the kernel returned for a call: a number, or an error, which is negative.
type Result int64

// Err returns the call's error, a syscall.Errno, or nil. It is syscall.EOPNOTSUPP if a batch may not make
// this call (`trapless doctor --calls` lists which may be wrapped), and syscall.ECANCELED if the call
// takes the result of another one that failed.
func (result Result) Err() error {
	if result < 0 && result >= -4095 {
		return syscall.Errno(-result)
	}
	return nil
}

// Batch holds calls until Flush makes all of them by one crossing. One goroutine at a time uses it.
type Batch struct {
	ring   *C.struct_tl_batch
	calls  []C.struct_tl_request
	pinner runtime.Pinner
}

// NewBatch makes a batch of up to entries calls, from 1 to 4096. With the module each locks 68 bytes of
// memory a call, in whole pages, within the limit that `ulimit -l` shows for all batches of the user; a
// batch beyond it makes its calls one by one, and Reason says so.
func NewBatch(entries int) (*Batch, error) {
	if entries < 1 || entries > C.ENTRIES_MAX {
		return nil, fmt.Errorf("a batch has 1 to %d calls, not %d: %w", C.ENTRIES_MAX, entries, syscall.EINVAL)
	}
	batch := &Batch{calls: make([]C.struct_tl_request, 0, entries)}
	if err := C.tl_batch_create(&batch.ring, C.uint(entries), 0); err < 0 {
		return nil, creationError(syscall.Errno(-err))
	}
	return batch, nil
}

// creationError names the variable that has asked for the module. Else ENOENT would look like a file
// of the program that is missing, and EINVAL like a wrong argument.
func creationError(err syscall.Errno) error {
	choice := os.Getenv("TRAPLESS_BACKEND")
	switch {
	case choice == "":
		return err
	case err == syscall.ENOENT:
		return fmt.Errorf("TRAPLESS_BACKEND=%s: the module is not loaded: %w", choice, syscall.ENODEV)
	case err == syscall.EINVAL:
		return fmt.Errorf("TRAPLESS_BACKEND=%s: it may be auto, plain or module: %w", choice, err)
	}
	return fmt.Errorf("TRAPLESS_BACKEND=%s: %w", choice, err)
}

// Reason says in words why calls are made one by one; empty: one crossing makes them. Ask after a
// flush: only then it is known whether a tracer watches the thread.
func (batch *Batch) Reason() string {
	if batch.ring == nil {
		return "the batch is closed"
	}
	return C.GoString(C.tl_batch_reason(batch.ring))
}

// Close frees the batch, and drops calls that no flush has made. Results stay valid. It may be called
// again; a Flush then returns fs.ErrClosed.
func (batch *Batch) Close() {
	C.tl_batch_destroy(batch.ring) // nil: nothing
	batch.ring = nil
	batch.calls = batch.calls[:0]
	batch.pinner.Unpin()
}

// Full says whether the next call must wait for a flush.
func (batch *Batch) Full() bool {
	return len(batch.calls) == cap(batch.calls)
}

// Address pins memory of Go until the end of the next flush, and returns where it is. Otherwise it may be
// freed before, because the queued call holds a number that the collector does not know.
func Address[T any](batch *Batch, memory *T) uint64 {
	if batch.ring != nil {
		batch.pinner.Pin(memory)
	}
	return uint64(uintptr(unsafe.Pointer(memory)))
}

// Slice is Address for the elements of a slice, which may be empty. Element i lies i times its size behind
// the address, so that one pinned slice serves many calls.
func Slice[T any](batch *Batch, memory []T) uint64 {
	if len(memory) == 0 {
		return 0
	}
	return Address(batch, &memory[0])
}

// Path is the address of a copy of name that ends with a zero byte, until the end of the next flush. If
// name itself has a zero byte, the call fails with EFAULT.
func (batch *Batch) Path(name string) uint64 {
	first, err := syscall.BytePtrFromString(name)
	if err != nil {
		return badAddress
	}
	return Address(batch, first)
}

// Add queues a call and returns its slot, from 0 on since the last flush. nr is a number below 4096, and
// FirstIsResult or other flags of C; if no call has the number, the result is syscall.ENOSYS. Arguments
// that are left out are 0. The argument -1 is 1<<64 - 1, or uint64(number) of a variable that is -1. Add
// panics if the batch is Full, also after Close, or with more than six arguments.
func (batch *Batch) Add(nr uint32, arguments ...uint64) int {
	if batch.Full() {
		panic("the batch is full: flush")
	}
	call := C.struct_tl_request{nr: C.__u32(nr)}
	for i, argument := range arguments {
		call.args[i] = C.__u64(argument)
	}
	batch.calls = append(batch.calls, call)
	return len(batch.calls) - 1
}

// Flush makes the queued calls in order, and returns what each of them returned, by slot. A call that
// fails does not stop those behind it. The slice is the caller's. With an error of Flush itself there are no results, and some of the calls may have been
// made. After Close none are made, and the error is fs.ErrClosed.
func (batch *Batch) Flush() ([]Result, error) {
	defer batch.pinner.Unpin()
	calls := batch.calls
	batch.calls = batch.calls[:0]
	if batch.ring == nil {
		return nil, fs.ErrClosed
	}
	if len(calls) == 0 {
		return nil, nil
	}
	if err := C.make(batch.ring, &calls[0], C.uint(len(calls))); err < 0 {
		return nil, syscall.Errno(-err)
	}
	results := make([]Result, len(calls))
	for i := range calls {
		results[i] = Result(calls[i].result)
	}
	return results, nil
}

// BatchStats counts what was done since NewBatch.
type BatchStats struct {
	Crossings   uint64 // into the kernel; without the module, one for each call
	Executed    uint64 // calls that were made
	Refused     uint64 // calls that were not: unknown, or not for batches
	Interrupted uint64 // flushes that a signal ended early, and that went on
	Bypassed    uint64 // flushes that made plain calls, for a tracer or audit
}

// Stats counts, as tl_batch_get_stats of C. After Close the error is fs.ErrClosed.
func (batch *Batch) Stats() (BatchStats, error) {
	if batch.ring == nil {
		return BatchStats{}, fs.ErrClosed
	}
	of := C.struct_tl_stats{size: C.sizeof_struct_tl_stats}
	if err := C.tl_batch_get_stats(batch.ring, &of); err < 0 {
		return BatchStats{}, syscall.Errno(-err)
	}
	return BatchStats{uint64(of.crossings), uint64(of.executed), uint64(of.refused),
		uint64(of.interrupted), uint64(of.bypassed)}, nil
}
