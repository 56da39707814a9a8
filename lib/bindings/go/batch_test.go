// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// Batches: what queued calls point to stays, and a result may be the argument of a later call.

package trapless

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func newBatch(t *testing.T, entries int) *Batch {
	t.Helper()
	batch, err := NewBatch(entries)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(batch.Close)
	return batch
}

// Addresses alone lead to names and results here, while memory is collected.
func TestMemoryOfQueuedCallsStays(t *testing.T) {
	batch := newBatch(t, 64)
	for round := 0; round < 20; round++ {
		var stats []*syscall.Stat_t
		for !batch.Full() {
			stat := new(syscall.Stat_t)
			stats = append(stats, stat)
			batch.Add(syscall.SYS_LSTAT, batch.Path(os.TempDir()), Address(batch, stat))
			runtime.GC()
		}
		results, err := batch.Flush()
		if err != nil || len(results) != 64 {
			t.Fatal(err, len(results))
		}
		for i, result := range results {
			if result != 0 || stats[i].Mode&syscall.S_IFMT != syscall.S_IFDIR {
				t.Fatal(i, result, stats[i].Mode)
			}
		}
	}
}

func TestAResultIsAnArgument(t *testing.T) {
	batch := newBatch(t, 4)
	opened := batch.Add(syscall.SYS_DUP, 2)
	batch.Add(syscall.SYS_CLOSE|FirstIsResult, uint64(opened))
	results, err := batch.Flush()
	if err != nil || results[0] < 0 || results[1] != 0 {
		t.Fatal(err, results)
	}
}

func TestAPathASliceAndTheWorkingDirectoryAreArguments(t *testing.T) {
	folder := t.TempDir()
	before, _ := os.Getwd()
	if err := os.Chdir(folder); err != nil {
		t.Fatal(err)
	}
	defer os.Chdir(before)
	batch := newBatch(t, 8)
	written, read := []byte("some text"), make([]byte, 20)
	opened := batch.Add(syscall.SYS_OPENAT, AT_FDCWD, batch.Path("new"), syscall.O_CREAT|syscall.O_RDWR, 0o600)
	batch.Add(syscall.SYS_PWRITE64|FirstIsResult, uint64(opened), Slice(batch, written), uint64(len(written)), 0)
	batch.Add(syscall.SYS_PREAD64|FirstIsResult, uint64(opened), Slice(batch, read), uint64(len(read)), 0)
	batch.Add(syscall.SYS_PREAD64|FirstIsResult, uint64(opened), Slice(batch, read[:0]), 0, 0)
	batch.Add(syscall.SYS_CLOSE|FirstIsResult, uint64(opened))
	runtime.GC()
	results, err := batch.Flush()
	if err != nil {
		t.Fatal(err)
	}
	for slot, expected := range []Result{results[0], 9, 9, 0, 0} {
		if results[slot] != expected || results[slot].Err() != nil {
			t.Fatal(slot, results)
		}
	}
	if !bytes.HasPrefix(read, written) {
		t.Fatal(read)
	}
	if _, err := os.Stat(filepath.Join(folder, "new")); err != nil {
		t.Fatal(err)
	}
}

func TestAnErrorOfACallIsAnErrorOfGo(t *testing.T) {
	batch := newBatch(t, 8)
	batch.Add(syscall.SYS_EXECVE, 0, 0, 0)
	absent := batch.Add(syscall.SYS_OPENAT, AT_FDCWD, batch.Path("/absent"), 0, 0)
	batch.Add(syscall.SYS_CLOSE|FirstIsResult, uint64(absent))
	batch.Add(syscall.SYS_OPENAT, AT_FDCWD, batch.Path("/\x00"), 0, 0)
	batch.Add(syscall.SYS_GETPPID)
	batch.Add(4000)
	batch.Add(9999) // its flags say that the first argument is in memory, at 0
	batch.Add(1 << 31)
	results, err := batch.Flush()
	if err != nil {
		t.Fatal(err)
	}
	expected := []error{syscall.EOPNOTSUPP, fs.ErrNotExist, syscall.ECANCELED, syscall.EFAULT, nil,
		syscall.ENOSYS, syscall.ENOSYS, syscall.ENOSYS}
	for slot, result := range results {
		if !errors.Is(result.Err(), expected[slot]) {
			t.Error(slot, result.Err())
		}
	}
}

func TestABatchOfNoSizeSaysWhichSizesThereAre(t *testing.T) {
	for _, entries := range []int{-1, 0, 4097} {
		_, err := NewBatch(entries)
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), fmt.Sprint("1 to 4096 calls, not ", entries)) {
			t.Error(err)
		}
	}
}

func TestAClosedBatchMakesNoCalls(t *testing.T) {
	batch := newBatch(t, 4)
	batch.Add(syscall.SYS_GETPPID)
	results, err := batch.Flush()
	if err != nil {
		t.Fatal(err)
	}
	batch.Add(syscall.SYS_GETPPID, batch.Path("pinned until Close"))
	batch.Close()
	batch.Close()
	for round := 0; round < 2; round++ {
		batch.Add(syscall.SYS_CHDIR, batch.Path("/"), Slice(batch, []byte("some")), Address(batch, new(int)))
		if results, err := batch.Flush(); err != fs.ErrClosed || results != nil || batch.Full() {
			t.Error(err, results)
		}
	}
	if batch.Reason() != "the batch is closed" {
		t.Error(batch.Reason())
	}
	if int(results[0]) != os.Getppid() || results[0].Err() != nil {
		t.Error(results)
	}
}

// The runtime panics when memory is collected whose pinner still pins something.
func TestAClosedBatchPinsNothing(t *testing.T) {
	for i := 0; i < 10; i++ {
		batch, err := NewBatch(4)
		if err != nil {
			t.Fatal(err)
		}
		batch.Path("before")
		batch.Close()
		batch.Path("after")
	}
	for i := 0; i < 3; i++ {
		runtime.GC()
		time.Sleep(10 * time.Millisecond) // for finalizers
	}
}

// Of a walk, too, whose root is there.
func TestABackendThatCannotBeHadIsNamed(t *testing.T) {
	_, err := os.Stat("/dev/trapless")
	loaded := err == nil
	for choice, expected := range map[string]error{"module": syscall.ENODEV, "none": syscall.EINVAL} {
		if choice == "module" && loaded {
			continue
		}
		t.Setenv("TRAPLESS_BACKEND", choice)
		_, batch := NewBatch(8)
		_, walk := NewWalk("/")
		for _, err := range []error{batch, walk} {
			if !errors.Is(err, expected) || !strings.HasPrefix(err.Error(), "TRAPLESS_BACKEND="+choice+": ") {
				t.Error(err)
			}
		}
	}
}

func TestABatchCountsItsCalls(t *testing.T) {
	batch := newBatch(t, 8)
	batch.Add(syscall.SYS_GETPPID)
	batch.Add(syscall.SYS_CLOSE, 1<<64-1) // fails, and does not end the batch
	batch.Add(4000)
	batch.Add(syscall.SYS_GETPPID)
	results, err := batch.Flush()
	if err != nil || results[1].Err() != syscall.EBADF || results[0] != results[3] {
		t.Fatal(err, results)
	}
	stats, err := batch.Stats()
	if err != nil || stats.Executed != 3 || stats.Refused != 1 {
		t.Error(err, stats)
	}
	if plain := batch.Reason() != ""; plain != (stats.Crossings == 3) {
		t.Error(stats)
	}
	batch.Close()
	if _, err := batch.Stats(); err != fs.ErrClosed {
		t.Error(err)
	}
}
