// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// Batches: what queued calls point to stays, and a result may be the argument of a later call.

package trapless

import (
	"os"
	"runtime"
	"syscall"
	"testing"
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
			name, stat := append([]byte(os.TempDir()), 0), new(syscall.Stat_t)
			stats = append(stats, stat)
			batch.Add(syscall.SYS_LSTAT, Address(batch, &name[0]), Address(batch, stat))
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
